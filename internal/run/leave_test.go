package run_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A chooser takes the first of its servers that is not lost and that the run has
// not left; else one that it has; else the first.
type chooser struct {
	servers, lost []switchboard.ServerID
	binds         int
}

func (*chooser) Resolve(_ switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return task, nil
}

func (c *chooser) Bind(_ context.Context, _ switchboard.Principal, _ switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	c.binds++
	chosen := c.servers[0]
	for _, over := range [][]switchboard.ServerID{c.lost, slices.Concat(c.lost, was.Abandoned)} {
		if i := slices.IndexFunc(c.servers, func(s switchboard.ServerID) bool { return !slices.Contains(over, s) }); i >= 0 {
			chosen = c.servers[i]
		}
	}
	tool := &switchboard.Tool{ID: switchboard.ToolID{Server: chosen, Name: "x"}, Definition: []byte(`{"name":"x","title":"of ` + string(chosen) + `"}`)}
	task := &switchboard.Task{Requirements: []switchboard.Requirement{{}}}
	return surface.New(surface.Input{Task: task, Selected: []decide.Selected{{Tool: tool, Requirements: []int{0}}}, Prev: was.Surface}), nil
}

func (*chooser) Lasts(switchboard.TenantID) bool { return true }

func (*chooser) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	return nil, nil
}

func TestARunLeavesALostServerAndStaysWithItsReplacement(t *testing.T) {
	ctx := t.Context()
	c := &chooser{servers: []switchboard.ServerID{"a", "b"}}
	g := run.New(c, surface.New(surface.Input{}), store.NewMemory())
	r, err := g.Open(ctx, switchboard.Principal{Tenant: "t", ID: "p"}, "work", "")
	if err != nil {
		t.Fatal(err)
	}
	var told int
	r.Watch(teller(func(switchboard.Kinds) { told++ }), false)
	serves := func() switchboard.ServerID { return r.Surface().Entries()[0].Tool.ID.Server }
	lost := func(ids ...switchboard.ServerID) func(*surface.Surface) []switchboard.ServerID {
		c.lost = ids
		return func(s *surface.Surface) []switchboard.ServerID {
			if slices.Contains(ids, s.Entries()[0].Tool.ID.Server) {
				return ids
			}
			return nil
		}
	}
	step := func(what string, do func(), want switchboard.ServerID, news int) {
		t.Helper()
		told = 0
		do()
		if got := serves(); got != want || told != news {
			t.Errorf("%s: %s serves, and the client is told %d times; want %s and %d", what, got, told, want, news)
		}
	}
	step("another server is lost", func() { g.ReplaceServers(ctx, lost("b")) }, "a", 0)
	if c.binds != 1 {
		t.Errorf("a run that is not concerned was bound %d times", c.binds)
	}
	step("its own is", func() { g.ReplaceServers(ctx, lost("a")) }, "b", 1)
	step("the catalog changes while the first is back", func() { g.Rebind(ctx) }, "b", 0)
	step("the second is lost", func() { g.ReplaceServers(ctx, lost("b")) }, "a", 1)
	step("the catalog changes", func() { g.Rebind(ctx) }, "a", 0)
	c.servers = c.servers[:1]
	step("the only one is lost", func() { g.ReplaceServers(ctx, lost("a")) }, "a", 0)
	c.servers = []switchboard.ServerID{"a", "b"}
	step("the only one is lost still, and now there is another", func() { g.ReplaceServers(ctx, lost("a")) }, "b", 1)

	changed := func(id switchboard.TenantID) bool { return id == "t" }
	step("its tenant's configuration changes, and the first is lost still", func() { run.Reconfigure(ctx, g, changed) }, "b", 0)
	c.lost = nil
	step("the first is back", func() { g.Rebind(ctx) }, "b", 0)
	step("that of another tenant changes", func() { run.Reconfigure(ctx, g, func(id switchboard.TenantID) bool { return id != "t" }) }, "b", 0)
	step("that of its tenant changes", func() { run.Reconfigure(ctx, g, changed) }, "a", 1)
	step("the catalog changes then", func() { g.Rebind(ctx) }, "a", 0)

	// A new run does not avoid the servers that other runs have abandoned.
	other, err := g.Open(ctx, switchboard.Principal{Tenant: "t", ID: "q"}, "work", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(other.Surface().Entries()[0].Tool.ID); got != "a/x" {
		t.Errorf("a new run begins with %s", got)
	}
}

type teller func(switchboard.Kinds)

func (w teller) Changed(ks switchboard.Kinds) { w(ks) }
