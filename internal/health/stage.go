package health

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/decide"
)

// StageName is the name of the stage in explanations.
const StageName = "health"

// GivenUp is the state, for one run, of a server that the run has given up for another: the run skips it while the other
// serves, even if it is healthy again.
const GivenUp = "left"

// BoundUnfit is the state, for one run, of an unfit server that the run shows: it stays if no other candidate is fit.
const BoundUnfit = "bound, and not fit"

// Stage drops unfit candidates. If none is fit, bound tools stay bound; otherwise the first candidate is bound, and
// its calls fail with a clear error. Tools that are required by name all stay, because the requirement has no
// alternative.
var Stage decide.Stage = fitStage{}

type fitStage struct{}

// Name implements decide.Stage.
func (fitStage) Name() string { return StageName }

// Apply implements decide.Stage.
func (fitStage) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	if len(q.Unfit) == 0 || q.Requirement.ByName() {
		return in, nil
	}
	unfit := excluded(q.Unfit, in)
	if unfit == nil {
		return in, nil
	}
	out := in[:0]
	for _, c := range in {
		switch why := q.Unfit.Why(c.Tool.ID); {
		case !unfit(why):
			out = append(out, c)
		case why == GivenUp:
			drop(c, decide.Reason{Text: "its server was given up for another, which still serves"})
		default:
			drop(c, decide.Reason{Text: "it is not fit to serve now: " + why})
		}
	}
	return out, nil
}

// excluded returns the test for the states that are dropped. The best state that any candidate has stays: fit,
// otherwise given up, otherwise bound. nil means that no candidate is dropped.
func excluded(u decide.Unfit, in []decide.Candidate) func(why string) bool {
	has := map[string]bool{}
	for i := range in {
		has[u.Why(in[i].Tool.ID)] = true
	}
	for _, best := range []string{"", GivenUp, BoundUnfit} {
		if has[best] {
			return func(why string) bool { return why != "" && why != best }
		}
	}
	return nil
}
