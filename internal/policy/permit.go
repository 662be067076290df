package policy

import (
	"context"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An Asked is a tool that somebody wants to find or to expand, with what policy
// said when it was selected.
type Asked struct {
	Tool      *switchboard.Tool
	Judgments []*switchboard.Judgment
}

// Permit says for each tool why it may not be shown in the phase now, nil where it
// may. The layers that can answer otherwise than they did when it was selected are
// asked again, for each requirement about all that it selected of these tools.
func (p *Policy) Permit(ctx context.Context, phase Phase, who switchboard.Principal, asked []Asked, now time.Time) []*Denial {
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
		ask := func(view) bool { return true }
		m, ok := j.Memory.(*memory)
		if ok && m.fits(p, who) {
			if p.reads&^readsCall == 0 {
				continue
			}
			ask = passing
		}
		q := Question{Phase: phase, Principal: who, Requirement: j.Requirement, Now: now}
		if ok {
			q.Task = m.task
		}
		var at []int
		for i, a := range asked {
			if slices.Contains(a.Judgments, j) {
				q.Candidates, at = append(q.Candidates, a.Tool), append(at, i)
			}
		}
		a := p.judge(ctx, &q, ask)
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
