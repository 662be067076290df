package admission

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// StageName is the name of the stage in explanations.
const StageName = "admission"

// Stage drops the tools whose state keeps them from serving: suspended and retired ones, those that no person has let in, and those that the tenant does not try.
var Stage decide.Stage = stateStage{}

type stateStage struct{}

// Name implements decide.Stage.
func (stateStage) Name() string { return StageName }

// Apply implements decide.Stage.
func (stateStage) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	out := in[:0]
	for _, c := range in {
		if a := c.Tool.Admission; a != nil && !mayServe(q.Tenant, c.Tool) {
			drop(c, decide.Reason{Code: codeOf(a.State), Text: "it is " + string(a.State) + ": " + a.Why})
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

// mayServe reports whether the tool can serve runs of the tenant.
func mayServe(t *switchboard.Tenant, tool *switchboard.Tool) bool {
	switch tool.Admission.State {
	case switchboard.LifeActive, switchboard.LifeDeprecated:
		return true
	case switchboard.LifeTesting:
		return t.Tries(tool.ID)
	}
	return false
}

// codeOf returns the code of the refusal if no candidate is left.
func codeOf(s switchboard.LifeState) switchboard.Code {
	switch s {
	case switchboard.LifeSuspended:
		return switchboard.CodeSuspended
	case switchboard.LifeRetired:
		return switchboard.CodeRetired
	}
	return switchboard.CodeNotLetIn
}
