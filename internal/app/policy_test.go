package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A bindLog is a run.Binder that logs its binds.
type bindLog struct{ binds []string }

func (*bindLog) Resolve(_ switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return task, nil
}

func (c *bindLog) Bind(_ context.Context, p switchboard.Principal, _ switchboard.TaskID, _ run.Before) (*surface.Surface, error) {
	c.binds = append(c.binds, string(p.Tenant)+time.Now().Format(" 15:04:05"))
	return surface.New(surface.Input{}), nil
}

func (*bindLog) Lasts(id switchboard.TenantID) bool { return id != "turns" }

func (*bindLog) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	return nil, nil
}

func TestRunsUnderAPolicyThatReadsTheClockAreBoundAgainEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		ctx, stop := context.WithCancel(t.Context())
		c := &bindLog{}
		a := &App{parts: parts{runParts: runParts{runs: run.New(c, surface.New(surface.Input{}), store.NewMemory())}}, log: slog.New(slog.DiscardHandler)}
		time.Sleep(45 * time.Second)
		for _, tenant := range []switchboard.TenantID{"turns", "lasts"} {
			if _, err := a.runs.Open(ctx, switchboard.Principal{Tenant: tenant, ID: "x"}, "work", ""); err != nil {
				t.Fatal(err)
			}
		}
		a.work.Go(func() { a.followClock(ctx) })
		time.Sleep(90 * time.Second)
		stop()
		a.work.Wait()
		if got, want := strings.Join(c.binds, ", "), "turns 00:00:45, lasts 00:00:45, turns 00:01:00, turns 00:02:00"; got != want {
			t.Errorf("bound: %s; want %s", got, want)
		}
	})
}

func TestAPolicyThatDoesNotChangeKeepsTheTimeSinceWhenItIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := loadTenant(t, "")
		time.Sleep(time.Hour)
		for tenant, changed := range map[string]bool{"mode: assist\n": false, "policy: {deny: [a/x]}\n": true} {
			next := loadTenant(t, tenant)
			next.inheritTimes(first)
			was, now := first.policies["acme"].Digest(), next.policies["acme"].Digest()
			if (was != now) != changed || next.policySince["acme"].After(first.policySince["acme"]) != changed {
				t.Errorf("%q: %s since %s after %s since %s", tenant, now, next.policySince["acme"], was, first.policySince["acme"])
			}
		}
	})
}

// loadTenant loads a configuration with one tenant, which has these lines in its tenant.yaml.
func loadTenant(t *testing.T, lines string) *loadedConfig {
	t.Helper()
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":             {Data: []byte("servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a]}}\n")},
		"tenants/acme/tenant.yaml":     {Data: []byte("tenant: acme\ndefault_task: work\n" + lines)},
		"tenants/acme/tasks/work.yaml": {Data: []byte("task_id: work\nrequired_capabilities: [{verb: read, resource: fs, optional: true}]\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := compilePolicies(c, policy.NewEngine(0, 0), newCompiledLayers(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
