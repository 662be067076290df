package health

import (
	"math/rand/v2"
	"time"
)

// How long a quarantine lasts.
const (
	firstQuarantine   = time.Second
	longestQuarantine = time.Minute

	// wantedQuarantine is the longest time between two probes while calls want the server.
	wantedQuarantine = time.Second

	// firstLook is the first pause between probes of an address without a program while calls want the server. Such
	// a probe costs very little. Each further pause is a third longer, up to wantedQuarantine.
	firstLook = 50 * time.Millisecond

	// steadyAfter is how long a server must have been healthy before its next quarantine is as short as the first.
	steadyAfter = time.Minute
)

// A quarantine is the state of a server, or of a tool, that may be kept from calls because it fails. The zero
// quarantine is for one that works.
type quarantine struct {
	cause    *Cause    // why the breaker has tripped; nil while it has not
	answered bool      // a probe has succeeded since, or the connection is new: only the trial is missing
	until    time.Time // no probe before this time, unless calls want the server
	trips    int       // in a row
	absent   bool      // the last failure found no program at the address
	looks    int       // early probes that failed since the last trip
	healedAt time.Time // when the last trial succeeded
}

// A quarantineEvent is something that changes a quarantine.
type quarantineEvent struct {
	kind   quarantineKind
	at     time.Time
	cause  Cause   // for onTripped and onProbeFailed
	absent bool    // for onTripped and onProbeFailed: no program was at the address
	chance float64 // for onTripped and onProbeFailed: in [0, 1), spreads the end of the quarantine
	from   hint    // for onAdopted
}

type quarantineKind int

// The kinds of events.
const (
	onTripped     quarantineKind = iota // the breaker has opened
	onClosed                            // the breaker has closed: the trial has succeeded
	onAnswered                          // a probe has succeeded, the connection is new, or the quarantine of a tool is over
	onProbeFailed                       // a probe has failed
	onAdopted                           // another replica has found the server down, and this one takes over
)

// next returns the quarantine after the event.
func (q quarantine) next(e quarantineEvent) quarantine {
	switch e.kind {
	case onTripped:
		if q.cause != nil {
			e.cause.Since = q.cause.Since
		} else if e.at.Sub(q.healedAt) > steadyAfter {
			q.trips = 0
		}
		q.trips++
		q.cause, q.until, q.answered = &e.cause, e.at.Add(pauseAfter(q.trips, e.chance)), false
		q.absent, q.looks = e.absent, 0
	case onClosed:
		return quarantine{trips: q.trips, healedAt: e.at}
	case onAnswered:
		q.answered = q.cause != nil
	case onProbeFailed:
		q.absent = e.absent
		if q.cause == nil {
			break // the breaker counts it
		}
		if e.absent && e.at.Before(q.until) {
			q.looks++ // an early probe does not lengthen the quarantine
			break
		}
		e.cause.Since = q.cause.Since
		q.trips++
		q.cause, q.until = &e.cause, e.at.Add(pauseAfter(q.trips, e.chance))
	case onAdopted:
		q.trips, q.until = max(q.trips, e.from.Trips), e.from.Until
		if q.cause == nil {
			q.cause = &e.from.Cause
		}
	}
	return q
}

// state returns the state of the server or tool as far as its failures show it.
func (q quarantine) state() State {
	switch {
	case q.cause == nil:
		return Healthy
	case q.answered:
		return Probation
	}
	return Quarantine
}

// probeAt returns when to probe next. last is the time of the last probe; wanted says that calls want the server.
func (q quarantine) probeAt(last time.Time, wanted bool) time.Time {
	if soon := last.Add(q.earlyPause()); wanted && soon.Before(q.until) {
		return soon
	}
	return q.until
}

// earlyPause returns the pause between probes while calls want the server.
func (q quarantine) earlyPause() time.Duration {
	if q.absent {
		return lookPause(q.looks)
	}
	return wantedQuarantine
}

// pauseAfter returns the length of the nth quarantine in a row. It doubles each time, and a quarter of it is left to
// chance, in [0, 1), so that servers which failed together do not return together.
func pauseAfter(n int, chance float64) time.Duration {
	d := longestQuarantine
	if n <= 6 {
		d = min(firstQuarantine<<max(n-1, 0), longestQuarantine)
	}
	return d - d/8 + time.Duration(chance*float64(d/4))
}

// lookPause returns the pause after the nth early probe.
func lookPause(n int) time.Duration {
	d := firstLook
	for ; n > 0 && d < wantedQuarantine; n-- {
		d += d / 3
	}
	return min(d, wantedQuarantine)
}

// newTrip returns the event of a failure now.
func newTrip(kind quarantineKind, cause Cause, absent bool) quarantineEvent {
	return quarantineEvent{kind: kind, at: time.Now(), cause: cause, absent: absent, chance: rand.Float64()}
}
