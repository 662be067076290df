package matcher

import (
	"context"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// StagePrune is the name of the stage that drops what lacks a constraint.
const StagePrune = "prune"

type prune struct{ *Index }

// Name implements decide.Stage.
func (prune) Name() string { return StagePrune }

// Apply implements decide.Stage.
func (p prune) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	want := q.Requirement.Constraints
	if len(want) == 0 {
		return in, nil
	}
	need, all := p.mask(want)
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
		if all && drop == nil {
			continue
		}
		why, lacks := lack(c.Tool, want)
		if !lacks && vouched {
			why, lacks = unvouched(c.Tool)
		}
		if !lacks {
			on = append(on, *c)
		} else if drop != nil {
			drop(*c, why)
		}
	}
	return on, nil
}

// mask returns the bits of the constraints, and whether each of them has one.
func (x *Index) mask(cs []switchboard.Constraint) (mask uint64, all bool) {
	for _, c := range cs {
		bit, ok := x.bits[c]
		if !ok {
			return 0, false
		}
		mask |= bit
	}
	return mask, true
}

// vouchedReadOnly marks a tool of which a person vouches for every capability. It says nothing without the mark of readonly.
const vouchedReadOnly = 1 << 63

// carries returns the bits of the constraints that every capability of the tool
// carries. It agrees with lack.
func (x *Index) carries(t *switchboard.Tool) (marks uint64) {
	for c, bit := range x.bits {
		if _, lacks := lack(t, []switchboard.Constraint{c}); !lacks {
			marks |= bit
		}
	}
	if _, lacks := unvouched(t); !lacks {
		marks |= vouchedReadOnly
	}
	return marks
}

// lack returns the first of the wanted constraints that some capability of the
// tool does not carry, and the first capability that does not. What Switchboard
// enforces on the tool, all of them carry.
func lack(t *switchboard.Tool, want []switchboard.Constraint) (decide.Reason, bool) {
	for _, c := range want {
		if t.Enforces(c) {
			continue
		}
		if len(t.Capabilities) == 0 {
			return decide.Reason{Missing: c}, true
		}
		for i := range t.Capabilities {
			if have := &t.Capabilities[i]; !have.Carries(c) && !kept(t, have, c) {
				return decide.Reason{Missing: c, Capability: have}, true
			}
		}
		for i := range t.Kept {
			have := &t.Kept[i]
			if further(t, have) && !have.Carries(c) && !kept(t, have, c) {
				return decide.Reason{Missing: c, Capability: have}, true
			}
		}
	}
	return decide.Reason{}, false
}

// unvouched returns the first capability of a readonly tool that is readonly by the word of its server only.
func unvouched(t *switchboard.Tool) (decide.Reason, bool) {
	for i := range t.Capabilities {
		if have := &t.Capabilities[i]; !t.Vouched(have.Source) {
			return decide.Reason{Missing: switchboard.ReadOnly, Capability: have}, true
		}
	}
	for i := range t.Kept {
		if have := &t.Kept[i]; further(t, have) && !t.Vouched(have.Source) {
			return decide.Reason{Missing: switchboard.ReadOnly, Capability: have}, true
		}
	}
	return decide.Reason{}, false
}

// further reports whether a weaker source speaks of a verb and resource of which the winning one does not.
func further(t *switchboard.Tool, have *switchboard.Capability) bool {
	return !slices.ContainsFunc(t.Capabilities, func(w switchboard.Capability) bool { return same(&w, have) })
}

// kept reports whether a weaker source says of the same verb and resource that
// they carry c, and c is one that we enforce.
func kept(t *switchboard.Tool, have *switchboard.Capability, c switchboard.Constraint) bool {
	return c.Restricts() && slices.ContainsFunc(t.Kept, func(k switchboard.Capability) bool { return same(&k, have) && k.Carries(c) })
}

func same(a, b *switchboard.Capability) bool { return a.Verb == b.Verb && a.Resource == b.Resource }
