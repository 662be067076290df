package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/standing"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// tellAsked tells people that they are asked, until ctx is done.
func tellAsked(ctx context.Context, a *App) {
	tenants := func() []switchboard.TenantID { return slices.Collect(maps.Keys(a.state.Load().Tenants)) }
	a.admin.approvals.TellPeople(ctx, tenants, func(ctx context.Context, r *approval.Request) error {
		is := notice.ApprovalRequested
		if r.Kind == approval.ForCapability {
			is = notice.CapabilityRequested
		}
		n := noticeOf(is, r)
		n.Key = r.ID() + " " + r.Asked.Format(time.RFC3339Nano) // an id may be used again after a week
		err := a.admin.notices.Put(ctx, n)
		if errors.Is(err, notice.ErrPartly) {
			return nil // the log has it; a repeat would tell the others again and again
		}
		return err
	})
}

// tellStepped tells people that a request has ended, or that its yes was taken back. Uses are in the receipts.
func tellStepped(a *App, r *approval.Request, s approval.Step) {
	if s.Act == approval.ActUse || s.Act == approval.ActGiveBack || r.Stored == approval.Pending {
		return
	}
	n := noticeOf(notice.ApprovalDecided, r)
	n.State, n.By = string(r.Stored), r.By()
	a.admin.notices.Tell(n)
}

// noticeOf returns a notice of a request. It has nothing of what the agent wrote.
func noticeOf(is notice.Happening, r *approval.Request) notice.Notice {
	n := notice.Notice{Type: is, Tenant: r.Asker.Tenant, Principal: r.Asker.Principal, Task: r.Asker.Task, Request: r.ID(), Until: r.Until}
	if r.Kind == approval.ForCapability {
		n.Capability = r.Target.Capability
	} else {
		n.Tool = r.Target.Label().String()
	}
	return n
}

// A budgetTeller tells people of budgets that are nearly used up. It is a commit.Notifier.
type budgetTeller struct{ notices *notice.Outbox }

// BudgetWarning implements commit.Notifier. It does not need the outbox to run, as in a stop.
func (b budgetTeller) BudgetWarning(ctx context.Context, w *commit.BudgetWarning) error {
	return b.notices.Put(ctx, notice.Notice{
		Type: notice.BudgetWarned, Tenant: w.Tenant, Budget: w.Budget, Until: w.Until,
		Used: strings.TrimSpace(w.Used + " " + w.Unit), Limit: strings.TrimSpace(w.Limit + " " + w.Unit),
	})
}

// newStanding returns the keeper of what people have said yes to in advance.
func newStanding(a *App, current live) *standing.Yeskeeper {
	return standing.New(standing.Options{
		Store: a.store, Requests: a.admin.approvals,
		Settings: current.approvalSettings, Rules: current.decideRules, Officer: current.officerOf, Veto: current.vetoApproval,
	})
}
