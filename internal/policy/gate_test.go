package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

const keepsPosters = policytest.AllowAll + `
keep_out[c.id] contains sprintf("it posts in phase %s", [input.phase]) if {
	some c in input.candidate_tools
	c.server == "poster"
}
`

func gateOf(t *testing.T, e *policy.Engine, rules string) *policy.AdmitGate {
	t.Helper()
	g, err := e.NewGate(policytest.CompileLayer(t, policy.Operator, rules))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTheOperatorsRulesKeepToolsOut(t *testing.T) {
	g := gateOf(t, policytest.Engine, keepsPosters+`
keep_out[c.id] contains "posts" if {
	some c in input.candidate_tools
	some k in c.capabilities
	k.verb == "write"
}
keep_out["of/another"] contains "it is no candidate" if true
`)
	why, failed := g.KeepOut(policytest.Three)
	if failed != nil || why[0] != "" || why[1] != "" || why[2] != "it posts in phase admit; posts" {
		t.Errorf("kept out is %q, %v", why, failed)
	}
}

func TestALayerWithoutSuchRulesIsNotAsked(t *testing.T) {
	if g := gateOf(t, policytest.Engine, policytest.AllowAll); g != nil {
		t.Error("there is a gate")
	}
	if g, err := policytest.Engine.NewGate(nil); g != nil || err != nil {
		t.Errorf("without a layer there is a gate, or %v", err)
	}
}

// Who is let in is the operator's affair: a rule of that name in a tenant's layer would decide nothing, and is reported as such.
func TestATenantKeepsNothingOutOfTheCatalog(t *testing.T) {
	l := policytest.CompileLayer(t, policy.Tenant, keepsPosters)
	if n := len(l.Unreached()); n != 1 {
		t.Errorf("%d rules of the tenant's layer decide nothing, want 1", n)
	}
	if n := len(policytest.CompileLayer(t, policy.Operator, keepsPosters).Unreached()); n != 0 {
		t.Errorf("%d rules of the operator's layer decide nothing", n)
	}
}

// A rule that keeps out is asked when a tool is let in, and not when it is selected or called.
func TestARuleThatKeepsOutCostsCallsNothing(t *testing.T) {
	p := policytest.NewPolicy(t, "", keepsPosters, "")
	if !p.Lasting() {
		t.Error("the answer of the layer is not reused for calls")
	}
	a := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...))
	for i, v := range a.Verdicts {
		if v.Denied != nil {
			t.Errorf("%s is denied: %v", policytest.Three[i].ID, v.Denied)
		}
	}
}

func TestAToolThatMakesTheRulesFailFailsAlone(t *testing.T) {
	broken := *policytest.Google
	broken.Version = "not a number"
	fine := *policytest.Poster
	fine.Version = "1"
	g := gateOf(t, policytest.Engine, policytest.AllowAll+`
keep_out[c.id] contains "one" if {
	some c in input.candidate_tools
	to_number(c.version) == 1
}
`)
	why, failed := g.KeepOut([]*switchboard.Tool{&broken, &fine})
	if failed == nil || failed[0] == nil || failed[1] != nil || why[1] != "one" {
		t.Errorf("kept out is %q, failed %v", why, failed)
	}
}

func TestRulesThatTakeTooLongFailForAllTools(t *testing.T) {
	g := gateOf(t, policy.NewEngine(20*time.Millisecond, 0), policytest.AllowAll+`
keep_out[c.id] contains "slow" if {
	some c in input.candidate_tools
	some i in numbers.range(1, 3000)
	some j in numbers.range(1, 3000)
	i * j == 0
}
`)
	began := time.Now()
	_, failed := g.KeepOut(policytest.Three)
	if failed == nil || failed[0] == nil || failed[1] == nil || failed[2] == nil {
		t.Errorf("failed is %v", failed)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, failed = g.KeepOut(policytest.Three); failed == nil || failed[0] == nil || !strings.Contains(failed[0].Error(), "has ended an evaluation of them less than") {
		t.Errorf("asked again at once, failed is %v", failed)
	}
}

func TestRulesOfAnotherShapeAreAFault(t *testing.T) {
	for _, rules := range []string{
		"keep_out := [c.id | some c in input.candidate_tools]\n",
		"keep_out contains c.id if some c in input.candidate_tools\n",
		"keepout[c.id] contains \"x\" if some c in input.candidate_tools\n",
	} {
		_, err := policy.Compile(policy.Operator, []switchboard.PolicyFile{policytest.Source(policy.Operator, policytest.AllowAll+rules)})
		if err == nil || !strings.Contains(err.Error(), "keep_out") {
			t.Errorf("%sis answered %v", rules, err)
		}
	}
}

// Most rules name a class of risk. Then tools of other classes cost no evaluation; that must not change an answer.
func TestAToolOfAnotherClassThanTheRulesNameIsNotAskedAbout(t *testing.T) {
	tools := make([]*switchboard.Tool, len(switchboard.RiskClasses))
	for i, class := range switchboard.RiskClasses {
		one := *policytest.Tool("a/"+string(class), policytest.WriteCapability)
		one.Contract.Risk = class
		tools[i] = &one
	}
	const prohibited, candidate = `c.evidence.risk == "prohibited"`, "some c in input.candidate_tools\n"
	rule := func(key, body string) string { return "keep_out[" + key + "] contains \"x\" if {\n" + body + "\n}\n" }
	for _, tt := range []struct {
		name, rules, want string
		asked             int64 // evaluations
	}{
		{"one class", rule("c.id", candidate+prohibited), "a/prohibited", 1},
		{"a class that no tool has", rule("c.id", candidate+`c.evidence.risk == "critical"`), "", 0},
		{"two rules", rule("c.id", candidate+prohibited) + rule("c.id", candidate+`"low" == c.evidence.risk`), "a/low a/prohibited", 1},
		{"a rule without a class", rule("c.id", candidate+prohibited) + rule("c.id", candidate+`c.tool == "safe"`), "a/safe a/prohibited", 1},
		{"the class of another tool", rule("d.id", candidate+prohibited+"\nsome d in input.candidate_tools\n"+`d.tool == "safe"`), "a/safe", 1},
		{"any key", rule(`"a/safe"`, candidate+prohibited), "a/safe", 1},
		{"not the class", rule("c.id", candidate+"not "+prohibited), "a/safe a/low a/medium a/high", 1},
		{"one of two classes", rule("c.id", candidate+`c.evidence.risk in {"low", "high"}`), "a/low a/high", 1},
	} {
		e := policy.NewEngine(0, 0)
		g := gateOf(t, e, policytest.AllowAll+tt.rules)
		why, failed := g.KeepOut(tools)
		var out []string
		for i := range why {
			if why[i] != "" {
				out = append(out, tools[i].ID.String())
			}
		}
		if asked, _, _, _ := e.Counts(); strings.Join(out, " ") != tt.want || failed != nil || asked > tt.asked {
			t.Errorf("%s: kept out is %q, want %q; failed %v, %d evaluations", tt.name, out, tt.want, failed, asked)
		}
	}
}

// What a phase does not have is undefined, and a rule that needs it would let everything in.
func TestARuleThatReadsWhatThePhaseAdmitDoesNotHaveIsAFault(t *testing.T) {
	for body, want := range map[string]string{
		`input.tenant_id == "acme"`:                              "input.tenant_id",
		`not input.user_tier == "pro"`:                           "input.user_tier",
		`every k in c.capabilities { k.verb == input.mode }`:     "input.mode",
		`time.now_ns() > 0`:                                      "the clock",
		`input.now > "2026"`:                                     "input.now",
		`is_acme`:                                                "input.tenant_id",
		`x := input; x.tenant_id == "acme"`:                      "input,",
		`input.phase == "admit"; c.evidence.risk == "high"`:      "",
		`count([d | some d in input.candidate_tools]) > 1; c.id`: "",
	} {
		rules := policytest.AllowAll + "keep_out[c.id] contains \"x\" if {\nsome c in input.candidate_tools\n" + body + "\n}\nis_acme if input.tenant_id == \"acme\"\n"
		_, err := policy.Compile(policy.Operator, []switchboard.PolicyFile{policytest.Source(policy.Operator, rules)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "keep_out reads "+want)) {
			t.Errorf("%s is answered %v", body, err)
		}
	}
}
