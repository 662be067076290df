package app

import (
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// movable returns the selected tools of the decision with their equivalents: of
// the candidates of the same requirements those to which calls may move. First
// come those that were fit to serve, in order.
func (t *tenant) movable(d *decide.Decision) []decide.Selected {
	groups := make([]*contract.Group, len(d.Outcomes))
	for i := range d.Outcomes {
		groups[i] = t.equivalents.Among(reached(&d.Outcomes[i]))
	}
	selected := slices.Clone(d.Selected)
	for i := range selected {
		s := &selected[i]
		for _, r := range s.Requirements {
			for _, e := range groups[r].Of(s.Tool) {
				at := slices.IndexFunc(s.Equivalents, func(o switchboard.Equivalent) bool { return o.Tool == e.Tool })
				if at < 0 {
					s.Equivalents = append(s.Equivalents, e)
				} else {
					s.Equivalents[at].Judgments = slices.Concat(s.Equivalents[at].Judgments, e.Judgments)
				}
			}
		}
	}
	return selected
}

// reached are the candidates that policy has let pass.
func reached(o *decide.Outcome) []switchboard.Equivalent {
	n := o.Considered()
	list := make([]switchboard.Equivalent, 0, n)
	judged := make([]*switchboard.Judgment, 0, n)
	add := func(c decide.Candidate) {
		e := switchboard.Equivalent{Tool: c.Tool}
		if c.Judgment != nil {
			judged = append(judged, c.Judgment)
			e.Judgments = judged[len(judged)-1 : len(judged) : len(judged)]
		}
		list = append(list, e)
	}
	for _, c := range o.Selected {
		add(c)
	}
	for _, c := range o.Others {
		add(c)
	}
	for _, c := range o.Dropped {
		if c.Stage == health.StageName {
			add(c.Candidate)
		}
	}
	return list
}

// undeclared are what is wrong with the equivalents that are declared for the
// tenant; "" means for all.
func (s *state) undeclared(id switchboard.TenantID) []contract.Fault {
	var found []contract.Fault
	t := s.tenants[id]
	for _, f := range s.declared.Faults() {
		if id == "" || t != nil && t.serves(f.Tool.Server) {
			found = append(found, f)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(s.tenants)) {
		if id == "" || id == other {
			found = append(found, s.tenants[other].equivalents.Faults()...)
		}
	}
	return found
}
