package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// deaf is a store that cannot be read while it is down.
type deaf struct {
	store.Store
	down atomic.Bool
}

func (d *deaf) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if d.down.Load() {
		return store.Value{}, errors.New("down")
	}
	return d.Store.Value(ctx, k)
}

func TestNames14NoCallMovesWhileTheStoreCannotSayWhichToolsClientsKnow(t *testing.T) {
	law.Hold(t, law.OneDecision)
	synctest.Test(t, func(t *testing.T) {
		st := &deaf{Store: store.NewMemory()}
		first := start(t, st, "a/search")
		r, _ := first.Base(t.Context(), alice, "browse")
		shown, _ := r.Surface().Lookup("search")
		first.RecordShown(t.Context(), r, "c", surface.SightOf(shown))
		st.down.Store(true)
		second := start(t, st, "b/search")
		r, err := second.Base(t.Context(), alice, "browse")
		if err != nil {
			t.Fatal(err)
		}
		if way := r.Surface().Route(r.Seen("c"), "search", false); way.Kind == surface.Forward || r.UpToDate(r.Surface()) {
			t.Errorf("the call goes to %s, and it is unknown whether the client was shown that tool", way.Entry.Tool.ID)
		}
		st.down.Store(false)
		second.CatchUp(t.Context(), r)
		if o, ok := r.Seen("c").Lookup("search"); !ok || o.Tool.ID.Server != "a" {
			t.Errorf("once it can be read: %+v", o)
		}
	})
}

// Evicted clients that know the list are refused nothing before the list changes.
func TestAnEvictedClientIsLostOnceTheListChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		p := start(t, st, "!a/search")
		r, _ := p.Base(t.Context(), alice, "browse")
		for i := range run.MaxClients + 5 {
			p.RecordListed(t.Context(), r, fmt.Sprint(i), r.Surface().Table(true))
		}
		if r.Seen("0") == surface.Lost || !r.UpToDate(r.Surface()) {
			t.Error("a client that knows the list is lost")
		}
		again, _ := start(t, st, "!a/search").Base(t.Context(), alice, "browse")
		if again.Seen("0") == surface.Lost {
			t.Error("after a restart a client that knows the list is lost")
		}
		other, _ := start(t, st, "!b/search").Base(t.Context(), alice, "browse")
		if other.Seen("0") != surface.Lost || other.UpToDate(other.Surface()) {
			t.Error("the list has changed, and an evicted client counts as one that was shown nothing")
		}
	})
}

func TestAnAnnouncementEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		p := start(t, st, "a/search")
		r, _ := p.Base(t.Context(), alice, "browse")
		var dones []func()
		for i := range 1100 { // more than are kept
			dones = append(dones, r.Announce("c", fmt.Sprint("n", i)))
		}
		for _, done := range dones {
			done()
		}
		time.Sleep(time.Minute)
		if r.MayPredateAnnouncement(time.Now()) || r.PredatesAnnouncement("c", "n5", time.Now()) {
			t.Error("the announcement does not end")
		}
		p.RecordListed(t.Context(), r, "c", r.Surface().Table(true))
		e, _ := r.Surface().Lookup("search")
		done := r.Announce("c", "search")
		p.RecordShown(t.Context(), r, "c", surface.SightOf(e))
		done()
		time.Sleep(30 * time.Minute)
		arrived := time.Now()
		again, _ := start(t, st, "a/search").Base(t.Context(), alice, "browse")
		if again.PredatesAnnouncement("c", "search", arrived) {
			t.Error("a restart begins the announcement again")
		}
	})
}

// racing makes another process write right before the first change of a run.
type racing struct {
	store.Store
	before func()
}

func (s *racing) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.before != nil && strings.HasPrefix(c.Group, "runs/") {
		f := s.before
		s.before = nil
		f()
	}
	return s.Store.Apply(ctx, c)
}

// Two processes show tools at the same moment, to two clients and to one: each process knows both.
func TestTwoProcessesThatShowToolsAtTheSameMomentKeepBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, st := t.Context(), store.NewMemory()
		slow := &racing{Store: st}
		one, two := start(t, slow, "a/search", "a/fetch"), start(t, st, "a/search", "a/fetch")
		r1, _ := one.Base(ctx, alice, "browse")
		r2, _ := two.Base(ctx, alice, "browse")
		slow.before = func() { two.RecordListed(ctx, r2, "other", r2.Surface().Table(true)) }
		one.RecordListed(ctx, r1, "mine", r1.Surface().Table(true))
		synctest.Wait()
		third, _ := start(t, st, "a/search", "a/fetch").Base(ctx, alice, "browse")
		for i, r := range []*run.Run{r1, r2, third} {
			if r.Seen("mine") == nil || r.Seen("other") == nil {
				t.Errorf("process %d knows mine: %v, and other: %v", i, r.Seen("mine") != nil, r.Seen("other") != nil)
			}
		}
		search, _ := r1.Surface().Lookup("search")
		fetch, _ := r2.Surface().Lookup("fetch")
		slow.before = func() { two.RecordShown(ctx, r2, "new", surface.SightOf(fetch)) }
		one.RecordShown(ctx, r1, "new", surface.SightOf(search))
		synctest.Wait()
		for i, r := range []*run.Run{r1, r2} {
			_, a := r.Seen("new").Lookup("search")
			_, b := r.Seen("new").Lookup("fetch")
			if !a || !b {
				t.Errorf("process %d knows search: %v, and fetch: %v", i, a, b)
			}
		}
	})
}

// A forger writes values into the store without the key of the seal.
type forger struct{ *store.Memory }

func (f forger) forge(t *testing.T, r *run.Run) {
	t.Helper()
	group := "runs/" + string(alice.Tenant) + "/" + alice.ID
	name := "base/" + string(r.Task())
	if id := r.ID(); id != "" {
		name = "run/" + string(id)
	}
	if _, err := f.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: name, Was: store.Any, Data: []byte(`{"task":"browse","surface":{}}`), TTL: time.Hour}}}); err != nil {
		t.Fatal(err)
	}
}

// A record whose seal does not open is ignored, and a process that knows the run writes it again. What other processes have shown
// to clients is lost, so an unknown client counts as lost and calls nothing that it was not shown.
func TestAttack7AProcessThatKnowsARunSavesItAgainAfterItsSealDoesNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := forger{store.NewMemory()}
		st, err := store.NewSealed(under, store.SealOptions{Key: switchboard.NewSecret(strings.Repeat("k", 32))})
		if err != nil {
			t.Fatal(err)
		}
		first, ctx := start(t, st, "a/x", "a/y"), t.Context()
		minted, err := first.Open(ctx, alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		base, err := first.Base(ctx, alice, "browse")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*run.Run{minted, base} {
			under.forge(t, r)
		}
		second := start(t, st, "a/x", "a/y")
		if found(t, second.Runs, alice, minted.ID()) {
			t.Error("a minted run with a broken seal is found")
		}
		there, err := second.Base(ctx, alice, "browse")
		if err != nil {
			t.Fatal(err)
		}
		if !there.Seen("somebody").IsLost() {
			t.Error("an unknown client counts as one that was shown nothing")
		}
		for _, r := range []*run.Run{minted, there} {
			if err := expand(t, r, "a/x"); err != nil {
				t.Fatal(err)
			}
		}
		third := start(t, st, "a/x", "a/y")
		again, err := third.Find(ctx, alice, minted.ID())
		if err != nil || again == nil || expanded(again) != "a/x" {
			t.Errorf("the minted run is not saved again: %v", err)
		}
		if again, err = third.Base(ctx, alice, "browse"); err != nil || expanded(again) != "a/x" {
			t.Errorf("the base run is not saved again: %v", err)
		}
	})
}
