package matcher

import (
	"context"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// StagePrune is the name of the stage that drops tools that lack a constraint.
const StagePrune = "prune"

type pruneStage struct{}

// Name implements decide.Stage.
func (pruneStage) Name() string { return StagePrune }

// Apply implements decide.Stage.
func (pruneStage) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	want := q.Requirement.Constraints
	if len(want) == 0 {
		return in, nil
	}
	vouched := slices.Contains(want, switchboard.ReadOnly) && q.Tenant.TrustFor(q.Principal) != switchboard.TrustDeclared
	on := in[:0]
	for i := range in {
		c := &in[i]
		why, lacks := missingConstraint(c.Tool, want)
		if !lacks && vouched {
			why, lacks = unvouchedCapability(c.Tool)
		}
		if lacks {
			drop(*c, why)
		} else {
			on = append(on, *c)
		}
	}
	return on, nil
}

// missingConstraint returns the first of the wanted constraints that some capability of the tool does not carry, with
// the first such capability. If Switchboard enforces a constraint on the tool, every capability carries it.
func missingConstraint(t *switchboard.Tool, want []switchboard.Constraint) (decide.Reason, bool) {
	for _, c := range want {
		if t.Enforces(c) {
			continue
		}
		if len(t.Capabilities) == 0 {
			return decide.Reason{Missing: c}, true
		}
		for i := range t.Capabilities {
			if have := &t.Capabilities[i]; !have.Carries(c) && !restrictedByWeaker(t, have, c) {
				return decide.Reason{Missing: c, Capability: have}, true
			}
		}
		for i := range t.Kept {
			have := &t.Kept[i]
			if addsCapability(t, have) && !have.Carries(c) && !restrictedByWeaker(t, have, c) {
				return decide.Reason{Missing: c, Capability: have}, true
			}
		}
	}
	return decide.Reason{}, false
}

// unvouchedCapability returns the first capability of a readonly tool that only its server calls readonly.
func unvouchedCapability(t *switchboard.Tool) (decide.Reason, bool) {
	for i := range t.Capabilities {
		if have := &t.Capabilities[i]; !t.Vouched(have.Source) {
			return decide.Reason{Missing: switchboard.ReadOnly, Capability: have}, true
		}
	}
	for i := range t.Kept {
		if have := &t.Kept[i]; addsCapability(t, have) && !t.Vouched(have.Source) {
			return decide.Reason{Missing: switchboard.ReadOnly, Capability: have}, true
		}
	}
	return decide.Reason{}, false
}

// addsCapability reports whether the strongest source does not state have's verb and resource.
func addsCapability(t *switchboard.Tool, have *switchboard.Capability) bool {
	return !slices.ContainsFunc(t.Capabilities, func(w switchboard.Capability) bool { return sameAction(&w, have) })
}

// restrictedByWeaker reports whether a weaker source states c for the verb and resource of have, and c is a constraint that
// Switchboard enforces.
func restrictedByWeaker(t *switchboard.Tool, have *switchboard.Capability, c switchboard.Constraint) bool {
	return c.Restricts() && slices.ContainsFunc(t.Kept, func(k switchboard.Capability) bool { return sameAction(&k, have) && k.Carries(c) })
}

func sameAction(a, b *switchboard.Capability) bool {
	return a.Verb == b.Verb && a.Resource == b.Resource
}
