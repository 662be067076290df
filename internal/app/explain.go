package app

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An Explanation says what was decided for a task, and why, for people and
// programs. Its fields are what "switchboard explain --json" prints.
type Explanation struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Task   switchboard.TaskID   `json:"task"`
	Digest switchboard.Digest   `json:"digest,omitempty"`

	// Requirements say what happened to every candidate. They are the
	// operator's: a caller who is known by a key does not get them.
	Requirements []Explained `json:"requirements,omitempty"`

	// Faults are what is wrong with what is said of the tools of servers that
	// the task could use: why a tool is missing here, or is not labelled as
	// somebody wrote. They are the operator's too.
	Faults []Fault `json:"faults,omitempty"`

	// Tools are what the client sees, in its order; none where Refused says
	// why the task may not start.
	Tools   []Exposed          `json:"tools"`
	Refused *switchboard.Error `json:"-"`
	Why     string             `json:"refused,omitempty"`

	// Whole are the servers whose resources and prompts the client sees too.
	Whole []switchboard.ServerID `json:"whole,omitempty"`

	// Decision is the record itself, in canonical form.
	Decision json.RawMessage `json:"decision,omitempty"`
}

// Explained is one requirement and its candidates.
type Explained struct {
	Requirement string      `json:"requirement"`
	Optional    bool        `json:"optional,omitempty"`
	Selected    []Candidate `json:"selected,omitempty"`
	Others      []Candidate `json:"others,omitempty"`
	Dropped     []Dropped   `json:"dropped,omitempty"`
	Unmet       string      `json:"unmet,omitempty"`

	// Unknown are ids that a policy names and that are no candidates.
	Unknown []string `json:"policy_names_no_candidate,omitempty"`
}

// A Candidate is a tool that reached the end of the decision.
type Candidate struct {
	Tool         string   `json:"tool"`
	Capabilities []string `json:"capabilities,omitempty"`
	Score        int      `json:"score"`
	Preferred    int      `json:"preferred,omitempty"` // its place in the row that prefers it, from 1
	Stale        bool     `json:"stale,omitempty"`
}

// A Dropped is a candidate that did not.
type Dropped struct {
	Tool   string `json:"tool"`
	Stage  string `json:"stage"`
	Reason string `json:"reason"`

	// Code is what the reason is refused with, where it is not SB-CAP-004, and
	// Rules are those of policies that had a part in it.
	Code  switchboard.Code `json:"code,omitempty"`
	Rules []policy.Cause   `json:"rules,omitempty"`
}

// A Fault is something wrong with what is said of a server's tool, or of the
// server, in words.
type Fault struct {
	Server switchboard.ServerID `json:"server"`
	Tool   string               `json:"tool,omitempty"`
	Why    string               `json:"why"`
}

// Exposed is a tool as the client sees it, and whose it is.
type Exposed struct {
	Name        string               `json:"name"`
	Server      switchboard.ServerID `json:"server"`
	Tool        string               `json:"tool"`
	Description string               `json:"description,omitempty"`
}

// Explain makes the decision for a task that p may bind ("" means the default
// task), and says what happened. That the task may not start is no error: see
// Explanation.Refused.
func (a *App) Explain(ctx context.Context, p switchboard.Principal, task switchboard.TaskID) (*Explanation, error) {
	if err := a.Ready(ctx); err != nil {
		return nil, err
	}
	st := a.state.Load()
	task, err := st.resolve(p, task)
	if err != nil {
		return nil, err
	}
	if task == "" {
		return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "tenant %q has no default task; name one", p.Tenant)
	}
	d, err := st.decide(ctx, p, task, time.Now())
	if err != nil {
		return nil, err
	}
	x := &Explanation{Tenant: p.Tenant, Task: task, Digest: d.Digest(), Tools: []Exposed{}}
	if p.Auth == switchboard.AuthLocal {
		x.Decision = d.Canonical()
		for i := range d.Outcomes {
			x.Requirements = append(x.Requirements, st.explained(ctx, d, &d.Outcomes[i]))
		}
		x.Faults = st.faults(p.Tenant, d.Task)
	}
	if err := d.Err(); err != nil {
		if !errors.As(err, &x.Refused) {
			return nil, err
		}
		x.Why = x.Refused.Error()
		if p.Auth != switchboard.AuthLocal {
			x.Why = x.Refused.Text
		}
		return x, nil
	}
	for _, e := range surface.New(d.Task, d.Selected, nil, nil, nil).Entries() {
		var def struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(e.Tool.Definition, &def) // a description that is no text is none
		x.Tools = append(x.Tools, Exposed{e.Name, e.Tool.ID.Server, e.Tool.ID.Name, def.Description})
	}
	for _, o := range st.whole(p.Tenant, d) {
		if len(o.Resources)+len(o.Templates)+len(o.Prompts) > 0 {
			x.Whole = append(x.Whole, o.Server)
		}
	}
	return x, nil
}

func (s *state) explained(ctx context.Context, d *decide.Decision, o *decide.Outcome) Explained {
	x := Explained{Requirement: o.Requirement.String(), Optional: o.Requirement.Optional}
	for _, c := range o.Selected {
		x.Selected = append(x.Selected, candidate(c))
	}
	for _, c := range o.Others {
		x.Others = append(x.Others, candidate(c))
	}
	rules, unknown := s.judged(ctx, d, o)
	x.Unknown = unknown
	for _, c := range o.Dropped {
		gone := Dropped{Tool: c.Tool.ID.String(), Stage: c.Stage, Reason: c.Reason.String(), Code: c.Reason.Code}
		if c.Stage == policy.StageName {
			gone.Rules = rules[c.Tool.ID]
		}
		x.Dropped = append(x.Dropped, gone)
	}
	if o.Unmet != nil {
		x.Unmet = o.Unmet.Stage + ": " + o.Unmet.Reason.String()
	}
	return x
}

// judged asks policy once more about the candidates that came to it: for the
// rules by which it dropped some, and for what it names that is no candidate.
func (s *state) judged(ctx context.Context, d *decide.Decision, o *decide.Outcome) (rules map[switchboard.ToolID][]policy.Cause, unknown []string) {
	var came []*switchboard.Tool
	for _, c := range o.Dropped {
		if c.Stage != decide.StageFilter && c.Stage != matcher.StagePrune {
			came = append(came, c.Tool)
		}
	}
	for _, c := range slices.Concat(o.Selected, o.Others) {
		came = append(came, c.Tool)
	}
	slices.SortFunc(came, func(a, b *switchboard.Tool) int { return a.ID.Compare(b.ID) })
	p := s.tenants[d.Tenant].policy
	q := &policy.Question{
		Phase: policy.PhaseSelect, Principal: d.Principal, Task: d.Task, Requirement: o.Requirement, Candidates: came, Now: d.Now,
	}
	return p.Explain(ctx, q), p.Judge(ctx, q).Unknown
}

func candidate(c decide.Candidate) Candidate {
	x := Candidate{Tool: c.Tool.ID.String(), Score: c.Score, Preferred: int(c.Place), Stale: c.Tool.Stale}
	for _, k := range slices.Concat(c.Tool.Capabilities, c.Tool.Kept) {
		x.Capabilities = append(x.Capabilities, k.String()+" ("+string(k.Source)+")")
	}
	return x
}

// faults are those of the servers whose tools the task could use, sorted as the
// catalog has them; what the tenant's own overlays have wrong comes last.
func (s *state) faults(id switchboard.TenantID, task *switchboard.Task) (found []Fault) {
	t := s.tenants[id]
	for _, f := range slices.Concat(s.catalog.Faults(), t.view.Faults()) {
		if t.serves(f.Server) && slices.ContainsFunc(task.Requirements, func(r switchboard.Requirement) bool { return mayUse(&r, f.Server) }) {
			found = append(found, Fault{f.Server, f.Tool, f.Error()})
		}
	}
	return found
}

// mayUse reports whether a tool of the server could meet the requirement: one
// by name says whose tools it wants, and a capability can be anybody's.
func mayUse(r *switchboard.Requirement, id switchboard.ServerID) bool {
	return !r.ByName() || slices.ContainsFunc(r.Tools, func(pattern string) bool {
		server, _, _ := strings.Cut(pattern, "/")
		return switchboard.MatchPattern(server, string(id))
	})
}
