package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
)

// makeSurface returns the surface of the decision, within its token budget or, if it is not 0,
// within the given budget. If the configuration names only servers and all of their tools together
// exceed the budget, one stub takes their place.
func (s *servingState) makeSurface(d *decide.Decision, prev *surface.Surface, serverInfo []byte, budget int, decided func() (decision, basis switchboard.Digest)) (*surface.Surface, error) {
	t := s.tenants[d.Tenant]
	in := surface.Input{
		Task: d.Task, Selected: t.withEquivalents(d), Whole: s.wholeOffers(d.Tenant, d), Prev: prev, Info: serverInfo, Decided: decided,
		StandsIn: s.standsIn(t), Removed: s.removedTools(t, d),
		Count: s.tokens.Count, Budget: cmp.Or(budget, t.Budget(d.Task)), CollapseOldest: t.OnFull == switchboard.OnFullCollapse,
	}
	servers, instructions := s.serverInstructions(in.Selected)
	plan := func(task *switchboard.Task, instruct bool) *surface.Surface {
		in.Places, in.Groups = lazyexpand.Plan(task, in.Selected, s.services, s.tokens.Count)
		in.Instructions = ""
		if instruct {
			in.Instructions = lazyexpand.Instructions(servers, t.ownServers(s.starting), in.Groups, instructions, in.Budget, s.tokens.Count)
		}
		switch {
		case task.ID == switchboard.DeclaredTask:
			in.Own, in.Unlisted = t.switchboardTools(d.Principal), true
		case in.Groups != nil:
			in.Own = []*switchboard.Tool{gateway.Status}
		}
		if !s.wholeResults && t.ResultBound(d.Principal, t.Tasks[d.Task.ID]) > 0 {
			in.Last = []*switchboard.Tool{preview.Tool}
		}
		return surface.New(in)
	}
	task := d.Task
	shown := plan(task, true)
	if s.config.Implied && !lazyexpand.Fits(shown) {
		task = lazyexpand.Fold(task)
		shown = plan(task, true)
	}
	if !lazyexpand.Fits(shown) {
		shown = plan(task, false) // tools are more important than instructions
	}
	return lazyexpand.Fit(shown, prev)
}

// standsIn returns the function that says which tool may stand in for one that a client was shown.
// If another replica showed it, only its digest is known, and the definition comes from the
// catalog.
func (s *servingState) standsIn(t *servedTenant) func(now, shown *switchboard.Tool) bool {
	return func(now, shown *switchboard.Tool) bool {
		if shown.Definition == nil {
			offered, ok := s.catalog.Tool(shown.ID)
			if !ok || offered.Digest != shown.Digest {
				return false
			}
			shown = offered
		}
		return t.equivalents.MayStandIn(now, shown)
	}
}

// removedTools returns the function that says which tools were removed from the tenant: tools that
// policy denies to every requirement of the decision that they could serve, and tools of configured
// servers that the tenant may not use. A tool that policy could not judge is not removed.
func (s *servingState) removedTools(t *servedTenant, d *decide.Decision) func(switchboard.ToolID) bool {
	denied, usable := map[switchboard.ToolID]bool{}, map[switchboard.ToolID]bool{}
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		for _, c := range o.Dropped {
			switch {
			case c.Stage == decide.StageFilter || c.Stage == matcher.StagePrune: // it could not serve that requirement
			case c.Stage == policy.StageName && c.Reason.Code != switchboard.CodePolicyFailed:
				denied[c.Tool.ID] = true
			default:
				usable[c.Tool.ID] = true
			}
		}
		for _, c := range slices.Concat(o.Selected, o.Others) {
			usable[c.Tool.ID] = true
		}
	}
	maps.DeleteFunc(denied, func(id switchboard.ToolID, _ bool) bool { return usable[id] })
	configured, own := s.servers, t.Tenant
	return func(id switchboard.ToolID) bool {
		_, exists := configured[id.Server]
		_, mine := slices.BinarySearch(own.Servers, id.Server)
		return denied[id] || exists && !mine
	}
}

// serverInstructions returns the servers of the tools, sorted, and the instructions that they give
// to models.
func (s *servingState) serverInstructions(selected []decide.Selected) (servers []switchboard.ServerID, instructions []lazyexpand.Words) {
	for _, use := range selected {
		servers = append(servers, use.Tool.ID.Server)
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	for _, id := range servers {
		if o := s.offers[id]; o.Instructions != "" && !s.servers[id].NoInstructions {
			instructions = append(instructions, lazyexpand.Words{Server: id, Text: o.Instructions})
		}
	}
	return servers, instructions
}

// newTokenCounter returns a counter for the configured encoding, which was checked before.
func newTokenCounter(encoding string) *token.Counter {
	c, err := token.New(cmp.Or(encoding, switchboard.Tokenizers[0]))
	if err != nil {
		panic(err.Error())
	}
	return c
}

// services returns the server's own division of its tools.
func (s *servingState) services(id switchboard.ServerID) []switchboard.Service {
	if server := s.servers[id]; server != nil {
		return server.Services
	}
	return nil
}

// resultBound returns how many bytes of the text of one result the client of the call gets at once.
func (a *App) resultBound(c *switchboard.Call) int {
	t := a.state.Load().tenants[c.Principal.Tenant]
	if t == nil {
		return 0
	}
	return t.ResultBound(c.Principal, t.Tasks[c.Task])
}

// countTokens counts the tokens of the text.
func (a *App) countTokens(text []byte) int { return a.state.Load().tokens.Count(text) }

// inputCheck returns how strictly arguments for the server's tools are checked now.
func (a *App) inputCheck(id switchboard.ServerID) switchboard.InputCheck {
	if server := a.state.Load().servers[id]; server != nil {
		return server.CheckInput
	}
	return switchboard.CheckDefault
}

// checkArguments returns an error if the arguments do not fit the tool, as strictly as its server's
// arguments are checked now.
func (a *App) checkArguments(tool *switchboard.Tool, args []byte) error {
	return contract.Check(a.inputCheck(tool.ID.Server), tool, args)
}

// permitEntries asks policy whether tools of groups may be found or expanded now. It is a
// lazyexpand.Permit.
func (a *App) permitEntries(ctx context.Context, who switchboard.Principal, phase string, entries []surface.Entry) []error {
	errs := make([]error, len(entries))
	who, p, err := a.currentPolicy(who)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return permitWith(ctx, p, phase, who, entries)
}

func permitWith(ctx context.Context, p *policy.Policy, phase string, who switchboard.Principal, entries []surface.Entry) []error {
	errs := make([]error, len(entries))
	asked := make([]policy.Asked, len(entries))
	for i, e := range entries {
		asked[i] = policy.Asked{Tool: e.Tool, Judgments: e.Judgments}
	}
	for i, why := range p.Permit(ctx, policy.Phase(phase), who, asked, time.Now()) {
		if why == nil {
			continue
		}
		err := &switchboard.Error{Code: why.Code, Stage: policy.StageName, Cause: errors.New(why.String()), Text: "policy denies it"}
		if why.Code != switchboard.CodeDenied {
			err.Text = "it could not be decided whether this is allowed, so it was not done"
			err.Hint = "try again later; if it stays so, tell the operator of Switchboard: the log says why"
		}
		errs[i] = err
	}
	return errs
}

// RunStatus is the status of one run, as its client may know it.
type RunStatus struct {
	Task   switchboard.TaskID `json:"task"`
	Why    string             `json:"shows_nothing_because,omitempty"`
	Budget int                `json:"token_budget,omitempty"`
	Used   int                `json:"tokens_used"`
	Left   int                `json:"tokens_left"`

	// Instructions is the number of tokens of the instructions that the model was given first.
	Instructions int `json:"instructions_tokens,omitempty"`

	// Context is the number of tokens that the run has cost its client's model until now.
	Context ContextBill `json:"context"`

	// Listed are the charged tools, in the list's order.
	Listed   []ListedTool  `json:"listed"`
	Groups   []GroupStatus `json:"groups,omitempty"`
	Withheld []ListedTool  `json:"withheld,omitempty"` // they exceed the budget

	// Ailing are the servers of its tools that are not fit to serve.
	Ailing map[switchboard.ServerID]string `json:"ailing_servers,omitempty"`
}

// ContextBill is the number of tokens that runs have cost their models, since this process knows
// them.
type ContextBill struct {
	Tokens       int64      `json:"tokens"` // the sum of the following, without FullLists
	Instructions run.Charge `json:"instructions"`
	Lists        run.Charge `json:"lists"`
	Searches     run.Charge `json:"searches"`
	Definitions  run.Charge `json:"definitions"`
	Results      run.Charge `json:"results"`

	// FullLists is what the lists would have cost if they had shown every tool in full.
	FullLists run.Charge `json:"full_lists"`
}

// add adds the costs of the run.
func (c *ContextBill) add(r *run.Run) {
	for it, to := range map[run.Item]*run.Charge{
		run.Instructions: &c.Instructions, run.Lists: &c.Lists, run.Searches: &c.Searches,
		run.Definitions: &c.Definitions, run.Results: &c.Results, run.FullLists: &c.FullLists,
	} {
		*to = to.Add(r.Bill().Charge(it))
	}
	c.Tokens = c.Instructions.Tokens + c.Lists.Tokens + c.Searches.Tokens + c.Definitions.Tokens + c.Results.Tokens
}

// ListedTool is one tool and its cost.
type ListedTool struct {
	Name   string `json:"name"`
	Tokens int    `json:"tokens"`
}

// GroupStatus is one on-demand group.
type GroupStatus struct {
	Group    string   `json:"group"`
	Stub     string   `json:"stub"`
	Tools    int      `json:"tools"`
	Expanded []string `json:"expanded"` // by name
}

// runStatusText is switchboard_status for a client of the run. If no task is bound, it is the
// status of the principal.
func (a *App) runStatusText(p switchboard.Principal, r *run.Run) []byte {
	if r.Task() == "" {
		return a.statusText(p)
	}
	return encodeJSON(a.runStatus(r))
}

func (a *App) runStatus(r *run.Run) RunStatus {
	s := r.Surface()
	st := RunStatus{Task: r.Task(), Budget: s.Budget(), Listed: []ListedTool{}}
	a.meter.Wake()
	st.Context.add(r)
	if err := r.Err(); err != nil {
		st.Why = err.Error()
		if own, ok := errors.AsType[*switchboard.Error](err); ok {
			st.Why = own.Text
		}
	}
	st.Used = s.InstructionTokens()
	st.Instructions = st.Used
	for e, n := range s.Charged() {
		st.Used += n
		st.Listed = append(st.Listed, ListedTool{e.Name, n})
	}
	st.Left = max(0, st.Budget-st.Used)
	for _, stub := range s.Stubs() {
		g := GroupStatus{Group: stub.Group, Stub: stub.Name, Expanded: []string{}}
		for _, e := range s.Entries() {
			if e.Group == stub.Group {
				g.Tools++
				if e.Expanded != nil {
					g.Expanded = append(g.Expanded, e.Name)
				}
			}
		}
		st.Groups = append(st.Groups, g)
	}
	unfit := a.unfitTools(run.Before{})
	for _, e := range s.Entries() {
		if e.Withheld {
			st.Withheld = append(st.Withheld, ListedTool{e.Name, s.Cost(e.Name)})
		}
		if state := unfit.Why(e.Tool.ID); state != "" {
			if st.Ailing == nil {
				st.Ailing = map[switchboard.ServerID]string{}
			}
			st.Ailing[e.Tool.ID.Server] = state
		}
	}
	return st
}
