package verdict_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

var registries = flag.Int("registries", 1000, "how many random `registries` TestResolveTheStagesAndTheGuardAgree makes; 10000 is what is promised")

// A drawnAtoms has the states of a fixture. Its probes find next.
type drawnAtoms struct{ states, next map[string]capability.State }

func (a *drawnAtoms) StatesWithin(time.Duration, ...string) map[string]capability.State {
	return maps.Clone(a.states)
}

func (a *drawnAtoms) Due(_ context.Context, ids ...string) {
	for _, id := range ids {
		if found := a.next[id]; found != "" {
			a.states[id] = found
		}
	}
}

func (a *drawnAtoms) Want(...string) {}

// The four places that a verdict counts at agree: resolve, the stage of policy, the stage of verdicts, and the guard around calls.
func TestResolveTheStagesAndTheGuardAgree(t *testing.T) {
	t.Parallel()
	n := *registries
	if testing.Short() {
		n = min(n, 100)
	}
	engine, random := policy.NewEngine(time.Minute, 0), rand.New(rand.NewPCG(25, 6))
	acme := &switchboard.Tenant{ID: "acme", Servers: providers}
	var s *bind.State
	counts := map[verdict.Name]int{}
	for i := range n {
		f := drawFixture(t, random.IntN)
		c := &config.Config{Taxonomy: &switchboard.Taxonomy{}, Tenants: map[switchboard.TenantID]*switchboard.Tenant{"acme": acme}}
		offers := f.drawProviders(t, random.IntN, c)
		r := f.registry(t)
		c.Registry = r
		boundaries := layerOf(t, r, nil)
		p, err := engine.NewPolicy(acme, boundaries)
		if err != nil {
			t.Fatal(err)
		}
		s = bind.NewState(bind.Input{
			Config: c, Local: "acme", StatusTool: &switchboard.Tool{}, Offers: offers,
			Boundaries: boundaries, Policies: map[switchboard.TenantID]*policy.Policy{"acme": p},
		}, s)
		next := map[string]capability.State{}
		for _, id := range slices.Sorted(maps.Keys(f.atoms)) {
			// The guard probes only what is due, and resolve probes all: so here the probes of the others find what is known.
			found := []capability.State{"", capability.Fresh, capability.Red}[random.IntN(3)]
			if was := f.states[id]; was != capability.Fresh && was != capability.Red && !f.atoms[id].Probe.None() {
				next[id] = found
			}
		}
		atoms := func() *drawnAtoms { return &drawnAtoms{maps.Clone(f.states), next} }
		resolve := func(probe bool) []verdict.Verdict {
			all, err := s.ResolveCapabilities(t.Context(), bind.ResolveQuery{Tenant: "acme", Probe: probe}, atoms())
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		now, probed := resolve(false), resolve(true)
		stage := verdict.Stage(r)
		for at, v := range now {
			tools := s.Tenants["acme"].Providers.Tools()[v.Capability]
			version := r.Version(v.Capability)
			if tools == nil && len(version.Tools) > 0 {
				if !slices.Contains(v.Blocking, v.Capability+": no server provides it") {
					t.Fatalf("registry %d: no server provides it, and resolve says %s", i, render(v))
				}
				continue
			}
			if tools == nil {
				tool := toolOf(v.Capability, v.Capability)
				tool.Contract = r.Restrict(tool.Contract, version)
				tools = []*switchboard.Tool{tool}
			}
			tool := tools[0]
			byPolicy, others := splitBlocking(v)
			asked := slices.ContainsFunc(v.RequiredActions, func(s string) bool { return strings.HasPrefix(s, "approval:") })
			denied, asks := judgeServers(t, p, tools, len(others) > 0)
			if denied != (v.Verdict == verdict.Blocked) || denied != byPolicy || asks != asked {
				t.Fatalf("registry %d: for the stage of policy, the best server is denied: %t, asks a person: %t, and resolve says %s", i, denied, asks, render(v))
			}
			if got := dropped(t, stage, f.states, tool)[tool.ID.Name]; got != strings.Join(others, "; ") {
				t.Fatalf("registry %d: the stage drops for %q, and resolve says %s", i, got, render(v))
			}
			made := false
			_, err := verdict.Admit(func() *capability.Registry { return r }, atoms(), switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
				made = true
				return switchboard.Result{}, nil
			})).Call(t.Context(), &switchboard.Call{Tool: tool})
			_, others = splitBlocking(probed[at])
			unprobed := slices.ContainsFunc(probed[at].RequiredActions, func(s string) bool { return strings.HasPrefix(s, "probe:") })
			if want := len(others) == 0 && !unprobed; made != want || (err == nil) != want {
				t.Fatalf("registry %d: the guard says %v, and resolve after a probe %s", i, err, render(probed[at]))
			}
			counts[v.Verdict]++
		}
	}
	for _, name := range verdict.Names {
		if counts[name] == 0 {
			t.Errorf("no verdict is %s: %v", name, counts)
		}
	}
}

// providers are the servers that provide drawn capabilities.
var providers = []switchboard.ServerID{"one", "two"}

// drawProviders gives some versions tools, and c the servers that provide them, with facts of their own in overlays. It returns the offers.
func (f *fixture) drawProviders(t testing.TB, d draw, c *config.Config) (offers []switchboard.Offer) {
	t.Helper()
	for _, v := range f.versions {
		for _, name := range some(d, "do", "see") {
			tool, err := capability.NewTool(name, "", nil, nil, capability.Hints{})
			if err != nil {
				t.Fatal(err)
			}
			v.Tools = append(v.Tools, tool)
		}
	}
	c.Overlays = map[switchboard.ToolID]switchboard.Overlay{}
	for _, server := range providers {
		c.Servers = append(c.Servers, switchboard.Server{ID: server})
		o := switchboard.Offer{Server: server, Version: "1", Tools: [][]byte{}}
		for _, v := range f.versions {
			if len(v.Tools) == 0 || d(4) == 0 {
				continue
			}
			row := capability.ProviderRow{Server: server, Ref: capability.Ref{ID: v.ID}, Tools: map[string]*switchboard.DeclaredEquivalent{}}
			for _, want := range v.Tools {
				own := switchboard.ToolID{Server: server, Name: v.ID + "-" + want.Name}
				row.Tools[want.Name] = &switchboard.DeclaredEquivalent{Tool: own}
				o.Tools = append(o.Tools, fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"}}`, own.Name))
				if d(2) == 0 {
					continue
				}
				overlay := switchboard.Overlay{Contract: switchboard.Contract{
					SideEffects: some(d, "costs-money", "reads", "writes"), RiskLevel: append([]string{""}, capability.RiskLevels...)[d(5)],
					CostClass: append([]switchboard.CostClass{""}, switchboard.CostClasses...)[d(4)],
				}}
				if d(6) == 0 {
					overlay.Contract.ApprovalRequired = []string{"owner"}
				}
				c.Overlays[own] = overlay
			}
			c.Providers = append(c.Providers, row)
		}
		offers = append(offers, o)
	}
	return offers
}

// judgeServers asks the stage of policy about the tools of a version, which are sorted by server. It says what holds for the server
// that resolve is about: whether one of its tools is denied, and whether a person is asked. unfit says that no tool may be used anyway.
func judgeServers(t testing.TB, p *policy.Policy, tools []*switchboard.Tool, unfit bool) (denied, asks bool) {
	t.Helper()
	type server struct{ denied, asks bool }
	by := map[switchboard.ServerID]*server{}
	var order []switchboard.ServerID
	q := &policy.CandidateQuestion{Phase: policy.PhaseSelect, Requirement: &switchboard.Requirement{}, Candidates: tools}
	for i, judged := range p.Judge(t.Context(), q).Verdicts {
		id := tools[i].ID.Server
		if by[id] == nil {
			by[id] = &server{}
			order = append(order, id)
		}
		by[id].denied = by[id].denied || judged.Denied != nil
		by[id].asks = by[id].asks || judged.Obligations.Approval != nil || tools[i].AsksPerson()
	}
	best := by[order[0]]
	for _, id := range order[1:] {
		if s := by[id]; best.denied && !s.denied || !unfit && best.denied == s.denied && !s.denied && best.asks && !s.asks {
			best = s
		}
	}
	return best.denied, best.asks
}

// splitBlocking says whether a boundary blocks, and returns the reasons that are no boundaries.
func splitBlocking(v verdict.Verdict) (byPolicy bool, others []string) {
	for _, why := range v.Blocking {
		if strings.HasPrefix(why, "policy:") {
			byPolicy = true
		} else {
			others = append(others, why)
		}
	}
	return byPolicy, others
}
