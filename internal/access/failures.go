package access

import (
	"net/netip"
	"sync"
	"time"
)

// Limits on failed authentications, such as wrong keys, of one Network.
const (
	quickFailures = 10          // so many in failureSpan are answered at once
	failureSpan   = time.Minute // also how often the log output mentions a network
	failureDelay  = time.Second // the delay of each further answer
	sweepInterval = time.Second
	maxFailed     = 4096 // networks that are counted one by one; the others are counted together
)

// Failures counts failed authentications, so that guessing is slow and does not fill the log
// output. The zero value is ready for use. It is safe for concurrent use.
type Failures struct {
	mu        sync.Mutex
	byNetwork map[netip.Prefix]*networkFailures
	swept     time.Time // when the networks without recent failures were last forgotten
}

// networkFailures counts the failures of one network since an instant. unlogged of them are not in
// the log output yet.
type networkFailures struct {
	since      time.Time
	count      int
	unlogged   int
	lastLogged time.Time
}

// Count counts a failure. It returns how long its answer must wait, and how many failures to log
// now: this one and all that were not logged yet, or 0.
func (f *Failures) Count(from netip.Prefix) (wait time.Duration, toLog int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	one := f.countOf(from, now)
	if now.Sub(one.since) >= failureSpan {
		one.since, one.count = now, 0
	}
	one.count++
	one.unlogged++
	if one.count > quickFailures {
		wait = failureDelay
	}
	if one.lastLogged.IsZero() || now.Sub(one.lastLogged) >= failureSpan {
		toLog, one.unlogged, one.lastLogged = one.unlogged, 0, now
	}
	return wait, toLog
}

// countOf returns the counter of a network. The caller holds f.mu.
func (f *Failures) countOf(from netip.Prefix, now time.Time) *networkFailures {
	if one := f.byNetwork[from]; one != nil {
		return one
	}
	if f.byNetwork == nil {
		f.byNetwork = map[netip.Prefix]*networkFailures{}
	}
	if len(f.byNetwork) >= maxFailed && now.Sub(f.swept) >= sweepInterval { // not at each failure: an attacker could come from a new network each time
		f.swept = now
		for other, it := range f.byNetwork {
			if now.Sub(it.since) >= failureSpan && now.Sub(it.lastLogged) >= failureSpan {
				delete(f.byNetwork, other)
			}
		}
	}
	if len(f.byNetwork) >= maxFailed {
		if from = (netip.Prefix{}); f.byNetwork[from] != nil {
			return f.byNetwork[from]
		}
	}
	one := &networkFailures{since: now}
	f.byNetwork[from] = one
	return one
}

// NetworkOf returns the network of a connection's address, for counting: one IPv4 address, or the /64
// of an IPv6 address. It returns the zero Prefix if there is no address.
func NetworkOf(addr string) netip.Prefix {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Prefix{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // an address has at least so many bits
	return p
}
