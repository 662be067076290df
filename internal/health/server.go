package health

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// blink is for how long a connection may be lost without the server being
// quarantined: most children that end are back sooner.
const blink = 2 * time.Second

// A server is the state of one server.
type server struct {
	m       *Monitor
	id      switchboard.ServerID
	place   string                                     // where the replicas' word on it stands; "" where it is this one's alone
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}] // never asked with mu held: it calls back
	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{} // holds one signal when run has to look again
	news    chan struct{} // holds one signal when confer has

	doubt             atomic.Pointer[doubt] // set from a failed call until a probe has ended
	calls, away, here atomic.Int64
	budget            retryBudget

	// bar, where set, is why no call is taken; so that taking one costs a look.
	bar   atomic.Pointer[bar]
	tools atomic.Pointer[map[string]*tool] // those that have failed lately; replaced whole
	good  atomic.Pointer[goods]

	mu    sync.Mutex
	cfg   switchboard.Server
	state State
	since time.Time // of state
	told  []Transition

	off *Cause // why it is disabled

	up     bool
	wasUp  bool
	lost   time.Time // when the connection was lost
	reason *Cause    // of that

	crashed  time.Time // when a call was cut off last that counted
	suspect  Cause     // the last failure by the server's own fault
	broken   *Cause    // why the breaker has tripped; nil while it has not
	released bool      // a probe has succeeded since, or its connection is new
	until    time.Time // before which nothing is tried
	trips    int       // in a row
	absent   bool      // the last failure found nobody there
	looks    int       // for it, since it tripped
	healed   time.Time // when it became healthy last

	probed time.Time // when the last probe began
	failed int       // probes in a row
	wanted bool      // somebody has asked for it since the last probe
	jitter time.Duration

	// What the replicas hold of it, in the turn in which that was so; see share.go.
	word      word
	wordHeard time.Time
	turn      int64
	said      []func(word) (word, bool) // of trials, yet to be told
	answered  bool                      // it has answered since
	wrong     int                       // how often another replica has found it well that was down here
	fine      time.Time                 // since when it works here; zero while it does not
}

// A bar is why a server takes no calls.
type bar struct {
	state State
	next  time.Time // when that may change; zero means unknown
	trial bool      // whoever has the claim may call it
}

func newServer(m *Monitor, cfg switchboard.Server) *server {
	s := &server{m: m, id: cfg.ID, cfg: cfg, state: Starting, since: time.Now(), wake: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	s.place = m.placeOf(&cfg)
	s.ctx, s.cancel = context.WithCancel(m.ctx)
	s.breaker = newBreaker(s.tripped)
	if s.shared() {
		m.work.Go(s.confer)
	}
	s.jitter = rand.N(s.every() / 4)
	return s
}

// same reports whether what is known of the server holds for cfg too.
func (s *server) same(cfg *switchboard.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.Transport == cfg.Transport && s.cfg.URL == cfg.URL && slices.Equal(s.cfg.Command, cfg.Command)
}

func (s *server) configure(cfg switchboard.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = cfg
}

// inherit takes over what is known of a server before anybody calls it: why an operator
// has disabled it, and the word of the replicas.
func (s *server) inherit(off *Cause, w word) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off, s.word, s.wordHeard = off, w, time.Now()
	s.settle(time.Now())
	s.told = nil
}

func (s *server) stop() { s.cancel() }

// linked takes note of the connection.
func (s *server) linked(up bool, why Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case up:
		if !s.up {
			s.pardonTools()
		}
		s.up, s.wasUp, s.reason, s.lost = true, true, nil, time.Time{}
		s.probed, s.failed, s.wanted = now, 0, false // it has just answered
		if s.broken != nil {
			s.released = true
		}
		s.answered = s.word.out()
	case s.up || s.lost.IsZero():
		s.up, s.lost, s.reason = false, now, &why
	default:
		why.Since = s.lost
		s.reason = &why
	}
	s.settle(now)
}

func (s *server) disable(why *Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = why
	s.settle(time.Now())
	if why != nil {
		s.endDoubt(s.doubt.Load()) // nobody probes it any more
	}
}

// tripped takes note of what the breaker has found.
func (s *server) tripped(to gobreaker.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch to {
	case gobreaker.StateOpen:
		why := s.suspect
		if s.broken != nil {
			why.Since = s.broken.Since
		} else if now.Sub(s.healed) > steadyAfter {
			s.trips = 0
		}
		s.broken = &why
		s.trips++
		s.until, s.released, s.looks = now.Add(quarantine(s.trips)), false, 0
	case gobreaker.StateClosed:
		s.broken, s.released, s.failed, s.healed = nil, false, 0, now
		s.pardonTools()
	}
	s.settle(now)
}

// settle finds the state, and makes it known where it has changed. The caller
// holds s.mu.
func (s *server) settle(now time.Time) {
	own := s.seen(now)
	switch {
	case own == Healthy && s.fine.IsZero():
		s.fine = now
	case own != Healthy && !s.fine.IsZero():
		if now.Sub(s.fine) >= steadyAfter {
			s.wrong = 0
		}
		s.fine = time.Time{}
	}
	state := own
	switch {
	case s.off != nil:
		state = Disabled
	case s.word.State == Quarantine:
		state = Quarantine
	case s.word.State == Probation && own != Quarantine:
		state = Probation
	}
	var b *bar
	switch {
	case state == Disabled:
		b = &bar{state: state}
	case s.broken != nil && !s.released:
		b = &bar{state: Quarantine, next: s.until}
	case s.word.State == Quarantine:
		b = &bar{state: Quarantine, next: s.word.Until}
	case !s.up && !s.lost.IsZero() && now.Sub(s.lost) >= s.m.o.Patience:
		b = &bar{state: Quarantine}
	case s.word.State == Probation:
		b = &bar{state: Probation, trial: s.mayTry()}
	}
	s.bar.Store(b)
	if state != s.state {
		s.told = append(s.told, Transition{Server: s.id, From: s.state, To: state, Cause: s.whyIn(state)})
		s.state, s.since = state, now
		s.m.publish(s, "", state)
	}
	s.look()
	if s.shared() {
		s.confide()
	}
}

// seen is the state by what this replica has seen itself. The caller holds s.mu.
func (s *server) seen(now time.Time) State {
	switch {
	case !s.up && !s.wasUp && s.reason == nil:
		return Starting
	case !s.up && (!s.wasUp || now.Sub(s.lost) >= blink):
		return Quarantine
	case s.broken != nil && !s.released:
		return Quarantine
	case !s.up && s.reason != nil && s.reason.Gone:
		return Lost
	case s.broken != nil:
		return Probation
	}
	return Healthy
}

// why is the cause of the state; nil where it is healthy. The caller holds s.mu.
func (s *server) why() *Cause { return s.whyIn(s.state) }

func (s *server) whyIn(state State) *Cause {
	switch state {
	case Healthy, Starting:
		return nil
	case Disabled:
		return s.off
	}
	if own := s.ownWhy(); own != nil {
		return own
	}
	why := s.word.Cause // whoever is told keeps it, and the next word is written over this one
	return &why
}

// ownWhy is why it is not healthy by what this replica has seen; nil where it has seen
// nothing. The caller holds s.mu.
func (s *server) ownWhy() *Cause {
	if !s.up && s.reason != nil {
		return s.reason
	}
	return s.broken
}

// look has run look again.
func (s *server) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// isLost reports whether the connection is known to be lost.
func (s *server) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.up && !s.lost.IsZero()
}

// want says that somebody has asked for the server in vain.
func (s *server) want() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wanted {
		s.wanted = true
		s.look()
	}
}

// counted reports whether a call that was cut off is of a crash that another one
// has told of.
func (s *server) counted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.crashed) < atOnce {
		return true
	}
	s.crashed = now
	return false
}

// blame notes why the server failed, before its breaker is told.
func (s *server) blame(stage string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspect, s.absent = Cause{Stage: stage, Message: plain(err), Since: time.Now()}, unsent(err)
}

// unsent reports whether err says that nothing was sent, since nobody is there.
func unsent(err error) bool {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Unsent
	}
	own, ok := errors.AsType[interface {
		error
		Unsent() bool
	}](err)
	return ok && own.Unsent()
}

// plain is the text of a failure for operators.
func plain(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Cause != nil {
		return own.Cause.Error()
	}
	return err.Error()
}
