package policy_test

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

func TestPoliciesSeePricesAndTheCostOfACall(t *testing.T) {
	priced := *policytest.Brave
	priced.Price = &switchboard.Price{Call: 1000, Each: []switchboard.ElementPrice{{Pointer: "/texts", Micros: 20}}, Most: 50_000}
	reported := *policytest.Brave
	reported.Price = &switchboard.Price{Most: 50_000, Reported: true}
	reported.Contract.CostClass = switchboard.CostPaid
	const rule = `deny[c.id] contains "denied" if { some c in input.candidate_tools; `
	for _, tt := range []struct {
		name, rule string
		tool       *switchboard.Tool
		args       string
		denied     bool
	}{
		{"a call", rule + `input.call.cost == 0.00104 }`, &priced, `{"texts":["a","b"]}`, true},
		{"an exact limit", rule + `input.call.cost > 0.00104 }`, &priced, `{"texts":["a","b"]}`, false},
		{"another call", rule + `input.call.cost == 0.00104 }`, &priced, `{"texts":["a"]}`, false},
		{"a call without a price", rule + `not input.call.cost; input.phase == "call" }`, &priced, `{"texts":"a"}`, true},
		{"a tool without a price", rule + `input.call.cost == 0 }`, policytest.Brave, `{}`, true},
		{"a server that reports", rule + `input.call.cost == 0.05 }`, &reported, `{}`, true},
		{"the price", rule + `c.contract.price == {"call": 0.001, "each": {"/texts": 0.00002}, "most": 0.05, "reported": false} }`, &priced, `{}`, true},
		{"no price", rule + `c.contract.price }`, policytest.Brave, `{}`, false},
		{"a class that is stated", rule + `c.contract.cost_class == "paid" }`, &reported, `{}`, true},
		{"a class that follows from the price", rule + `c.contract.cost_class == "metered" }`, &priced, `{}`, true},
		{"no class", rule + `c.contract.cost_class }`, policytest.Brave, `{}`, false},
	} {
		p := policytest.NewPolicy(t, "", policytest.AllowAll+tt.rule, "")
		call := &switchboard.Call{
			Server: tt.tool.ID.Server, Method: "tools/call", Tool: tt.tool, Params: []byte(`{"name":"x","arguments":` + tt.args + `}`),
			Judgments: []*switchboard.Judgment{policy.NewJudgment(&switchboard.Task{ID: "t"}, &switchboard.Requirement{Verb: "search", Resource: "internet"}, []*switchboard.Tool{tt.tool})},
		}
		for range 2 { // also from a memory of answers
			if err := p.JudgeCall(t.Context(), call, policytest.Monday).Err; (err != nil) != tt.denied {
				t.Errorf("%s: %v", tt.name, err)
			}
			p = p.Memoized()
		}
		if strings.Contains(tt.rule, "call.cost") != p.ReadsCost() || strings.Contains(tt.rule, "call.cost") == p.Lasting() || len(p.Arguments()) > 0 {
			t.Errorf("%s: reads the cost: %v, lasts: %v, reads the arguments %q", tt.name, p.ReadsCost(), p.Lasting(), p.Arguments())
		}
	}
}
