package app

import (
	"context"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// newDecider returns what officers see and do about requests for approval.
func newDecider(a *App, current live, actions *admin.Actions) *approvals.Decider {
	return approvals.NewDecider(approvals.DeciderOptions{
		Keeper: a.admin.approvals, Standing: a.admin.standing, Rules: current.decideRules, Tenants: current.tenantIDs, Tool: current.calledTool, Record: actions.Record, Log: a.log,
		Money: func(ctx context.Context, r *approval.Request, params []byte) string {
			return current.moneyOf(ctx, a, r, params)
		},
	})
}

// DeciderOf returns what officers see and do about requests for approval, for a program that has the App in itself.
func DeciderOf(a *App) *approvals.Decider { return a.admin.decider }

// tenantIDs returns the tenants, sorted.
func (l live) tenantIDs() (ids []switchboard.TenantID) {
	for id := range l.state.Load().Tenants {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// calledTool returns the tool of a request as its server offers it to the tenant now, under the contract of the request's
// capability; nil if there is none.
func (l live) calledTool(tenant switchboard.TenantID, of *approval.Target) *switchboard.Tool {
	t := l.state.Load().Tenants[tenant]
	if t == nil {
		return nil
	}
	if of.Capability != "" {
		return t.Providers.Called(of.Capability, of.ID())
	}
	tool, _ := t.View.Tool(of.ID())
	return tool
}

// moneyOf says what the call of a request costs, and what its budgets have left.
func (l live) moneyOf(ctx context.Context, a *App, r *approval.Request, params []byte) string {
	tool := l.calledTool(r.Asker.Tenant, &r.Target)
	if tool == nil || r.Kind != approval.ForCall || params == nil {
		return ""
	}
	charge, err := budget.NewBook(l.budgets).ChargeFor(&switchboard.Call{
		Principal: switchboard.Principal{Tenant: r.Asker.Tenant, ID: r.Asker.Principal, Auth: r.Asker.Auth}, Task: r.Asker.Task, Run: r.Asker.Run,
		Server: r.Target.Server, Method: r.Target.Method, Tool: tool, Params: params,
	}, time.Now())
	if err != nil {
		return "its price is not known: " + err.Error()
	}
	if charge == nil {
		return ""
	}
	if len(charge.Lines) == 0 {
		return budget.Left(charge, nil, l.currency())
	}
	accounts, err := a.store.Accounts(ctx, charge.Group, charge.Accounts()...)
	if err != nil {
		return "what it costs and what is left is not known now, because the store cannot say"
	}
	return budget.Left(charge, accounts, l.currency())
}

// describeCall returns the arguments of a call for a form at its client, as approvers see them. ok is false if they cannot be shown.
func describeCall(c *switchboard.Call) (text string, ok bool) {
	a, err := shown.WriteArguments(approvals.ArgumentsOf(c.Method, c.Params))
	if err != nil {
		return "", false
	}
	return a.Text, true
}

// recordStepped returns a function that tells people's programs of each step of a request. What an officer has decided has its receipts already.
func recordStepped(a *App) func(*approval.Request, approval.Step) {
	return func(r *approval.Request, s approval.Step) {
		tellStepped(a, r, s)
		by := s.By
		switch s.Act {
		case approval.ActApprove, approval.ActRefuse:
			by = s.Vote.By
		case approval.ActUse, approval.ActGiveBack:
			by = ""
		}
		a.admin.events.Add(event.Occurrence{Type: event.Approval, Tenant: r.Asker.Tenant, Server: r.Target.Server, Subject: r.ID(), By: by})
		if s.Act != approval.ActWithdraw && !s.Vote.ByForm() {
			return
		}
		a.log.Info("approval", "did", string(s.Act), "request", r.ID(), "tenant", r.Asker.Tenant, "by", by)
		a.ledger.Add(&receipt.Receipt{
			Kind: receipt.Decide, Tenant: r.Asker.Tenant, Task: r.Asker.Task, Method: r.Target.Method, Server: r.Target.Server, Tool: r.Target.Label().Name, Note: s.Vote.Note,
			Principal: receipt.Subject{ID: by, Auth: r.Asker.Auth}, Outcome: receipt.OK, Approval: receipt.ApprovalRef{Request: r.ID(), Decision: string(s.Act)},
		})
	}
}
