package matcher

import (
	"context"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// StagePrune is the name of the stage that drops tools that lack a constraint.
const StagePrune = "prune"

type pruneStage struct{ *Index }

// Name implements decide.Stage.
func (pruneStage) Name() string { return StagePrune }

// Apply implements decide.Stage.
func (p pruneStage) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	want := q.Requirement.Constraints
	if len(want) == 0 {
		return in, nil
	}
	need, all := p.constraintBits(want)
	vouched := slices.Contains(want, switchboard.ReadOnly) && q.Tenant.TrustFor(q.Principal) != switchboard.TrustDeclared
	if vouched {
		need |= vouchedReadOnly
	}
	on := in[:0]
	for i := range in {
		c := &in[i]
		if all && c.Marks&need == need {
			on = append(on, *c)
			continue
		}
		why, lacks := missingConstraint(c.Tool, want)
		if !lacks && vouched {
			why, lacks = unvouchedCapability(c.Tool)
		}
		if !lacks {
			on = append(on, *c)
		} else {
			drop(*c, why)
		}
	}
	return on, nil
}

// constraintBits returns the bits of the constraints, and whether every constraint has a bit.
func (x *Index) constraintBits(cs []switchboard.Constraint) (mask uint64, all bool) {
	for _, c := range cs {
		bit, ok := x.bits[c]
		if !ok {
			return 0, false
		}
		mask |= bit
	}
	return mask, true
}

// vouchedReadOnly is the bit of a tool with every capability vouched for by a person. It means nothing without the bit
// of readonly.
const vouchedReadOnly = 1 << 63

// carriedBits returns the bits of the constraints that every capability of the tool carriedBits. It agrees with lack.
func (x *Index) carriedBits(t *switchboard.Tool) (marks uint64) {
	for c, bit := range x.bits {
		if _, lacks := missingConstraint(t, []switchboard.Constraint{c}); !lacks {
			marks |= bit
		}
	}
	if _, lacks := unvouchedCapability(t); !lacks {
		marks |= vouchedReadOnly
	}
	return marks
}

// missingConstraint returns the first of the wanted constraints that some capability of the tool does not carry, with the first such
// capability. If Switchboard enforces a constraint on the tool, every capability carries it.
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
