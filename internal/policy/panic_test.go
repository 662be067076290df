package policy_test

import (
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

// A builtin for this test alone, because none of OPA's is known to panic.
func init() {
	ast.RegisterBuiltin(&ast.Builtin{Name: "test.panics", Decl: types.NewFunction(types.Args(types.A), types.B)})
	topdown.RegisterBuiltinFunc("test.panics", func(topdown.BuiltinContext, []*ast.Term, func(*ast.Term) error) error { panic("a bug") })
}

func TestAPanicDeniesWhereverItHappens(t *testing.T) {
	for when, rule := range map[string]string{
		"always":  `deny["x/y"] contains "n" if test.panics(input.user_tier)`,
		"in call": `deny["x/y"] contains "n" if { input.phase == "call"; test.panics(input.call.arguments) }`,
	} {
		p := policytest.NewPolicy(t, "", policytest.AllowAll, policytest.AllowAll+rule)
		v := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseCall, `{}`, policytest.Three...)).Verdicts[0]
		if v.Denied == nil || v.Denied.Code != switchboard.CodePolicyFailed || !strings.Contains(v.Denied.String(), "it panicked: a bug") {
			t.Errorf("%s: %+v", when, v.Denied)
		}
	}
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll+`deny["x/y"] contains "n" if { input.phase == "call"; test.panics(1) }`, ""), `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{}`)); code(err) != switchboard.CodePolicyFailed || len(g.calls) > 0 {
		t.Errorf("a call: %v", err)
	}
	// A selection under another policy does not bypass the panic.
	g = newGate(policytest.NewPolicy(t, "", policytest.AllowAll, ""), `{}`)
	call := g.bind(t, policytest.Brave, `{}`)
	g.policy = policytest.NewPolicy(t, "", policytest.AllowAll+`deny["x/y"] contains "n" if test.panics(1)`, "")
	if _, err := g.caller.Call(t.Context(), call); code(err) != switchboard.CodePolicyFailed || len(g.calls) > 0 {
		t.Errorf("a call that was selected before: %v", err)
	}
}
