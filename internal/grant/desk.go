package grant

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Hurdle is the reason why a shown tool cannot be called at once; "" if it can.
type Hurdle string

// The answers about a capability.
const (
	statusReady       = "ready"
	statusWaiting     = "waiting_for_capability"
	statusPending     = "pending"
	statusRefused     = "refused"
	statusUnavailable = "unavailable"

	NeedsApproval Hurdle = "needs_approval" // a person must say yes to each call
	OverBudget    Hurdle = "over_budget"    // the next call would exceed a budget
)

// maxHurdles limits the tools that policy is asked about for one answer.
const maxHurdles = 64

const (
	whyNothing  = "nothing that you may use offers this capability now"
	whyOtherRun = "a person has said yes for another run of yours, not for this one"
)

// RequestDeskOptions are the dependencies of a RequestDesk.
type RequestDeskOptions struct {
	// Ask returns the open request with the binding of q, or makes it; see approval.Keeper. List returns the requests of a tenant.
	Ask  func(ctx context.Context, q *approval.Request) (r *approval.Request, made bool, err error)
	List func(ctx context.Context, tenant switchboard.TenantID) ([]*approval.Request, error)

	// Seek has a tool looked for, for a request that nothing serves; reason is what the agent says now. nil means that nobody looks.
	Seek func(ctx context.Context, r *approval.Request, reason string)

	// Progress returns how far the search for a tool is, for a request that waits, and the last note of a person about it. progress is "" if there is no search. nil means that there is none.
	Progress func(ctx context.Context, r *approval.Request) (progress, note string)

	// Offered reports whether a decision would give the principal a tool for the requirement now.
	Offered func(ctx context.Context, p switchboard.Principal, r *switchboard.Requirement) bool

	// Hurdles returns the hurdle of each of these tools of the run.
	Hurdles func(ctx context.Context, p switchboard.Principal, r *run.Run, tools []surface.Entry) []Hurdle
}

// A RequestDesk answers agents that ask for a capability, or how it stands with one. It is safe for concurrent use.
type RequestDesk struct{ o RequestDeskOptions }

// NewRequestDesk returns a RequestDesk.
func NewRequestDesk(o RequestDeskOptions) *RequestDesk { return &RequestDesk{o} }

// A CapabilityAnswer says how it stands with a capability.
type CapabilityAnswer struct {
	Status     string     `json:"status"`
	Request    string     `json:"request,omitempty"`
	Capability string     `json:"capability,omitempty"`
	Tools      []string   `json:"tools,omitempty"` // the names of the tools, or of their stub, in the list
	Until      *time.Time `json:"until,omitempty"`
	Why        string     `json:"why,omitempty"`
	Note       string     `json:"note_of_a_person,omitempty"`
}

// Text returns the answer as JSON.
func (a *CapabilityAnswer) Text() string {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // texts and times can be encoded
	}
	return string(text)
}

// A CapabilityQuestion is what an agent asks for, in one run.
type CapabilityQuestion struct {
	Principal switchboard.Principal
	Run       *run.Run
	Requested *lazyexpand.Requested
	Taxonomy  *switchboard.Taxonomy
}

// Ask asks a person, unless the capability is there already. reason is the agent's words. The error is a *switchboard.Error.
func (d *RequestDesk) Ask(ctx context.Context, q CapabilityQuestion, reason string) (*CapabilityAnswer, error) {
	if names, hurdle := d.served(ctx, q); names != nil {
		return servedAnswer(names, hurdle), nil
	}
	r := &approval.Request{
		Kind: approval.ForCapability,
		Asker: approval.Asker{
			Tenant: q.Principal.Tenant, Principal: q.Principal.ID, Auth: q.Principal.Auth, Mode: q.Principal.Mode, Task: q.Run.Task(), Run: q.Run.ID(),
		},
		Target: approval.Target{Capability: q.Requested.Capability, Row: q.Requested.Row, Reason: reason},
		Until:  time.Now().Add(AskedFor).UTC(),
	}
	offered := q.Requested.Requirement != nil && d.o.Offered(ctx, q.Principal, q.Requested.Requirement)
	r.Target.Unoffered = !offered
	was, _, err := d.o.Ask(ctx, r)
	if err != nil {
		return nil, err
	}
	if was.StateAt(time.Now()) == approval.Approved && !Concerns(was, q.Principal, q.Run.Task(), q.Run.ID()) {
		r.Target.ForRun = q.Run.ID() // a yes for one run does not stop another run from asking
		if was, _, err = d.o.Ask(ctx, r); err != nil {
			return nil, err
		}
	}
	a := d.answerOf(was, q)
	if a.Status == statusPending {
		a.Status, a.Until = statusWaiting, nil
		if !offered {
			a.Why = whyNothing + "; a person can still read the request"
			if d.o.Seek != nil {
				d.o.Seek(ctx, was, reason)
			}
			if d.addProgress(ctx, a, was) {
				a.Why = whyNothing + "; " + a.Why
			}
		}
	}
	return a, nil
}

// Status says how it stands with a capability.
func (d *RequestDesk) Status(ctx context.Context, q CapabilityQuestion) (*CapabilityAnswer, error) {
	a, err := d.status(ctx, q)
	if err != nil {
		return nil, err
	}
	a.Capability = q.Requested.Capability
	return a, nil
}

func (d *RequestDesk) status(ctx context.Context, q CapabilityQuestion) (*CapabilityAnswer, error) {
	if names, hurdle := d.served(ctx, q); names != nil {
		return servedAnswer(names, hurdle), nil
	}
	all, err := d.o.List(ctx, q.Principal.Tenant)
	if err != nil {
		return nil, switchboard.Unavailable("the store cannot be read now, so it is not known whether you have asked for this", err)
	}
	var last *approval.Request
	for _, r := range all {
		a := &r.Asker
		mine := a.Principal == q.Principal.ID && a.Auth == q.Principal.Auth && configured(a.Task) == configured(q.Run.Task())
		if r.Kind != approval.ForCapability || !mine || r.Target.Capability != q.Requested.Capability {
			continue
		}
		open := r.StateAt(time.Now()).Open()
		if last == nil || open && !last.StateAt(time.Now()).Open() || open && Concerns(r, q.Principal, q.Run.Task(), q.Run.ID()) {
			last = r
		}
	}
	if last != nil {
		a := d.answerOf(last, q)
		if a.Status == statusPending {
			d.addProgress(ctx, a, last)
		}
		return a, nil
	}
	a := &CapabilityAnswer{Status: statusUnavailable, Why: "it is not part of your task"}
	if q.Requested.Row != "" {
		a.Why += "; you may ask a person for it with " + lazyexpand.RequestTool
	}
	return a, nil
}

// addProgress says how far the search for a tool is. It reports whether there is one.
func (d *RequestDesk) addProgress(ctx context.Context, a *CapabilityAnswer, r *approval.Request) bool {
	if d.o.Progress == nil {
		return false
	}
	progress, note := d.o.Progress(ctx, r)
	if progress != "" {
		a.Why, a.Note = progress, scan.Spell(note)
	}
	return progress != ""
}

func servedAnswer(names []string, hurdle Hurdle) *CapabilityAnswer {
	return &CapabilityAnswer{Status: cmp.Or(string(hurdle), statusReady), Tools: names}
}

// answerOf returns the answer about a request. The run does not show its capability.
func (d *RequestDesk) answerOf(r *approval.Request, q CapabilityQuestion) *CapabilityAnswer {
	a := &CapabilityAnswer{Status: statusUnavailable, Request: r.ID()}
	switch state := r.StateAt(time.Now()); state {
	case approval.Pending:
		a.Status, a.Until = statusPending, &r.Until
	case approval.Refused:
		a.Status = statusRefused
		if v := r.Last(); v != nil {
			a.Note = scan.Spell(v.Note)
		}
	case approval.Approved:
		a.Until = &r.Grant.Until
		a.Why = "a person has said yes, but " + whyNothing + ", or there is no room for it in the token budget"
		if !Concerns(r, q.Principal, q.Run.Task(), q.Run.ID()) {
			a.Why = whyOtherRun
		}
	case approval.Revoked:
		a.Why = "a person has taken the yes back"
	default:
		a.Why = "the request is " + string(state)
	}
	return a
}

// served returns the listed names of the tools for the capability, and the hurdle if each of them has one; nil for no tools.
func (d *RequestDesk) served(ctx context.Context, q CapabilityQuestion) (names []string, hurdle Hurdle) {
	want := q.Requested.Requirement
	if want == nil {
		return nil, ""
	}
	var tools []surface.Entry
	shown := q.Run.Surface()
	for _, e := range shown.Entries() {
		if e.Withheld || e.Role == surface.Own || !slices.ContainsFunc(e.Serves, func(text string) bool { return implies(text, want, q.Taxonomy) }) {
			continue
		}
		name := e.Name
		if e.Role == surface.Member && e.Expanded == nil {
			if at := slices.IndexFunc(shown.Stubs(), func(stub surface.Entry) bool { return stub.Group == e.Group }); at >= 0 {
				name = shown.Stubs()[at].Name
			}
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(tools) < maxHurdles {
			tools = append(tools, e)
		}
	}
	if len(tools) == 0 {
		return names, ""
	}
	hurdles := d.o.Hurdles(ctx, q.Principal, q.Run, tools)
	switch {
	case slices.Contains(hurdles, ""):
		return names, ""
	case slices.Contains(hurdles, NeedsApproval):
		return names, NeedsApproval
	}
	return names, OverBudget
}

// implies reports whether a tool that meets a requirement of the task, as its String spells it, also meets want.
func implies(text string, want *switchboard.Requirement, tax *switchboard.Taxonomy) bool {
	has, ok := lazyexpand.ReadCapability(text, tax)
	return ok && has.Verb == want.Verb &&
		(has.Resource == want.Resource || slices.Contains(tax.Ancestors(has.Resource), want.Resource)) &&
		!slices.ContainsFunc(want.Constraints, func(c switchboard.Constraint) bool { return !slices.Contains(has.Constraints, c) })
}
