package health

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// run probes the server when a probe is due, and reports transitions.
func (s *serverMonitor) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.changes.report(&s.monitor.o)
		now := time.Now()
		wait, do := s.plan(now)
		if s.monitor.o.Probe == nil && do != doSettle {
			wait = -1
		}
		if t, ok := s.tools.expire(now); ok && (wait < 0 || t < wait) {
			wait, do = t, doNothing
		}
		timer.Stop()
		var due <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-s.ctx.Done():
			s.changes.report(&s.monitor.o)
			return
		case <-s.wake:
			continue
		case <-due:
		}
		switch do {
		case doSettle:
			s.update(func(*serverState, time.Time) {})
		case doProbe:
			s.probe()
		case doTrial:
			s.probeAsTrial()
		}
	}
}

// sendProbe probes the server.
func (s *serverMonitor) sendProbe() error {
	s.mu.Lock()
	s.state.probes.last, s.state.probes.wanted = time.Now(), false
	config := s.config
	s.mu.Unlock()
	timeout := cmp.Or(config.Probe.Timeout, probeTimeout)
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	err := s.monitor.o.Probe(ctx, &config)
	if s.ctx.Err() != nil {
		return err // the server was removed: the result says nothing
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("it did not answer within %s: %w", timeout, err)
	}
	if s.monitor.o.Probed != nil {
		s.monitor.o.Probed(s.id, err)
	}
	return err
}

// probe probes a server that is not on probation. It ends a doubt about the server: if the probe fails, the server is
// quarantined.
func (s *serverMonitor) probe() {
	doubted := s.doubts.current()
	defer s.doubts.end(doubted)
	if !s.share.acquire() {
		return
	}
	err := s.sendProbe()
	if s.ctx.Err() != nil {
		return
	}
	var counts bool
	s.update(func(st *serverState, now time.Time) {
		st.outage.probing = false
		counts = st.link.up && st.quarantine.cause == nil
		if err == nil {
			st.probes.failed = 0
			st.quarantine = st.quarantine.next(quarantineEvent{kind: onAnswered, at: now})
			return
		}
		st.probes.failed++
		st.quarantine = st.quarantine.next(newTrip(onProbeFailed, Cause{Stage: StageProbe, Message: failureText(err), Since: now}, isUnsent(err)))
	})
	switch {
	case err == nil || !counts: // an answer must not outweigh calls that fail, so it is not counted
	case doubted != nil:
		s.breaker.trip(err) // for the call that failed
	default:
		s.breaker.blame(Cause{Stage: StageProbe, Message: failureText(err), Since: time.Now()}, isUnsent(err))
		if report, refused := s.breaker.admit(); refused == nil {
			report(err)
		}
	}
}

// probeAsTrial probes a server on probation, unless a call is its trial.
func (s *serverMonitor) probeAsTrial() {
	if !s.share.acquire() {
		return
	}
	defer s.update(func(st *serverState, _ time.Time) { st.outage.probing = false })
	report, refused := s.breaker.admit()
	if refused != nil {
		s.update(func(st *serverState, now time.Time) { st.probes.last = now }) // and again later
		return
	}
	err := s.sendProbe()
	if s.ctx.Err() != nil {
		report(errNothing)
		return
	}
	if err != nil {
		s.breaker.blame(Cause{Stage: StageProbe, Message: failureText(err), Since: time.Now()}, isUnsent(err))
	}
	report(err)
}

// ProbeSoon has the server probed at once. A server that takes no calls is probed as soon as a call could have it probed. If the probe fails, the server is quarantined.
func (m *Monitor) ProbeSoon(id switchboard.ServerID) {
	if s := m.server(id); s != nil && m.o.Probe != nil {
		s.want()
		s.startDoubt()
	}
}
