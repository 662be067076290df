package decide

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A rule of policy may look at the requirement. Then a tool is vetoed for one requirement, and may be selected for another
// of the same task. The operator can have a veto count for the whole task.

// vetoed returns the tools that one requirement's policy has vetoed and another requirement has let pass, with the first
// requirement that vetoed each; nil for none.
func vetoed(all []Outcome) map[switchboard.ToolID]*switchboard.Requirement {
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
		for c := range all[i].passed() {
			if by[c.Tool.ID] != nil {
				return by
			}
		}
	}
	return nil
}

// passed yields the candidates that policy let pass.
func (o *Outcome) passed() func(yield func(*Candidate) bool) {
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

// Judgments returns for each tool that policy let pass somewhere what policy was asked about it: one Judgment for each
// requirement that the tool could serve.
func (d *Decision) Judgments() map[*switchboard.Tool][]*switchboard.Judgment {
	all := map[*switchboard.Tool][]*switchboard.Judgment{}
	for i := range d.Outcomes {
		for c := range d.Outcomes[i].passed() {
			if c.Judgment != nil && !slices.Contains(all[c.Tool], c.Judgment) {
				all[c.Tool] = append(all[c.Tool], c.Judgment)
			}
		}
	}
	return all
}

// judgeByAll has calls of each selected tool judged for every requirement that it could serve, and not only for those that
// selected it.
func judgeByAll(d *Decision) {
	all := d.Judgments()
	for i := range d.Selected {
		own := &d.Selected[i]
		for _, j := range all[own.Tool] {
			if !slices.Contains(own.Judgments, j) {
				own.Judgments = append(own.Judgments, j)
			}
		}
	}
}
