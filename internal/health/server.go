package health

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A serverMonitor guards the state of one server and its tools, and acts on it: it publishes states, probes the server, and
// shares with the other replicas that it is down.
type serverMonitor struct {
	monitor *Monitor
	id      switchboard.ServerID
	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{} // holds one signal when run must plan again

	breaker *breaker // must not be used with mu held: it calls back
	tools   toolSet
	doubts  doubts
	barrier atomic.Pointer[barrier] // why calls are refused; nil while they are not. Calls only look at this.
	traffic callCounts
	changes transitions
	share   *outageStore // nil if no other replica reaches the same server

	mu     sync.Mutex
	config switchboard.Server
	state  serverState
}

// A barrier is why a server takes no calls.
type barrier struct {
	state State
	next  time.Time // when that may change; zero means unknown
}

// callCounts are the numbers of calls of one server.
type callCounts struct {
	calls, movedAway, movedHere atomic.Int64
	retries                     retryBudget
}

func newServerMonitor(m *Monitor, config switchboard.Server) *serverMonitor {
	s := &serverMonitor{monitor: m, id: config.ID, config: config, wake: make(chan struct{}, 1)}
	s.state.shown, s.state.since = Starting, time.Now()
	s.ctx, s.cancel = context.WithCancel(m.ctx)
	s.breaker = newBreaker(s.breakerOpened, s.breakerClosed)
	s.tools.changed = s.toolChanged
	s.state.probes.jitter = rand.N(s.probeInterval() / 4)
	if name := sharedName(&m.o, &config); name != "" {
		s.share = newOutageStore(s, name)
		s.state.outage.replica = m.o.Replica
		m.work.Go(s.share.run)
	}
	return s
}

// sameTarget reports whether config means the same program or address, so that the state stays valid.
func (s *serverMonitor) sameTarget(config *switchboard.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.Transport == config.Transport && s.config.URL == config.URL && slices.Equal(s.config.Command, config.Command)
}

func (s *serverMonitor) configure(config switchboard.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
}

// inherit applies what the store has about a new server, before it is called.
func (s *serverMonitor) inherit(disabled *Cause, r storeRead) {
	s.update(func(st *serverState, now time.Time) {
		st.disabled = disabled
		if s.share != nil {
			st.outage, _ = st.outage.next(r, st.own(now), false, now)
		}
	})
	s.changes.take()
}

// update changes the state, publishes it, and makes run plan again.
func (s *serverMonitor) update(change func(st *serverState, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	change(&s.state, now)
	s.settle(now)
}

// settle publishes the state. The caller holds s.mu.
func (s *serverMonitor) settle(now time.Time) {
	st := &s.state
	s.barrier.Store(st.barrier(s.monitor.o.Patience, now))
	if state := st.current(now); state != st.shown {
		s.changes.add(Transition{Server: s.id, From: st.shown, To: state, Cause: st.cause(state)})
		st.shown, st.since = state, now
		s.monitor.publish(s, "", state)
	}
	s.planAgain()
	if s.share != nil {
		s.share.stepSoon()
	}
}

// planAgain makes run plan again.
func (s *serverMonitor) planAgain() { signal(s.wake) }

// signal puts one value into a channel with room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reportLink applies a report about the connection.
func (s *serverMonitor) reportLink(up bool, cause Cause) {
	s.update(func(st *serverState, now time.Time) {
		if up && !st.link.up {
			s.tools.pardon()
		}
		st.link = st.link.next(linkReport{up, cause, now})
		if up {
			st.probes.last, st.probes.failed = now, 0 // it has just answered
			st.probes.wanted = st.outage.hint.valid(now)
			st.quarantine = st.quarantine.next(quarantineEvent{kind: onAnswered, at: now})
		}
	})
}

func (s *serverMonitor) disable(cause *Cause) {
	s.update(func(st *serverState, _ time.Time) { st.disabled = cause })
	if cause != nil {
		s.doubts.end(s.doubts.current()) // a disabled server is not probed
	}
}

// breakerOpened is called by the breaker.
func (s *serverMonitor) breakerOpened(cause Cause, absent bool) {
	s.update(func(st *serverState, _ time.Time) {
		st.quarantine = st.quarantine.next(newTrip(onTripped, cause, absent))
	})
}

// breakerClosed is called by the breaker.
func (s *serverMonitor) breakerClosed() {
	s.update(func(st *serverState, now time.Time) {
		st.quarantine = st.quarantine.next(quarantineEvent{kind: onClosed, at: now})
		st.probes.failed = 0
		s.tools.pardon()
	})
}

// toolChanged publishes the state of a tool that fails alone.
func (s *serverMonitor) toolChanged(name string, from, to State, cause *Cause) {
	s.changes.add(Transition{Server: s.id, Tool: name, From: from, To: to, Cause: cause})
	if to == Probation {
		to = Healthy // its trial is the next call: no probe would test it
	}
	s.monitor.publish(s, name, to)
	s.planAgain()
}

// isLost reports whether the connection is known to be lost.
func (s *serverMonitor) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.link.isLost()
}

// want notes that a call was refused which wanted the server.
func (s *serverMonitor) want() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.state.probes.wanted {
		s.state.probes.wanted = true
		s.planAgain()
	}
}

// startDoubt has the server probed at once, unless it takes no calls already.
func (s *serverMonitor) startDoubt() {
	if s.monitor.o.Probe != nil && s.barrier.Load() == nil && s.doubts.begin() {
		s.planAgain()
	}
}

// probeInterval returns the time between probes while no call is made. The caller holds s.mu, or s is not shared yet.
func (s *serverMonitor) probeInterval() time.Duration {
	return cmp.Or(s.config.Probe.Every, probeInterval)
}

// plan returns the next action and the time until then; below 0 means that there is none.
func (s *serverMonitor) plan(now time.Time) (time.Duration, nextAction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.plan(s.planInput(now))
}

// planInput returns the input of a plan. The caller holds s.mu.
func (s *serverMonitor) planInput(now time.Time) planInput {
	return planInput{
		now: now, patience: s.monitor.o.Patience, interval: s.probeInterval(),
		worked: s.tools.witnesses.lastWorked(), doubted: s.doubts.current() != nil,
	}
}

func (s *serverMonitor) status() Status {
	now := time.Now()
	next, _ := s.plan(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.state
	out := Status{
		State: st.shown, Since: st.since, Cause: st.cause(st.shown),
		Calls: s.traffic.calls.Load(), MovedAway: s.traffic.movedAway.Load(), MovedHere: s.traffic.movedHere.Load(),
		Tools: s.tools.status(),
	}
	if st.shown != Healthy && st.shown != Starting && next > 0 {
		out.NextProbe = now.Add(next)
	}
	return out
}

// transitions are the changes of states that are not reported yet.
type transitions struct {
	mu      sync.Mutex
	pending []Transition
}

func (q *transitions) add(t Transition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, t)
}

func (q *transitions) take() []Transition {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.pending
	q.pending = nil
	return all
}

// report logs the pending transitions and passes them on.
func (q *transitions) report(o *Options) {
	for _, t := range q.take() {
		log := o.Log.With("server", string(t.Server), "from", string(t.From), "to", string(t.To))
		if t.Tool != "" {
			log = log.With("tool", t.Tool)
		}
		if t.Cause != nil {
			log.Warn("health", "stage", t.Cause.Stage, "cause", t.Cause.Message, "since", t.Cause.Since)
		} else {
			log.Info("health")
		}
		if o.Changed != nil {
			o.Changed(t)
		}
	}
}
