package gateway

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of failed attempts to be known, as with a wrong key, of one Network.
const (
	quickFailures = 10          // in failureSpan, that are answered at once
	failureSpan   = time.Minute // and how often one line of the log tells of them
	failureDelay  = time.Second // after which each further one is answered
	maxFailed     = 4096        // networks that are counted; the others count as one
)

// authFailures counts who fails to be known, so that whoever guesses is slow and does not fill
// the log. The zero value is ready. It is safe for concurrent use.
type authFailures struct {
	mu        sync.Mutex
	byNetwork map[netip.Prefix]*networkFailures
}

// networkFailures is the failures of one network since a time, of which so many are not in the log yet.
type networkFailures struct {
	since      time.Time
	count      int
	unlogged   int
	lastLogged time.Time
}

// count counts a failure. It returns how long its answer waits, and how many failures are to
// be told in the log now: with this one, all that were not told; or 0.
func (f *authFailures) count(from netip.Prefix) (wait time.Duration, tell int) {
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
		tell, one.unlogged, one.lastLogged = one.unlogged, 0, now
	}
	return wait, tell
}

// countOf returns the count of a network. The caller holds f.mu.
func (f *authFailures) countOf(from netip.Prefix, now time.Time) *networkFailures {
	if one := f.byNetwork[from]; one != nil {
		return one
	}
	if f.byNetwork == nil {
		f.byNetwork = map[netip.Prefix]*networkFailures{}
	}
	if len(f.byNetwork) >= maxFailed {
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

// Network is from where the address of a connection is, for counting: one IPv4 address,
// or the /64 that one user of IPv6 has. It is the zero Prefix where there is no address.
func Network(addr string) netip.Prefix {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Prefix{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // it has as many bits
	return p
}
