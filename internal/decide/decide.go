// Package decide reduces a tenant's tools to the few that one task sees, and records the reasons.
//
// A decision is made requirement by requirement. For each, the candidates pass through stages: filter and prune
// (package matcher), rank (package ranking), any stages between or after them, and always select as the last, which is
// part of this package. Each stage returns the candidates that remain and gives a reason for each one that it drops.
// What a stage looks at is its own business. This package runs the stages, combines the requirements, fails closed, and
// writes the record.
//
// The same inputs give the same Decision, byte for byte. So no code here reads a clock, the order of a map or the state
// of a server.
package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Stage decides which candidates for one requirement remain. It is safe for concurrent use.
type Stage interface {
	// Name is the name of the stage in explanations, such as "prune".
	Name() string

	// Apply returns the candidates that remain: best first once they are ranked, and in the order of their ids before
	// that. It may reorder, modify and return in, which it owns until it returns. The first stage gets no candidates,
	// and appends those that it finds.
	//
	// Apply calls drop, which is never nil, for each candidate that it drops, with the reason. An error means that the
	// stage cannot decide. It fails the whole decision.
	Apply(ctx context.Context, q *Question, in []Candidate, drop Drop) ([]Candidate, error)
}

// A Drop records a candidate that a stage dropped.
type Drop func(c Candidate, why Reason)

// Ignore is a Drop that records nothing.
func Ignore(Candidate, Reason) {}

// A Question is the input of a stage, apart from the candidates. It is valid until Apply returns.
type Question struct {
	Tenant      *switchboard.Tenant
	Principal   switchboard.Principal
	Task        *switchboard.Task
	Requirement *switchboard.Requirement

	// Now is the instant of the decision.
	Now time.Time

	// Unfit lists the servers and tools that are not fit to serve.
	Unfit Unfit

	// Atoms holds the states of the atoms that the named capabilities of the task require.
	Atoms Atoms

	// Vetoed maps each tool that policy vetoed for another requirement of the task to that requirement. It is nil
	// unless a veto counts for the whole task.
	Vetoed map[switchboard.ToolID]*switchboard.Requirement
}

// Unfit maps the servers and tools that are not fit to serve to their state. The id of a server has no Name. An Unfit
// is not modified.
type Unfit map[switchboard.ToolID]string

// An Observed is the changing state of the world that a decision reads, at its instant. It is recorded with the decision.
type Observed struct {
	Unfit Unfit
	Atoms Atoms
}

// Atoms maps the id of an atom to its state. An atom that is not there is capability.Unknown. Atoms is not modified.
type Atoms map[string]capability.State

// Why returns the state of the server, or else of the tool; "" means that both are fit.
func (u Unfit) Why(id switchboard.ToolID) string {
	if len(u) == 0 {
		return ""
	}
	return cmp.Or(u[switchboard.ToolID{Server: id.Server}], u[id])
}

// A Candidate is one tool, considered for one requirement.
type Candidate struct {
	Tool *switchboard.Tool

	// Place and Score are set by the ranking. Place is the server's position in the row that prefers it, from 1; 0 if
	// no row does.
	Place int32
	Score int

	// Judgment is set by policy, which needs it again when the tool is called; nil if policy was not asked.
	Judgment *switchboard.Judgment
}

// A Reason says why a stage dropped a candidate.
type Reason struct {
	// Missing is the constraint that is required and missing. Capability is the one that does not carry it, or
	// carries it only by the server's own word; nil if the tool has no capability at all.
	Missing    switchboard.Constraint
	Capability *switchboard.Capability

	// Text is the reason in words, for the operator, if Missing is empty.
	Text string

	// Code is the code of the refusal if a requirement has no candidate left for this reason; "" means SB-CAP-004.
	Code switchboard.Code

	// Veto says that a rule of policy denied this very candidate.
	Veto bool
}

// String returns the reason in words, for the operator.
func (r Reason) String() string {
	switch {
	case r.Missing == "":
		return r.Text
	case r.Capability == nil:
		return fmt.Sprintf("it states no capability that could carry %s", r.Missing)
	case r.Capability.Carries(r.Missing):
		return fmt.Sprintf("only the server itself says that its capability %s (%s) is %s; an overlay can say it, or the operator with trust: operator for the server, or trust: declared for the tenant",
			r.Capability, r.Capability.Source, r.Missing)
	default:
		return fmt.Sprintf("its capability %s (%s) lacks %s", r.Capability, r.Capability.Source, r.Missing)
	}
}

// A Pipeline is the list of stages for a tenant's decisions, in order. It leaves out select, which always comes last.
// The zero Pipeline finds no candidates.
type Pipeline []Stage

// An Input is the input of a decision. The digests of Snapshot are recorded as they are given.
type Input struct {
	Tenant    *switchboard.Tenant
	Principal switchboard.Principal
	Task      *switchboard.Task
	Snapshot  SnapshotDigests

	// Now is the instant of the decision. It is recorded, so leave it zero if no stage depends on the time.
	Now time.Time

	// Unfit lists what is not fit to serve this run at that instant. It is recorded too, and so is Atoms.
	Unfit Unfit
	Atoms Atoms
}

// A SnapshotDigests identifies the immutable state that a decision reads.
type SnapshotDigests struct {
	Catalog  switchboard.Digest // of the tenant's view of the catalog
	Tenant   switchboard.Digest // of the tenant's configuration
	Taxonomy switchboard.Digest
	Policy   switchboard.Digest // "" if there is no policy

	Capabilities switchboard.Digest // of the registry and who provides it; "" if there is none
}

// StageFilter is the name of the stage that finds the candidates. A requirement without any candidate is unmet at this
// stage.
const StageFilter = "filter"

// Decide runs the stages for each requirement and records what happened. An unmet requirement is not an error of
// Decide: see Decision.Err. The error is a *switchboard.Error, which says that a stage could not decide, or that ctx is
// done.
func (p Pipeline) Decide(ctx context.Context, in Input) (*Decision, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	s := borrowScratch(in)
	defer s.release()

	d := &Decision{
		Tenant:    in.Tenant.ID,
		Principal: in.Principal,
		Task:      in.Task,
		Snapshot:  in.Snapshot,
		Now:       in.Now,
		Unfit:     in.Unfit,
		Atoms:     in.Atoms,
	}
	var err error
	if d.Outcomes, err = p.outcomes(ctx, s, in.Task); err != nil {
		return nil, err
	}
	if in.Tenant.VetoForTask {
		if s.question.Vetoed = vetoedTools(d.Outcomes); s.question.Vetoed != nil {
			if d.Outcomes, err = p.outcomes(ctx, s, in.Task); err != nil {
				return nil, err
			}
		}
	}
	for i := range d.Outcomes {
		s.addSelected(i, d.Outcomes[i].Selected)
	}
	// All or nothing: if one necessary requirement is unmet, the task sees no tool.
	if d.Err() == nil {
		d.Selected = s.selectedTools()
	}
	if in.Tenant.VetoForTask {
		judgeByAll(d)
	}
	return d, nil
}

// outcomes returns the outcomes of all requirements of the task.
func (p Pipeline) outcomes(ctx context.Context, s *scratch, task *switchboard.Task) ([]RequirementOutcome, error) {
	all := make([]RequirementOutcome, len(task.Requirements))
	for i := range all {
		var err error
		if all[i], err = p.outcome(ctx, s, &task.Requirements[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// outcome runs narrow and select for r, and records every candidate.
func (p Pipeline) outcome(ctx context.Context, s *scratch, r *switchboard.Requirement) (RequirementOutcome, error) {
	o := RequirementOutcome{Requirement: r}
	s.question.Requirement = r
	left, last, err := p.narrow(ctx, s)
	if err != nil {
		return RequirementOutcome{}, err
	}
	o.Dropped = append([]Dropped(nil), s.dropped...)
	if len(left) == 0 {
		o.Unmet = newUnmet(r, last, o.Dropped)
		return o, nil
	}
	s.others = s.others[:0]
	left, err = selection{}.Apply(ctx, &s.question, left, func(c Candidate, _ Reason) { s.others = append(s.others, c) })
	if err != nil {
		return RequirementOutcome{}, s.stageError(selection{}, err)
	}
	o.Selected = append([]Candidate(nil), left...)
	o.Others = append([]Candidate(nil), s.others...)
	return o, nil
}

// narrow runs the stages. It returns the remaining candidates, in s's buffer, and the name of the stage that ran last;
// s.dropped then has the others. It stops when no candidate remains.
func (p Pipeline) narrow(ctx context.Context, s *scratch) ([]Candidate, string, error) {
	s.dropped = s.dropped[:0]
	left, last := s.candidates[:0], StageFilter
	for i, stage := range p {
		if i > 0 && len(left) == 0 {
			break
		}
		if ctx.Err() != nil {
			return nil, last, s.stageError(stage, context.Cause(ctx))
		}
		last = stage.Name()
		had, drops := len(left), len(s.dropped)
		var err error
		if left, err = stage.Apply(ctx, &s.question, left, func(c Candidate, why Reason) {
			s.dropped = append(s.dropped, Dropped{Candidate: c, Stage: last, Reason: why})
		}); err != nil {
			return nil, last, s.stageError(stage, err)
		}
		if i == 0 {
			s.candidates = left[:0] // left may be a larger buffer; the next requirement reuses it
		} else if gone := len(s.dropped) - drops; had-len(left) != gone {
			return nil, last, s.stageError(stage, fmt.Errorf("%d candidates became %d, and %d reasons were given", had, len(left), gone))
		}
	}
	return left, last, nil
}

// stageError returns the error of a decision that a stage failed. If the stage's error is a *switchboard.Error, that is
// returned as it is.
func (s *scratch) stageError(stage Stage, err error) error {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own
	}
	return &switchboard.Error{
		Code:        switchboard.CodeTaskRefused,
		Text:        fmt.Sprintf("task %s may not start: it could not be decided which tools it may use", s.question.Task.ID),
		Requirement: s.question.Requirement.String(),
		Stage:       stage.Name(),
		Cause:       fmt.Errorf("%s stage: %w", stage.Name(), err),
	}
}

func (in *Input) check() error {
	switch {
	case in.Tenant == nil || in.Task == nil:
		return switchboard.Refuse(switchboard.CodeNoSuchTask, "no task is bound")
	case in.Principal.Tenant != in.Tenant.ID:
		return switchboard.Refuse(switchboard.CodeNotAuthorized, "the task is not yours")
	}
	return nil
}
