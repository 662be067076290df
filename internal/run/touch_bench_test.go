package run_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A flowPath is the part of the path of a call that knows flows, over a store that is counted.
type flowPath struct {
	store *counted
	run   *run.Run
	tools map[switchboard.FlowBits]*switchboard.Tool

	guard, whole switchboard.Caller // policy alone, and with what notes touches
	judgments    []*switchboard.Judgment
}

func newFlowPath(t testing.TB, mode switchboard.Mode) *flowPath {
	t.Helper()
	layer, err := policy.Compile(policy.Operator, policysource.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.NewEngine(10*time.Second, 0).NewPolicy(&switchboard.Tenant{ID: alice.Tenant}, layer)
	if err != nil {
		t.Fatal(err)
	}
	p := &flowPath{store: &counted{Store: store.NewMemory()}, tools: map[switchboard.FlowBits]*switchboard.Tool{}}
	for _, bits := range []switchboard.FlowBits{0, switchboard.Brings, switchboard.Sees, switchboard.Carries} {
		p.tools[bits] = &switchboard.Tool{
			ID: switchboard.ToolID{Server: "a", Name: bits.String()}, Trust: switchboard.TrustOperator,
			Capabilities: []switchboard.Capability{{Verb: switchboard.Read, Resource: "fs", Constraints: []switchboard.Constraint{switchboard.ReadOnly}}},
			Contract:     switchboard.Contract{Flow: switchboard.Flow{Bits: bits}},
		}
	}
	who := alice
	who.Mode = mode
	if p.run, err = run.New(&grouped{}, surface.New(surface.Input{}), p.store).Open(t.Context(), who, "browse", ""); err != nil {
		t.Fatal(err)
	}
	current := func(switchboard.Principal) (switchboard.Principal, *policy.Policy, error) { return who, rules, nil }
	send := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, nil })
	p.guard = policy.Guard(current, nil, nil, send)
	p.whole = policy.Guard(current, nil, nil, policy.Touch(current, send))
	p.judgments = judgmentsOf(t, rules, who, p.tools)
	p.store.took()
	return p
}

func (p *flowPath) call(bits switchboard.FlowBits) *switchboard.Call {
	return &switchboard.Call{Principal: p.run.Principal(), Task: "browse", Run: p.run.ID(), Server: "a", Tool: p.tools[bits], Judgments: p.judgments, Flows: p.run.Flows()}
}

// The call path of a tool without bits costs nothing more, and that of a tool whose bits are known neither.
func TestACallWithoutAFlowCostsNothingMore(t *testing.T) {
	for _, mode := range []switchboard.Mode{switchboard.Autopilot, switchboard.Assist} {
		p := newFlowPath(t, mode)
		for _, bits := range []switchboard.FlowBits{switchboard.Brings, switchboard.Sees} {
			if _, err := p.whole.Call(t.Context(), p.call(bits)); err != nil {
				t.Fatal(err)
			}
		}
		p.store.took()
		for _, bits := range []switchboard.FlowBits{0, switchboard.Sees} {
			call := p.call(bits)
			ask := func(c switchboard.Caller) float64 {
				return testing.AllocsPerRun(100, func() { _, _ = c.Call(t.Context(), call) })
			}
			if alone, whole := ask(p.guard), ask(p.whole); alone != whole {
				t.Errorf("mode %s, flow %s: %.0f allocations, and %.0f without flows", mode, bits, whole, alone)
			}
		}
		if took := p.store.took(); took != "0 reads, 0 writes" {
			t.Errorf("mode %s: the store took %s", mode, took)
		}
	}
}

// One touch is one operation of the store. A call that carries data out is one only if the last was a second ago, until the run has
// touched both. If a rule may read what was touched, the store is asked each time.
func TestAFlowCostsTheStoreAsLittleAsItCan(t *testing.T) {
	const none, read, write = "0 reads, 0 writes", "1 reads, 0 writes", "0 reads, 1 writes"
	steps := []struct {
		after             time.Duration
		bits              switchboard.FlowBits
		autopilot, assist string
	}{
		{0, switchboard.Carries, read, read},
		{touchRefresh - 1, switchboard.Carries, none, read},
		{1, switchboard.Carries, read, read},
		{0, switchboard.Sees, write, write},
		{0, switchboard.Sees, none, none},
		{0, switchboard.Carries, none, read},
		{0, switchboard.Brings, write, write},
		{touchRefresh, switchboard.Carries, none, none},
	}
	for _, mode := range []switchboard.Mode{switchboard.Autopilot, switchboard.Assist} {
		synctest.Test(t, func(t *testing.T) {
			p := newFlowPath(t, mode)
			for i, step := range steps {
				time.Sleep(step.after)
				if _, err := p.whole.Call(t.Context(), p.call(step.bits)); err != nil {
					t.Fatal(err)
				}
				want := step.autopilot
				if mode == switchboard.Assist {
					want = step.assist
				}
				if took := p.store.took(); took != want {
					t.Errorf("mode %s, step %d: %s took %s, want %s", mode, i, step.bits, took, want)
				}
			}
			time.Sleep(time.Minute) // the policy's idle goroutines end
		})
	}
}

// touchRefresh is that of the package.
const touchRefresh = time.Second

// BenchmarkFlows measures a call through policy, with the shipped policies: by policy alone, and with flows.
func BenchmarkFlows(b *testing.B) {
	for _, mode := range []switchboard.Mode{switchboard.Autopilot, switchboard.Assist} {
		p := newFlowPath(b, mode)
		for _, bits := range []switchboard.FlowBits{0, switchboard.Brings, switchboard.Sees, switchboard.Carries} {
			call := p.call(bits)
			for _, one := range []struct {
				name string
				call switchboard.Caller
			}{{"policy alone", p.guard}, {"with flows", p.whole}} {
				b.Run(string(mode)+"/"+bits.String()+"/"+one.name, func(b *testing.B) {
					b.ReportAllocs()
					p.store.took()
					for b.Loop() {
						_, _ = one.call.Call(b.Context(), call)
					}
					b.ReportMetric(float64(p.store.reads.Load()+p.store.writes.Load())/float64(b.N), "store/op")
				})
			}
		}
	}
}
