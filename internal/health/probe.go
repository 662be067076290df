package health

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// How often a server is probed that nobody calls, one that has just failed a
// probe, and one that is on probation; and how long a probe may take.
const (
	probeEvery     = 30 * time.Second
	probeSoon      = time.Second
	probationEvery = 2 * time.Second
	probeTimeout   = 5 * time.Second
)

// What run does when its time has come.
type deed int

const (
	doNothing deed = iota
	doSettle
	doProbe
	doTry  // to probe, as the trial of a server on probation
	doCall // that trial, by a call: never planned
)

// plan returns what is to be done next, and after which time; below 0 means that
// nothing is. The caller holds s.mu.
func (s *server) plan(now time.Time) (time.Duration, deed) {
	in := func(t time.Time) time.Duration { return max(t.Sub(now), 0) }
	switch {
	case s.off != nil:
		return -1, doNothing
	case s.doubt.Load() != nil:
		return 0, doProbe
	case !s.up && s.lost.IsZero():
		return -1, doNothing // it is being started
	case !s.up:
		next, do := time.Duration(-1), doNothing
		for _, turn := range []time.Duration{blink, s.m.o.Patience} {
			if t := s.lost.Add(turn); t.After(now) {
				next, do = t.Sub(now), doSettle
				break
			}
		}
		if s.wanted { // else package upstream comes back to it by itself
			if t := in(s.probed.Add(probeSoon)); next < 0 || t < next {
				next, do = t, doProbe
			}
		}
		return next, do
	case s.word.out():
		return s.planShared(&s.word, now)
	case s.broken != nil && !s.released:
		until := s.until
		again := wantedQuarantine
		if s.absent {
			again = lookout(s.looks)
		}
		if soon := s.probed.Add(again); s.wanted && soon.Before(until) {
			until = soon
		}
		return in(until), doProbe
	case s.broken != nil:
		return in(s.probed.Add(probationEvery)), doTry
	case s.failed > 0:
		return in(s.probed.Add(probeSoon)), doProbe
	}
	last := s.probed
	if g := s.good.Load(); g != nil && g.at.After(last) {
		last = g.at
	}
	return in(last.Add(s.every() + s.jitter)), doProbe
}

// every is how often the server is probed while nobody calls it. The caller holds
// s.mu.
func (s *server) every() time.Duration { return cmp.Or(s.cfg.Probe.Every, probeEvery) }

// run probes the server when it is time, and passes on what has changed.
func (s *server) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.tell()
		s.mu.Lock()
		wait, do := s.plan(time.Now())
		s.mu.Unlock()
		if s.m.o.Probe == nil && do != doSettle {
			wait = -1
		}
		if t, ok := s.tidy(time.Now()); ok && (wait < 0 || t < wait) {
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
			s.tell()
			return
		case <-s.wake:
			continue
		case <-due:
		}
		switch do {
		case doSettle:
			s.mu.Lock()
			s.settle(time.Now())
			s.mu.Unlock()
		case doProbe:
			s.probe()
		case doTry:
			s.try()
		}
	}
}

// tell passes on what has changed.
func (s *server) tell() {
	s.mu.Lock()
	told := s.told
	s.told = nil
	s.mu.Unlock()
	for _, t := range told {
		log := s.m.o.Log.With("server", string(t.Server), "from", string(t.From), "to", string(t.To))
		if t.Tool != "" {
			log = log.With("tool", t.Tool)
		}
		if t.Cause != nil {
			log.Warn("health", "stage", t.Cause.Stage, "cause", t.Cause.Message, "since", t.Cause.Since)
		} else {
			log.Info("health")
		}
		if s.m.o.Changed != nil {
			s.m.o.Changed(t)
		}
	}
}

// ask probes the server.
func (s *server) ask() error {
	s.mu.Lock()
	s.probed, s.wanted = time.Now(), false
	cfg := s.cfg
	s.mu.Unlock()
	patience := cmp.Or(cfg.Probe.Timeout, probeTimeout)
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	err := s.m.o.Probe(ctx, &cfg)
	if s.ctx.Err() != nil {
		return err // it was given up, which says nothing
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("it did not answer within %s: %w", patience, err)
	}
	if s.m.o.Probed != nil {
		s.m.o.Probed(s.id, err)
	}
	return err
}

// probe asks a server that is not on probation. It settles a doubt about the server: if the probe
// fails, the server is quarantined.
func (s *server) probe() {
	doubted := s.doubt.Load()
	defer s.endDoubt(doubted)
	if !s.claim(doProbe) {
		return
	}
	err := s.ask()
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	up, broken := s.up, s.broken != nil
	if err == nil {
		s.failed = 0
		if broken {
			s.released = true
		}
	} else {
		s.failed++
		if s.absent = unsent(err); s.absent && broken && time.Now().Before(s.until) {
			s.looks++ // it was only looked for
		} else if broken {
			s.trips++
			s.until = time.Now().Add(quarantine(s.trips))
			s.broken = &Cause{Stage: StageProbe, Message: plain(err), Since: s.broken.Since}
		}
	}
	s.settle(time.Now())
	out := s.word.out()
	s.mu.Unlock()
	switch {
	case out && err == nil:
		s.amend(answered)
	case out:
		s.amend(s.failing(StageProbe, err, false))
	}
	if err == nil || broken || !up {
		return
	}
	// An answer would not outweigh calls that fail, but silence counts like them.
	for range failsInRow {
		report, refused := s.breaker.Allow()
		if refused != nil {
			return
		}
		if doubted == nil {
			s.blame(StageProbe, err)
		}
		if report(err); doubted == nil {
			return
		}
	}
}

// try takes the trial of a server on probation, unless a call is at it.
func (s *server) try() {
	if !s.claim(doTry) {
		return
	}
	report, refused := s.breaker.Allow()
	if refused != nil {
		s.mu.Lock()
		s.probed = time.Now() // and again later
		s.mu.Unlock()
		s.tried(StageProbe, errNothing)
		return
	}
	err := s.ask()
	if s.ctx.Err() != nil {
		report(errNothing)
		return
	}
	if err != nil {
		s.blame(StageProbe, err)
	}
	report(err)
	s.tried(StageProbe, err)
}
