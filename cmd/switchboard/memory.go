package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/past"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type memoryCmd struct {
	Tool    memoryToolCmd    `cmd:"" help:"Print how a tool has done, by day: calls, outcomes, time, cost."`
	Gaps    memoryGapsCmd    `cmd:"" help:"Print what a tenant lacks: requirements that no tool met, and capabilities that agents asked for."`
	Similar memorySimilarCmd `cmd:"" help:"List the tools that are like a tool, and how they have done."`
	Errors  memoryErrorsCmd  `cmd:"" help:"List how calls of a tool have ended without success, and the change that came after."`
	Rebuild memoryRebuildCmd `cmd:"" help:"Count the receipts again that the store still has. It may be in use."`
}

type suggestCmd struct {
	Ranking suggestRankingCmd `cmd:"" help:"Say which servers the figures put first, and print the change of the tenant's file, or propose it. Nothing is changed."`
}

// memoryFlags choose the tenant and the days.
type memoryFlags struct {
	serverFlags
	Tenant switchboard.TenantID `help:"The tenant. Without it: the only one." placeholder:"ID"`
	Days   int                  `help:"Look at the last N days, in UTC, with today; at most 400." default:"30" placeholder:"N"`
}

// fetch asks the running Switchboard. parts follow /v1/memory in the path.
func (f *memoryFlags) fetch(ctx context.Context, into any, parts ...string) error {
	if f.Days < 1 || f.Days > past.MaxDays {
		return usageError{fmt.Errorf("--days %d: want 1 to %d", f.Days, past.MaxDays)}
	}
	q := url.Values{"days": {strconv.Itoa(f.Days)}}
	if f.Tenant != "" {
		q.Set("tenant", string(f.Tenant))
	}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return f.asTarget().fetchInto(ctx, "/v1/memory/"+strings.Join(parts, "/")+"?"+q.Encode(), into)
}

// fetchTool asks about a tool.
func (f *memoryFlags) fetchTool(ctx context.Context, into any, what, tool string) error {
	id, err := switchboard.ParseToolID(tool)
	if err != nil {
		return usageError{err}
	}
	return f.fetch(ctx, into, what, string(id.Server), id.Name)
}

type memoryToolCmd struct {
	memoryFlags
	Tool string `arg:"" help:"The tool: SERVER/TOOL."`
}

// Run prints a line for each day, and the total.
func (c *memoryToolCmd) Run(ctx context.Context, io streams) error {
	var x past.ToolReport
	if err := c.fetchTool(ctx, &x, "tools", c.Tool); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(x)
	}
	writeMissing(io.err, &x.MissingDays)
	return writeToolReport(io.out, &x)
}

// writeMissing says which days an answer lacks something of.
func writeMissing(notes io.Writer, x *past.MissingDays) {
	if len(x.Unreadable) > 0 {
		fmt.Fprintf(notes, "switchboard: calls of %s are missing, because pages of the memory were damaged; \"switchboard memory rebuild\" counts again the days with all their receipts\n", daysText(x.Unreadable))
	}
	if len(x.Crowded) > 0 {
		fmt.Fprintf(notes, "switchboard: not all tools of %s were kept, because there were too many: calls may be missing\n", daysText(x.Crowded))
	}
}

// daysText names days.
func daysText(days []string) string {
	if len(days) > 3 {
		return fmt.Sprintf("%d days, from %s to %s,", len(days), days[0], days[len(days)-1])
	}
	return strings.Join(days, ", ")
}

func writeToolReport(out io.Writer, x *past.ToolReport) error {
	if len(x.Days) == 0 {
		known := ""
		if len(x.Unreadable)+len(x.Crowded) > 0 {
			known = ", as far as is known"
		}
		_, err := fmt.Fprintf(out, "tenant %s has not called %s from %s to %s%s\n", x.Tenant, x.Tool, x.From, x.To, known)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DAY\t"+figuresHeader)
	for i := range x.Days {
		fmt.Fprintf(w, "%s\t%s\n", x.Days[i].Day, figureColumns(&x.Days[i].Figures))
	}
	fmt.Fprintf(w, "all\t%s\n", figureColumns(&x.Total))
	return w.Flush()
}

const figuresHeader = "CALLS\tKEPT\tSUCCESS\tP50\tP95\tCOST\tNOT OK"

// figureColumns returns the columns of figuresHeader.
func figureColumns(f *past.Figures) string {
	var bad []string
	for _, o := range slices.Sorted(maps.Keys(f.Outcomes)) {
		if o != "ok" {
			bad = append(bad, fmt.Sprintf("%s %d", o, f.Outcomes[o]))
		}
	}
	return fmt.Sprintf("%d\t%d\t%s\t%s\t%s\t%s\t%s", f.Attempts, f.Kept, percentText(f.Success), millisecondsText(f.P50), millisecondsText(f.P95), f.Cost, cmp.Or(strings.Join(bad, ", "), "-"))
}

func percentText(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**rate)
}

func millisecondsText(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g ms", *ms)
}

type memoryGapsCmd struct{ memoryFlags }

// Run prints a line for each gap.
func (c *memoryGapsCmd) Run(ctx context.Context, io streams) error {
	var x past.GapReport
	if err := c.fetch(ctx, &x, "gaps"); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(x)
	}
	writeMissing(io.err, &x.MissingDays)
	if len(x.Gaps) == 0 {
		fmt.Fprintf(io.err, "switchboard: tenant %s has lacked nothing from %s to %s\n", x.Tenant, x.From, x.To)
		return nil
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIMES\tDAYS\tKIND\tWHAT\tFIRST\tLAST\tDOSSIER")
	for _, g := range x.Gaps {
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", g.Count, g.Days, g.Kind, printable(g.Name, 100), dayText(g.First), dayText(g.Last), cmp.Or(g.Dossier, "-"))
	}
	if x.More > 0 {
		fmt.Fprintf(w, "and %d more\n", x.More)
	}
	return w.Flush()
}

func dayText(t time.Time) string { return t.UTC().Format(time.DateOnly) }

type memorySimilarCmd struct {
	memoryFlags
	Tool string `arg:"" help:"The tool: SERVER/TOOL."`
}

// Run prints a line for each similar tool.
func (c *memorySimilarCmd) Run(ctx context.Context, io streams) error {
	var x past.SimilarReport
	if err := c.fetchTool(ctx, &x, "similar", c.Tool); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(x)
	}
	writeMissing(io.err, &x.MissingDays)
	if len(x.Tools) == 0 {
		fmt.Fprintf(io.err, "switchboard: tenant %s has no tool like %s\n", x.Tenant, x.Tool)
		return nil
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tWHY\t"+figuresHeader)
	for i := range x.Tools {
		t := &x.Tools[i]
		fmt.Fprintf(w, "%s\t%s\t%s\n", t.Tool, printable(strings.Join(t.Why, ", "), 80), figureColumns(&t.Figures))
	}
	return w.Flush()
}

type memoryErrorsCmd struct {
	memoryFlags
	Tool string `arg:"" help:"The tool: SERVER/TOOL."`
}

// Run prints a line for each kind of error.
func (c *memoryErrorsCmd) Run(ctx context.Context, io streams) error {
	var x past.ErrorReport
	if err := c.fetchTool(ctx, &x, "errors", c.Tool); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(x)
	}
	writeMissing(io.err, &x.MissingDays)
	if len(x.Errors) == 0 {
		fmt.Fprintf(io.err, "switchboard: no call of %s by tenant %s has ended without success from %s to %s\n", x.Tool, x.Tenant, x.From, x.To)
		return nil
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIMES\tDAYS\tOUTCOME\tCODE\tFIRST\tLAST\tTHEN")
	for i := range x.Errors {
		e := &x.Errors[i]
		outcome := string(e.Outcome)
		if e.Moved {
			outcome += ", moved"
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", e.Count, e.Days, outcome, cmp.Or(string(e.Code), "-"), dayText(e.First), dayText(e.Last), changeText(e.Then))
	}
	return w.Flush()
}

// changeText describes what was changed after errors.
func changeText(c *past.ChangeRow) string {
	if c == nil {
		return "-"
	}
	return printable(strings.Join(strings.Fields(fmt.Sprintf("%s %s %s at %s, receipt %s", c.What, c.Proposal, c.File, c.At.UTC().Format(time.RFC3339), c.Receipt)), " "), 200)
}

type memoryRebuildCmd struct {
	storeFlags
	outputFlags
}

// Run counts the receipts of the store again.
func (c *memoryRebuildCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	s, err := c.openStore(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	done, err := memory.New(memory.Options{Store: s, Log: log}).Rebuild(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(done)
	}
	if done.Trimmed {
		fmt.Fprintf(io.err, "switchboard: receipts of days before %s were trimmed; the totals of these days stay as they are\n", done.From)
	}
	if done.From > done.To {
		_, err = fmt.Fprintln(io.out, "no day was counted again, because no day has all its receipts")
		return err
	}
	_, err = fmt.Fprintf(io.out, "%d receipts from %s to %s were counted again\n", done.Receipts, done.From, done.To)
	return err
}

type suggestRankingCmd struct {
	memoryFlags
	Propose bool   `help:"Keep the change as a proposal, for another person to decide about."`
	Note    string `help:"With --propose: why, instead of what the figures say." placeholder:"TEXT"`
}

// Run prints what the figures say, and the change as a patch or as a proposal.
func (c *suggestRankingCmd) Run(ctx context.Context, io streams) error {
	if c.Note != "" && !c.Propose {
		return usageError{errors.New("--note goes with --propose")}
	}
	var x past.RankingSuggestion
	if err := c.fetch(ctx, &x, "ranking"); err != nil {
		return err
	}
	switch {
	case c.Propose:
		return c.propose(ctx, io, &x)
	case c.JSON:
		return json.NewEncoder(io.raw).Encode(x)
	}
	writeReasons(io.err, &x)
	if x.Proposal == nil {
		return nil
	}
	fmt.Fprintln(io.err, "nothing is changed; to make it a proposal: switchboard suggest ranking --propose")
	_, err := fmt.Fprint(io.out, x.Proposal.Diff) // the stream spells what a terminal must not get
	return err
}

// propose makes the proposal, and prints it with the next commands.
func (c *suggestRankingCmd) propose(ctx context.Context, io streams, x *past.RankingSuggestion) error {
	writeReasons(io.err, x)
	if x.Proposal == nil {
		fmt.Fprintln(io.err, "no proposal was made: the figures speak for no change")
		return errNegative
	}
	d := x.Proposal.Draft
	d.Note = cmp.Or(c.Note, d.Note)
	v, err := c.makeProposal(ctx, io, d)
	if err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(io.out, "%s\nnothing is in force yet. Another person looks, and says yes: switchboard proposals approve %s\nthen: switchboard proposals apply %[2]s\n", strings.TrimRight(v.Text, "\n"), v.ID)
	return err
}

// writeReasons prints what the figures say, and what is missing.
func writeReasons(notes io.Writer, x *past.RankingSuggestion) {
	writeMissing(notes, &x.MissingDays)
	if len(x.Rows) == 0 {
		fmt.Fprintf(notes, "no requirement of a task of tenant %s can be served by several servers\n", x.Tenant)
	}
	for i := range x.Rows {
		row := &x.Rows[i]
		fmt.Fprintf(notes, "%s %s: %s\n", row.Verb, row.Resource, printable(row.Why, 400))
	}
	if x.More {
		fmt.Fprintln(notes, "further requirements were not looked at: there are too many tools")
	}
}
