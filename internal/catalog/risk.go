package catalog

import (
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// riskFacts are the facts that a class of risk follows from.
type riskFacts struct {
	readOnly switchboard.Fact // not set if a source says that it destroys
	undoable bool             // the definition says that it destroys nothing
	verbs    []switchboard.Verb
	carries  bool // data can leave by a call

	sideEffects []string
	cost        switchboard.CostClass
	budgeted    bool
	level       string
}

// effectRisks are the classes of the built-in side effects. "reads" has none, and so have those that a taxonomy adds.
var effectRisks = map[string]switchboard.RiskClass{
	"attacks-accounts":   switchboard.RiskProhibited,
	"mass-messages":      switchboard.RiskProhibited,
	"writes-switchboard": switchboard.RiskProhibited,
	"changes-rights":     switchboard.RiskHigh,
	"contacts-people":    switchboard.RiskHigh,
	"costs-money":        switchboard.RiskHigh,
	"deletes":            switchboard.RiskHigh,
	"writes-external":    switchboard.RiskMedium,
	"writes-local":       switchboard.RiskMedium,
}

// levelRisks are the least classes of a stated risk_level. A level never lowers a class.
var levelRisks = map[string]switchboard.RiskClass{"medium": switchboard.RiskMedium, "high": switchboard.RiskHigh, "critical": switchboard.RiskHigh}

// classOfRisk returns the class of the facts: the highest one that a fact gives. What no source states counts as the worse case: a tool that nobody describes can do anything.
func classOfRisk(f riskFacts) switchboard.RiskClass {
	class := switchboard.RiskHigh
	switch {
	case f.readOnly.Holds && f.readOnly.Trusted && !f.carries:
		class = switchboard.RiskSafe
	case f.readOnly.Holds:
		class = switchboard.RiskLow
	case f.undoable:
		class = switchboard.RiskMedium
	}
	if !f.readOnly.Holds || !f.readOnly.Trusted {
		for _, v := range f.verbs {
			if v == switchboard.Execute || v == switchboard.Notify { // a program can do anything, and a message cannot be taken back, whatever the server says
				class = class.Or(switchboard.RiskHigh)
			}
		}
	}
	for _, e := range f.sideEffects {
		class = class.Or(effectRisks[e])
		if e == "costs-money" && !f.budgeted {
			class = class.Or(switchboard.RiskProhibited)
		}
	}
	switch f.cost {
	case switchboard.CostMetered:
		class = class.Or(switchboard.RiskMedium)
	case switchboard.CostPaid:
		class = class.Or(switchboard.RiskHigh)
	}
	return class.Or(levelRisks[f.level])
}

// riskOf returns the class of risk of a tool whose other facts are known. budgeted says that a budget counts its calls, besides its own budget.
func riskOf(t *switchboard.Tool, h annotationHints, budgeted bool) switchboard.RiskClass {
	c := &t.Contract
	f := riskFacts{
		readOnly: c.ReadOnly, undoable: h.undoable && !h.destructive && !c.Stateful.Holds, carries: c.Flow.Bits.Has(switchboard.Carries),
		sideEffects: c.SideEffects, cost: t.CostClass(), budgeted: budgeted || t.Budget != nil, level: c.RiskLevel,
	}
	if c.Stateful.Holds {
		f.readOnly = switchboard.Fact{}
	}
	for _, list := range [][]switchboard.Capability{t.Capabilities, t.Kept} {
		for _, k := range list {
			f.verbs = append(f.verbs, k.Verb)
		}
	}
	return classOfRisk(f)
}

// ProvidedRisk returns the class of risk of a tool that provides a contract: called has the facts of the contract, and the definition of the server's own tool. The
// configuration is refused if neither a budget nor a boundary is over a contract that costs money.
func ProvidedRisk(called *switchboard.Tool) switchboard.RiskClass {
	annotations, _ := wire.Field(called.Definition, "annotations")
	destroys, _ := wire.Field(annotations, "destructiveHint")
	return riskOf(called, annotationHints{undoable: string(destroys) == "false", destructive: string(destroys) == "true"}, true)
}
