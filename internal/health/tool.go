package health

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxTools limits how many tools of a server have a breaker of their own.
const maxTools = 1000

// A toolSet has the tools of one server that have failed lately. The zero toolSet is ready for use once changed is set.
type toolSet struct {
	changed   func(name string, from, to State, cause *Cause)
	witnesses witnesses

	failing atomic.Pointer[map[string]*tool] // replaced as a whole, so that calls read it without the lock

	mu sync.Mutex // guards the fields of all tools
}

// A tool is a tool that has failed lately.
type tool struct {
	breaker *breaker

	quarantine quarantine
	state      State
	used       time.Time // when it failed last
}

// find returns the tool; nil if it has not failed lately.
func (ts *toolSet) find(name string) *tool { return ts.all()[name] }

// all returns the tools. The map must not be modified.
func (ts *toolSet) all() map[string]*tool {
	if all := ts.failing.Load(); all != nil {
		return *all
	}
	return nil
}

// add returns the tool, and creates it if it has not failed lately. It returns nil if there are too many.
func (ts *toolSet) add(name string) *tool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all := ts.all()
	if t := all[name]; t != nil {
		return t
	}
	if len(all) >= maxTools {
		return nil
	}
	t := &tool{state: Healthy, used: time.Now()}
	t.breaker = newBreaker(func(cause Cause, absent bool) {
		ts.update(name, t, newTrip(onTripped, cause, absent))
	}, func() {
		ts.update(name, t, quarantineEvent{kind: onClosed, at: time.Now()})
	})
	next := maps.Clone(all)
	if next == nil {
		next = map[string]*tool{}
	}
	next[name] = t
	ts.failing.Store(&next)
	return t
}

// quarantined returns the end of the tool's quarantine, if it is in one.
func (ts *toolSet) quarantined(t *tool) (until time.Time, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return t.quarantine.until, t.state == Quarantine
}

// failed records a failure, before it is reported to the tool's breaker.
func (ts *toolSet) failed(t *tool, cause Cause) {
	t.breaker.blame(cause, false)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.used = cause.Since
}

func (ts *toolSet) update(name string, t *tool, e quarantineEvent) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.change(name, t, e)
}

// change changes the tool's quarantine. The caller holds ts.mu.
func (ts *toolSet) change(name string, t *tool, e quarantineEvent) {
	t.quarantine = t.quarantine.next(e)
	if from, to := t.state, t.quarantine.state(); to != from {
		t.state = to
		ts.changed(name, from, to, t.quarantine.cause)
	}
}

// pardon ends the quarantines of all tools, so that their trials come at once: the server is back, and may have been
// the reason for their failures.
func (ts *toolSet) pardon() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for name, t := range ts.all() {
		if t.state == Quarantine {
			ts.change(name, t, quarantineEvent{kind: onAnswered})
		}
	}
}

// expire ends the quarantines that are over, and removes tools that have worked for long. It returns when to call it
// again.
func (ts *toolSet) expire(now time.Time) (next time.Duration, ok bool) {
	if ts.failing.Load() == nil {
		return 0, false
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var gone []string
	due := func(t time.Time) {
		if d := t.Sub(now); !ok || d < next {
			next, ok = d, true
		}
	}
	for name, t := range ts.all() {
		switch {
		case t.state == Quarantine && now.Before(t.quarantine.until):
			due(t.quarantine.until)
		case t.state == Quarantine:
			ts.change(name, t, quarantineEvent{kind: onAnswered, at: now})
		case t.state == Healthy && now.Sub(t.used) >= 2*steadyAfter:
			gone = append(gone, name)
		case t.state == Healthy:
			due(t.used.Add(2 * steadyAfter))
		}
	}
	if len(gone) > 0 {
		left := maps.Clone(ts.all())
		for _, name := range gone {
			delete(left, name)
		}
		ts.failing.Store(&left)
	}
	return max(next, 0), ok
}

// status returns the tools that are not healthy, sorted by name.
func (ts *toolSet) status() (out []ToolStatus) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all := ts.all()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if t := all[name]; t.state != Healthy {
			out = append(out, ToolStatus{name, t.state, t.quarantine.cause, t.quarantine.until})
		}
	}
	return out
}

// witnesses are the last two tools that have worked and not failed since. They distinguish a tool that fails alone from
// a server that fails. The zero value has none.
type witnesses struct{ last atomic.Pointer[witnessPair] }

// A witnessPair is two different tools, and when each of them has worked.
type witnessPair struct {
	name, other     string
	at, otherWorked time.Time
}

// worked records that the tool works.
func (w *witnesses) worked(name string) {
	now, p := time.Now(), w.last.Load()
	switch {
	case p == nil:
		w.last.Store(&witnessPair{name: name, at: now})
	case p.name != name:
		w.last.Store(&witnessPair{name, p.name, now, p.at})
	case now.Sub(p.at) > time.Second:
		w.last.Store(&witnessPair{name, p.other, now, p.otherWorked})
	}
}

// failed records that the tool does not work, so it is no witness for its server any more.
func (w *witnesses) failed(name string) {
	switch p := w.last.Load(); {
	case p == nil:
	case p.name == name:
		w.last.Store(&witnessPair{name: p.other, at: p.otherWorked})
	case p.other == name:
		w.last.Store(&witnessPair{name: p.name, at: p.at})
	}
}

// lastWorked returns when a tool last worked; zero for never.
func (w *witnesses) lastWorked() time.Time {
	if p := w.last.Load(); p != nil {
		return p.at
	}
	return time.Time{}
}

// othersWork reports whether another tool has worked lately, or since the given time, and has not failed after that.
func (w *witnesses) othersWork(name string, since time.Time) bool {
	p := w.last.Load()
	if p == nil {
		return false
	}
	at := p.at
	if p.name == name {
		at = p.otherWorked
	}
	return !at.IsZero() && (time.Since(at) < window || at.After(since))
}
