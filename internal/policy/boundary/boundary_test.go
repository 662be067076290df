package boundary_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

// rows are boundaries of each kind.
var rows = []capability.Boundary{
	{ID: "no_money_without_ask", Severity: capability.Hard, SideEffectsAny: []string{"costs-money"}, Decision: capability.RequireApproval, Who: []string{"finance"}, File: "capabilities/boundaries.yaml", Line: 3},
	{ID: "hands_off", Severity: capability.Hard, IDMatches: `cap\.mac\..*`, Decision: capability.Deny, File: "capabilities/boundaries.yaml", Line: 9},
	{ID: "careful", Severity: capability.Soft, RiskLevels: []string{"high"}, Decision: capability.Deny, File: "capabilities/boundaries.yaml", Line: 12},
}

var (
	pay   = tool("bank/pay", switchboard.Contract{SideEffects: []string{"costs-money"}, RiskLevel: "high"})
	mac   = tool("mac/run", switchboard.Contract{Capability: "cap.mac.run@1.0.0"})
	plain = tool("files/read", switchboard.Contract{})
)

func tool(id string, c switchboard.Contract) *switchboard.Tool {
	t := policytest.Tool(id, policytest.WriteCapability)
	t.Contract = c
	return t
}

func layer(t testing.TB) *policy.Layer {
	t.Helper()
	l, err := boundary.Layer(rows)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newPolicy(t testing.TB, e *policy.Engine, others ...*policy.Layer) *policy.Policy {
	t.Helper()
	p, err := e.NewPolicy(&switchboard.Tenant{ID: "acme"}, append([]*policy.Layer{layer(t)}, others...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestABoundaryIsAVetoOrAnObligation(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, policytest.Engine)
	a := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", pay, mac, plain))
	if v := a.Verdicts[0]; v.Denied != nil || v.Obligations.Approval == nil || strings.Join(v.Obligations.Approval.Who, " ") != "finance" {
		t.Errorf("%+v", v)
	}
	if d := a.Verdicts[1].Denied; d == nil || !d.Veto || d.String() != "the policy of boundaries denies it: policy:hands_off (capabilities/boundaries.yaml:9)" {
		t.Errorf("%+v", d)
	}
	if v := a.Verdicts[2]; v.Denied != nil || !v.Obligations.Empty() {
		t.Errorf("%+v", v)
	}
	if len(a.Unknown) > 0 {
		t.Errorf("it names unknown candidates: %q", a.Unknown)
	}
}

func TestNoOtherLayerCanLeaveBoundariesOut(t *testing.T) {
	t.Parallel()
	own := policytest.CompileLayer(t, policy.Operator, policytest.AllowAll)
	empty, err := policy.Compile(policy.Operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A copy of the package within another layer, and a row's data, change nothing.
	copied := policytest.CompileLayer(t, policy.Operator, "package switchboard\n\nimport data.switchboard.boundaries\n\n"+policytest.AllowAll)
	tenants := policytest.CompileLayer(t, policy.Tenant, policytest.AllowAll)
	for name, others := range map[string][]*policy.Layer{
		"no other": nil, "the operator's own": {own}, "an empty folder": {empty}, "both": {own, tenants}, "one that refers to boundaries": {copied, nil},
	} {
		a := newPolicy(t, policytest.Engine, others...).Judge(t.Context(), policytest.NewQuestion(policy.PhaseCall, "", mac, pay))
		if d := a.Verdicts[0].Denied; d == nil || !d.Veto {
			t.Errorf("%s: %+v", name, d)
		}
		if a.Verdicts[1].Obligations.Approval == nil {
			t.Errorf("%s: no approval is needed", name)
		}
	}
	if _, err := policy.Compile(policy.Tenant, []switchboard.PolicyFile{policytest.Source(policy.Tenant, "package switchboard.boundaries\n\n"+policytest.AllowAll)}); err == nil {
		t.Error("a tenant's file may be in the package of boundaries")
	}
}

func TestRowsThatCannotBeJudgedDenyEverything(t *testing.T) {
	t.Parallel()
	broken, err := boundary.Layer([]capability.Boundary{{ID: "r", Severity: capability.Hard, IDMatches: "(", Decision: capability.Deny}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policytest.Engine.NewPolicy(&switchboard.Tenant{ID: "acme"}, broken)
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", mac)).Verdicts[0].Denied; d == nil || d.Code != switchboard.CodePolicyFailed {
		t.Errorf("%+v", d)
	}
	v := &capability.ContractVersion{ID: "cap.mac.run", Number: semver.MustParse("1.0.0")}
	r, err := capability.New([]*capability.ContractVersion{v}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := boundary.NewAnswers(broken, r, nil).Judge(t.Context(), r.Versions(v.ID), nil); err == nil || !strings.HasPrefix(err.Error(), "the boundaries could not be judged: ") {
		t.Errorf("there is a verdict, or another error: %v", err)
	}
}

// A caller that has given up spoils no answer, and later callers read the first one.
func TestTheRowsAreEvaluatedOnceForAllCallers(t *testing.T) {
	t.Parallel()
	v := &capability.ContractVersion{ID: "cap.card.pay", Number: semver.MustParse("1.0.0"), Status: capability.Active}
	r, err := capability.New([]*capability.ContractVersion{v}, nil, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := *pay
	provided := map[string][]*switchboard.Tool{v.Name(): {&own}}
	answers := boundary.NewAnswers(layer(t), r, provided)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		all, err := answers.Judge(gone, r.Versions(v.ID), nil)
		if err != nil || strings.Join(all[0].RequiredActions, " ") != "approval:finance" {
			t.Fatalf("%+v, %v", all, err)
		}
		own.Contract = switchboard.Contract{} // a second evaluation would see it
	}
}

func TestAMisspeltFactDoesNotCompile(t *testing.T) {
	t.Parallel()
	facts := []string{"capability", "id", "side_effects", "risk_level", "cost_class", "approval_required", "cost_per_call", "budget", "budget.window", "accounts"}
	for _, fact := range facts {
		for name, want := range map[string]bool{fact: true, fact[:len(fact)-1]: false} {
			_, err := policy.Compile(policy.Operator, []switchboard.PolicyFile{policytest.Source(policy.Operator,
				policytest.AllowAll+`deny[c.id] contains "x" if { some c in input.candidate_tools; c.contract.`+name+" }\n")})
			if (err == nil) != want {
				t.Errorf("contract.%s compiles: %v", name, err)
			}
		}
	}
}

func TestPoliciesReadTheFactsOfAContract(t *testing.T) {
	t.Parallel()
	full := tool("a/b", switchboard.Contract{
		Capability: "cap.card.charge@1.2.0", Accounts: []string{"acc.shop.stripe"}, SideEffects: []string{"costs-money"}, RiskLevel: "high",
		CostClass: switchboard.CostMetered, ApprovalRequired: []string{"finance"},
	})
	full.Price = &switchboard.Price{Call: 1500}
	full.Budget = &switchboard.Budget{ID: "own", Limit: 2_500_000, Window: switchboard.WindowDay}
	counted := tool("a/counted", switchboard.Contract{})
	counted.Budget = &switchboard.Budget{ID: "own", Limit: 20, Calls: true, Per: switchboard.PerTask, Window: switchboard.WindowMonth}
	p := policytest.NewPolicy(t, "", policytest.AllowAll+`deny[c.id] contains json.marshal(object.filter(c.contract, [
	"capability", "id", "side_effects", "risk_level", "cost_class", "approval_required", "cost_per_call", "budget", "accounts"])) if some c in input.candidate_tools`, "")
	want := map[string]string{
		"a/b":        `{"accounts":["acc.shop.stripe"],"approval_required":["finance"],"budget":{"limit":2.5,"per":"tenant","window":"1d"},"capability":"cap.card.charge@1.2.0","cost_class":"metered","cost_per_call":0.0015,"id":"cap.card.charge","risk_level":"high","side_effects":["costs-money"]}`,
		"a/counted":  `{"budget":{"calls":20,"per":"task","window":"month"}}`,
		"files/read": `{}`, // what no source states is left out
	}
	for i, v := range p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", full, counted, plain)).Verdicts {
		if got, want := v.Denied.Reasons[0], want[[]*switchboard.Tool{full, counted, plain}[i].ID.String()]; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// judgedCall returns a call of the tool that p has selected.
func judgedCall(t testing.TB, p *policy.Policy, tool *switchboard.Tool) *switchboard.Call {
	t.Helper()
	q := policytest.NewQuestion(policy.PhaseSelect, "", tool)
	in, err := p.Stage().Apply(t.Context(), &decide.Question{Principal: q.Principal, Task: q.Task, Requirement: q.Requirement, Now: q.Now},
		[]decide.Candidate{{Tool: tool}}, decide.Ignore)
	if err != nil || len(in) != 1 {
		t.Fatal(in, err)
	}
	return &switchboard.Call{
		Principal: q.Principal, Task: "browse", Method: "tools/call", Server: tool.ID.Server, Tool: tool, Judgments: []*switchboard.Judgment{in[0].Judgment},
		Params: []byte(`{"name":"pay","arguments":{"amount":7}}`),
	}
}

// A layer whose answer may change is asked at each call, and the boundaries are not asked with it.
func TestACallUnderUnchangedBoundariesAsksThemNothing(t *testing.T) {
	t.Parallel()
	reader := policytest.CompileLayer(t, policy.Operator, policytest.AllowAll+`deny[c.id] contains "too much" if { some c in input.candidate_tools; input.call.arguments.amount > 9 }`)
	for name, tt := range map[string]struct {
		others []*policy.Layer
		want   int64 // evaluations of each call
	}{
		"boundaries alone":                 {nil, 0},
		"a layer that reads the arguments": {[]*policy.Layer{reader}, 1},
	} {
		e := policy.NewEngine(time.Minute, 0)
		p := newPolicy(t, e, tt.others...)
		c := judgedCall(t, p, pay)
		before, _, _, _ := e.Counts()
		const calls = 100
		for range calls {
			if r := p.JudgeCall(t.Context(), c, policytest.Monday); r.Err != nil || r.Obligations.Approval == nil {
				t.Fatalf("%s: %+v", name, r)
			}
		}
		if after, _, _, _ := e.Counts(); after-before != calls*tt.want {
			t.Errorf("%s: %d calls cost %d evaluations", name, calls, after-before)
		}
	}
}

func BenchmarkCallUnderBoundaries(b *testing.B) {
	e := policy.NewEngine(time.Minute, 0)
	p := newPolicy(b, e)
	c := judgedCall(b, p, pay)
	before, _, _, _ := e.Counts()
	for b.Loop() {
		if r := p.JudgeCall(b.Context(), c, policytest.Monday); r.Err != nil || r.Obligations.Approval == nil {
			b.Fatalf("%+v", r)
		}
	}
	after, _, _, _ := e.Counts()
	b.ReportMetric(float64(after-before), "evaluations")
}
