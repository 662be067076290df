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
