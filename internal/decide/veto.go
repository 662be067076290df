package decide

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A rule of policy may depend on the requirement. Then a tool may be vetoed for one requirement and selected for
// another requirement of the same task. The operator can make a veto count for the whole task.

// vetoedTools returns the tools that policy vetoed for a requirement, with the first requirement that vetoed each. It
// returns nil unless one of them passed policy for another requirement.
func vetoedTools(all []RequirementOutcome) map[switchboard.ToolID]*switchboard.Requirement {
	by := map[switchboard.ToolID]*switchboard.Requirement{}
	for i := range all {
		for _, d := range all[i].Dropped {
			if d.Reason.Veto && by[d.Tool.ID] == nil {
				by[d.Tool.ID] = all[i].Requirement
			}
		}
	}
	if len(by) == 0 {
		return nil
	}
	for i := range all {
		for c := range all[i].passedPolicy() {
			if by[c.Tool.ID] != nil {
				return by
			}
		}
	}
	return nil
}

// passedPolicy yields the candidates that policy allowed.
func (o *RequirementOutcome) passedPolicy() func(yield func(*Candidate) bool) {
	return func(yield func(*Candidate) bool) {
		for _, list := range [][]Candidate{o.Selected, o.Others} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range o.Dropped {
			if c := &o.Dropped[i].Candidate; c.Judgment != nil && !yield(c) {
				return
			}
		}
	}
}

// Judgments maps each tool that policy allowed for some requirement to its judgments: one for each requirement that the
// tool could serve.
func (d *Decision) Judgments() map[switchboard.ToolID][]*switchboard.Judgment {
	all := map[switchboard.ToolID][]*switchboard.Judgment{}
	for i := range d.Outcomes {
		for c := range d.Outcomes[i].passedPolicy() {
			if c.Judgment != nil && !slices.Contains(all[c.Tool.ID], c.Judgment) {
				all[c.Tool.ID] = append(all[c.Tool.ID], c.Judgment)
			}
		}
	}
	return all
}

// judgeByAll gives each selected tool the judgments of every requirement that it could serve, not only of those that
// selected it.
func judgeByAll(d *Decision) {
	all := d.Judgments()
	for i := range d.Selected {
		own := &d.Selected[i]
		for _, j := range all[own.Tool.ID] {
			if !slices.Contains(own.Judgments, j) {
				own.Judgments = append(own.Judgments, j)
			}
		}
	}
}
