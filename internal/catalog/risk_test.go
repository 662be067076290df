package catalog

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestTheClassOfRiskFollowsFromFacts(t *testing.T) {
	said := func(trusted bool) switchboard.Fact {
		return switchboard.Fact{Holds: true, Source: switchboard.FromHint, Trusted: trusted}
	}
	verbs := func(all ...switchboard.Verb) []switchboard.Verb { return all }
	for _, c := range []struct {
		says  string
		facts riskFacts
		want  switchboard.RiskClass
	}{
		{"a trusted source says that it only reads, and nothing leaves by it", riskFacts{readOnly: said(true)}, switchboard.RiskSafe},
		{"a trusted source says that it only reads, and its queries leave", riskFacts{readOnly: said(true), carries: true}, switchboard.RiskLow},
		{"only the server says that it only reads", riskFacts{readOnly: said(false)}, switchboard.RiskLow},
		{"the server says that it can be undone", riskFacts{undoable: true}, switchboard.RiskMedium},
		{"nobody says anything", riskFacts{}, switchboard.RiskHigh},
		{"it writes, and nobody says that it can be undone", riskFacts{verbs: verbs(switchboard.Write)}, switchboard.RiskHigh},
		{"it writes what can be undone", riskFacts{verbs: verbs(switchboard.Write), undoable: true}, switchboard.RiskMedium},
		{"it runs programs, whatever the server says", riskFacts{readOnly: said(false), undoable: true, verbs: verbs(switchboard.Read, switchboard.Execute)}, switchboard.RiskHigh},
		{"it runs queries that a trusted source calls readonly", riskFacts{readOnly: said(true), verbs: verbs(switchboard.Execute)}, switchboard.RiskSafe},
		{"it writes to people", riskFacts{undoable: true, verbs: verbs(switchboard.Notify)}, switchboard.RiskHigh},
		{"the operator says that it contacts people", riskFacts{undoable: true, sideEffects: []string{"contacts-people"}}, switchboard.RiskHigh},
		{"the operator says that it deletes", riskFacts{undoable: true, sideEffects: []string{"deletes"}}, switchboard.RiskHigh},
		{"the operator says that it changes rights", riskFacts{undoable: true, sideEffects: []string{"changes-rights"}}, switchboard.RiskHigh},
		{"the server says that it only reads, the operator that it writes", riskFacts{readOnly: said(false), sideEffects: []string{"writes-local"}}, switchboard.RiskMedium},
		{"a side effect of the operator's own taxonomy decides nothing", riskFacts{readOnly: said(true), sideEffects: []string{"own-effect", "reads"}}, switchboard.RiskSafe},
		{"each call has a price", riskFacts{readOnly: said(true), cost: switchboard.CostMetered}, switchboard.RiskMedium},
		{"it is paid for", riskFacts{readOnly: said(true), cost: switchboard.CostPaid}, switchboard.RiskHigh},
		{"it is free", riskFacts{readOnly: said(true), cost: switchboard.CostFree}, switchboard.RiskSafe},
		{"it spends money within a budget", riskFacts{sideEffects: []string{"costs-money"}, budgeted: true}, switchboard.RiskHigh},
		{"it spends money without a budget", riskFacts{sideEffects: []string{"costs-money"}}, switchboard.RiskProhibited},
		{"it attacks accounts", riskFacts{readOnly: said(true), sideEffects: []string{"attacks-accounts"}}, switchboard.RiskProhibited},
		{"it writes to masses of people", riskFacts{sideEffects: []string{"mass-messages"}}, switchboard.RiskProhibited},
		{"it writes Switchboard's configuration", riskFacts{sideEffects: []string{"writes-switchboard"}}, switchboard.RiskProhibited},
		{"a level raises the class", riskFacts{readOnly: said(true), level: "high"}, switchboard.RiskHigh},
		{"a critical level is high", riskFacts{readOnly: said(true), level: "critical"}, switchboard.RiskHigh},
		{"a level lowers nothing", riskFacts{level: "low"}, switchboard.RiskHigh},
		{"a low level raises nothing", riskFacts{readOnly: said(true), level: "low"}, switchboard.RiskSafe},
	} {
		if got := classOfRisk(c.facts); got != c.want {
			t.Errorf("%s: it is %s, want %s", c.says, got, c.want)
		}
	}
}

func TestTheClassOfAProvidedToolFollowsFromTheContract(t *testing.T) {
	tool := func(change func(*switchboard.Tool)) *switchboard.Tool {
		one := &switchboard.Tool{Definition: []byte(`{"annotations":{"destructiveHint":false}}`), Capabilities: []switchboard.Capability{{Verb: switchboard.Write, Resource: "fs"}}}
		change(one)
		return one
	}
	for says, c := range map[string]struct {
		tool *switchboard.Tool
		want switchboard.RiskClass
	}{
		"the server says that it can be undone": {tool(func(*switchboard.Tool) {}), switchboard.RiskMedium},
		"the server says that it destroys": {tool(func(t *switchboard.Tool) {
			t.Definition = []byte(`{"annotations":{"destructiveHint":true}}`)
		}), switchboard.RiskHigh},
		"the contract spends money, so a budget or a boundary is over it": {tool(func(t *switchboard.Tool) { t.Contract.SideEffects = []string{"costs-money"} }), switchboard.RiskHigh},
		"the contract attacks accounts":                                   {tool(func(t *switchboard.Tool) { t.Contract.SideEffects = []string{"attacks-accounts"} }), switchboard.RiskProhibited},
	} {
		if got := ProvidedRisk(c.tool); got != c.want {
			t.Errorf("%s: it is %s, want %s", says, got, c.want)
		}
	}
}

// Records of before have no class and no evidence. Their digests must stay as they were, or no old decision could be replayed.
func TestAToolWithoutNewFactsHasTheBytesOfBefore(t *testing.T) {
	old := &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: "t"}, Digest: "sha256:x", Contract: switchboard.Contract{RiskLevel: "high"}}
	want := "1:s1:t8:sha256:x0:0:0:0;0;contract;0:falsefalse0:falsefalse0:falsefalse0:falsefalse0;falserisk;4:high"
	if got := string(appendTool(nil, old)); got != want {
		t.Errorf("its bytes are\n%s, want\n%s", got, want)
	}
}
