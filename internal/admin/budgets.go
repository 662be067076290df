package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
)

// Bounds of answers about budgets.
const (
	forecastTime = 8 * time.Second // to read receipts for a forecast
	maxSpent     = 100_000         // receipts that one answer looks at
	maxLooking   = 2               // forecasts at once; others wait
)

// A BudgetReader answers what officers ask about budgets. Use NewBudgetReader. It is safe for concurrent use.
type BudgetReader struct {
	reader  *Reader
	looking chan struct{} // has an element for each forecast that is being made
	paces   paceReadings
}

// NewBudgetReader returns a BudgetReader.
func NewBudgetReader(r *Reader) *BudgetReader {
	return &BudgetReader{reader: r, looking: make(chan struct{}, maxLooking), paces: newPaceReadings()}
}

// look waits until the caller may look at receipts for a forecast. The caller calls leave afterwards.
func (r *BudgetReader) look(ctx context.Context) (leave func(), err error) {
	select {
	case r.looking <- struct{}{}:
		return func() { <-r.looking }, nil
	case <-ctx.Done():
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "%d forecasts are being made, the most at once; try again", maxLooking)
	}
}

// Rows returns the accounts of the tenant's budgets in their present windows; "" means all tenants. They are sorted by their Place.
func (r *BudgetReader) Rows(ctx context.Context, tenant switchboard.TenantID) ([]budget.StatementRow, error) {
	return r.rows(ctx, tenant, true)
}

// Currency returns the currency of all prices; "" if it has no name.
func (r *BudgetReader) Currency() string { return r.reader.o.Configuration().Config.Currency }

// Warned returns the accounts that have reached a warning percentage or have nothing left. The rows are those of Rows without their pace: no receipts are read.
func (r *BudgetReader) Warned(ctx context.Context, tenant switchboard.TenantID) ([]budget.StatementRow, error) {
	rows, err := r.rows(ctx, tenant, false)
	return slices.DeleteFunc(rows, func(row budget.StatementRow) bool { return row.Warned == 0 }), err
}

// rows returns the rows of Rows, with their pace or without.
func (r *BudgetReader) rows(ctx context.Context, tenant switchboard.TenantID, withPace bool) ([]budget.StatementRow, error) {
	c := r.reader.o.Configuration()
	rows, now := []budget.StatementRow{}, time.Now()
	stopAt := now.Add(paceTime)
	var all []budget.Statement
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		if tenant != "" && id != tenant {
			continue
		}
		if s := (budget.Statement{Tenant: id, Budgets: budgetsOf(c, id), Currency: c.Config.Currency}); len(s.Budgets) > 0 {
			all = append(all, s)
		}
	}
	for i := range all {
		s, id := &all[i], all[i].Tenant
		var err error
		if s.Accounts, err = r.reader.o.Store.Accounts(ctx, budget.Group(id)); err != nil {
			return nil, switchboard.Unavailable("the accounts of budgets cannot be read", err)
		}
		if withPace {
			if s.Spending, err = r.spending(ctx, id, stopAt, len(all) <= maxAwaited); err != nil {
				return nil, err
			}
		}
		rows = append(rows, s.Rows(now)...)
	}
	return rows, nil
}

// figuresTime is how long a scrape waits for the accounts of budgets. If the store does not answer in time, they are missing.
const figuresTime = time.Second

// figures returns the values of the tenant's budgets; "" means all tenants.
func (r *BudgetReader) figures(ctx context.Context, tenant switchboard.TenantID) (all []telemetry.BudgetFigure) {
	ctx, cancel := context.WithTimeout(ctx, figuresTime)
	defer cancel()
	c, now := r.reader.o.Configuration(), time.Now()
	for id := range c.Tenants {
		budgets := budgetsOf(c, id)
		if tenant != "" && id != tenant || len(budgets) == 0 {
			continue
		}
		accounts, err := r.reader.o.Store.Accounts(ctx, budget.Group(id))
		if err != nil {
			continue // the metric store_available says so
		}
		for _, b := range budgets {
			scale := 1.0
			if !b.Calls {
				scale = 1_000_000
			}
			settled, held := budget.Sums(b, accounts, now)
			all = append(all, telemetry.BudgetFigure{
				Tenant: id, Budget: b.Name(), Unit: budget.Unit(b, c.Config.Currency), HasLimit: b.Per == "" || b.Per == switchboard.PerTenant,
				Limit: float64(b.Limit) / scale, Settled: float64(settled) / scale, Held: float64(held) / scale,
			})
		}
	}
	return all
}

// spentCalls returns the calls of the tenant that may have reached a server since an instant, the newest first, and back to when they are complete.
func (r *BudgetReader) spentCalls(ctx context.Context, id switchboard.TenantID, since, stopAt time.Time) (all []budget.SpentCall, lookedBack time.Time, complete bool, err error) {
	c := r.reader.o.Configuration()
	t := c.Tenants[id]
	if t == nil || !r.reader.o.Ledger.Durable() {
		return nil, time.Now(), false, nil // there are no receipts
	}
	floor := time.Now().Add(-c.Config.Receipts.Keep) // older ones are trimmed
	if since.Before(floor) {
		since = floor
	}
	ctx, cancel := context.WithTimeout(ctx, time.Until(stopAt)+receiptReadTime)
	defer cancel()
	q := receipt.Query{Tenant: id, Kind: receipt.Call, Since: since, NewestFirst: true, StopAt: stopAt}
	type called struct {
		task switchboard.TaskID
		tool switchboard.ToolID
	}
	known := map[called]*switchboard.Tool{}
	for e, err := range receipt.List(ctx, r.reader.o.Store, q) {
		var unfinished *receipt.UnfinishedError
		switch {
		case errors.As(err, &unfinished):
			return all, unfinished.Looked, false, nil
		case err != nil:
			return nil, since, false, switchboard.Unavailable("the receipts cannot be read", err)
		case len(all) == maxSpent:
			return all, e.Receipt.Time, false, nil
		}
		one := &e.Receipt
		if e.Fault != nil || one.Method != "tools/call" || one.Given != "" || one.Outcome == receipt.Refused && one.Price.Held == 0 {
			continue // no server got it
		}
		tool := switchboard.ToolID{Server: one.Server, Name: one.Tool}
		if served, err := switchboard.ParseToolID(one.ServedBy); err == nil {
			tool = served
		}
		key := called{one.Task, tool}
		if known[key] == nil {
			known[key] = t.PresentTool(one.Task, tool)
		}
		all = append(all, budget.SpentCall{
			When: one.Time, Tool: known[key], Principal: one.Principal.ID, Task: one.Task, Run: one.Run, Held: one.Price.Held, Settled: one.Price.Settled,
		})
	}
	return all, since, true, nil
}

// TenantOrOnly returns a tenant that is served; if id is "", the only one. The error is a *switchboard.Error.
func TenantOrOnly(r *Reader, id switchboard.TenantID) (switchboard.TenantID, *bind.Tenant, error) {
	c := r.o.Configuration()
	return c.tenantOrOnly(id)
}

// tenantOrOnly returns a tenant that is served; if id is "", the only one.
func (c *Configuration) tenantOrOnly(id switchboard.TenantID) (switchboard.TenantID, *bind.Tenant, error) {
	if id == "" && len(c.Tenants) == 1 {
		for only, t := range c.Tenants {
			return only, t, nil
		}
	}
	if t := c.Tenants[id]; t != nil {
		return id, t, nil
	}
	return "", nil, switchboard.Refuse(switchboard.CodeBadArguments, "name a tenant that is served; there are %v", slices.Sorted(maps.Keys(c.Tenants)))
}

// A ProposedBudget is a budget that a forecast is about: a present one, with changes, or another one.
type ProposedBudget struct {
	Budget string `json:"budget,omitempty" maxLength:"300" doc:"The name or the id of a present budget. What the other members do not state is taken from it."`
	Limit  string `json:"limit,omitempty" maxLength:"40" doc:"The most that calls cost in a window, such as 10.00." example:"10.00"`
	Calls  *int64 `json:"calls,omitempty" minimum:"0" maximum:"1000000000" doc:"The most calls in a window, in the place of limit."`
	Window string `json:"window,omitempty" enum:"1h,1d,7d,30d,month,forever" doc:"month if nothing states it."`
	Per    string `json:"per,omitempty" enum:"tenant,principal,task,run,tool" doc:"tenant if nothing states it."`

	Server     []string `json:"server,omitempty" maxItems:"100" doc:"Only calls of these servers; * stands for any text."`
	Tool       []string `json:"tool,omitempty" maxItems:"100" doc:"Only calls of these tools, SERVER/TOOL; * stands for any text."`
	Capability []string `json:"capability,omitempty" maxItems:"100" doc:"Only calls of tools that provide these capabilities, by id."`
	CostClass  []string `json:"cost_class,omitempty" maxItems:"3" doc:"Only calls of tools with these cost classes."`
}

// apply returns the budget that is proposed for the tenant.
func (p *ProposedBudget) apply(all []*switchboard.Budget) (*switchboard.Budget, error) {
	b := switchboard.Budget{ID: "proposed", Owner: switchboard.OwnerTenant, Window: switchboard.WindowMonth}
	switch {
	case p.Budget != "":
		present, err := budget.Find(all, p.Budget)
		if err != nil {
			return nil, err
		}
		b = *present
	case p.Limit == "" && p.Calls == nil:
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "say which limit: an amount such as 10.00, or a number of calls")
	}
	switch {
	case p.Limit != "" && p.Calls != nil:
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "a budget limits the cost or the number of calls; name one limit")
	case p.Limit != "":
		m, err := switchboard.ParseMicros(p.Limit)
		if err != nil {
			return nil, switchboard.Refuse(switchboard.CodeBadArguments, "the limit %.40q: %v", p.Limit, err)
		}
		b.Limit, b.Calls = int64(m), false
	case p.Calls != nil:
		b.Limit, b.Calls = *p.Calls, true
	}
	b.Window = cmp.Or(switchboard.BudgetWindow(p.Window), b.Window)
	b.Per = cmp.Or(switchboard.BudgetPer(p.Per), b.Per)
	if len(p.Server)+len(p.Tool)+len(p.Capability)+len(p.CostClass) > 0 {
		b.Match = switchboard.BudgetMatch{Servers: p.Server, Tools: p.Tool, Capabilities: p.Capability}
	}
	for _, s := range p.CostClass {
		if !slices.Contains(switchboard.CostClasses, switchboard.CostClass(s)) {
			return nil, switchboard.Refuse(switchboard.CodeBadArguments, "%.40q is no cost class; there are %v", s, switchboard.CostClasses)
		}
		b.Match.CostClasses = append(b.Match.CostClasses, switchboard.CostClass(s))
	}
	return &b, nil
}

// Forecast says which of the tenant's calls since an instant the proposed budget would have refused. The error is a *switchboard.Error.
func (r *BudgetReader) Forecast(ctx context.Context, id switchboard.TenantID, p *ProposedBudget, since time.Time) (*budget.RefusalForecast, error) {
	c := r.reader.o.Configuration()
	id, t, err := c.tenantOrOnly(id)
	if err != nil {
		return nil, err
	}
	b, err := p.apply(budget.All(t.Tenant, c.Config.Overlays, t.Providers.Tools()))
	if err != nil {
		return nil, err
	}
	leave, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	calls, looked, complete, err := r.spentCalls(ctx, id, since, time.Now().Add(forecastTime))
	if err != nil {
		return nil, err
	}
	slices.Reverse(calls)
	f := budget.Forecast(b, calls, t.Taxonomy)
	f.Tenant, f.Unit, f.LookedBack, f.Complete = id, budget.Unit(b, c.Config.Currency), looked, complete
	return f, nil
}

// A BudgetCorrection changes what is settled in one account, in the window of the moment.
type BudgetCorrection struct {
	Budget string `json:"budget" minLength:"1" maxLength:"300" doc:"The name of the budget, such as tenant/paid, or its id if no other budget has it." example:"tenant/paid"`
	Of     string `json:"of,omitempty" maxLength:"1000" doc:"What the account belongs to: for a budget per principal, the principal's id."`
	By     string `json:"by,omitempty" maxLength:"40" doc:"The amount, or the number of calls, that is added to what is settled. It may be negative." example:"-2.50"`
	Reset  bool   `json:"reset,omitempty" doc:"Nothing is settled any more. What is held stays."`
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why; for the receipt." example:"the provider has credited a failed batch"`
}

// A CorrectedAccount says what a correction has changed.
type CorrectedAccount struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Budget string               `json:"budget"`
	Of     string               `json:"of,omitempty"`
	Unit   string               `json:"unit,omitempty"`
	Before string               `json:"before"` // what was settled
	After  string               `json:"after"`
}

// AdjustBudget corrects an account. A tenant's admin may correct the accounts of the tenant's own budgets, and of its tasks; an operator
// all. The error is a *switchboard.Error.
func (a *Actions) AdjustBudget(by switchboard.Officer, id switchboard.TenantID, correction BudgetCorrection) (*CorrectedAccount, error) {
	c := a.o.Configuration()
	id, t, err := c.tenantOrOnly(id)
	if err != nil {
		return nil, err
	}
	b, err := budget.Find(budget.All(t.Tenant, c.Config.Overlays, t.Providers.Tools()), correction.Budget)
	if err != nil {
		return nil, err
	}
	if own := b.Owner == switchboard.OwnerTenant || strings.HasPrefix(string(b.Owner), "task/"); !own && !by.Operator {
		return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "the budget %s is the operator's; only an operator may correct it", b.Name())
	}
	perTenant := b.Per == "" || b.Per == switchboard.PerTenant
	amount, what := int64(-store.MaxAmount), "reset"
	switch {
	case correction.Reset == (correction.By != ""):
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "say by how much what is settled changes, such as -2.50, or that it is reset")
	case perTenant != (correction.Of == ""):
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "the budget %s has one account for each %s; name that one, and no other", b.Name(), cmp.Or(b.Per, switchboard.PerTenant))
	case !correction.Reset:
		if amount, err = budget.ParseAmount(b, correction.By); err != nil {
			return nil, switchboard.Refuse(switchboard.CodeBadArguments, "%v", err)
		}
		what = correction.By
	}
	account := budget.AccountAt(b, correction.Of, time.Now())
	out := &CorrectedAccount{Tenant: id, Budget: b.Name(), Of: correction.Of, Unit: budget.Unit(b, c.Config.Currency)}
	_, err = a.doWithReceipts(receipt.Receipt{
		Tenant: id, Principal: receipt.Subject{ID: by.ID, Auth: by.Auth}, Method: "adjust_budget", Note: fmt.Sprintf("%s: %s; account %s", what, correction.Reason, account.Name),
	}, func() (string, error) {
		before, after, err := a.correct(budget.Group(id), account, amount)
		out.Before, out.After = budget.Amount(b, before), budget.Amount(b, after)
		return "", err
	})
	if err != nil {
		return nil, err
	}
	a.o.Log.Info("operator", "did", "adjust_budget", "tenant", id, "budget", b.Name(), "of", correction.Of, "by", by.ID, "was", out.Before, "is", out.After, "reason", correction.Reason)
	return out, nil
}

// correct adds the amount to what is settled in the account, down to 0. It is durable when correct returns.
func (a *Actions) correct(group string, account store.Account, amount int64) (before, after int64, err error) {
	ctx, cancel := context.WithTimeout(a.o.Stopping, operateTimeout)
	defer cancel()
	hold := func(amount int64, durable bool) (id string, settled int64, err error) {
		id = "correction-" + rand.Text()
		account.Amount = max(0, amount)
		sums, held, err := a.o.Store.Hold(ctx, group, id, store.HoldTerms{TTL: time.Minute, Durable: durable}, account)
		switch {
		case err != nil && durable:
			return "", 0, unsureCorrection(err)
		case err != nil:
			return "", 0, switchboard.Unavailable("the account was not changed", err)
		case !held:
			return "", 0, switchboard.Refuse(switchboard.CodeBadArguments, "the account would hold more than it can")
		}
		return id, sums[0].Settled, nil
	}
	id, before, err := hold(amount, false)
	if err != nil {
		return 0, 0, err
	}
	if _, err := a.o.Store.Settle(ctx, group, store.Settlement{ID: id, Amounts: []int64{amount}}); err != nil {
		return 0, 0, unsureCorrection(err)
	}
	// A hold of nothing is written behind the settlement, and makes it durable too.
	if id, after, err = hold(0, true); err != nil {
		return 0, 0, err
	}
	_, _ = a.o.Store.Settle(ctx, group, store.Settlement{ID: id, Amounts: []int64{0}}) // if not now, it expires
	return before, after, nil
}

// unsureCorrection is the error of a correction that may have been made.
func unsureCorrection(err error) *switchboard.Error {
	return &switchboard.Error{Code: switchboard.CodeStoreUnavailable, Text: "the store failed while the account was changed; look at the account before you repeat this", Cause: err}
}
