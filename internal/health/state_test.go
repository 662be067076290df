package health

import (
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return begin.Add(d) }

func TestALinkIsQuarantinedAfterAShortLossAndHealthyOnceItIsBack(t *testing.T) {
	gone := Cause{Stage: "serve", Message: "it has ended", Gone: true}
	reset := Cause{Stage: "serve", Message: "reset"}
	up := linkReport{up: true}
	for _, tt := range []struct {
		name    string
		reports []linkReport
		after   time.Duration
		want    State
	}{
		{"no report", nil, time.Hour, Starting},
		{"it has connected", []linkReport{up}, time.Hour, Healthy},
		{"it could never connect", []linkReport{{cause: gone, at: begin}}, 0, Quarantine},
		{"a reset", []linkReport{up, {cause: reset, at: begin}}, time.Second, Healthy},
		{"a process that has ended", []linkReport{up, {cause: gone, at: begin}}, time.Second, Lost},
		{"a longer loss", []linkReport{up, {cause: reset, at: begin}}, blink, Quarantine},
		{"a second report does not begin the loss again", []linkReport{up, {cause: gone, at: begin}, {cause: reset, at: at(time.Second)}}, blink, Quarantine},
		{"it is back", []linkReport{up, {cause: gone, at: begin}, up}, time.Hour, Healthy},
	} {
		var l linkState
		for _, r := range tt.reports {
			l = l.next(r)
		}
		if got := l.state(at(tt.after)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAQuarantineDoublesUpToAMinuteAndBeginsAnewAfterAMinuteOfHealth(t *testing.T) {
	var q quarantine
	now := begin
	fail := func(kind quarantineKind) time.Duration {
		q = q.next(quarantineEvent{kind: kind, at: now, chance: 0.5})
		return q.until.Sub(now)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		kind := onProbeFailed
		if i == 0 {
			kind = onTripped
		}
		if got := fail(kind); got != want*time.Second {
			t.Errorf("quarantine %d lasts %s, want %s", i+1, got, want*time.Second)
		}
		now = q.until
	}
	q = q.next(quarantineEvent{kind: onAnswered, at: now})
	if q.state() != Probation {
		t.Errorf("after an answer: %s", q.state())
	}
	q = q.next(quarantineEvent{kind: onClosed, at: now})
	if q.state() != Healthy {
		t.Errorf("after its trial: %s", q.state())
	}
	if got := fail(onTripped); got != longestQuarantine {
		t.Errorf("the next quarantine at once lasts %s", got)
	}
	q = q.next(quarantineEvent{kind: onClosed, at: now})
	now = now.Add(steadyAfter + 1)
	if got := fail(onTripped); got != firstQuarantine {
		t.Errorf("the next quarantine after a minute lasts %s", got)
	}
}

func TestEarlyProbesOfAnUnreachableServerDoNotLengthenItsQuarantine(t *testing.T) {
	q := quarantine{}.next(quarantineEvent{kind: onTripped, at: begin, absent: true, chance: 0.5})
	until, last := q.until, begin
	if got := q.probeAt(last, false); got != until {
		t.Errorf("without calls it is probed after %s", got.Sub(begin))
	}
	for i, want := range []time.Duration{50, 66, 88} {
		if got := q.probeAt(last, true).Sub(last).Truncate(time.Millisecond); got != want*time.Millisecond {
			t.Errorf("early probe %d after %s, want %s", i+1, got, want*time.Millisecond)
		}
		last = q.probeAt(last, true)
		q = q.next(quarantineEvent{kind: onProbeFailed, at: last, absent: true})
	}
	if q.until != until {
		t.Errorf("the quarantine has grown by %s", q.until.Sub(until))
	}
}

// seen returns the outage of replica "me" after it has read the hint.
func seen(o outage, h hint, now time.Time) (outage, bool) {
	o.replica = "me"
	return o.next(storeRead{hint: h, number: o.read + 1}, Healthy, false, now)
}

func TestAHintOfAnotherReplicaIsCheckedAtOnceAndAConfirmedOneWhenItIsDue(t *testing.T) {
	first := hint{SeenBy: "other", SeenAt: begin, Until: at(10 * time.Second), Trips: 1}
	confirmed := first
	confirmed.Confirmed = true
	mine := confirmed
	mine.SeenBy = "me"
	for _, tt := range []struct {
		name   string
		hint   hint
		lease  probeLease
		wanted bool
		want   time.Duration // of the probe
		do     nextAction
	}{
		{"a new hint", first, probeLease{}, false, 0, doProbe},
		{"another has the lease", first, probeLease{"third", at(5 * time.Second)}, true, 5 * time.Second, doNothing},
		{"a confirmed hint", confirmed, probeLease{}, false, 10 * time.Second, doProbe},
		{"a confirmed hint, and calls want the server", confirmed, probeLease{}, true, wantedQuarantine, doProbe},
		{"this replica has seen it down last, and yields", mine, probeLease{}, false, 10*time.Second + yieldTime, doProbe},
	} {
		o, _ := seen(outage{}, tt.hint, begin)
		o.lease = tt.lease
		q := quarantine{}
		if tt.hint.SeenBy == "me" {
			q.cause = &Cause{}
		}
		if got, do := o.plan(q, time.Time{}, tt.wanted, begin); got.Sub(begin) != tt.want || do != tt.do {
			t.Errorf("%s: action %d after %s, want %d after %s", tt.name, do, got.Sub(begin), tt.do, tt.want)
		}
	}
}

func TestAReplicaWritesEachFailureOnceAndNoneWhileItIsRefuted(t *testing.T) {
	o, now := outage{replica: "me"}, begin
	write := func(what string, own State, want bool) hintWrite {
		t.Helper()
		now = now.Add(time.Second)
		next, w, _ := o.step(own, hint{SeenBy: "me", SeenAt: now, Until: now}, now, now)
		o = next.wrote(w, true, next.read+1)
		if (w.hint != nil) != want {
			t.Errorf("%s: writes a hint: %v, want %v", what, w.hint != nil, want)
		}
		return w
	}
	read := func(own State, down bool, change func(*hint)) (heal bool) {
		h := o.hint
		change(&h)
		o, heal = o.next(storeRead{hint: h, number: o.read + 1}, own, down, now)
		return heal
	}
	end := func(h *hint) { h.Ended = true }
	lose := func(h *hint) { *h = hint{} }
	write("healthy", Healthy, false)
	write("its first failure", Quarantine, true)
	same := o.sighting
	if _, w, _ := o.step(Quarantine, hint{SeenBy: "me"}, same, now); w.hint != nil {
		t.Error("the same failure is written twice")
	}
	write("its failed probe", Quarantine, true)
	if heal := read(Quarantine, true, lose); heal || o.refuted {
		t.Errorf("a hint that the store has lost: heals %v, refuted %v", heal, o.refuted)
	}
	write("its next failed probe", Quarantine, true)
	if heal := read(Quarantine, true, end); heal || !o.refuted {
		t.Errorf("another replica ends its hint, which none has confirmed: heals %v, refuted %v", heal, o.refuted)
	}
	write("its next failed probe", Quarantine, false)
	write("it works here, too", Healthy, false)
	write("it fails again soon", Quarantine, false)
	write("it works here again", Healthy, false)
	now = now.Add(steadyAfter)
	write("it fails after it has worked for a minute", Quarantine, true)
	if w := write("its trial has succeeded", Healthy, false); w.end == nil {
		t.Error("the replica does not end its hint")
	}
	for i, refuted := range []bool{false, true} {
		write("its failure", Quarantine, true)
		o.hint.Confirmed = true
		if heal := read(Quarantine, true, end); !heal || o.refuted != refuted {
			t.Errorf("another replica ends confirmed hint %d: heals %v, refuted %v", i+1, heal, o.refuted)
		}
	}
	o = outage{replica: "me"}
	write("a connection that is lost", Quarantine, true)
	if read(Quarantine, false, end); !o.refuted {
		t.Error("another replica reaches the server: this one, which has lost its connection, is not refuted")
	}
	write("the connection is lost again", Quarantine, false)
}

func TestAHintEndsByItselfAfterItsGrace(t *testing.T) {
	h := hint{SeenBy: "other", Until: at(time.Second)}
	if !h.valid(at(time.Second + hintGrace - 1)) {
		t.Error("it ends too early")
	}
	if h.valid(at(time.Second + hintGrace)) {
		t.Error("it does not end")
	}
	o, _ := seen(outage{}, hint{SeenBy: "other", Until: at(time.Hour)}, begin)
	if got := o.hint.Until.Sub(begin); got != longestQuarantine {
		t.Errorf("a hint by a clock that is ahead lasts %s", got)
	}
}
