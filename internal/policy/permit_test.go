package policy_test

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

// Each requirement that selected a tool is asked about it, and each may deny it.
func TestAToolThatOneOfItsRequirementsDeniesIsNotPermitted(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	p := policytest.NewPolicy(t, "", policytest.AllowAll+`deny[c.id] contains "not now" if { input.phase == "expand"; input.requirement.verb == "write"; some c in input.candidate_tools }`+"\n", "")
	one, two := policytest.Tool("a/one"), policytest.Tool("a/two")
	who := policytest.NewQuestion(policy.PhaseExpand, "").Principal
	task := &switchboard.Task{ID: "browse"}
	read := policy.NewJudgment(task, &switchboard.Requirement{Verb: "read", Resource: "aws"}, []*switchboard.Tool{one, two})
	write := policy.NewJudgment(task, &switchboard.Requirement{Verb: "write", Resource: "aws"}, []*switchboard.Tool{two})
	for name, tt := range map[string]struct {
		phase policy.Phase
		by    []*switchboard.Judgment
		want  switchboard.Code
	}{
		"what nobody denies":      {policy.PhaseExpand, []*switchboard.Judgment{read}, ""},
		"what the last denies":    {policy.PhaseExpand, []*switchboard.Judgment{read, write}, switchboard.CodeDenied},
		"what the first denies":   {policy.PhaseExpand, []*switchboard.Judgment{write, read}, switchboard.CodeDenied},
		"in another phase":        {policy.PhaseSearch, []*switchboard.Judgment{write, read}, ""},
		"what was never judged":   {policy.PhaseExpand, nil, switchboard.CodeDenied},
		"what another has judged": {policy.PhaseExpand, []*switchboard.Judgment{{Requirement: read.Requirement}}, switchboard.CodePolicyFailed},
	} {
		denied := p.DenyShowing(t.Context(), tt.phase, who, []policy.ToolToShow{{Tool: two, Judgments: tt.by}, {Tool: one, Judgments: []*switchboard.Judgment{read}}}, policytest.Monday)
		if denied[1] != nil {
			t.Errorf("%s: the other tool: %v", name, denied[1])
		}
		if got := denied[0]; (got == nil) != (tt.want == "") || got != nil && got.Code != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
}
