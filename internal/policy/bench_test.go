package policy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

// Two typical layers: neither depends on anything that varies by call.
const (
	lastingOperator = policytest.AllowAll + `
deny[c.id] contains "this class needs another tier" if {
	some c in input.candidate_tools
	c.class == "paid_api"
	not input.user_tier in {"pro", "enterprise"}
}
obligations[c.id] contains {"type": "log", "level": "debug"} if {
	some c in input.candidate_tools
	input.mode == "observe"
	some k in c.capabilities
	k.verb == "write"
}`
	lastingTenant = policytest.AllowAll + `
deny[c.id] contains "only what reads" if {
	some c in input.candidate_tools
	not "analyst" in input.principal.roles
	some k in c.capabilities
	not "readonly" in k.constraints
}`
)

// The same layers, but both read the arguments of a call.
const (
	arguingOperator = lastingOperator + `
deny[c.id] contains "outside of the workspace" if {
	some c in input.candidate_tools
	path := input.call.arguments.path
	not startswith(path, "/workspace/")
}`
	arguingTenant = lastingTenant + `
deny[c.id] contains "not to this host" if {
	some c in input.candidate_tools
	input.call.arguments.host in {"evil.example", "worse.example"}
}`
)

const benchArgs = `{"path":"/workspace/a/b.go","host":"a.example","limit":10}`

func many(n int) []*switchboard.Tool {
	all := make([]*switchboard.Tool, n)
	for i := range all {
		all[i] = policytest.Tool(fmt.Sprintf("server-%d/search_%d", i%7, i), policytest.SearchCapability)
	}
	return all
}

// selected decides about n candidates and returns a call of one.
func selected(b testing.TB, p *policy.Policy, n int) *switchboard.Call {
	b.Helper()
	tools := many(n)
	in := make([]decide.Candidate, n)
	for i, t := range tools {
		in[i].Tool = t
	}
	q := policytest.NewQuestion(policy.PhaseSelect, "", tools...)
	left, err := p.Stage().Apply(context.Background(), &decide.Question{Principal: q.Principal, Task: q.Task, Requirement: q.Requirement, Now: policytest.Monday}, in, decide.Ignore)
	if err != nil || len(left) != n {
		b.Fatal(len(left), err)
	}
	c := left[n/2]
	return &switchboard.Call{Principal: q.Principal, Tool: c.Tool, Judgments: []*switchboard.Judgment{c.Judgment}, Params: []byte(`{"name":"x","arguments":` + benchArgs + `}`)}
}

var done = switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, nil })

// BenchmarkCall measures what policy adds to a call of one of 20 candidates: without a policy, with
// layers with a lasting answer, and with layers that read arguments. It also measures the
// evaluation in OPA, by prepared queries and by new ones.
func BenchmarkCall(b *testing.B) {
	for _, tt := range []struct{ name, operator, tenant string }{
		{"none", "", ""}, {"lasting", lastingOperator, lastingTenant}, {"arguments", arguingOperator, arguingTenant},
	} {
		b.Run(tt.name, func(b *testing.B) {
			p := policytest.NewPolicy(b, "", tt.operator, tt.tenant)
			call := selected(b, p, 20)
			guard := policy.Guard(func(who switchboard.Principal) (switchboard.Principal, *policy.Policy, error) { return who, p, nil }, func(*switchboard.Call, *policy.Policy, time.Time, policy.Ruling) {}, nil, done)
			times := make([]time.Duration, 0, 1<<16)
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				if _, err := guard.Call(context.Background(), call); err != nil {
					b.Fatal(err)
				}
				if len(times) < cap(times) {
					times = append(times, time.Since(began))
				}
			}
			tail(b, times)
		})
	}
	input := benchInput(b)
	b.Run("arguments by prepared queries", func(b *testing.B) {
		var queries []rego.PreparedEvalQuery
		for i, text := range []string{arguingOperator, arguingTenant} {
			q, err := rego.New(regoOf(i, text)...).PrepareForEval(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			queries = append(queries, q)
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, q := range queries {
				if _, err := q.Eval(context.Background(), rego.EvalParsedInput(input)); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("arguments by new queries", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i, text := range []string{arguingOperator, arguingTenant} {
				if _, err := rego.New(append(regoOf(i, text), rego.ParsedInput(input))...).Eval(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkSelect measures both layers on the candidates of one requirement.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := policytest.NewPolicy(b, "", lastingOperator, lastingTenant)
			tools := many(n)
			stage := p.Stage()
			q := policytest.NewQuestion(policy.PhaseSelect, "", tools...)
			in := make([]decide.Candidate, n)
			times := make([]time.Duration, 0, 1<<16)
			b.ReportAllocs()
			for b.Loop() {
				for i, t := range tools {
					in[i] = decide.Candidate{Tool: t}
				}
				began := time.Now()
				left, err := stage.Apply(context.Background(), &decide.Question{Principal: q.Principal, Task: q.Task, Requirement: q.Requirement, Now: policytest.Monday}, in, decide.Ignore)
				if err != nil || len(left) != n {
					b.Fatal(len(left), err)
				}
				if len(times) < cap(times) {
					times = append(times, time.Since(began))
				}
			}
			tail(b, times)
		})
	}
}

func tail(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	if n := len(times); n >= 100 {
		b.ReportMetric(float64(times[n*99/100].Nanoseconds()), "p99-ns")
		b.ReportMetric(float64(times[n-1].Nanoseconds()), "max-ns")
	}
}

func regoOf(i int, text string) []func(*rego.Rego) {
	kind, root := policy.Operator, "data.switchboard"
	if i == 1 {
		kind, root = policy.Tenant, "data.switchboard.tenant"
	}
	f := policytest.Source(kind, text)
	return []func(*rego.Rego){
		rego.Query(fmt.Sprintf("allowed = [x | x := %[1]s.allowed_tools]\ndeny = [x | x := %[1]s.deny]\nobligations = [x | x := %[1]s.obligations]", root)),
		rego.Module(f.Name, string(f.Data)), rego.StrictBuiltinErrors(true),
	}
}

// benchInput returns the input for a call of the one candidate.
func benchInput(b *testing.B) ast.Value {
	v, err := ast.InterfaceToValue(map[string]any{
		"phase": "call", "now": "2026-11-23T10:30:00Z", "tenant_id": "acme", "tenant_policy": map[string]any{}, "user_tier": "pro", "mode": "autopilot",
		"principal": map[string]any{"id": "ann", "roles": []any{"analyst"}, "auth": "api_key"}, "task": map[string]any{"task_id": "browse"},
		"requirement": map[string]any{"verb": "search", "resource": "internet", "constraints": []any{}},
		"candidate_tools": []any{map[string]any{
			"id": "server-3/search_10", "server": "server-3", "tool": "search_10", "version": "1.2.3", "class": "of-server-3", "trust": "declared",
			"capabilities": []any{map[string]any{"verb": "search", "resource": "internet", "constraints": []any{"readonly"}, "source": "overlay"}},
			"annotations":  map[string]any{"readOnlyHint": true, "x": 1}, "contract": map[string]any{},
		}},
		"call": map[string]any{"arguments": map[string]any{"path": "/workspace/a/b.go", "host": "a.example", "limit": 10}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return v
}
