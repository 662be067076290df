package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Decision records what happened to every candidate at every stage, and what was selected. It is not modified once it
// is made.
type Decision struct {
	Tenant    switchboard.TenantID
	Principal switchboard.Principal
	Task      *switchboard.Task
	Snapshot  SnapshotDigests
	Now       time.Time // zero if the decision does not depend on the time
	Unfit     Unfit
	Atoms     Atoms

	// Outcomes has one Outcome for each requirement, in the task's order.
	Outcomes []RequirementOutcome

	// Selected are the tools that the task sees, ordered by requirement, then by rank. A tool that several requirements
	// selected is listed once, at the first of them. Selected is empty if Err is not nil.
	Selected []Selected
}

// An RequirementOutcome is the result for one requirement.
type RequirementOutcome struct {
	Requirement *switchboard.Requirement

	// Dropped are the candidates that a stage dropped, in the order of the stages, and within a stage in the order of
	// its calls of drop.
	Dropped []Dropped

	// Selected and Others are the candidates that every stage kept, in order: the selected ones, and those that a later
	// bind may use.
	Selected []Candidate
	Others   []Candidate

	// Unmet says why no candidate was selected; nil if one was.
	Unmet *Unmet
}

// Considered returns the number of candidates.
func (o *RequirementOutcome) Considered() int {
	return len(o.Dropped) + len(o.Selected) + len(o.Others)
}

// Tied returns the candidates that lost to the one tool of "select: tool" only because of their ids. The ranking gives
// all of them the same place and score.
func (o *RequirementOutcome) Tied() []Candidate {
	if o.Requirement.Select != switchboard.SelectTool || len(o.Selected) == 0 {
		return nil
	}
	first := o.Selected[0]
	n := slices.IndexFunc(o.Others, func(c Candidate) bool { return c.Place != first.Place || c.Score != first.Score })
	if n < 0 {
		n = len(o.Others)
	}
	return o.Others[:n]
}

// A Dropped is a candidate that a stage dropped.
type Dropped struct {
	Candidate
	Stage  string
	Reason Reason
}

// An Unmet says which stage dropped the last candidate of a requirement.
type Unmet struct {
	Stage string

	// Tool is the candidate that was dropped last, and Reason says why. Tool is nil if there was no candidate.
	Tool   *switchboard.Tool
	Reason Reason
}

func newUnmet(r *switchboard.Requirement, last string, dropped []Dropped) *Unmet {
	u := &Unmet{Stage: last}
	switch n := len(dropped); {
	case n > 0:
		d := dropped[n-1]
		u.Stage, u.Tool, u.Reason = d.Stage, d.Tool, d.Reason
	case r.ByName():
		u.Reason.Text = "no tool has such a name"
	default:
		u.Reason.Text = "no tool has this capability"
	}
	return u
}

// Err returns nil if every requirement is met or optional. Otherwise it returns a *switchboard.Error about the first
// requirement that is not; its code is CodeUnmet unless the reason has a code of its own. The error's Cause, for the
// operator, adds details and the other unmet requirements. It is nil if there is nothing to add.
func (d *Decision) Err() error {
	var first *RequirementOutcome
	var causes []string
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		switch {
		case o.Unmet == nil || o.Requirement.Optional:
		case first == nil:
			first = o
			if o.Unmet.Tool != nil { // without a tool, the caller's text says everything
				causes = append(causes, o.operatorText())
			}
		default:
			causes = append(causes, fmt.Sprintf("%s is not met either: %s", o.Requirement, o.operatorText()))
		}
	}
	if first == nil {
		return nil
	}
	e := &switchboard.Error{
		Code:        cmp.Or(first.Unmet.Reason.Code, switchboard.CodeUnmet),
		Text:        fmt.Sprintf("task %s may not start: %s", d.Task.ID, first.callerText()),
		Requirement: first.Requirement.String(),
		Stage:       first.Unmet.Stage,
		Hint:        fmt.Sprintf("the operator sees every candidate with: switchboard explain %s", d.Task.ID),
	}
	if len(causes) > 0 {
		e.Cause = unmetCause(strings.Join(causes, "; "))
	}
	return e
}

// unmetCause is the operator's text about unmet requirements.
type unmetCause string

func (c unmetCause) Error() string { return string(c) }

// callerText returns the text for the caller. It mentions no server, no tool and no rule.
func (o *RequirementOutcome) callerText() string {
	r, u := o.Requirement, o.Unmet
	switch {
	case u.Stage == StageFilter && r.ByName():
		return fmt.Sprintf("nothing that is offered matches %s, or one of them", r)
	case u.Tool == nil:
		return fmt.Sprintf("no tool that is offered can %s", r)
	case u.Reason.Missing != "" && u.Reason.Capability != nil && u.Reason.Capability.Carries(u.Reason.Missing):
		return fmt.Sprintf("no tool meets the requirement %s: only its own server says that the last candidate is %s", r, u.Reason.Missing)
	case u.Reason.Missing != "":
		return fmt.Sprintf("no tool meets the requirement %s: the last candidate is not %s in all that it does", r, u.Reason.Missing)
	default:
		return fmt.Sprintf("no tool meets the requirement %s: the last candidate fell at %s", r, u.Stage)
	}
}

// operatorText returns the text for the operator.
func (o *RequirementOutcome) operatorText() string {
	u := o.Unmet
	if u.Tool == nil {
		return u.Reason.String()
	}
	return fmt.Sprintf("the last of %d candidates was %s: %s", o.Considered(), u.Tool.ID, u.Reason)
}
