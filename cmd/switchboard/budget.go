package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type budgetCmd struct {
	Status budgetStatusCmd `cmd:"" help:"Print the accounts of budgets in their present windows: what is settled, held and left, and when it is used up."`
	WhatIf budgetWhatIfCmd `cmd:"" name:"what-if" help:"Say which recorded calls a budget would have refused. Nothing is changed."`
	Adjust budgetAdjustCmd `cmd:"" help:"Correct what is settled in an account, with a receipt."`
}

// budgetFlags choose the tenant.
type budgetFlags struct {
	serverFlags
	Tenant switchboard.TenantID `help:"The tenant. Without it: all that you may see, or the only one." placeholder:"ID"`
}

// at returns a path with the tenant.
func (b *budgetFlags) at(path string) string {
	if b.Tenant == "" {
		return path
	}
	return path + "?" + url.Values{"tenant": {string(b.Tenant)}}.Encode()
}

type budgetStatusCmd struct{ budgetFlags }

// Run prints the accounts of a running Switchboard.
func (b *budgetStatusCmd) Run(ctx context.Context, io streams) error {
	q := url.Values{}
	if b.Tenant != "" {
		q.Set("tenant", string(b.Tenant))
	}
	rows, err := fetchList[budget.StatementRow](ctx, b.asTarget(), "/v1/budgets", "budgets", q)
	if err != nil {
		return err
	}
	if b.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(io.err, "switchboard: no call has used a budget in its present window; docs/budgets.md shows how to write one")
		return nil
	}
	return writeAccounts(io.out, rows, time.Now())
}

// writeAccounts prints accounts.
func writeAccounts(out io.Writer, rows []budget.StatementRow, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tBUDGET\tOF\tSETTLED\tHELD\tLEFT\tLIMIT\tUNTIL\tUSED UP AT THE PACE OF THE LAST DAY\tWEEK\tBY THE CALLS SINCE")
	for i := range rows {
		r := &rows[i]
		limit := r.Limit
		if r.Unit != "" {
			limit += " " + r.Unit
		}
		byDay, byWeek := cmp.Or(instantText(r.Pace.DayUsedUp), "-"), cmp.Or(instantText(r.Pace.WeekUsedUp), "-")
		if !r.Pace.IsKnown(now) {
			byDay, byWeek = "not known yet", "not known yet"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Tenant, r.Budget, cmp.Or(printable(r.Of, 60), "-"), r.Settled, r.Held, r.Left, limit,
			cmp.Or(instantText(r.Until), "it has no end"), byDay, byWeek, cmp.Or(instantText(r.Pace.Since), "-"))
	}
	return w.Flush()
}

type budgetWhatIfCmd struct {
	budgetFlags
	Budget     string                   `arg:"" optional:"" help:"Take what is not stated here from this budget: its name, or its id."`
	Limit      string                   `help:"The most that calls cost in a window, such as 10.00." placeholder:"AMOUNT"`
	Calls      *int64                   `help:"The most calls in a window, in the place of --limit." placeholder:"N"`
	Window     switchboard.BudgetWindow `help:"How long it counts: 1h, 1d, 7d, 30d, month or forever. A month without it." placeholder:"WORD"`
	Per        switchboard.BudgetPer    `help:"Who has the whole limit: each tenant (without this flag), principal, task, run or tool." placeholder:"WORD"`
	Server     []string                 `help:"Only calls of these servers; * stands for any text." placeholder:"ID"`
	Tool       []string                 `help:"Only calls of these tools; * stands for any text." placeholder:"SERVER/TOOL"`
	Capability []string                 `help:"Only calls of tools that provide these capabilities." placeholder:"ID"`
	CostClass  []string                 `help:"Only calls of tools with these cost classes." placeholder:"WORD"`
	Since      dayDuration              `help:"Look at the calls of the last TIME, such as 7d or 12h." default:"30d" placeholder:"TIME"`
}

// Run prints what the budget would have refused.
func (b *budgetWhatIfCmd) Run(ctx context.Context, io streams) error {
	if b.Limit == "" && b.Calls == nil && b.Budget == "" {
		return usageError{fmt.Errorf("say which limit, with --limit 10.00 or --calls 500")}
	}
	body := struct {
		admin.ProposedBudget
		Since time.Time `json:"since"`
	}{admin.ProposedBudget{
		Budget: b.Budget, Limit: b.Limit, Calls: b.Calls, Window: string(b.Window), Per: string(b.Per), Server: b.Server, Tool: b.Tool, Capability: b.Capability, CostClass: b.CostClass,
	}, time.Now().Add(-time.Duration(b.Since))}
	var f budget.RefusalForecast
	if err := b.asTarget().postInto(ctx, b.at("/v1/budgets/what-if"), body, &f); err != nil {
		return err
	}
	if b.JSON {
		return json.NewEncoder(io.raw).Encode(f)
	}
	unit := ""
	if f.Unit != "" {
		unit = " " + f.Unit
	}
	looked := ""
	if !f.Complete {
		looked = ", as far as receipts go back or could be read in time"
	}
	fmt.Fprintf(io.out, "tenant %s, calls since %s%s: %d were made, and the budget counts %d, which cost %s%s\n", f.Tenant, f.LookedBack.UTC().Format(time.RFC3339), looked, f.Calls, f.Counted, f.Spent, unit)
	if f.Refused == 0 {
		fmt.Fprintf(io.out, "a limit of %s%s (window %s, per %s) would have refused none of them\n", f.Limit, unit, f.Window, f.Per)
		return nil
	}
	fmt.Fprintf(io.out, "a limit of %s%s (window %s, per %s) would have refused %d, which cost %s%s; the first at %s\n\n", f.Limit, unit, f.Window, f.Per, f.Refused, f.Saved, unit, f.First.UTC().Format(time.RFC3339))
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REFUSED\tTOOL\tPRINCIPAL\tTASK\tFIRST")
	for _, r := range f.By {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", r.Refused, r.Tool, printable(r.Principal, 60), r.Task, r.First.UTC().Format(time.RFC3339))
	}
	if f.More > 0 {
		fmt.Fprintf(w, "and %d more rows\n", f.More)
	}
	return w.Flush()
}

type budgetAdjustCmd struct {
	budgetFlags
	Budget string       `arg:"" help:"The budget: its name, as \"budget status\" shows it, or its id if no other budget has it."`
	Of     string       `help:"What the account belongs to, as \"budget status\" shows it." placeholder:"ID"`
	By     signedAmount `help:"Add this amount, or number of calls, to what is settled. It may be negative." placeholder:"AMOUNT" xor:"what" required:""`
	Reset  bool         `help:"Let nothing be settled any more. What is held stays." xor:"what" required:""`
	Reason string       `help:"The reason, for the receipt." placeholder:"TEXT" required:""`
}

// A signedAmount is the value of a flag that may begin with a minus sign.
type signedAmount string

// Decode implements kong.MapperValue. By itself, the parser takes -2.50 for a flag.
func (a *signedAmount) Decode(ctx *kong.DecodeContext) error {
	if ctx.Scan.Peek().IsEOL() {
		return errors.New("an amount is missing, such as -2.50")
	}
	*a = signedAmount(fmt.Sprint(ctx.Scan.Pop().Value))
	return nil
}

// Run corrects an account at a running Switchboard.
func (b *budgetAdjustCmd) Run(ctx context.Context, io streams) error {
	answer, err := b.asTarget().changeAdmin(ctx, http.MethodPost, b.at("/v1/budgets/adjust"), admin.BudgetCorrection{Budget: b.Budget, Of: b.Of, By: string(b.By), Reset: b.Reset, Reason: b.Reason})
	if err != nil {
		return err
	}
	if b.JSON {
		_, err := fmt.Fprintf(io.raw, "%s\n", answer.body)
		return err
	}
	var done admin.CorrectedAccount
	if err := json.Unmarshal(answer.body, &done); err != nil {
		return err
	}
	of, unit := "", ""
	if done.Of != "" {
		of = " of " + printable(done.Of, 60)
	}
	if done.Unit != "" {
		unit = " " + done.Unit
	}
	_, err = fmt.Fprintf(io.out, "budget %s%s of tenant %s: %s%s are settled, and were %s\n", done.Budget, of, done.Tenant, done.After, unit, done.Before)
	return err
}
