package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type decisionsCmd struct {
	List decisionsListCmd `cmd:"" help:"List recorded decisions on tasks, the newest first."`
	Show decisionsShowCmd `cmd:"" help:"Explain one recorded decision as it was made then, or as it would have come out: every candidate, and the stage and rule that dropped it."`
}

type decisionsListCmd struct {
	serverFlags
	Tenant    switchboard.TenantID `help:"Only those of this tenant." placeholder:"ID"`
	Task      switchboard.TaskID   `help:"Only those of this task." placeholder:"ID"`
	Principal string               `help:"Only those for the caller with this id." placeholder:"ID"`
	Outcome   receipt.CallOutcome  `help:"Only those with this outcome: ok, or refused if the task could not start." placeholder:"WORD"`
	Digest    switchboard.Digest   `help:"Only those with this digest, as explain prints it." placeholder:"DIGEST"`
	Since     pastTime             `help:"Only those since TIME: a time before now, such as 7d or 12h, or an instant." placeholder:"TIME"`
	Until     pastTime             `help:"Only those before TIME." placeholder:"TIME"`
	Limit     int                  `help:"Print at most this many." default:"50"`
}

// maxPage is the most entries that the admin API gives at once.
const maxPage = 500

// Run prints one line per decision.
func (c *decisionsListCmd) Run(ctx context.Context, io streams) error {
	if c.Limit < 1 {
		return usageError{fmt.Errorf("--limit %d: want at least 1", c.Limit)}
	}
	t, rows, after := c.asTarget(), []admin.DecisionRow{}, ""
	for len(rows) < c.Limit {
		q := url.Values{"limit": {strconv.Itoa(min(maxPage, c.Limit-len(rows)))}}
		for name, value := range map[string]string{
			"tenant": string(c.Tenant), "task": string(c.Task), "principal": c.Principal, "outcome": string(c.Outcome), "digest": string(c.Digest), "after": after,
			"since": instantText(time.Time(c.Since)), "until": instantText(time.Time(c.Until)),
		} {
			if value != "" {
				q.Set(name, value)
			}
		}
		var page admin.DecisionPage
		if err := t.fetchInto(ctx, "/v1/decisions?"+q.Encode(), &page); err != nil {
			return err
		}
		rows = append(rows, page.Decisions...)
		if !page.Complete && page.Next == "" {
			fmt.Fprintf(io.err, "switchboard: the search has looked back to %s; --until that instant goes on\n", page.Looked.Format(time.RFC3339))
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(io.err, "switchboard: there are no such decisions")
		return nil
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tID\tTENANT\tTASK\tFOR\tOUTCOME")
	for i := range rows {
		d := &rows[i]
		if d.Fault != "" {
			fmt.Fprintf(w, "?\t%s\t\t\t\t%s\n", d.ID, printable(d.Fault, maxSummary))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Time.Local().Format(time.DateTime), d.ID, d.Tenant, d.Task, printable(d.Principal.ID, 40), strings.TrimSpace(string(d.Outcome)+" "+string(d.Code)))
	}
	return w.Flush()
}

// instantText returns an instant as the API reads it, "" for none.
func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

type decisionsShowCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"The tenant of the decision, if you hold offices in several." placeholder:"ID"`
	ID     string               `arg:"" help:"The decision, as list shows it."`
	whatIfFlags
}

// Run prints the decision, or the one that its flags make of it. It exits 1 if the decision can no longer be explained.
func (c *decisionsShowCmd) Run(ctx context.Context, io streams) error {
	node, entry, ok := strings.Cut(c.ID, "/")
	if _, _, _, err := receipt.ParseID(c.ID); err != nil || !ok {
		return usageError{fmt.Errorf("decision %.80q: want the form NODE/NUMBER or NODE/TIME", c.ID)}
	}
	path, q := "/v1/decisions/"+url.PathEscape(node)+"/"+url.PathEscape(entry), c.query()
	if c.Tenant != "" {
		q.Set("tenant", string(c.Tenant))
	}
	var d admin.RecordedDecision
	if err := c.asTarget().fetchInto(ctx, path+"?"+q.Encode(), &d); err != nil {
		return err
	}
	if c.JSON {
		if err := json.NewEncoder(io.raw).Encode(d); err != nil {
			return err
		}
	} else {
		writeRecorded(io, &d)
	}
	if d.Explanation == nil {
		return errNegative
	}
	return nil
}

// writeRecorded prints a recorded decision. With a what-if, it prints the decision that this makes of it.
func writeRecorded(io streams, d *admin.RecordedDecision) {
	fmt.Fprintf(io.out, "%s, %s, for %s (%s): %s\n", d.ID, d.Time.Local().Format(time.DateTime), d.Principal.ID, d.Principal.Auth, strings.TrimSpace(string(d.Outcome)+" "+string(d.Code)))
	for _, v := range d.Policies {
		fmt.Fprintf(io.out, "policy %s\n", cmp.Or(v.Digest, "not archived"))
	}
	if d.Explanation == nil {
		fmt.Fprintln(io.out, "not explained:", printable(d.Unexplained, 500))
		return
	}
	if d.WhatIf == nil {
		writeExplanation(io.out, d.Explanation)
		return
	}
	fmt.Fprintln(io.out, "what if: this is how the decision would have come out, with all else as it was")
	for _, text := range d.Unrecorded {
		fmt.Fprintln(io.out, "not recorded:", printable(text, 500))
	}
	writeExplanation(io.out, d.WhatIf)
}
