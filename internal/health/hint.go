package health

import "time"

// How replicas share that a server is down.
const (
	// hintGrace is how long a hint outlasts its Until: long enough for one replica to probe the server and to try it.
	hintGrace = 15 * time.Second

	// leaseTime is how long the lease lasts that lets one replica probe and try the server.
	leaseTime = 10 * time.Second

	// yieldTime is how much longer the replica that has seen the server down waits before the next probe, so that
	// another replica probes it first.
	yieldTime = time.Second
)

// A hint says that one replica has found a server down: no replica calls it until the hint ends or expires. The zero
// hint says nothing.
type hint struct {
	Until     time.Time `json:"until"`
	SeenBy    string    `json:"seen_by"` // the replica that has seen it down last
	SeenAt    time.Time `json:"seen_at"`
	Cause     Cause     `json:"cause"`
	Trips     int       `json:"trips"`               // quarantines in a row
	Confirmed bool      `json:"confirmed,omitempty"` // two replicas have seen it down

	// Ended says that a replica has tried the server with success. Such a hint stays for hintGrace, so that a hint that a
	// store has lost, or that has expired, is not taken for a success.
	Ended bool `json:"ended,omitempty"`
}

// valid reports whether the hint counts now.
func (h *hint) valid(now time.Time) bool { return h.SeenBy != "" && !h.Ended && now.Before(h.expiry()) }

func (h *hint) expiry() time.Time { return h.Until.Add(hintGrace) }

// same reports whether both are the same sighting.
func (h *hint) same(other *hint) bool {
	return h.SeenBy == other.SeenBy && h.SeenAt.Equal(other.SeenAt)
}

// A probeLease is the right to probe a server that is down, as this replica knows it. One replica holds it until an
// instant. See package lease.
type probeLease struct {
	holder string
	until  time.Time
}

func (l *probeLease) heldBy(replica string, now time.Time) bool {
	return l.holder == replica && now.Before(l.until)
}

func (l *probeLease) heldByOther(replica string, now time.Time) bool {
	return l.holder != "" && l.holder != replica && now.Before(l.until)
}

// An outage is what the replicas share about one server, as this replica knows it. The zero outage is for a server
// that is not shared.
type outage struct {
	replica string // this one
	hint    hint
	lease   probeLease
	read    int64 // the number of the read of the store that hint and lease come from

	// sighting identifies the failure that this replica has written as a hint, or taken over from one: each failure
	// is written once.
	sighting time.Time

	adopted bool // this replica has had the lease since another one wrote the hint
	probing bool // this replica takes the lease, or has it and its probe is in flight
	writing bool // a write of step is in flight: this replica takes no lease that the write could release

	// refuted says that another replica has found the server healthy while this one did not: this replica writes no
	// hints until the server has worked for it for steadyAfter, too. corrections counts its confirmed hints that others
	// have ended since then.
	refuted      bool
	corrections  int
	healthySince time.Time // zero while the server does not work for this replica
}

// mostCorrections is how many confirmed hints of a replica others may end before it is refuted. One unconfirmed hint
// is enough.
const mostCorrections = 2

// A storeRead is the hint and the lease as they were at one read of the store.
type storeRead struct {
	hint   hint
	lease  probeLease
	number int64
}

// next returns the outage after a read of the store. own is the state of the server that this replica has seen itself,
// and down says that it has quarantined the server. heal says that this quarantine is over, because another replica has
// tried the server with success.
func (o outage) next(r storeRead, own State, down bool, now time.Time) (next outage, heal bool) {
	if r.number < o.read {
		return o, false // a later read has already been applied
	}
	before := o.hint
	o.hint, o.lease, o.read = r.hint, r.lease, r.number
	if latest := now.Add(longestQuarantine); o.hint.Until.After(latest) {
		o.hint.Until = latest // the clock of the other replica is ahead
	}
	if latest := now.Add(leaseTime); o.lease.until.After(latest) {
		o.lease.until = latest
	}
	if !o.hint.same(&before) && o.hint.SeenBy != o.replica {
		o.adopted = false
	}
	if !before.valid(now) || o.hint.valid(now) {
		return o, false
	}
	o.adopted = false
	if !o.hint.Ended {
		return o, false // it has expired, or the store has lost it: that says nothing about the server
	}
	if own != Healthy && before.SeenBy == o.replica {
		if before.Confirmed {
			o.corrections++
		}
		o.refuted = o.refuted || !before.Confirmed || o.corrections >= mostCorrections
		if !before.Confirmed {
			return o, false
		}
	}
	return o, down
}

// begin returns the outage after this replica has got the lease to probe the server of hint h.
func (o outage) begin(l probeLease, h hint) outage {
	o.lease, o.adopted, o.sighting = l, true, h.Until
	return o
}

// mayTry reports whether this replica has the lease, so that a call may be the trial.
func (o *outage) mayTry(now time.Time) bool { return o.lease.heldBy(o.replica, now) }

// mayEnd reports whether this replica ends the hint once it finds the server healthy.
func (o *outage) mayEnd() bool { return o.hint.SeenBy == o.replica || o.adopted }

// plan returns what this replica does next about a valid hint, while it is connected to the server. last is the time of
// its last probe; wanted says that calls want the server.
func (o *outage) plan(q quarantine, last time.Time, wanted bool, now time.Time) (time.Time, nextAction) {
	switch {
	case o.lease.heldByOther(o.replica, now):
		return o.lease.until, doNothing
	case q.state() == Healthy && o.mayEnd():
		return o.hint.expiry(), doNothing // the hint is about to be ended
	case q.state() == Probation:
		return last.Add(probationInterval), doTrial
	case o.hint.SeenBy != o.replica && !o.hint.Confirmed && q.state() == Healthy:
		return now, doProbe // the second opinion
	}
	q.until = later(q.until, o.hint.Until)
	at := q.probeAt(later(o.hint.SeenAt, last), wanted)
	if o.hint.SeenBy == o.replica && (!wanted || !q.absent) {
		at = at.Add(yieldTime)
	}
	return at, doProbe
}

// A hintWrite is a change that this replica makes in the store.
type hintWrite struct {
	hint    *hint // to write; nil leaves the hint
	end     *hint // the hint that ends; nil leaves it
	release bool  // delete the lease
}

// step returns the next write of this replica. own is the state of the server that it has seen itself, down is the hint
// that it would write, and sighting identifies the failure. ok is false if there is nothing to write.
func (o outage) step(own State, down hint, sighting, now time.Time) (next outage, w hintWrite, ok bool) {
	if o.replica == "" {
		return o, w, false
	}
	switch {
	case own != Healthy:
		if !o.healthySince.IsZero() && now.Sub(o.healthySince) >= steadyAfter {
			o.refuted, o.corrections = false, 0
		}
		o.healthySince = time.Time{}
	case o.healthySince.IsZero():
		o.healthySince = now
	}
	if o.probing {
		return o, w, false
	}
	w.release = o.mayTry(now)
	switch {
	case own == Healthy:
		if o.hint.valid(now) && o.mayEnd() {
			ended := o.hint
			ended.Ended = true
			w.end = &ended
		}
	case own == Quarantine && !sighting.Equal(o.sighting) && !o.refuted:
		o.sighting = sighting
		if o.hint.valid(now) {
			down.Confirmed = o.hint.Confirmed || o.hint.SeenBy != o.replica
			down.Trips, down.Until = max(down.Trips, o.hint.Trips), later(down.Until, o.hint.Until)
		}
		w.hint = &down
	case own == Probation:
		w.release = false // until the trial has ended
	}
	o.writing = w.hint != nil || w.end != nil || w.release
	return o, w, o.writing
}

// wrote returns the outage after the write. Without the store a hint is not shared, and this replica ends it for itself.
func (o outage) wrote(w hintWrite, ok bool, number int64) outage {
	o.read, o.writing = number, false
	switch {
	case w.hint != nil && ok:
		o.hint = *w.hint
	case w.end != nil:
		o.hint, o.adopted = hint{}, false
	}
	if w.release {
		o.lease = probeLease{}
	}
	return o
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
