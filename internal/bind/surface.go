package bind

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
)

// mayWaitForPerson reports whether a call of the tool may need a person's approval.
func mayWaitForPerson(s decide.Selected) bool {
	return s.Tool.AsksPerson() || policy.MayAsk(s.Tool, s.Judgments)
}

// isNamed reports whether the requirement names a capability, so that an agent may ask how it stands with it.
func isNamed(r switchboard.Requirement) bool { return r.Capability != "" }

// MakeSurface returns the surface of the decision, within its token budget or, if it is not 0,
// within the given budget. If the configuration names only servers and all of their tools together
// exceed the budget, one stub takes their place.
func (s *State) MakeSurface(d *decide.Decision, prev *surface.Surface, serverInfo []byte, budget int, decided func() (decision, basis switchboard.Digest)) (*surface.Surface, error) {
	t := s.Tenants[d.Tenant]
	missing := s.missingTools(t, d)
	in := surface.Input{
		Task: d.Task, Selected: t.withEquivalents(d), WholeServers: s.WholeOffers(d.Tenant, d), Prev: prev, ServerInfo: serverInfo, Decided: decided,
		StandsIn: s.standsIn(t), Removed: missing.removed, Unjudged: missing.unjudged, KeptOut: missing.keptOut,
		OfferTokens: s.tokensOfOffer(), Count: s.Tokens.Count, Budget: cmp.Or(budget, t.Budget(d.Task)), CollapseOldest: t.OnFull == switchboard.OnFullCollapse,
	}
	servers, instructions := s.serverInstructions(in.Selected)
	plan := func(task *switchboard.Task, instruct bool) *surface.Surface {
		in.Memberships, in.Groups = lazyexpand.Plan(task, in.Selected, s.services, s.Tokens.Count)
		in.Instructions = ""
		if instruct {
			in.Instructions = lazyexpand.Instructions(servers, lazyexpand.AwayServers{Starting: t.OwnServers(s.Starting)}, in.Groups, instructions, in.Budget, s.Tokens.Count)
		}
		switch {
		case task.ID == switchboard.DeclaredTask:
			base, _ := splitAdded(task)
			in.Own, in.Unlisted = s.ownTools(t, d.Principal), len(base.Requirements) > 0
		case in.Groups != nil, len(t.Request) > 0, slices.ContainsFunc(task.Requirements, isNamed):
			in.Own = s.boundTools(t)
		}
		if !s.wholeResults && t.ResultBound(d.Principal, t.Tasks[d.Task.ID]) > 0 {
			in.Last = []*switchboard.Tool{preview.Tool}
		}
		if slices.ContainsFunc(in.Selected, mayWaitForPerson) { // from the start, because some clients list their tools once
			in.Last = append(in.Last, approval.Tool)
		}
		return surface.New(in)
	}
	task := d.Task
	shown := plan(task, true)
	if s.Config.Implied && !lazyexpand.Fits(shown) {
		task = lazyexpand.Fold(task)
		shown = plan(task, true)
	}
	if !lazyexpand.Fits(shown) {
		shown = plan(task, false) // tools are more important than instructions
	}
	return lazyexpand.Fit(shown, prev)
}

// countOffers returns functions that count the definitions of each offer once.
func countOffers(offers map[switchboard.ServerID]switchboard.Offer, tokens *token.Counter) map[switchboard.ServerID]func() int {
	counts := make(map[switchboard.ServerID]func() int, len(offers))
	for id, o := range offers {
		definitions := o.Tools
		counts[id] = sync.OnceValue(func() (n int) {
			for _, definition := range definitions {
				n += tokens.Count(definition)
			}
			return n
		})
	}
	return counts
}

// tokensOfOffer returns the function that counts the definitions of a server's offer. It does not hold the State.
func (s *State) tokensOfOffer() func(switchboard.ServerID) int {
	counts := s.offerTokens
	return func(id switchboard.ServerID) int {
		if count := counts[id]; count != nil {
			return count()
		}
		return 0
	}
}

// standsIn returns the function that says which tool may stand in for one that a client was shown.
// If another replica showed it, only its digest is known, and the definition comes from the
// catalog.
func (s *State) standsIn(t *Tenant) func(now, shown *switchboard.Tool) bool {
	return func(now, shown *switchboard.Tool) bool {
		if shown.Definition == nil {
			if now.Digest == shown.Digest {
				return t.Equivalents.MayStandIn(now, shown)
			}
			offered, ok := s.Catalog.Tool(shown.ID)
			if !ok || offered.Digest != shown.Digest {
				return false
			}
			shown = offered
		}
		return t.Equivalents.MayStandIn(now, shown)
	}
}

// missingTools are tools that clients may have been shown and that are not there.
type missingTools struct {
	// removed says which tools were removed from the tenant: tools that policy denies to every requirement of the decision that they could serve, and tools of
	// configured servers that the tenant may not use.
	removed func(switchboard.ToolID) bool

	unjudged map[switchboard.ToolID]bool             // that policy could not judge for some requirement
	keptOut  map[switchboard.ToolID]switchboard.Code // by their state; see package admission
}

// missingTools returns the tools that are missing from a decision of the tenant.
func (s *State) missingTools(t *Tenant, d *decide.Decision) (out missingTools) {
	denied, usable := map[switchboard.ToolID]bool{}, map[switchboard.ToolID]bool{}
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		for _, c := range o.Dropped {
			switch {
			case c.Stage == decide.StageFilter || c.Stage == matcher.StagePrune: // it could not serve that requirement
			case c.Stage == policy.StageName && c.Reason.Code != switchboard.CodePolicyFailed:
				denied[c.Tool.Key()] = true
			case c.Stage == policy.StageName:
				if out.unjudged == nil {
					out.unjudged = map[switchboard.ToolID]bool{}
				}
				out.unjudged[c.Tool.Key()], usable[c.Tool.Key()] = true, true
			case c.Stage == admission.StageName:
				if out.keptOut == nil {
					out.keptOut = map[switchboard.ToolID]switchboard.Code{}
				}
				out.keptOut[c.Tool.Key()], usable[c.Tool.Key()] = c.Reason.Code, true
			default:
				usable[c.Tool.Key()] = true
			}
		}
		for _, c := range slices.Concat(o.Selected, o.Others) {
			usable[c.Tool.Key()] = true
		}
	}
	maps.DeleteFunc(denied, func(id switchboard.ToolID, _ bool) bool { return usable[id] })
	configured, own := s.Servers, t.Tenant
	out.removed = func(id switchboard.ToolID) bool {
		_, exists := configured[id.Server]
		_, mine := slices.BinarySearch(own.Servers, id.Server)
		return denied[id] || exists && !mine
	}
	return out
}

// serverInstructions returns the servers of the tools, sorted, and the instructions that they give
// to models.
func (s *State) serverInstructions(selected []decide.Selected) (servers []switchboard.ServerID, instructions []lazyexpand.ServerInstructions) {
	for _, use := range selected {
		servers = append(servers, use.Tool.ID.Server)
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	for _, id := range servers {
		if o := s.Offers[id]; o.Instructions != "" && !s.Servers[id].NoInstructions {
			instructions = append(instructions, lazyexpand.ServerInstructions{Server: id, Text: o.Instructions})
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
func (s *State) services(id switchboard.ServerID) []switchboard.Service {
	if server := s.Servers[id]; server != nil {
		return server.Services
	}
	return nil
}

// PermitEntries asks policy which of the entries of groups may be found or expanded now. Each error
// says why one may not. It has the form of lazyexpand.Permit.
func PermitEntries(ctx context.Context, p *policy.Policy, phase string, who switchboard.Principal, entries []surface.Entry) []error {
	errs := make([]error, len(entries))
	asked := make([]policy.ToolToShow, len(entries))
	for i, e := range entries {
		asked[i] = policy.ToolToShow{Tool: e.Tool, Judgments: e.Judgments}
	}
	for i, why := range p.DenyShowing(ctx, policy.Phase(phase), who, asked, time.Now()) {
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
