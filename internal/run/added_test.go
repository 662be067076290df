package run_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// What a person has added to one run is in no other run of the principal, although they show the same otherwise.
func TestAnAdditionToOneRunIsInNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &binder{tools: []string{"x"}}
		g := registry(b)
		var chosen atomic.Value // a RunID
		var capability atomic.Value
		capability.Store("added")
		end := time.Now().Add(time.Hour)
		run.UseAdditions(g, func(_ context.Context, _ switchboard.Principal, _ switchboard.TaskID, id switchboard.RunID) []switchboard.Addition {
			if chosen.Load() != id || !time.Now().Before(end) {
				return nil
			}
			return []switchboard.Addition{{Request: "r-1", Capability: capability.Load().(string), Until: end}}
		})
		open := func(p switchboard.Principal) *run.Run {
			r, err := g.Open(t.Context(), p, "browse", "")
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		one, two := open(alice), open(alice)
		bob := alice
		bob.ID = "bob"
		other := open(bob)
		chosen.Store(two.ID())
		binds := b.binds
		run.RebindOf(t.Context(), g, "acme", "alice")
		if names(one) != "x " || names(two) != "x added " {
			t.Errorf("the runs show %q and %q", names(one), names(two))
		}
		if b.binds != binds+2 || names(other) != "x " {
			t.Errorf("%d binds; another principal's run shows %q", b.binds-binds, names(other))
		}
		if third := open(alice); names(third) != "x " {
			t.Errorf("a new run shows %q", names(third))
		}
		g.Rebind(t.Context())
		if names(one) != "x " || names(two) != "x added " {
			t.Errorf("after another bind of all, the runs show %q and %q", names(one), names(two))
		}
		if g.Refresh(t.Context(), two); two.AdditionEnded(time.Now()) || names(two) != "x added " {
			t.Error("it has ended too early")
		}
		time.Sleep(time.Hour) // no time passes in reality
		if !two.AdditionEnded(time.Now()) || one.AdditionEnded(time.Now()) {
			t.Error("the end is not seen")
		}
		if g.Refresh(t.Context(), one, two); names(two) != "x " || two.AdditionEnded(time.Now()) {
			t.Errorf("after its end the run shows %q", names(two))
		}

		end = time.Now().Add(time.Hour)
		again := run.NewID()
		chosen.Store(again)
		g.Rebind(t.Context()) // so that no new run shares what was shown before
		if r, err := g.Open(t.Context(), alice, "browse", again); err != nil || names(r) != "x added " {
			t.Errorf("a run whose process has started again shows %q, %v", names(r), err)
		}
		if r := open(alice); names(r) != "x " {
			t.Errorf("the next run shows %q", names(r))
		}

		capability.Store("") // an addition that gives no tool
		chosen.Store(one.ID())
		g.Rebind(t.Context())
		time.Sleep(time.Hour)
		if g.Refresh(t.Context(), one); one.AdditionEnded(time.Now()) {
			t.Error("an addition that gave nothing has not ended, so that each call binds the run again")
		}
	})
}
