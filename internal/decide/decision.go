package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Decision is the record of what happened to every candidate at every stage,
// and what was selected. It is not modified once made.
type Decision struct {
	Tenant    switchboard.TenantID
	Principal switchboard.Principal
	Task      *switchboard.Task
	Snapshot  Snapshot
	Now       time.Time // zero where the decision does not hang on it
	Unfit     Unfit

	// Outcomes has one for each requirement, in the task's order.
	Outcomes []Outcome

	// Selected is what the task sees: requirements in the task's order, then
	// rank order. A tool that several requirements selected stands once, where
	// the first of them has it. It is empty when Err is not nil.
	Selected []Selected
}

// An Outcome is what became of one requirement.
type Outcome struct {
	Requirement *switchboard.Requirement

	// Dropped are the candidates that did not reach the end, in the order of
	// the stages, and within a stage in the order in which it had them.
	Dropped []Dropped

	// Selected and Others are the candidates that reached the end, in order:
	// those that were taken, and those that stay for a later bind.
	Selected []Candidate
	Others   []Candidate

	// Unmet says why nothing was selected; nil where something was.
	Unmet *Unmet
}

// Considered returns how many candidates there were.
func (o *Outcome) Considered() int { return len(o.Dropped) + len(o.Selected) + len(o.Others) }

// Tied returns the candidates that stand behind the one tool of "select: tool" only because
// of their ids: the ranking gives them the same place and score.
func (o *Outcome) Tied() []Candidate {
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

// A Dropped is a candidate that did not reach the end.
type Dropped struct {
	Candidate
	Stage  string
	Reason Reason
}

// An Unmet names the stage that left a requirement with nothing.
type Unmet struct {
	Stage string

	// Tool is the last candidate that was removed, and Reason why; Tool is nil
	// where there never was one.
	Tool   *switchboard.Tool
	Reason Reason
}

func unmet(r *switchboard.Requirement, last string, dropped []Dropped) *Unmet {
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

// Err returns nil when every requirement is met or optional. Otherwise it is a
// *switchboard.Error of CodeUnmet about the first that is not; its Cause, for
// the operator, adds what that does not say, and speaks of the others. It is nil
// where there is nothing to add.
func (d *Decision) Err() error {
	var first *Outcome
	var causes []string
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		switch {
		case o.Unmet == nil || o.Requirement.Optional:
		case first == nil:
			first = o
			if o.Unmet.Tool != nil { // else the caller's text says all that there is
				causes = append(causes, o.cause())
			}
		default:
			causes = append(causes, fmt.Sprintf("%s is not met either: %s", o.Requirement, o.cause()))
		}
	}
	if first == nil {
		return nil
	}
	e := &switchboard.Error{
		Code:        cmp.Or(first.Unmet.Reason.Code, switchboard.CodeUnmet),
		Text:        fmt.Sprintf("task %s may not start: %s", d.Task.ID, first.refusal()),
		Requirement: first.Requirement.String(),
		Stage:       first.Unmet.Stage,
		Hint:        fmt.Sprintf("the operator sees every candidate with: switchboard explain %s", d.Task.ID),
	}
	if len(causes) > 0 {
		e.Cause = unmetCause(strings.Join(causes, "; "))
	}
	return e
}

// unmetCause is the operator's text of an unmet requirement.
type unmetCause string

func (c unmetCause) Error() string { return string(c) }

// refusal is for the caller: no server, no tool, no rule.
func (o *Outcome) refusal() string {
	r, u := o.Requirement, o.Unmet
	switch {
	case u.Stage == StageFilter && r.ByName():
		return fmt.Sprintf("nothing that is offered matches %s, or one of them", r)
	case u.Tool == nil:
		return fmt.Sprintf("no tool that is offered can %s", r)
	case u.Reason.Missing != "" && u.Reason.Capability != nil && u.Reason.Capability.Carries(u.Reason.Missing):
		return fmt.Sprintf("no tool meets the requirement %s: that the last candidate is %s, only its own server says", r, u.Reason.Missing)
	case u.Reason.Missing != "":
		return fmt.Sprintf("no tool meets the requirement %s: the last candidate is not %s in all that it does", r, u.Reason.Missing)
	default:
		return fmt.Sprintf("no tool meets the requirement %s: the last candidate fell at %s", r, u.Stage)
	}
}

// cause is for the operator.
func (o *Outcome) cause() string {
	u := o.Unmet
	if u.Tool == nil {
		return u.Reason.String()
	}
	return fmt.Sprintf("the last of %d candidates was %s: %s", o.Considered(), u.Tool.ID, u.Reason)
}
