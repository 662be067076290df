package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An owner is for whom a link is: nobody else uses it.
type owner struct {
	tenant    switchboard.TenantID
	principal string
	own       bool // ours, for listing; also everybody's where the server is shared

	asks    string // what the client can be asked for, as declared to the server; "" means nothing
	session string // of the client that has the link to itself; "" means none
	lane    int    // counts the links beside each other, where one call at a time uses each
}

// ownerOf returns whose link serves the principal.
func ownerOf(share switchboard.Share, p switchboard.Principal) owner {
	switch share {
	case switchboard.ShareAll:
		return owner{own: true}
	case switchboard.ShareTenant:
		return owner{tenant: p.Tenant}
	default:
		return owner{tenant: p.Tenant, principal: p.ID}
	}
}

// nudged is how soon after a failure a call may have a connection tried again:
// sooner than the backoff would, but not as often as calls come.
const nudged = time.Second

// A slot is an owner's place at a server, with a link or without one.
type slot struct {
	dial func() (*link, error) // bounded in time by itself

	up chan struct{} // holds one signal when there is a new link

	mu      sync.Mutex
	link    *link
	made    chan struct{} // closed when there is; nil while nobody waits for that
	dialing *attempt
	err     error     // why there is no link
	ended   time.Time // when that was
	fails   int       // in a row
	tries   int       // that failed, ever
	users   int
	idle    time.Time // since when there are no users
	closed  bool
}

// An attempt is one dial, which all who want the link wait for.
type attempt struct {
	done chan struct{}
	link *link
	err  error
}

func newSlot(dial func() (*link, error)) *slot {
	return &slot{dial: dial, up: make(chan struct{}, 1), idle: time.Now()}
}

// How a link is got that there is not.
type haste int

const (
	patient haste = iota // lets the time pass first that must lie between a failure and the next attempt
	once                 // fails where that would take any
	eager                // makes an attempt at once
)

// get returns the slot's link, and makes one where there is none. An attempt of
// somebody else's that fails meanwhile is as good as one of its own.
func (s *slot) get(ctx context.Context, how haste) (*link, error) {
	before := -1
	for {
		s.mu.Lock()
		if before < 0 {
			before = s.tries
		}
		if s.link != nil {
			if s.link.failure() == nil {
				defer s.mu.Unlock()
				return s.link, nil
			}
			s.bury()
		}
		if s.closed {
			s.mu.Unlock()
			return nil, ourFault(kindLost, false, "it is being closed")
		}
		if s.tries > before && s.dialing == nil {
			defer s.mu.Unlock()
			return nil, unsentFault(s.err)
		}
		if pause := s.pause(); pause > 0 && s.dialing == nil && how != eager {
			err := s.err
			if s.made == nil {
				s.made = make(chan struct{})
			}
			made := s.made
			s.mu.Unlock()
			if how == once || !sleepUnless(ctx, pause, made) {
				return nil, waited(err)
			}
			continue
		}
		a := s.dialing
		if a == nil {
			a = &attempt{done: make(chan struct{})}
			s.dialing = a
			go s.try(a)
		}
		s.mu.Unlock()
		select {
		case <-a.done:
			if a.err != nil {
				return nil, unsentFault(a.err)
			}
			return a.link, nil
		case <-ctx.Done():
			s.mu.Lock()
			err := s.err
			s.mu.Unlock()
			return nil, waited(err)
		}
	}
}

// sleepUnless waits for so long, or until made is closed. It reports whether ctx has
// not ended before.
func sleepUnless(ctx context.Context, d time.Duration, made <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-made:
	case <-timer.C:
	}
	return true
}

// current returns the slot's link, or nil where there is none that could be used.
func (s *slot) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || s.link.failure() != nil {
		return nil
	}
	return s.link
}

// unsentFault returns err as a fault before anything of a caller's was sent.
func unsentFault(err error) *fault {
	e := *asFault(err)
	e.sent = false
	return &e
}

// bury forgets a link that has ended. One that did not live long counts as a
// failure; one whose session was forgotten does not.
func (s *slot) bury() {
	s.err, s.ended = s.link.failure(), s.link.endedAt()
	switch {
	case asFault(s.err).kind == kindGone || s.ended.Sub(s.link.made) >= steadyAfter:
		s.fails = 0
	default:
		s.fails++
	}
	s.link = nil
}

// waited is the fault of a call that waited in vain for a link; err is why the
// last attempt failed, if one has.
func waited(err error) error {
	if err == nil {
		return faultf(kindSilent, false, "it has not answered yet since it was started")
	}
	return faultf(kindSilent, false, "it is not back: %s", err)
}

// pause returns how long the next attempt must wait.
func (s *slot) pause() time.Duration {
	if s.fails == 0 {
		return 0
	}
	return min(nudged, firstDelay<<min(s.fails, 8)) - time.Since(s.ended)
}

func (s *slot) try(a *attempt) {
	a.link, a.err = s.dial()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(a.done)
	s.dialing, s.link, s.err = nil, a.link, a.err
	if a.err != nil {
		s.ended = time.Now()
		s.fails++
		s.tries++
		return
	}
	if s.closed {
		a.link.close()
	}
	if s.made != nil {
		close(s.made)
		s.made = nil
	}
	select {
	case s.up <- struct{}{}:
	default:
	}
}

// use counts a user in, unless the slot has been closed.
func (s *slot) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.users++
	return true
}

func (s *slot) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.idle = time.Now()
	}
}

// idleSince returns since when nobody uses the slot; ok is false while somebody
// does, or it is being connected.
func (s *slot) idleSince() (t time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle, s.users == 0 && s.dialing == nil
}

// halt ends what is under way on the slot's link, though that has been closed.
func (s *slot) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		s.link.halt()
	}
}

// close closes the slot if nobody uses it, or in any case when forced.
func (s *slot) close(force bool) bool {
	s.mu.Lock()
	if (s.users > 0 || s.dialing != nil) && !force {
		s.mu.Unlock()
		return false
	}
	s.closed = true
	l, a := s.link, s.dialing
	s.mu.Unlock()
	if l != nil {
		l.close()
	}
	if a != nil {
		<-a.done // whose link sees that the slot is closed
	}
	return true
}
