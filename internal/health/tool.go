package health

import (
	"maps"
	"time"

	"github.com/sony/gobreaker/v2"
)

// maxTools bounds how many tools of a server are counted alone.
const maxTools = 1000

// goods are the last two different tools that have worked, and not failed since,
// and when: so that one which fails alone is known from a server that fails.
type goods struct {
	last, other string
	at, before  time.Time // of last, and of other
}

// worked notes that the tool works.
func (s *server) worked(name string) {
	now, g := time.Now(), s.good.Load()
	switch {
	case g == nil:
		s.good.Store(&goods{last: name, at: now})
	case g.last != name:
		s.good.Store(&goods{last: name, at: now, other: g.last, before: g.at})
	case now.Sub(g.at) > time.Second:
		s.good.Store(&goods{last: name, at: now, other: g.other, before: g.before})
	}
}

// unworked notes that the tool does not work, so that it is no witness any more for
// its server.
func (s *server) unworked(name string) {
	switch g := s.good.Load(); {
	case g == nil:
	case g.last == name:
		s.good.Store(&goods{last: g.other, at: g.before})
	case g.other == name:
		s.good.Store(&goods{last: g.last, at: g.at})
	}
}

// othersWork reports whether another tool has worked lately, or while the call went on that began
// then, and has not failed since.
func (s *server) othersWork(name string, began time.Time) bool {
	g := s.good.Load()
	if g == nil {
		return false
	}
	at := g.at
	if g.last == name {
		at = g.before
	}
	return !at.IsZero() && (time.Since(at) < window || at.After(began))
}

// A tool is the state of one that has failed lately.
type tool struct {
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	// These are guarded by the server's mu.
	state   State
	suspect Cause
	cause   *Cause
	until   time.Time // the end of its quarantine
	trips   int
	healed  time.Time
	used    time.Time
}

// toolNamed returns the state of the tool, and makes one where there is none.
// nil means that there are too many.
func (s *server) toolNamed(name string) *tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all map[string]*tool
	if known := s.tools.Load(); known != nil {
		all = *known
	}
	if t := all[name]; t != nil {
		return t
	}
	if len(all) >= maxTools {
		return nil
	}
	t := &tool{state: Healthy, used: time.Now()}
	t.breaker = newBreaker(func(to gobreaker.State) { s.toolTripped(name, t, to) })
	next := maps.Clone(all)
	if next == nil {
		next = map[string]*tool{}
	}
	next[name] = t
	s.tools.Store(&next)
	s.look()
	return t
}

func (s *server) toolTripped(name string, t *tool, to gobreaker.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	state := t.state
	switch to {
	case gobreaker.StateOpen:
		why := t.suspect
		if t.cause != nil {
			why.Since = t.cause.Since
		} else if now.Sub(t.healed) > steadyAfter {
			t.trips = 0
		}
		t.cause = &why
		t.trips++
		t.until, state = now.Add(quarantine(t.trips)), Quarantine
	case gobreaker.StateClosed:
		t.cause, t.until, t.healed, state = nil, time.Time{}, now, Healthy
	}
	s.setTool(name, t, state)
}

// setTool makes the tool's state known. The caller holds s.mu.
func (s *server) setTool(name string, t *tool, state State) {
	if state == t.state {
		return
	}
	s.told = append(s.told, Transition{Server: s.id, Tool: name, From: t.state, To: state, Cause: t.cause})
	t.state = state
	// No probe would tell, so that its trial is the next call of whoever chooses it.
	fit := state
	if state == Probation {
		fit = Healthy
	}
	s.m.publish(s, name, fit)
	s.look()
}

// pardonTools gives the tools their trial at once, since their server is back: what
// ailed it may have been all. The caller holds s.mu.
func (s *server) pardonTools() {
	if known := s.tools.Load(); known != nil {
		for name, t := range *known {
			if t.state == Quarantine {
				s.setTool(name, t, Probation)
			}
		}
	}
}

// tidy ends the quarantines of tools whose time is over, and forgets those that
// have been well for long. It returns when to look again.
func (s *server) tidy(now time.Time) (next time.Duration, ok bool) {
	known := s.tools.Load()
	if known == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []string
	due := func(t time.Time) {
		if d := t.Sub(now); !ok || d < next {
			next, ok = d, true
		}
	}
	for name, t := range *s.tools.Load() {
		switch {
		case t.state == Quarantine && now.Before(t.until):
			due(t.until)
		case t.state == Quarantine:
			s.setTool(name, t, Probation)
		case t.state == Healthy && now.Sub(t.used) >= 2*steadyAfter:
			gone = append(gone, name)
		case t.state == Healthy:
			due(t.used.Add(2 * steadyAfter))
		}
	}
	if len(gone) > 0 {
		left := maps.Clone(*s.tools.Load())
		for _, name := range gone {
			delete(left, name)
		}
		s.tools.Store(&left)
	}
	return max(next, 0), ok
}
