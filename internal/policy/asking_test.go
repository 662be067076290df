package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

func TestACallNamesTheRulesThatAskForItsApproval(t *testing.T) {
	p := policytest.NewPolicy(t, "", policytest.AllowAll+`
obligations["brave/search"] contains {"type": "require_approval", "reason": "it costs money"} if {
	input.call.arguments.n > 10
}
obligations["brave/search"] contains {"type": "log", "level": "info"}
obligations["brave/search"] contains {"type": "require_approval", "reason": "never"} if input.call.arguments.n > 1000
`, policytest.AllowAll+`
obligations["brave/search"] contains {"type": "require_approval", "quorum": 2, "standing": false}
`)
	g := newGate(p, `{}`)
	c := g.bind(t, policytest.Brave, `{"n":20}`)
	r := p.JudgeCall(t.Context(), c, time.Now())
	if a := r.Obligations.Approval; r.Err != nil || a == nil || a.Quorum != 2 || !a.NoStanding {
		t.Fatalf("%+v %v", r.Obligations.Approval, r.Err)
	}
	if _, err := g.caller.Call(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	rules := g.calls[0].Obligations.Approval.Rules
	if len(rules) != 2 || rules[0].Layer != "operator" || rules[0].Reason != "it costs money" || rules[0].Line == 0 || rules[0].File == "" || rules[1].Layer != "tenant" || rules[0].Digest == rules[1].Digest {
		t.Errorf("%+v", rules)
	}
}

func TestPolicyMayVetoAPersonsYes(t *testing.T) {
	p := policytest.NewPolicy(t, "", policytest.AllowAll+`
deny["brave/search"] contains "not by the boss" if {
	input.approver.id == "boss"
	input.phase == "approve"
	not "finance" in input.approver.roles
	input.call.arguments.n > 10
}`, "")
	c := newGate(p, `{}`).bind(t, policytest.Brave, `{"n":20}`)
	small := newGate(p, `{}`).bind(t, policytest.Brave, `{"n":2}`)
	boss, other := &switchboard.Officer{ID: "boss"}, &switchboard.Officer{ID: "ann"}
	rich := &switchboard.Officer{ID: "boss", Roles: map[switchboard.TenantID][]string{c.Principal.Tenant: {"finance"}}}
	for _, tt := range []struct {
		by   *switchboard.Officer
		call *switchboard.Call
		want switchboard.Code
	}{{boss, c, switchboard.CodeDenied}, {boss, small, ""}, {other, c, ""}, {rich, c, ""}} {
		if err := p.JudgeApproval(t.Context(), tt.call, tt.by, time.Now()); code(err) != tt.want {
			t.Errorf("%s %s: %v", tt.by.ID, tt.call.Params, err)
		}
	}
	if !p.Lasting() {
		t.Error("a rule about approvers makes each call ask policy")
	}
}

func TestAMalformedApprovalIsADenial(t *testing.T) {
	for _, more := range []string{`"quorum": 0`, `"quorum": 11`, `"quorum": "2"`, `"quorum": 1.5`, `"standing": "no"`, `"reason": ""`, `"reason": 7`, `"persons": 2`} {
		p := policytest.NewPolicy(t, "", policytest.AllowAll+`obligations["brave/search"] contains {"type": "require_approval", `+more+"}\n", "")
		v := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Brave)).Verdicts[0]
		if v.Denied == nil || v.Denied.Code != switchboard.CodeObligation || !slices.ContainsFunc(v.Denied.Reasons, func(s string) bool { return strings.Contains(s, "require_approval") }) {
			t.Errorf("%s: %+v", more, v.Denied)
		}
	}
}

// A rule that needs another mode is not asked. A rule that needs the mode of the call is.
func TestACallNamesTheRulesOfItsModeAlone(t *testing.T) {
	rule := func(mode string) string {
		return `obligations["brave/search"] contains {"type": "require_approval", "reason": "in ` + mode + `"} if input.mode == "` + mode + "\"\n"
	}
	p := policytest.NewPolicy(t, "", policytest.AllowAll+rule("autopilot")+rule("assist")+`
obligations["brave/search"] contains {"type": "require_approval", "reason": "in any other"} if not input.mode == "assist"
`, "")
	g := newGate(p, `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{}`)); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, r := range g.calls[0].Obligations.Approval.Rules {
		said = append(said, r.Reason)
	}
	if slices.Sort(said); strings.Join(said, ", ") != "in any other, in autopilot" {
		t.Errorf("asking are %q", said)
	}
}
