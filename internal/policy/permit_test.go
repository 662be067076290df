package policy_test

import (
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
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

// An explanation takes the ids from the judgment, and does not ask every layer again.
func TestAJudgmentNamesTheSameUnknownIDsAsTheLayers(t *testing.T) {
	for name, rules := range map[string][2]string{
		"no layer names one":         {policytest.AllowAll, policytest.AllowAll},
		"a layer that never changes": {policytest.AllowAll + `allowed_tools contains "who/knows"`, policytest.AllowAll},
		"a layer that reads time":    {policytest.AllowAll, policytest.AllowAll + `deny["what/else"] contains "x" if time.now_ns() > 0`},
		"both, and one id twice": {
			policytest.AllowAll + `allowed_tools contains "who/knows"` + "\n" + `deny["an/id"] contains "x"`,
			policytest.AllowAll + `deny[id] contains "x" if { time.now_ns() > 0; some id in ["what/else", "an/id"] }`,
		},
	} {
		p := policytest.NewPolicy(t, "", rules[0]+"\n", rules[1]+"\n")
		q := policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...)
		in := []decide.Candidate{{Tool: policytest.Three[0]}, {Tool: policytest.Three[1]}, {Tool: policytest.Three[2]}}
		left, err := p.Stage().Apply(t.Context(), &decide.Question{Principal: q.Principal, Task: q.Task, Requirement: q.Requirement, Now: policytest.Monday}, in, decide.Ignore)
		if err != nil || len(left) == 0 {
			t.Fatalf("%s: %d candidates are left, %v", name, len(left), err)
		}
		got, known := policy.UnknownIDs(left[0])
		if want := p.Judge(t.Context(), q).Unknown; !known || !slices.Equal(got, want) {
			t.Errorf("%s: the judgment names %q (known: %t), and the layers name %q", name, got, known, want)
		}
	}
	if _, known := policy.UnknownIDs(decide.Candidate{Tool: policytest.Brave}); known {
		t.Error("something is known of a candidate that policy has not judged")
	}
}
