package health

import "time"

// blink is how long a connection may be lost before its server is quarantined: most child processes that end are back
// sooner.
const blink = 2 * time.Second

// A linkState is the state of this replica's connection to one server. The zero linkState is for a server that is
// starting.
type linkState struct {
	up     bool
	wasUp  bool      // it has been up at some time
	lostAt time.Time // zero while it is up or the server is starting
	cause  *Cause    // why it is not up
}

// A linkReport says that a connection is up, or why it is not.
type linkReport struct {
	up    bool
	cause Cause
	at    time.Time
}

// next returns the state after the report.
func (l linkState) next(r linkReport) linkState {
	switch {
	case r.up:
		return linkState{up: true, wasUp: true}
	case r.cause.NeedsConnection:
		return linkState{wasUp: l.wasUp, cause: &r.cause}
	case !l.isLost():
		return linkState{wasUp: l.wasUp, lostAt: r.at, cause: &r.cause}
	}
	r.cause.Since = l.lostAt
	l.cause = &r.cause
	return l
}

// isLost reports whether the connection is known to be lost.
func (l linkState) isLost() bool { return !l.up && !l.lostAt.IsZero() }

// lostFor reports whether the connection has been lost for at least d.
func (l linkState) lostFor(d time.Duration, now time.Time) bool {
	return l.isLost() && now.Sub(l.lostAt) >= d
}

// state returns the state of the server as far as its connection shows it.
func (l linkState) state(now time.Time) State {
	switch {
	case l.up:
		return Healthy
	case l.cause == nil:
		return Starting
	case l.cause.NeedsConnection:
		return NeedsConnection
	case !l.wasUp || l.lostFor(blink, now):
		return Quarantine
	case l.cause.Gone:
		return Lost
	}
	return Healthy
}
