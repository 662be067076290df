package app

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/grant"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// runParts hold the runs, and the requests of agents to add tools to them.
type runParts struct {
	runs   *run.Runs
	grants *grant.AdditionBook
	asking *grant.RequestDesk
}

// joinGrants makes what people have added to runs a part of them. keeper keeps the requests.
func joinGrants(a *App, keeper *approval.Keeper) {
	a.grants = grant.New(grant.Options{
		List: keeper.List, Find: keeper.Find, Watch: keeper.Watch,
		Counts: func(ctx context.Context, r *approval.Request) bool { return approval.Counts(ctx, keeper, r) },
		Concerned: func(id switchboard.TenantID) bool {
			t := a.state.Load().Tenants[id]
			return t != nil && len(t.Request) > 0
		},
		Changed: func(ctx context.Context, tenant switchboard.TenantID, principal string) {
			run.RebindOf(ctx, a.runs, tenant, principal)
		},
		Log: a.log,
	})
	run.UseAdditions(a.runs, a.grants.Additions)
	a.asking = grant.NewRequestDesk(grant.RequestDeskOptions{
		Ask: func(ctx context.Context, q *approval.Request) (*approval.Request, bool, error) {
			return keeper.Ask(ctx, q, approval.KeptCall{})
		},
		List:     keeper.List,
		Seek:     func(ctx context.Context, r *approval.Request, reason string) { seekAcquisition(ctx, a, r, reason) },
		Progress: func(ctx context.Context, r *approval.Request) (string, string) { return progressOf(ctx, a, r) },
		Offered: func(ctx context.Context, p switchboard.Principal, r *switchboard.Requirement) bool {
			return a.state.Load().WouldServe(ctx, p, r, a.binder.Observe(run.Before{}), time.Now())
		},
		Hurdles: func(ctx context.Context, p switchboard.Principal, r *run.Run, tools []surface.Entry) []grant.Hurdle {
			return hurdlesOf(ctx, a, p, r, tools)
		},
	})
}

// hurdlesOf returns the hurdle of each tool of a run. Policy is asked as for calls without arguments; its answers are not recorded.
func hurdlesOf(ctx context.Context, a *App, p switchboard.Principal, r *run.Run, tools []surface.Entry) []grant.Hurdle {
	all := make([]grant.Hurdle, len(tools))
	current := live{&a.state, a.recorder}
	who, rules, err := current.currentPolicy(p)
	if err != nil {
		return all
	}
	now := time.Now()
	charges := make([]*budget.AttemptCharge, len(tools))
	var names []string
	for i, e := range tools {
		c := &switchboard.Call{
			Principal: who, Task: r.Task(), Run: r.ID(), Method: wire.MethodToolsCall, Server: e.Tool.ID.Server, Tool: e.Tool, Target: e.Tool.ID.Name,
			Params: []byte(`{"arguments":{}}`), Judgments: e.Judgments, Trail: &switchboard.Trail{},
		}
		ruling := rules.JudgeCall(ctx, c, now)
		if ruling.Obligations.Approval != nil || e.Tool.AsksPerson() {
			all[i] = grant.NeedsApproval
		}
		charge, err := budget.NewBook(current.budgets).ChargeFor(c, now)
		if err != nil || charge == nil { // without its arguments the price is not known
			continue
		}
		charges[i] = charge
		names = append(names, charge.Accounts()...)
	}
	if len(names) == 0 {
		return all
	}
	slices.Sort(names)
	accounts, _ := a.store.Accounts(ctx, budget.Group(p.Tenant), slices.Compact(names)...) // if they cannot be read, a call says so
	for i, charge := range charges {
		if charge != nil && budget.Exceeds(charge, accounts) {
			all[i] = grant.OverBudget
		}
	}
	return all
}

// announceRequest tells officers that an agent asks for a capability.
func announceRequest(events *event.Recent, log *slog.Logger, r *approval.Request) {
	said := &event.CapabilityRequest{
		EventType: event.Capability, PrincipalID: r.Asker.Principal, Capability: r.Target.Capability, Reason: r.Target.Reason, Status: string(r.Stored),
		ID: r.ID(), Tenant: r.Asker.Tenant, Task: r.Asker.Task, At: r.Asked,
	}
	events.Add(event.Occurrence{Type: event.Capability, Tenant: r.Asker.Tenant, Subject: r.ID(), Request: said})
	log.Info("capability request", "event_type", said.EventType, "principal_id", said.PrincipalID, "capability", said.Capability, "reason", said.Reason, "status", said.Status,
		"id", said.ID, "tenant", said.Tenant, "task", said.Task, "at", said.At)
}

// Request and CapabilityStatus implement gateway.Tasks. Request asks a person for a capability.
func (f front) Request(ctx context.Context, p switchboard.Principal, r *run.Run, args []byte) (lazyexpand.Reply, error) {
	ask, err := lazyexpand.ParseRequest(args)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	t, err := f.a.state.Load().ServedTenant(p.Tenant)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	q := grant.CapabilityQuestion{Principal: p, Run: r, Taxonomy: t.Taxonomy}
	if q.Requested, err = lazyexpand.AllowedRequest(ask.Capability, t.Request, t.Taxonomy, t.FindNamed); err != nil {
		return lazyexpand.Reply{}, err
	}
	answer, err := f.a.asking.Ask(ctx, q, ask.Reason)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	return lazyexpand.Reply{Text: answer.Text()}, nil
}

// CapabilityStatus says how it stands with a capability, for a client of the run. A request of the task's for it comes before the
// verdict, because no verdict says that a person has refused. An id of a capability that does not exist for the tenant is answered as
// what is no id at all.
func (f front) CapabilityStatus(ctx context.Context, p switchboard.Principal, r *run.Run, text string) (lazyexpand.Reply, error) {
	t, err := f.a.state.Load().ServedTenant(p.Tenant)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	text = strings.TrimSpace(text)
	exists := t.HasCapability(text)
	q := grant.CapabilityQuestion{Principal: p, Run: r, Taxonomy: t.Taxonomy}
	if q.Requested, err = lazyexpand.AllowedRequest(text, t.Request, t.Taxonomy, t.FindNamed); err != nil {
		need, ok := lazyexpand.ReadCapability(text, t.Taxonomy) // the task may have it all the same
		_, noID := capability.ParseRef(text)
		switch {
		case exists, !ok && t.HasCapabilities() && (noID == nil || len(t.Request) == 0):
			return f.verdictOn(ctx, p, text)
		case !ok:
			return lazyexpand.Reply{}, err
		}
		q.Requested = &lazyexpand.Requested{Capability: need.String(), Requirement: &need}
	}
	answer, err := f.a.asking.Status(ctx, q)
	switch {
	case err != nil:
		return lazyexpand.Reply{}, err
	case exists && answer.Request == "":
		return f.verdictOn(ctx, p, text)
	}
	return lazyexpand.Reply{Text: answer.Text()}, nil
}

// verdictOn answers with the verdict on a named capability, or with the refusal of one that does not exist for the tenant.
func (f front) verdictOn(ctx context.Context, p switchboard.Principal, text string) (lazyexpand.Reply, error) {
	x, err := admin.Resolve(ctx, f.a.admin.reads, bind.ResolveQuery{Tenant: p.Tenant, Capabilities: []string{text}})
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	return lazyexpand.Reply{Text: string(canonical.Encode(x.Verdicts[0]))}, nil
}

var _ gateway.Tasks = front{}
