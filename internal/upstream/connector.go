package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

// A linkScope says which calls share a link. Two scopes never share one.
type linkScope struct {
	tenant    switchboard.TenantID
	principal string
	own       bool // Switchboard's own, for listing; also everybody's if the server is shared

	asks    string // client capabilities for questions, as declared to the server; "" means none
	session string // of the client that alone uses the link; "" means none
	lane    int    // number of the link, if the scope needs several because each carries one call at a time
}

// owner returns whose credential the requests of such a link carry, besides those of calls; nil for Switchboard's own.
func (o linkScope) owner() *switchboard.Principal {
	if o.principal == "" {
		return nil
	}
	return &switchboard.Principal{Tenant: o.tenant, ID: o.principal}
}

// scopeFor returns the scope of the principal's link.
func scopeFor(share switchboard.Share, p switchboard.Principal) linkScope {
	switch share {
	case switchboard.ShareAll:
		return linkScope{own: true}
	case switchboard.ShareTenant:
		return linkScope{tenant: p.Tenant}
	default:
		return linkScope{tenant: p.Tenant, principal: p.ID}
	}
}

// callRedialPause is how soon after a failure a call may dial again: earlier than the backoff
// allows, but not as often as calls come.
const callRedialPause = time.Second

// A connector dials the link of one scope, holds it, and dials again after it has ended.
type connector struct {
	dial func() (*link.Link, error) // limits its own time
	stop context.CancelFunc         // ends a dial

	linkUp chan struct{} // holds one signal when there is a new link

	mu          sync.Mutex
	link        *link.Link
	linkMade    chan struct{} // closed when there is a link; nil while nothing waits for it
	dialing     *dialAttempt
	err         error     // why there is no link
	endedAt     time.Time // when err occurred
	fails       int       // failures in a row
	failedDials int       // failed attempts in all
	users       int
	idleFrom    time.Time // when users became 0
	closed      bool
}

// A dialAttempt is one dial. All that want the link wait for it.
type dialAttempt struct {
	done chan struct{}
	link *link.Link
	err  error
}

// newConnector returns a connector. The context of dial ends when ctx ends, or when the connector is closed.
func newConnector(ctx context.Context, dial func(context.Context) (*link.Link, error)) *connector {
	ctx, stop := context.WithCancel(ctx)
	return &connector{dial: func() (*link.Link, error) { return dial(ctx) }, stop: stop, linkUp: make(chan struct{}, 1), idleFrom: time.Now()}
}

// A dialPolicy says what get does if there is no link.
type dialPolicy int

const (
	waitForPause dialPolicy = iota // waits for the pause between a failure and the next attempt
	failInPause                    // fails during that pause
	dialAtOnce                     // ignores that pause
)

// get returns the connector's link, and dials if there is none. If another caller's attempt fails
// meanwhile, get fails with it.
func (s *connector) get(ctx context.Context, how dialPolicy) (*link.Link, error) {
	before := -1
	for {
		s.mu.Lock()
		if before < 0 {
			before = s.failedDials
		}
		if s.link != nil {
			if s.link.Failure() == nil {
				defer s.mu.Unlock()
				return s.link, nil
			}
			s.recordEnd()
		}
		if s.closed {
			s.mu.Unlock()
			return nil, link.OwnError(link.KindLost, false, "it is being closed")
		}
		if s.failedDials > before && s.dialing == nil {
			defer s.mu.Unlock()
			return nil, link.AsUnsent(s.err)
		}
		if pause := s.pauseLeft(); pause > 0 && s.dialing == nil && how != dialAtOnce {
			err := s.err
			if s.linkMade == nil {
				s.linkMade = make(chan struct{})
			}
			made := s.linkMade
			s.mu.Unlock()
			if how == failInPause || !sleepUntilLink(ctx, pause, made) {
				return nil, notReadyError(err)
			}
			continue
		}
		a := s.dialing
		if a == nil {
			a = &dialAttempt{done: make(chan struct{})}
			s.dialing = a
			go s.runDial(a)
		}
		s.mu.Unlock()
		select {
		case <-a.done:
			if a.err != nil {
				return nil, link.AsUnsent(a.err)
			}
			return a.link, nil
		case <-ctx.Done():
			s.mu.Lock()
			err := s.err
			s.mu.Unlock()
			return nil, notReadyError(err)
		}
	}
}

// sleepUntilLink waits for d or until made is closed. It returns false if ctx ends first.
func sleepUntilLink(ctx context.Context, d time.Duration, made <-chan struct{}) bool {
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

// current returns the connector's link, or nil if there is no usable one.
func (s *connector) current() *link.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || s.link.Failure() != nil {
		return nil
	}
	return s.link
}

// recordEnd removes a link that has ended. A short life counts as a failure, unless the server has
// only forgotten the session. The caller holds s.mu.
func (s *connector) recordEnd() {
	s.endedAt, s.err = s.link.Requests.Ended()
	switch {
	case link.AsError(s.err).Kind == link.KindGone || s.endedAt.Sub(s.link.MadeAt) >= task.SteadyTime:
		s.fails = 0
	default:
		s.fails++
	}
	s.link = nil
}

// notReadyError is the error of a call that waited for a link in vain. err is the error of the last
// attempt, or nil.
func notReadyError(err error) error {
	if err == nil {
		return link.Errorf(link.KindSilent, false, "it has not answered yet since it was started")
	}
	return link.Errorf(link.KindSilent, false, "it is still down: %s", err)
}

// pauseLeft returns how long the next attempt must still wait. The caller holds s.mu.
func (s *connector) pauseLeft() time.Duration {
	if s.fails == 0 {
		return 0
	}
	return min(callRedialPause, task.FirstDelay<<min(s.fails, 8)) - time.Since(s.endedAt)
}

func (s *connector) runDial(a *dialAttempt) {
	a.link, a.err = s.dial()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(a.done)
	s.dialing, s.link, s.err = nil, a.link, a.err
	if a.err != nil {
		s.endedAt = time.Now()
		s.fails++
		s.failedDials++
		return
	}
	if s.closed {
		a.link.Close()
	}
	if s.linkMade != nil {
		close(s.linkMade)
		s.linkMade = nil
	}
	select {
	case s.linkUp <- struct{}{}:
	default:
	}
}

// acquire adds a user. It returns false if the connector is closed.
func (s *connector) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.users++
	return true
}

func (s *connector) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.idleFrom = time.Now()
	}
}

// idleSince returns when the connector became idle. ok is false while it has users or is being
// dialled.
func (s *connector) idleSince() (t time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleFrom, s.users == 0 && s.dialing == nil
}

// haltLink stops the pending requests of the link, even after close.
func (s *connector) haltLink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		s.link.Requests.Halt()
	}
}

// close closes the connector if it has no users, or in any case with force.
func (s *connector) close(force bool) bool {
	s.mu.Lock()
	if (s.users > 0 || s.dialing != nil) && !force {
		s.mu.Unlock()
		return false
	}
	s.closed = true
	l, a := s.link, s.dialing
	s.mu.Unlock()
	s.stop()
	if l != nil {
		l.Close()
	}
	if a != nil {
		<-a.done // runDial sees that the connector is closed
	}
	return true
}
