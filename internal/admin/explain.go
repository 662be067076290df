package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An Explanation says how the decision for a task was made, for people and programs. "switchboard
// explain --json" prints its fields.
type Explanation struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Task   switchboard.TaskID   `json:"task"`
	Digest switchboard.Digest   `json:"digest,omitempty"`

	// Requirements say what happened to every candidate.
	Requirements []ExplainedRequirement `json:"requirements,omitempty"`

	// Faults are the faults in the descriptions of tools that the task could use. They say why a tool
	// is missing here, or lacks a label that somebody gave it.
	Faults []ToolFault `json:"faults,omitempty"`

	// Tools are the tools in the client's list, in its order. There are none if Refused says why the
	// task may not start.
	Tools []ExplainedTool `json:"tools"`

	// Instructions is the number of tokens of the instructions that a model gets first, if the query
	// asked for tokens.
	Instructions int `json:"instructions_tokens,omitempty"`

	Bill    *TokenBill         `json:"bill,omitempty"`
	Refused *switchboard.Error `json:"-"`
	Why     string             `json:"refused,omitempty"`

	// Starting are the tenant's servers that are starting and have no known offer. Their tools can
	// change the decision.
	Starting []switchboard.ServerID `json:"starting,omitempty"`

	ExplainedFindings

	// Whole are the servers that also offer resources or prompts to the client.
	Whole []switchboard.ServerID `json:"whole,omitempty"`

	// Servers are the servers of candidates that are not healthy, or that other servers replaced in
	// calls.
	Servers []ServerHealth `json:"servers,omitempty"`

	// Decision is the record of the decision, in canonical form.
	Decision json.RawMessage `json:"decision,omitempty"`
}

// ExplainedFindings are what a person may want to mend.
type ExplainedFindings struct {
	// Unlabelled is the number of tools that the tenant may use and that no requirement finds, because they have no
	// capability. It is counted if a requirement has found no tool with its labels.
	Unlabelled int `json:"unlabelled_tools,omitempty"`

	// Flows names the selected tools that together can carry private data out by the words of a stranger, if there are any.
	Flows *switchboard.ToxicCombination `json:"flows,omitempty"`
}

// ServerHealth is how fit a server is.
type ServerHealth struct {
	Server switchboard.ServerID `json:"server"`
	health.Status
}

// ExplainedRequirement is one requirement and its candidates.
type ExplainedRequirement struct {
	Requirement string               `json:"requirement"`
	Optional    bool                 `json:"optional,omitempty"`
	Selected    []ExplainedCandidate `json:"selected,omitempty"`
	Others      []ExplainedCandidate `json:"others,omitempty"`
	Dropped     []ExplainedDrop      `json:"dropped,omitempty"`
	Unmet       string               `json:"unmet,omitempty"`

	// Tied are the tools that the ranking does not order behind the selected tool of
	// "select: tool". Warning says how to choose.
	Tied    []string `json:"tied,omitempty"`
	Warning string   `json:"warning,omitempty"`

	// Unknown are ids that a policy names although they are no candidates.
	Unknown []string `json:"policy_names_no_candidate,omitempty"`
}

// An ExplainedCandidate is a tool that no stage dropped.
type ExplainedCandidate struct {
	Tool         string   `json:"tool"`
	Capabilities []string `json:"capabilities,omitempty"`
	Score        int      `json:"score"`
	Preferred    int      `json:"preferred,omitempty"` // its position in the row that prefers it, from 1
	Stale        bool     `json:"stale,omitempty"`

	// Repeatable says whether calling the tool again is harmless, even if the first call was executed.
	// Repeat names the source of that.
	Repeatable bool   `json:"repeat_is_harmless"`
	Repeat     string `json:"repeat"`

	// Declared says why "readonly" counts although only the server declares it. It is "" if a person
	// vouches for it, or if it does not count.
	Declared string `json:"declared,omitempty"`

	// Redacted says what the operator's overlay removes from the tool's results, and whether that
	// enforces pii_safe.
	Redacted string `json:"redacted,omitempty"`

	// Flow is what its calls do with data: any of brings, sees and carries.
	Flow []string `json:"flow,omitempty"`

	Risk switchboard.RiskClass `json:"risk,omitempty" doc:"How much a call can harm, as far as facts tell: safe, low, medium, high or prohibited."`

	// MovesTo are the other candidates that its calls may move to, in order.
	MovesTo []string `json:"moves_to,omitempty"`

	// Provides is the tool of a named capability that it provides, such as io.fs.read@1.2.0/read_file.
	Provides string `json:"provides,omitempty"`
}

// An ExplainedDrop is a candidate that a stage dropped.
type ExplainedDrop struct {
	Tool   string `json:"tool"`
	Stage  string `json:"stage"`
	Reason string `json:"reason"`

	// Code is the error code of the refusal if it is not SB-CAP-004. Rules are the rules of policies
	// that had a part in it.
	Code  switchboard.Code     `json:"code,omitempty"`
	Rules []author.DenialCause `json:"rules,omitempty"`
}

// A ToolFault is a fault in the description of a server or of its tool, in words.
type ToolFault struct {
	Server switchboard.ServerID `json:"server"`
	Tool   string               `json:"tool,omitempty"`
	Why    string               `json:"why"`
}

// ExplainedTool is a tool as the client sees it, and its server.
type ExplainedTool struct {
	Name        string               `json:"name"`
	Server      switchboard.ServerID `json:"server,omitempty"` // "" for one of Switchboard's own
	Tool        string               `json:"tool,omitempty"`
	Flow        []string             `json:"flow,omitempty"` // what its calls do with data: any of brings, sees and carries
	Description string               `json:"description,omitempty"`
	Role        string               `json:"listed"`               // always, on demand, stub, own
	Group       string               `json:"group,omitempty"`      // the group that it belongs to, or is the stub of
	Tokens      int                  `json:"tokens,omitempty"`     // of its definition, if the query asked for tokens
	Definition  json.RawMessage      `json:"definition,omitempty"` // as the client gets it, if the query asked for definitions

	// Score and Verified say what the tool was seen to do with this definition. Score is absent if there is no report.
	Score    *float64 `json:"score,omitempty"`
	Verified bool     `json:"verified,omitempty"`

	Called *switchboard.Tool `json:"-"` // with its contract
}

// An ExplainQuery says which task to explain, and how.
type ExplainQuery struct {
	Task switchboard.TaskID // "" means the default task

	// Tokens asks for the bill. Budget, if not 0, replaces the task's token budget.
	Tokens bool
	Budget int

	// Definitions asks for each tool's definition.
	Definitions bool

	// NoMessages leaves out texts of servers and of the system, which only the operator may see.
	NoMessages bool

	WhatIf DecisionWhatIf
}

// A TokenBill is the cost of a task's tools, in tokens.
type TokenBill struct {
	Tokenizer string `json:"tokenizer"`
	Budget    int    `json:"token_budget"`
	Listed    int    `json:"listed"` // in the first list
	Left      int    `json:"left"`
	Whole     int    `json:"all_tools"` // if all tools were listed, without stubs
}

// Explain makes the decision for a task that p may bind, and explains it. It returns no error if
// the task may not start: see Explanation.Refused. It does not wait for servers: see
// Explanation.Starting.
func (r *Reader) Explain(ctx context.Context, p switchboard.Principal, ask ExplainQuery) (*Explanation, error) {
	starting, _ := r.o.Binder.Starting(p.Tenant) // read before the state, which may hold more answers
	st, err := ask.WhatIf.configuration(r)
	if err != nil {
		return nil, err
	}
	task, err := st.ResolveTask(p, ask.Task)
	if err != nil {
		return nil, err
	}
	if task == "" {
		err := switchboard.Refuse(switchboard.CodeNoSuchTask, "tenant %q has no default task; name one", p.Tenant)
		if p, known := st.CurrentPrincipal(p); known == nil && st.Tenants[p.Tenant] != nil {
			if mine := st.Tenants[p.Tenant].TaskNames(p); len(mine) > 0 {
				err.Hint = "its tasks are " + strings.Join(mine, ", ")
			}
		}
		return nil, err
	}
	d, err := ask.WhatIf.decide(ctx, st.State, p, task, r.o.Binder.Observe(run.Before{}))
	if err != nil {
		return nil, err
	}
	record := d.Canonical()
	x := &Explanation{Tenant: p.Tenant, Task: task, Digest: canonical.Sum(record), Tools: []ExplainedTool{}, Servers: r.ailingServers(st.State, d, ask.NoMessages), Starting: starting, Decision: record}
	of := explainer{st.Tenants[p.Tenant], st.Config.Overlays}
	for i := range d.Outcomes {
		x.Requirements = append(x.Requirements, of.explainOutcome(ctx, d, &d.Outcomes[i]))
	}
	if !ask.NoMessages {
		x.Faults = taskFaults(st.State, p.Tenant, d.Task)
	}
	x.Flows = bind.SelectedFlows(d)
	if slices.ContainsFunc(d.Outcomes, lacksLabel) {
		x.Unlabelled = countUnlabelled(st.Tenants[p.Tenant])
	}
	if err := d.Err(); err != nil {
		if !errors.As(err, &x.Refused) {
			return nil, err
		}
		x.Why = x.Refused.Error()
		return x, nil
	}
	shown, err := st.MakeSurface(d, nil, nil, ask.Budget, nil)
	if err != nil {
		if !errors.As(err, &x.Refused) {
			return nil, err
		}
		x.Why = x.Refused.Error()
		return x, nil
	}
	if ask.Tokens {
		x.Instructions = shown.InstructionTokens()
		x.Bill = &TokenBill{Tokenizer: st.Config.Tokenizer, Budget: shown.Budget()}
	}
	for e := range shown.All() {
		show := ExplainedTool{Name: e.Name, Server: e.Tool.ID.Server, Description: description(e.Tool), Role: e.Role.String(), Group: e.Group, Called: e.Tool}
		if show.Server != "" {
			show.Tool, show.Flow = e.Tool.ID.Name, e.Tool.Contract.Flow.Bits.Names()
		}
		if known := e.Tool.Evidence; known != nil && known.Report != nil {
			show.Score, show.Verified = new(float64(known.Report.Score)/1000), known.Report.Verified
		}
		if ask.Definitions {
			show.Definition = e.Append(nil)
		}
		if ask.Tokens {
			show.Tokens = shown.Cost(e.Name)
			if e.Usable() {
				x.Bill.Listed += show.Tokens
			}
			if e.Tool.ID.Server != "" {
				x.Bill.Whole += show.Tokens
			}
		}
		x.Tools = append(x.Tools, show)
	}
	if ask.Tokens {
		x.Bill.Listed += x.Instructions
		x.Bill.Whole += x.Instructions
		x.Bill.Left = max(0, x.Bill.Budget-x.Bill.Listed)
	}
	for _, o := range st.WholeOffers(p.Tenant, d) {
		if len(o.Resources)+len(o.Templates)+len(o.Prompts) > 0 {
			x.Whole = append(x.Whole, o.Server)
		}
	}
	return x, nil
}

// lacksLabel reports whether no tool has the capability that the requirement needs, or none with its constraints.
func lacksLabel(o decide.RequirementOutcome) bool {
	return o.Unmet != nil && !o.Requirement.ByName() && (o.Unmet.Stage == decide.StageFilter || o.Unmet.Stage == matcher.StagePrune)
}

// countUnlabelled returns the number of the tenant's tools without a capability.
func countUnlabelled(t *bind.Tenant) (n int) {
	for _, tool := range t.View.Named("*/*") {
		if len(tool.Capabilities) == 0 {
			n++
		}
	}
	return n
}

// ailingServers returns the health of the decision's servers that are not simply healthy, reduced
// to what the reader of the answer may know.
func (r *Reader) ailingServers(st *bind.State, d *decide.Decision, noMessages bool) (all []ServerHealth) {
	met := map[switchboard.ServerID]bool{}
	meet := func(id switchboard.ServerID) {
		if met[id] {
			return
		}
		met[id] = true
		st, ok := r.o.Health.Status(id)
		if !ok || st.State == health.Healthy && st.MovedAway == 0 && len(st.Tools) == 0 {
			return
		}
		if noMessages {
			st = st.WithoutMessages()
		}
		all = append(all, ServerHealth{id, st})
	}
	for _, id := range st.Tenants[d.Tenant].Servers {
		if _, heard := st.Offers[id]; !heard {
			meet(id)
		}
	}
	for _, o := range d.Outcomes {
		for _, list := range [][]decide.Candidate{o.Selected, o.Others} {
			for i := range list {
				meet(list[i].Tool.ID.Server)
			}
		}
		for _, c := range o.Dropped {
			if c.Stage == health.StageName {
				meet(c.Tool.ID.Server)
			}
		}
	}
	slices.SortFunc(all, func(a, b ServerHealth) int { return strings.Compare(string(a.Server), string(b.Server)) })
	return all
}

// An explainer explains decisions of one state of a tenant.
type explainer struct {
	tenant   *bind.Tenant
	overlays map[switchboard.ToolID]switchboard.Overlay // of the operator; nil if they are not known
}

func (e explainer) explainOutcome(ctx context.Context, d *decide.Decision, o *decide.RequirementOutcome) ExplainedRequirement {
	x := ExplainedRequirement{Requirement: o.Requirement.String(), Optional: o.Requirement.Optional}
	group := e.tenant.Equivalents.Among(bind.PassedPolicy(o))
	x.Selected, x.Others = slices.Grow(x.Selected, len(o.Selected)), slices.Grow(x.Others, len(o.Others))
	for _, c := range o.Selected {
		x.Selected = append(x.Selected, e.explainCandidate(c, d, group))
	}
	for _, c := range o.Others {
		x.Others = append(x.Others, e.explainCandidate(c, d, group))
	}
	x.Tied, x.Warning = bind.FindTie(o)
	rules := e.explainDenials(ctx, d, o)
	x.Unknown = e.unknownIDs(ctx, d, o)
	for _, c := range o.Dropped {
		gone := ExplainedDrop{Tool: c.Tool.ID.String(), Stage: c.Stage, Reason: c.Reason.String(), Code: c.Reason.Code}
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

// explainDenials returns the rules of policy that dropped candidates. Tracing takes longer than deciding, so it is done only if there are any.
func (e explainer) explainDenials(ctx context.Context, d *decide.Decision, o *decide.RequirementOutcome) map[switchboard.ToolID][]author.DenialCause {
	if !slices.ContainsFunc(o.Dropped, func(c decide.Dropped) bool { return c.Stage == policy.StageName }) {
		return nil
	}
	return author.Explain(ctx, e.tenant.Rules, policyQuestion(d, o))
}

// unknownIDs returns the ids that a policy names although they are no candidates. If no candidate is left to say it, policy is asked again.
func (e explainer) unknownIDs(ctx context.Context, d *decide.Decision, o *decide.RequirementOutcome) []string {
	for _, list := range [][]decide.Candidate{o.Selected, o.Others} {
		for i := range list {
			if ids, known := policy.UnknownIDs(list[i]); known {
				return ids
			}
		}
	}
	return e.tenant.Rules.Judge(ctx, policyQuestion(d, o)).Unknown
}

// policyQuestion returns the question that policy was asked: about the candidates that reached it.
func policyQuestion(d *decide.Decision, o *decide.RequirementOutcome) *policy.CandidateQuestion {
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
	return &policy.CandidateQuestion{
		Phase: policy.PhaseSelect, Principal: d.Principal, Task: d.Task, Requirement: o.Requirement, Candidates: came, Now: d.Now,
	}
}

func (e explainer) explainCandidate(c decide.Candidate, d *decide.Decision, group *contract.CandidateGroup) ExplainedCandidate {
	x := ExplainedCandidate{Tool: c.Tool.ID.String(), Score: c.Score, Preferred: int(c.Place), Stale: c.Tool.Stale}
	x.Repeatable, x.Repeat = explainRepeat(&c.Tool.Contract)
	x.Flow, x.Risk = c.Tool.Contract.Flow.Bits.Names(), c.Tool.Called().Contract.Risk
	if c.Tool.Provides != nil {
		x.Provides = c.Tool.Provides.Capability + "/" + c.Tool.Provides.Name
	}
	for _, other := range group.Of(c.Tool) {
		x.MovesTo = append(x.MovesTo, other.Tool.ID.String())
	}
	for _, list := range [][]switchboard.Capability{c.Tool.Capabilities, c.Tool.Kept} {
		for i := range list {
			x.Capabilities = append(x.Capabilities, list[i].String()+" ("+string(list[i].Source)+")")
		}
	}
	x.Declared = e.explainDeclared(c.Tool, d)
	x.Redacted = explainRedaction(c.Tool, cmp.Or(e.overlays[c.Tool.ID].RedactAt, "the operator's overlay"))
	return x
}

// explainDeclared says why the server's own declaration that a tool is readonly counts in the
// decision. It returns "" if the declaration does not count, or is not needed.
func (e explainer) explainDeclared(t *switchboard.Tool, d *decide.Decision) string {
	tenant := e.tenant
	own := slices.ContainsFunc(slices.Concat(t.Capabilities, t.Kept), func(c switchboard.Capability) bool {
		return c.Carries(switchboard.ReadOnly) && !t.Vouched(c.Source)
	})
	switch {
	case !own || tenant.TrustFor(d.Principal) != switchboard.TrustDeclared:
		return ""
	case tenant.Trust == switchboard.TrustDeclared:
		return "only the server says readonly, which counts because the operator's row of the tenant says trust: declared"
	default:
		return "only the server says readonly, which counts for the local user"
	}
}

// explainRedaction names the personal data that the operator's overlay removes from the tool's results, and the constraint that the tool meets so.
func explainRedaction(t *switchboard.Tool, where string) string {
	if len(t.Redact) == 0 {
		return ""
	}
	redacts := where + " redacts " + joinNames(t.Redact)
	if t.Enforces(switchboard.PIISafe) {
		return string(switchboard.PIISafe) + " (" + string(switchboard.FromEnforcement) + ": " + redacts + ")"
	}
	return redacts + ", which is not everything that " + string(switchboard.PIISafe) + " requires: " + joinNames(switchboard.PersonalData)
}

func joinNames[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = string(t)
	}
	return strings.Join(texts, ", ")
}

// explainRepeat says whether repeating the tool's calls is harmless, and which source declares
// that.
func explainRepeat(c *switchboard.Contract) (harmless bool, why string) {
	by := func(what string, f switchboard.Fact) string { return what + " (" + string(f.Source) + ")" }
	switch {
	case c.Stateful.Holds:
		return false, by("stateful", c.Stateful)
	case c.Idempotent.Stated() && !c.Idempotent.Holds:
		return false, by("not idempotent", c.Idempotent)
	case c.ReadOnly.Holds && c.ReadOnly.Trusted:
		return true, by("readonly", c.ReadOnly)
	case c.Idempotent.Holds && c.Idempotent.Trusted:
		return true, by("idempotent", c.Idempotent)
	case c.ReadOnly.Holds:
		return false, by("readonly", c.ReadOnly) + " is not trusted"
	case c.Idempotent.Holds:
		return false, by("idempotent", c.Idempotent) + " is not trusted"
	}
	return false, "nothing declares it"
}

// taskFaults returns the faults of servers that the task could use, in the order of the catalog.
// Faults in the tenant's own overlays come last.
func taskFaults(s *bind.State, id switchboard.TenantID, task *switchboard.Task) (found []ToolFault) {
	t := s.Tenants[id]
	for _, f := range slices.Concat(s.Catalog.Faults(), t.View.Faults()) {
		if t.MayUseServer(f.Server) && slices.ContainsFunc(task.Requirements, func(r switchboard.Requirement) bool { return couldServe(&r, f.Server) }) {
			found = append(found, ToolFault{f.Server, f.Tool, f.Error()})
		}
	}
	for _, f := range s.EquivalentFaults(id) {
		if slices.ContainsFunc(task.Requirements, func(r switchboard.Requirement) bool { return couldServe(&r, f.Tool.Server) }) {
			found = append(found, ToolFault{f.Tool.Server, f.Tool.Name, f.Error()})
		}
	}
	for _, f := range s.ProviderFaults(id) {
		id, _, _ := strings.Cut(f.Capability, "@")
		if slices.ContainsFunc(task.Requirements, func(r switchboard.Requirement) bool {
			return r.Capability == id || strings.HasPrefix(r.Capability, id+"@")
		}) {
			found = append(found, ToolFault{f.Server, "", f.Error()})
		}
	}
	return found
}

// couldServe reports whether a tool of the server could meet the requirement. A requirement by name
// says which servers it means; a capability can come from any server.
func couldServe(r *switchboard.Requirement, id switchboard.ServerID) bool {
	return !r.ByName() || slices.ContainsFunc(r.Tools, func(pattern string) bool {
		server, _, _ := strings.Cut(pattern, "/")
		return switchboard.MatchPattern(server, string(id))
	})
}
