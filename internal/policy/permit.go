package policy

import (
	"context"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ToolToShow is a tool to find or to expand, with the judgments of its selection.
type ToolToShow struct {
	Tool      *switchboard.Tool
	Judgments []*switchboard.Judgment
}

// DenyShowing returns for each tool why it may not be shown in the phase now; nil if it may. It asks
// again the layers that can answer differently from the selection, once for each requirement, about
// the tools in asked that the requirement selected.
func (p *Policy) DenyShowing(ctx context.Context, phase Phase, who switchboard.Principal, asked []ToolToShow, now time.Time) []*Denial {
	denied := make([]*Denial, len(asked))
	if len(p.layers) == 0 {
		return denied
	}
	var judgments []*switchboard.Judgment
	for i, a := range asked {
		if len(a.Judgments) == 0 {
			denied[i] = &Denial{Code: switchboard.CodeDenied, Reasons: []string{"it was never judged"}}
		}
		for _, j := range a.Judgments {
			if !slices.Contains(judgments, j) {
				judgments = append(judgments, j)
			}
		}
	}
	for _, j := range judgments {
		ask := func(layerView) bool { return true }
		m, ok := j.Memory.(*judgmentMemory)
		if ok && m.matches(p, who) {
			if p.reads&^readsCall == 0 {
				continue
			}
			ask = mayChange
		}
		q := CandidateQuestion{Phase: phase, Principal: who, Requirement: j.Requirement, Now: now}
		if ok {
			q.Task = m.task
		}
		var at []int
		for i, a := range asked {
			if slices.Contains(a.Judgments, j) {
				q.Candidates, at = append(q.Candidates, a.Tool), append(at, i)
			}
		}
		a := p.judgeLayers(ctx, &q, ask)
		for n, i := range at {
			if denied[i] == nil {
				denied[i] = a.Verdicts[n].Denied
			}
			if !ok {
				denied[i] = &Denial{Code: switchboard.CodePolicyFailed, Reasons: []string{"it was never judged"}}
			}
		}
	}
	return denied
}
