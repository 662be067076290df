// Package decide narrows a tenant's tools to the few that one task sees, and
// keeps the reasons.
//
// A decision is made requirement by requirement. For each, candidates walk
// through stages: filter and prune (package matcher), rank (package ranking),
// whatever is put between or behind them, and always last select, which this
// package has itself. Each stage says which candidates go on and why the others
// do not. What each stage looks at is left to it; this package runs them, puts
// the requirements together, fails closed, and writes the record.
//
// The same inputs give the same Decision, byte for byte: nothing here reads a
// clock, a map's order or the state of a server.
package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Stage looks at the candidates for one requirement and says which go on. It
// is safe for concurrent use.
type Stage interface {
	// Name is the stage's word in explanations, such as "prune".
	Name() string

	// Apply returns the candidates that go on, best first once they have been
	// ranked and until then in the order of their ids. It may reorder, modify
	// and return in, which is its own until it returns. The first stage is
	// given none, and appends those that it finds.
	//
	// drop takes each candidate that does not go on, with the reason. It is
	// nil when nobody records, and then reasons need not be found. An error
	// means that the stage cannot tell, and fails the whole decision.
	Apply(ctx context.Context, q *Question, in []Candidate, drop Drop) ([]Candidate, error)
}

// A Drop takes a candidate that does not go on.
type Drop func(c Candidate, why Reason)

// A Question is what a stage is asked. It is valid until Apply returns.
type Question struct {
	Tenant      *switchboard.Tenant
	Principal   switchboard.Principal
	Task        *switchboard.Task
	Requirement *switchboard.Requirement

	// Now is the instant of the decision.
	Now time.Time

	// Unfit is what is not fit to serve, as the decision has it.
	Unfit Unfit

	// Vetoed are the tools that policy has vetoed for another requirement of the task, with that
	// requirement, if a veto counts for the whole task.
	Vetoed map[switchboard.ToolID]*switchboard.Requirement
}

// Unfit says which servers, given with no name of a tool, and which tools are not
// fit to serve, and how they fare. It is not modified.
type Unfit map[switchboard.ToolID]string

// Why returns how the tool or its server fares; "" means that both are fit.
func (u Unfit) Why(id switchboard.ToolID) string {
	if len(u) == 0 {
		return ""
	}
	return cmp.Or(u[switchboard.ToolID{Server: id.Server}], u[id])
}

// A Candidate is one tool, considered for one requirement.
type Candidate struct {
	Tool *switchboard.Tool

	// Marks is for the stages of package matcher alone, which know what they
	// mean by it.
	Marks uint64

	// Index is the tool's place among all that the tenant has, from 0 and in the
	// order of ids. It spares others the search and the comparison; a first
	// stage that does not know it leaves it 0 for all.
	Index int32

	// Place and Score are the ranking's: Place is the server's place in the
	// row that prefers it, from 1, or 0 where none does.
	Place int32
	Score int

	// Judgment is policy's, which it needs when the tool is called; nil where
	// no policy was asked.
	Judgment *switchboard.Judgment
}

// A Reason says why a candidate did not go on.
type Reason struct {
	// Missing is the constraint that is required and not carried, and
	// Capability the one that does not carry it, or carries it by the server's own word only:
	// nil where the tool has no capability at all.
	Missing    switchboard.Constraint
	Capability *switchboard.Capability

	// Text is the reason in words, for the operator, where Missing is empty.
	Text string

	// Code is what a task is refused with that is left with nothing for this
	// reason; "" means SB-CAP-004.
	Code switchboard.Code

	// Veto says that a rule of policy has named the candidate to deny it.
	Veto bool
}

// String gives the reason in words, for the operator.
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

// A Pipeline is the stages of a tenant's decisions, in order, without select,
// which always comes last. The zero Pipeline finds no candidates.
type Pipeline []Stage

// An Input is what is to be decided, and about what. The digests of Snapshot
// are recorded as they are given.
type Input struct {
	Tenant    *switchboard.Tenant
	Principal switchboard.Principal
	Task      *switchboard.Task
	Snapshot  Snapshot

	// Now is the instant of the decision. It is recorded, so it is left zero
	// where no stage looks at the time.
	Now time.Time

	// Unfit is what is not fit to serve at that instant, for this run. It is
	// recorded too.
	Unfit Unfit
}

// A Snapshot names the immutable state that a decision reads.
type Snapshot struct {
	Catalog  switchboard.Digest // of the tenant's view of the catalog
	Tenant   switchboard.Digest // of the tenant's configuration
	Taxonomy switchboard.Digest
	Policy   switchboard.Digest // "" where there is none
}

// StageFilter is the name of the stage that finds the candidates: a requirement
// that has none at all is unmet there.
const StageFilter = "filter"

// Decide runs the stages for each requirement and records all that happened.
// That a requirement is unmet is no error here but the Decision's: see
// Decision.Err. The error is a *switchboard.Error: a stage could not tell, or
// ctx is done.
func (p Pipeline) Decide(ctx context.Context, in Input) (*Decision, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	s := newScratch(in)
	defer s.free()

	d := &Decision{
		Tenant:    in.Tenant.ID,
		Principal: in.Principal,
		Task:      in.Task,
		Snapshot:  in.Snapshot,
		Now:       in.Now,
		Unfit:     in.Unfit,
	}
	var err error
	if d.Outcomes, err = p.outcomes(ctx, s, in.Task); err != nil {
		return nil, err
	}
	if in.Tenant.VetoForTask {
		if s.question.Vetoed = vetoed(d.Outcomes); s.question.Vetoed != nil {
			if d.Outcomes, err = p.outcomes(ctx, s, in.Task); err != nil {
				return nil, err
			}
		}
	}
	for i := range d.Outcomes {
		s.selected(i, d.Outcomes[i].Selected)
	}
	// All or nothing: a task that lacks something that it needs sees no tool.
	if d.Err() == nil {
		d.Selected = s.selection()
	}
	if in.Tenant.VetoForTask {
		judgeByAll(d)
	}
	return d, nil
}

// outcomes are those of all requirements of the task.
func (p Pipeline) outcomes(ctx context.Context, s *scratch, task *switchboard.Task) ([]Outcome, error) {
	all := make([]Outcome, len(task.Requirements))
	for i := range all {
		var err error
		if all[i], err = p.outcome(ctx, s, &task.Requirements[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Choose returns what Decide would have selected, and makes no record. The
// error is a *switchboard.Error, also where a requirement is unmet.
func (p Pipeline) Choose(ctx context.Context, in Input) ([]Selected, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if in.Tenant.VetoForTask {
		return p.refused(ctx, in)
	}
	s := newScratch(in)
	defer s.free()

	for i := range in.Task.Requirements {
		s.question.Requirement = &in.Task.Requirements[i]
		left, _, err := p.narrow(ctx, s, nil)
		if err != nil {
			return nil, err
		}
		if left, err = (selection{}).Apply(ctx, &s.question, left, nil); err != nil {
			return nil, s.refuse(selection{}, err)
		}
		if len(left) == 0 && !in.Task.Requirements[i].Optional {
			return p.refused(ctx, in)
		}
		s.selected(i, left)
	}
	return s.selection(), nil
}

// refused decides with a record, to learn why.
func (p Pipeline) refused(ctx context.Context, in Input) ([]Selected, error) {
	d, err := p.Decide(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return d.Selected, nil // a stage that sees the world changed its mind meanwhile
}

// outcome is narrow and select with all that is to be recorded.
func (p Pipeline) outcome(ctx context.Context, s *scratch, r *switchboard.Requirement) (Outcome, error) {
	o := Outcome{Requirement: r}
	s.question.Requirement = r
	left, last, err := p.narrow(ctx, s, func(stage string, c Candidate, why Reason) {
		s.dropped = append(s.dropped, Dropped{Candidate: c, Stage: stage, Reason: why})
	})
	if err != nil {
		return Outcome{}, err
	}
	o.Dropped = append([]Dropped(nil), s.dropped...)
	if len(left) == 0 {
		o.Unmet = unmet(r, last, o.Dropped)
		return o, nil
	}
	s.others = s.others[:0]
	left, err = selection{}.Apply(ctx, &s.question, left, func(c Candidate, _ Reason) { s.others = append(s.others, c) })
	if err != nil {
		return Outcome{}, s.refuse(selection{}, err)
	}
	o.Selected = append([]Candidate(nil), left...)
	o.Others = append([]Candidate(nil), s.others...)
	return o, nil
}

// narrow runs the stages and returns what is left, in s's buffer, and the name
// of the stage that ran last. It stops once nothing is left.
func (p Pipeline) narrow(ctx context.Context, s *scratch, record func(stage string, c Candidate, why Reason)) ([]Candidate, string, error) {
	s.dropped = s.dropped[:0]
	left, last := s.candidates[:0], StageFilter
	for i, stage := range p {
		if i > 0 && len(left) == 0 {
			break
		}
		if ctx.Err() != nil {
			return nil, last, s.refuse(stage, context.Cause(ctx))
		}
		last = stage.Name()
		had, drops := len(left), len(s.dropped)
		var drop Drop
		if record != nil {
			drop = func(c Candidate, why Reason) { record(last, c, why) }
		}
		var err error
		if left, err = stage.Apply(ctx, &s.question, left, drop); err != nil {
			return nil, last, s.refuse(stage, err)
		}
		if i == 0 {
			s.candidates = left[:0] // it may have grown; the next requirement reuses it
		} else if gone := len(s.dropped) - drops; record != nil && had-len(left) != gone {
			return nil, last, s.refuse(stage, fmt.Errorf("%d candidates became %d, and %d reasons were given", had, len(left), gone))
		}
	}
	return left, last, nil
}

// refuse is what becomes of a decision when a stage cannot tell. A stage that
// refuses in its own words is heard.
func (s *scratch) refuse(stage Stage, err error) error {
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
