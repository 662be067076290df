package bind

import (
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// withEquivalents returns the selected tools of the decision, each with its equivalents: the
// candidates of the same requirements that its calls may move to. Candidates that were fit to serve
// come first, in order.
func (t *Tenant) withEquivalents(d *decide.Decision) []decide.Selected {
	groups := make([]*contract.CandidateGroup, len(d.Outcomes))
	others := make([][]switchboard.ToolID, len(d.Outcomes))
	for i := range d.Outcomes {
		candidates := PassedPolicy(&d.Outcomes[i])
		groups[i] = t.Equivalents.Among(candidates)
		if !d.Outcomes[i].Requirement.ByName() {
			others[i] = otherServers(candidates)
		}
	}
	var judgments map[switchboard.ToolID][]*switchboard.Judgment
	if t.VetoForTask {
		judgments = d.Judgments()
	}
	selected := slices.Clone(d.Selected)
	for i := range selected {
		s := &selected[i]
		for _, r := range s.Requirements {
			if s.Others == nil {
				s.Others = others[r]
			}
			for _, e := range groups[r].Of(s.Tool) {
				at := slices.IndexFunc(s.Equivalents, func(o switchboard.Equivalent) bool { return o.Tool == e.Tool })
				if at < 0 {
					s.Equivalents = append(s.Equivalents, e)
				} else {
					s.Equivalents[at].Judgments = slices.Concat(s.Equivalents[at].Judgments, e.Judgments)
				}
			}
		}
		for at := range s.Equivalents {
			if e := &s.Equivalents[at]; judgments[e.Tool.ID] != nil { // a veto for any requirement counts, to any server that the call moves to
				e.Judgments = judgments[e.Tool.ID]
			}
		}
	}
	return selected
}

// maxOthers limits the servers that a tool remembers as possible replacements of its own.
const maxOthers = 4

// otherServers returns the first candidate of each server, without the server of the first
// candidate, which is the selected one.
func otherServers(candidates []switchboard.Equivalent) (others []switchboard.ToolID) {
	for _, c := range candidates {
		id := c.Tool.ID
		seen := func(o switchboard.ToolID) bool { return o.Server == id.Server }
		if id.Server != candidates[0].Tool.ID.Server && !slices.ContainsFunc(others, seen) && len(others) < maxOthers {
			others = append(others, id)
		}
	}
	return others
}

// PassedPolicy returns the candidates that policy allows.
func PassedPolicy(o *decide.RequirementOutcome) []switchboard.Equivalent {
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

// EquivalentFaults returns the faults of the equivalents that are declared for the tenant; "" means
// all tenants.
func (s *State) EquivalentFaults(id switchboard.TenantID) []contract.EquivalentFault {
	var found []contract.EquivalentFault
	t := s.Tenants[id]
	for _, f := range s.declaredEquivalents.Faults() {
		if id == "" || t != nil && t.MayUseServer(f.Tool.Server) {
			found = append(found, f)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(s.Tenants)) {
		if id == "" || id == other {
			found = append(found, s.Tenants[other].Equivalents.Faults()...)
		}
	}
	return found
}

// ProviderFaults returns why servers of the tenant do not provide what the operator's overlays say; "" means all tenants.
func (s *State) ProviderFaults(id switchboard.TenantID) (found []contract.ProviderFault) {
	for _, other := range slices.Sorted(maps.Keys(s.Tenants)) {
		if id != "" && id != other {
			continue
		}
		for _, f := range s.Tenants[other].Providers.Faults() {
			if !slices.Contains(found, f) {
				found = append(found, f)
			}
		}
	}
	return found
}
