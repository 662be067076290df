package verdict_test

import (
	"context"
	"flag"
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
	acme := &switchboard.Tenant{ID: "acme"}
	var s *bind.State
	counts := map[verdict.Name]int{}
	for i := range n {
		f := drawFixture(t, random.IntN)
		r := f.registry(t)
		boundaries := layerOf(t, r, nil)
		p, err := engine.NewPolicy(acme, boundaries)
		if err != nil {
			t.Fatal(err)
		}
		s = bind.NewState(bind.Input{
			Config: &config.Config{Registry: r, Taxonomy: &switchboard.Taxonomy{}, Tenants: map[switchboard.TenantID]*switchboard.Tenant{"acme": acme}}, Local: "acme", StatusTool: &switchboard.Tool{},
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
		q := &policy.CandidateQuestion{Phase: policy.PhaseSelect, Requirement: &switchboard.Requirement{}}
		for _, v := range now {
			tool := toolOf(v.Capability, v.Capability)
			tool.Contract = r.Restrict(tool.Contract, r.Version(v.Capability))
			q.Candidates = append(q.Candidates, tool)
		}
		judged := p.Judge(t.Context(), q).Verdicts
		stage := verdict.Stage(r)
		for at, v := range now {
			tool := q.Candidates[at]
			byPolicy, others := splitBlocking(v)
			if denied := judged[at].Denied != nil; denied != (v.Verdict == verdict.Blocked) || denied != byPolicy {
				t.Fatalf("registry %d: the stage of policy says %v, and resolve %s", i, judged[at].Denied, render(v))
			}
			if got := dropped(t, stage, f.states, tool)[v.Capability]; got != strings.Join(others, "; ") {
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
