package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// oneTask is a run.Binder with one task, which shows nothing.
type oneTask struct{}

func (oneTask) Resolve(switchboard.Principal, switchboard.TaskID) (switchboard.TaskID, error) {
	return "work", nil
}

func (oneTask) Bind(context.Context, switchboard.Principal, switchboard.TaskID, run.Before) (*surface.Surface, error) {
	return surface.New(surface.Input{}), nil
}

func (oneTask) Lasts(switchboard.TenantID) bool { return true }

func (oneTask) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	return nil, nil
}

var (
	bob = switchboard.Principal{Tenant: "acme", ID: "bob"}
	eve = switchboard.Principal{Tenant: "acme", ID: "eve"}
)

// A replica is what one process has of this package.
type replica struct {
	runs     *run.Runs
	sessions *Directory
	stored   *Replicator
	ended    chan *Session
}

func newReplica(st store.Store, self string) *replica {
	r := &replica{runs: run.New(oneTask{}, surface.New(surface.Input{}), st), ended: make(chan *Session, 1000)}
	r.sessions = NewDirectory([]byte("shared"), func(s *Session) { r.ended <- s })
	r.stored = NewReplicator(r.sessions, st, self, r.runs, nil, slog.New(slog.DiscardHandler))
	return r
}

// open opens a session of p without users.
func (r *replica) open(t *testing.T, p switchboard.Principal) *Session {
	t.Helper()
	bound, err := r.runs.Open(t.Context(), p, "", "")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := r.sessions.Reserve(p, "")
	if s == nil {
		t.Fatal("there are too many sessions")
	}
	s.Bind(bound, true, true)
	if err := r.stored.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r.sessions.Publish(s)
	r.sessions.Release(s)
	return s
}

// has reports whether the replica finds p's session of that id.
func (r *replica) has(p switchboard.Principal, id string) bool {
	s := r.sessions.Find(id, p)
	if s == nil {
		return false
	}
	r.sessions.Release(s)
	return true
}

func TestASessionIsFoundOnlyByThePrincipalThatOpenedIt(t *testing.T) {
	r := newReplica(store.NewMemory(), "")
	s := r.open(t, bob)
	if !r.has(bob, s.ID()) || r.has(eve, s.ID()) || r.has(bob, s.ID()+"x") {
		t.Error("bob does not find it, or another one does")
	}
	if !r.sessions.IsMinted(KeyOf(bob), s.ID()) || r.sessions.IsMinted(KeyOf(eve), s.ID()) || r.sessions.IsMinted(KeyOf(bob), "made up") {
		t.Error("an id counts as minted for the wrong principal")
	}
	r.sessions.End(s)
	if r.has(bob, s.ID()) || s.Context().Err() == nil {
		t.Error("it has not ended")
	}
}

func TestAnUnusedSessionEndsAndOneInUseDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(store.NewMemory(), "")
		unused, used := r.open(t, bob), r.open(t, bob)
		r.sessions.Find(used.ID(), bob)
		time.Sleep(Idle + time.Second)
		if r.has(bob, unused.ID()) || !r.has(bob, used.ID()) {
			t.Error("the wrong session has ended")
		}
		if s := <-r.ended; s != unused {
			t.Error("another end was reported")
		}
		r.sessions.End(used)
	})
}

func TestAPrincipalThatHasAllItsSessionsLosesTheOneThatWasIdleForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(store.NewMemory(), "")
		first := r.open(t, bob)
		for range MaxSessionsEach - 1 {
			time.Sleep(time.Millisecond)
			r.open(t, bob)
		}
		if s, each := r.sessions.Reserve(bob, ""); s != nil || !each {
			t.Error("one too many, though none was idle for long")
		}
		time.Sleep(idleGrace)
		r.open(t, bob)
		if r.has(bob, first.ID()) || r.sessions.Size() != MaxSessionsEach {
			t.Errorf("the first one is still there, or there are %d", r.sessions.Size())
		}
		r.sessions.EndAll()
	})
}

func TestASessionIsTakenOverWithWhatTheStoreHas(t *testing.T) {
	st := store.NewMemory()
	one, two := newReplica(st, "one"), newReplica(st, "two")
	s := one.open(t, bob)
	s.Client.SetCapabilities([]byte(`{"roots":{}}`))
	s.Client.level.Store("error")
	if err := one.stored.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	v, version, err := two.stored.Lookup(t.Context(), KeyOf(bob), s.ID())
	if err != nil || version == 0 || v.Owner != "one" {
		t.Fatalf("the store has %+v, %d, %v", v, version, err)
	}
	next, err := two.stored.TakeOver(t.Context(), bob, s.ID(), v, version)
	if err != nil {
		t.Fatal(err)
	}
	if next.Moves() != 1 || string(next.Client.Capabilities()) != `{"roots":{}}` || next.Client.LogLevel() != "error" || !next.Replays.SendsPrimers() {
		t.Errorf("the session was taken over as %d, %s, %s", next.Moves(), next.Client.Capabilities(), next.Client.LogLevel())
	}
	if err := one.stored.Save(t.Context(), s); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the earlier owner saves it: %v", err)
	}
	if one.has(bob, s.ID()) || len(one.sessions.FindAll(s.ID(), bob)) != 1 {
		t.Error("the earlier owner still owns it, or has forgotten its requests")
	}
	if err := two.stored.EndEverywhere(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if _, version, err := one.stored.Lookup(t.Context(), KeyOf(bob), s.ID()); version != 0 || err != nil {
		t.Errorf("after the end the store has version %d, %v", version, err)
	}
}

// A session that has moved ends at both replicas, and its run makes room at both.
func TestSessionsThatHaveMovedAndEndedLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		one, two := newReplica(st, "one"), newReplica(st, "two")
		for range run.MaxRuns + 1 {
			s := one.open(t, bob)
			v, version, err := two.stored.Lookup(t.Context(), KeyOf(bob), s.ID())
			if err != nil {
				t.Fatal(err)
			}
			next, err := two.stored.TakeOver(t.Context(), bob, s.ID(), v, version)
			if err != nil {
				t.Fatal(err)
			}
			two.sessions.Release(next)
			if err := one.stored.Save(t.Context(), s); !errors.Is(err, store.ErrConflict) {
				t.Fatal(err)
			}
			if err := two.stored.EndEverywhere(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			one.sessions.End(s)
			synctest.Wait()
			<-one.ended
			<-two.ended
		}
	})
}

// Of two requests that take over a session at once, one loses. The run stays that of the other.
func TestATakeoverThatFailsDoesNotReleaseTheRun(t *testing.T) {
	st := store.NewMemory()
	one, two := newReplica(st, "one"), newReplica(st, "two")
	id := one.open(t, bob).ID()
	takeOver := func() (*Session, error) {
		v, version, err := two.stored.Lookup(t.Context(), KeyOf(bob), id)
		if err != nil {
			t.Fatal(err)
		}
		return two.stored.TakeOver(t.Context(), bob, id, v, version)
	}
	winner, err := takeOver()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeOver(); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("it is taken over twice: %v", err)
	}
	two.sessions.yield(winner) // so that nobody watches the run here
	for range run.MaxRuns - 1 {
		if _, err := two.runs.Open(t.Context(), bob, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := two.runs.Open(t.Context(), bob, "", ""); err == nil {
		t.Error("the run of a session that lives on made room for another")
	}
}

func TestAStoredSessionKnowsItsOwners(t *testing.T) {
	v := Stored{Owner: "d", Moves: 3, EarlierOwners: []string{"b", "c"}}
	for moves, want := range []string{"", "b", "c", "d", "d"} {
		if got := v.OwnerAfter(int64(moves)); got != want {
			t.Errorf("after %d moves %q owned it, want %q", moves, got, want)
		}
	}
	for event, want := range map[string]int64{"1-1": 0, "2000000005-7": 2} {
		if moves, ok := StreamMoves(event); !ok || moves != want {
			t.Errorf("event %s began after %d moves, want %d", event, moves, want)
		}
	}
	for _, event := range []string{"", "0-1", "x-1", "-1-1"} {
		if _, ok := StreamMoves(event); ok {
			t.Errorf("%q names a stream", event)
		}
	}
}

func TestAnIDIsInUseUntilItsRequestIsRemoved(t *testing.T) {
	var rs Requests
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := rs.Add([]byte("1"), cancel); err != nil {
		t.Fatal(err)
	}
	if err := rs.Add([]byte("1"), cancel); !errors.Is(err, ErrIDInUse) {
		t.Errorf("the same id again: %v", err)
	}
	if err := rs.Add([]byte(`"1"`), cancel); err != nil {
		t.Errorf("a string is another id: %v", err)
	}
	if rs.Cancel([]byte(`{"requestId":2}`)) || rs.Cancel(nil) || !rs.Cancel([]byte(`{"requestId":1}`)) || !errors.Is(context.Cause(ctx), ErrCancelled) {
		t.Error("the wrong request was cancelled")
	}
	rs.Remove([]byte("1"))
	if err := rs.Add([]byte("1"), cancel); err != nil {
		t.Errorf("the id once it is free: %v", err)
	}
	why := errors.New("the end")
	rs.CancelAll(why)
	late, cancelLate := context.WithCancelCause(t.Context())
	if err := rs.Add([]byte("3"), cancelLate); err != nil || !errors.Is(context.Cause(late), why) {
		t.Errorf("a request after the end: %v, %v", err, context.Cause(late))
	}
}

func TestAStreamIsResumedAfterTheEventThatTheClientHasRead(t *testing.T) {
	r := newReplica(store.NewMemory(), "")
	s := r.open(t, bob)
	k := s.Replays.Open(func() {})
	for i := range 3 {
		k.Append(fmt.Append(nil, i))
	}
	found, event, ours := s.Replays.Find("1-1")
	if found != k || event != 1 || !ours {
		t.Fatalf("event 1-1 is %d of %v", event, found)
	}
	events, last, finished, grown := k.Since(event)
	if len(events) != 2 || last != 3 || finished || !strings.Contains(string(events[0]), "data: 1") {
		t.Errorf("after it come %q, up to %d", events, last)
	}
	k.Finish([]byte("result"))
	<-grown
	if _, _, finished, _ := k.Since(last); !finished {
		t.Error("the stream has not finished")
	}
	for id, want := range map[string]bool{"1-9": true, "7-1": true, "none": false} {
		if k, _, ours := s.Replays.Find(id); k != nil || ours != want {
			t.Errorf("%s: %v, %t", id, k, ours)
		}
	}
}
