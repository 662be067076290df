package health

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/decide"
)

// StageName is the stage's word in explanations.
const StageName = "health"

// Left is how a server fares, for a run, which was given up for another that
// still serves: it is passed over though it may be back.
const Left = "left"

// Bound is how a server fares that a run shows and that is not fit to serve: it stays, if no other
// candidate is fit.
const Bound = "bound, and not fit"

// Stage passes over candidates that are not fit to serve, as the decision's input
// has it. Where none is fit, what is bound stays bound, else the first is bound, and its calls
// fail clearly. Tools that are required by name all stay, since nothing else is
// meant.
var Stage decide.Stage = stage{}

type stage struct{}

// Name implements decide.Stage.
func (stage) Name() string { return StageName }

// Apply implements decide.Stage.
func (stage) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	if len(q.Unfit) == 0 || q.Requirement.ByName() {
		return in, nil
	}
	unfit := passedOver(q.Unfit, in)
	if unfit == nil {
		return in, nil
	}
	out := in[:0]
	for _, c := range in {
		switch why := q.Unfit.Why(c.Tool.ID); {
		case !unfit(why):
			out = append(out, c)
		case why == Left:
			drop(c, decide.Reason{Text: "its server was given up for another, which serves still"})
		default:
			drop(c, decide.Reason{Text: "it is not fit to serve now: " + why})
		}
	}
	return out, nil
}

// passedOver returns how candidates fare that are passed over. The best that there is stays: fit,
// else given up for another, else bound. nil means that nothing is passed over.
func passedOver(u decide.Unfit, in []decide.Candidate) func(why string) bool {
	has := map[string]bool{}
	for i := range in {
		has[u.Why(in[i].Tool.ID)] = true
	}
	for _, best := range []string{"", Left, Bound} {
		if has[best] {
			return func(why string) bool { return why != "" && why != best }
		}
	}
	return nil
}
