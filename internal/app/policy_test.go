package app

import (
	"context"
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

// A clerk is a run.Binder who notes when it was asked.
type clerk struct{ asked []string }

func (*clerk) Resolve(_ switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return task, nil
}

func (c *clerk) Bind(_ context.Context, p switchboard.Principal, _ switchboard.TaskID, _ run.Before) (*surface.Surface, error) {
	c.asked = append(c.asked, string(p.Tenant)+time.Now().Format(" 15:04:05"))
	return surface.New(surface.Input{}), nil
}

func (*clerk) Lasts(id switchboard.TenantID) bool { return id != "turns" }

func (*clerk) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	return nil, nil
}

func TestWhereTheClockCountsRunsAreBoundAgainAsMinutesBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		ctx, stop := context.WithCancel(t.Context())
		c := &clerk{}
		a := &App{runs: run.New(c, surface.New(surface.Input{}), store.NewMemory()), log: slog.New(slog.DiscardHandler)}
		time.Sleep(45 * time.Second)
		for _, tenant := range []switchboard.TenantID{"turns", "lasts"} {
			if _, err := a.runs.Open(ctx, switchboard.Principal{Tenant: tenant, ID: "x"}, "work"); err != nil {
				t.Fatal(err)
			}
		}
		a.work.Go(func() { a.followClock(ctx) })
		time.Sleep(90 * time.Second)
		stop()
		a.work.Wait()
		if got, want := strings.Join(c.asked, ", "), "turns 00:00:45, lasts 00:00:45, turns 00:01:00, turns 00:02:00"; got != want {
			t.Errorf("bound: %s; want %s", got, want)
		}
	})
}

func TestStatusSaysSinceWhenEachPolicyIsWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := stateOf(t, "", "").loadedConfig
		time.Sleep(time.Hour)
		for tenant, changed := range map[string]bool{"mode: assist\n": false, "policy: {deny: [a/x]}\n": true} {
			next := stateOf(t, "", tenant).loadedConfig
			next.inheritTimes(first)
			was, now := first.policyStatuses("acme")[0], next.policyStatuses("")[0]
			if (was.Digest != now.Digest) != changed || now.Loaded.After(was.Loaded) != changed {
				t.Errorf("%q: %+v after %+v", tenant, now, was)
			}
		}
		if got := first.policyStatuses("other"); len(got) > 0 {
			t.Errorf("another tenant is told %+v", got)
		}
	})
}
