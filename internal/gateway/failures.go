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

// failures counts who fails to be known, so that whoever guesses is slow and does not fill
// the log. The zero value is ready. It is safe for concurrent use.
type failures struct {
	mu sync.Mutex
	of map[netip.Prefix]*failed
}

// failed is the failures of one network since a time, of which so many are not in the log yet.
type failed struct {
	since   time.Time
	n       int
	untold  int
	toldYet time.Time
}

// note counts a failure. It returns how long its answer waits, and how many failures are to
// be told in the log now: with this one, all that were not told; or 0.
func (f *failures) note(from netip.Prefix) (wait time.Duration, tell int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	one := f.one(from, now)
	if now.Sub(one.since) >= failureSpan {
		one.since, one.n = now, 0
	}
	one.n++
	one.untold++
	if one.n > quickFailures {
		wait = failureDelay
	}
	if one.toldYet.IsZero() || now.Sub(one.toldYet) >= failureSpan {
		tell, one.untold, one.toldYet = one.untold, 0, now
	}
	return wait, tell
}

// one returns the count of a network. The caller holds f.mu.
func (f *failures) one(from netip.Prefix, now time.Time) *failed {
	if one := f.of[from]; one != nil {
		return one
	}
	if f.of == nil {
		f.of = map[netip.Prefix]*failed{}
	}
	if len(f.of) >= maxFailed {
		for other, it := range f.of {
			if now.Sub(it.since) >= failureSpan && now.Sub(it.toldYet) >= failureSpan {
				delete(f.of, other)
			}
		}
	}
	if len(f.of) >= maxFailed {
		if from = (netip.Prefix{}); f.of[from] != nil {
			return f.of[from]
		}
	}
	one := &failed{since: now}
	f.of[from] = one
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
