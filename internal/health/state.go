package health

import "time"

// How often servers are probed.
const (
	probeInterval     = 30 * time.Second // while no call is made
	failedInterval    = time.Second      // after a failed probe
	probationInterval = 2 * time.Second  // on probation
	probeTimeout      = 5 * time.Second
)

// A serverState is everything that this replica knows about the health of one server. It is a value: it has no lock and
// does no I/O.
type serverState struct {
	link       linkState
	quarantine quarantine
	probes     probeState
	outage     outage
	disabled   *Cause // set by an operator

	shown State // as last published
	since time.Time
}

// A probeState is when a server was probed.
type probeState struct {
	last   time.Time // when the last probe began
	failed int       // probes in a row
	wanted bool      // calls have wanted the server since the last probe
	jitter time.Duration
}

// own returns the state that this replica has seen itself.
func (st *serverState) own(now time.Time) State {
	link, calls := st.link.state(now), st.quarantine.state()
	switch {
	case link == Starting, link == Quarantine, link == NeedsConnection:
		return link
	case calls == Quarantine:
		return Quarantine
	case link == Lost:
		return Lost
	}
	return calls
}

// current returns the state with the operators' and the other replicas' part.
func (st *serverState) current(now time.Time) State {
	own := st.own(now)
	switch {
	case st.disabled != nil:
		return Disabled
	case st.outage.hint.valid(now) && (own != Probation || !st.outage.mayTry(now)):
		return Quarantine
	}
	return own
}

// cause returns the cause of the state; nil if the state has none.
func (st *serverState) cause(state State) *Cause {
	switch {
	case state == Healthy, state == Starting:
		return nil
	case state == Disabled:
		return st.disabled
	case st.link.cause != nil:
		return st.link.cause
	case st.quarantine.cause != nil:
		return st.quarantine.cause
	}
	cause := st.outage.hint.Cause // a copy: the next hint replaces this one
	return &cause
}

// barrier returns why calls are refused now; nil if they are not. patience is how long calls wait for a lost connection.
func (st *serverState) barrier(patience time.Duration, now time.Time) *barrier {
	switch {
	case st.disabled != nil:
		return &barrier{state: Disabled}
	case st.quarantine.state() == Quarantine:
		return &barrier{state: Quarantine, next: st.quarantine.until}
	case st.outage.hint.valid(now) && (st.quarantine.state() != Probation || !st.outage.mayTry(now)):
		return &barrier{state: Quarantine, next: st.outage.hint.Until}
	case st.link.lostFor(patience, now):
		return &barrier{state: Quarantine}
	}
	return nil
}

// step returns what this replica has to change in the store.
func (st *serverState) step(chance float64, now time.Time) (w hintWrite, ok bool) {
	own := st.own(now)
	var down hint
	var sighting time.Time
	if own == Quarantine && st.link.wasUp {
		q := st.quarantine
		down = hint{Until: q.until, SeenBy: st.outage.replica, SeenAt: now, Cause: *st.cause(own), Trips: q.trips}
		if sighting = q.until; q.state() != Quarantine {
			sighting = st.link.lostAt
			down.Until, down.Trips = now.Add(pauseAfter(1, chance)), 1
		}
	} else if own == Quarantine || own == NeedsConnection {
		own = Starting // it has never worked here, which says nothing about the server
	}
	st.outage, w, ok = st.outage.step(own, down, sighting, now)
	return w, ok
}

// A nextAction is what the goroutine of a server does next.
type nextAction int

const (
	doNothing nextAction = iota
	doSettle             // publish a state that has changed with time alone
	doProbe
	doTrial // a probe as the trial of a server on probation
)

// planInput is what a plan needs beside the state.
type planInput struct {
	now      time.Time
	patience time.Duration // for a lost connection
	interval time.Duration // between probes while no call is made
	worked   time.Time     // when a call last worked
	doubted  bool
}

// plan returns the next action and the time until then; below 0 means that there is none.
func (st *serverState) plan(in planInput) (time.Duration, nextAction) {
	after := func(t time.Time) time.Duration { return max(t.Sub(in.now), 0) }
	q, p := &st.quarantine, &st.probes
	switch {
	case st.disabled != nil:
		return -1, doNothing
	case in.doubted:
		return 0, doProbe
	case st.link.isLost():
		return st.planLost(in)
	case !st.link.up:
		return -1, doNothing // it is starting
	case st.outage.hint.valid(in.now):
		at, do := st.outage.plan(*q, p.last, p.wanted, in.now)
		if expiry := st.outage.hint.expiry(); expiry.Before(at) {
			at, do = expiry, doSettle
		}
		return after(at), do
	case q.state() == Quarantine:
		return after(q.probeAt(p.last, p.wanted)), doProbe
	case q.state() == Probation:
		return after(p.last.Add(probationInterval)), doTrial
	case p.failed > 0:
		return after(p.last.Add(failedInterval)), doProbe
	}
	return after(later(p.last, in.worked).Add(in.interval + p.jitter)), doProbe
}

// planLost is plan for a server with a lost connection. Package upstream connects again by itself, so the server is
// probed only if calls want it.
func (st *serverState) planLost(in planInput) (next time.Duration, do nextAction) {
	next = -1
	for _, d := range []time.Duration{blink, in.patience} {
		if t := st.link.lostAt.Add(d); t.After(in.now) {
			next, do = t.Sub(in.now), doSettle
			break
		}
	}
	if hint := &st.outage.hint; hint.valid(in.now) {
		if t := hint.expiry().Sub(in.now); next < 0 || t < next {
			next, do = t, doSettle
		}
	}
	if st.probes.wanted {
		if t := max(st.probes.last.Add(failedInterval).Sub(in.now), 0); next < 0 || t < next {
			next, do = t, doProbe
		}
	}
	return next, do
}
