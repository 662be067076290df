package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/now"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type nowCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Only what concerns this tenant." placeholder:"ID"`
}

// Run prints what a person should look at first.
func (n *nowCmd) Run(ctx context.Context, io streams) error {
	path := "/v1/now"
	if n.Tenant != "" {
		path += "?" + url.Values{"tenant": {string(n.Tenant)}}.Encode()
	}
	var o now.Overview
	if err := n.asTarget().fetchInto(ctx, path, &o); err != nil {
		return err
	}
	if n.JSON {
		return json.NewEncoder(io.raw).Encode(o)
	}
	writeOverview(io, &o)
	return nil
}

// writeOverview prints the overview.
func writeOverview(io streams, o *now.Overview) {
	if len(o.Concerns) == 0 {
		fmt.Fprintln(io.out, "nothing needs a person")
	}
	for i := range o.Concerns {
		c := &o.Concerns[i]
		of := ""
		if c.Tenant != "" {
			of = " (tenant " + printable(string(c.Tenant), 64) + ")"
		}
		fmt.Fprintf(io.out, "%s%s\n", concernText(c), of)
		for _, text := range c.Says {
			fmt.Fprintf(io.out, "    | %s\n", printable(text, 600))
		}
		if c.Command != "" {
			fmt.Fprintf(io.out, "    %s\n", printable(c.Command, 200))
		}
	}
	for _, more := range o.More {
		fmt.Fprintf(io.out, "and %d more of the kind %s: %s\n", more.Count, printable(string(more.Kind), 64), printable(more.Command, 200))
	}
	fmt.Fprintln(io.out)
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "LAST\tCALLS\tFAILED\tREFUSED\tMOVED\tP50\tP95\tTOKENS SPARED")
	for i := range o.Spends {
		fmt.Fprint(w, "\t", strings.TrimSpace("SPENT "+printable(o.Spends[i].Unit, 64)))
	}
	fmt.Fprintln(w)
	for i := range o.Spans {
		s := &o.Spans[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d", s.Span, s.Calls, s.Failed, s.Refused, s.Moved, spellLatency(s.P50), spellLatency(s.P95), s.TokensSpared)
		for j := range o.Spends {
			fmt.Fprintf(w, "\t%s", printable(o.Spends[j].Amounts[i], 40))
		}
		fmt.Fprintln(w)
	}
	for i := range o.Refusals {
		if i == 0 {
			fmt.Fprint(w, "\nREFUSED WITH")
			for j := range o.Spans {
				fmt.Fprintf(w, "\t%s", o.Spans[j].Span)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, printable(o.Refusals[i].Code, 64))
		for _, n := range o.Refusals[i].Counts {
			fmt.Fprintf(w, "\t%d", n)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // without the terminal the table is not needed
	if n := o.Spans[len(o.Spans)-1].Uncounted; n > 0 {
		fmt.Fprintf(io.out, "%d lists and searches could not be counted, so they are not in the tokens spared.\n", n)
	}
	if o.Incomplete {
		fmt.Fprintln(io.out, "Calls are missing, because the history keeps at most 64 pairs of tenant and server apart in a step.")
	}
	if o.StoreAway {
		fmt.Fprintln(io.out, "The store cannot be read now, so the newest calls at other replicas are missing.")
	}
}

// concernText says in one line what needs a person.
func concernText(c *now.Concern) string {
	subject, since := printable(c.Subject, 200), ""
	if !c.Since.IsZero() {
		since = ", since " + c.Since.Local().Format(time.DateTime)
	}
	switch {
	case c.Approval != nil:
		return fmt.Sprintf("%s asks for %s%s", printable(c.Approval.Principal, 100), printable(cmp.Or(c.Approval.Tool, c.Approval.Capability), 200), since)
	case c.Budget != nil:
		b := c.Budget
		return fmt.Sprintf("budget %s %s has reached %d%% of %s %s: %s are left", subject, printable(b.Of, 100), b.Warned, b.Limit, b.Unit, b.Left)
	}
	switch c.Kind {
	case now.KindReload:
		return "the configuration on disk is refused, and the one before is served" + since
	case now.KindPart:
		return "the part " + subject + " of the configuration has faults: " + printable(c.State, 200) + since
	case now.KindStore:
		return "the store is unavailable" + since
	case now.KindRecords:
		return "receipts or decisions cannot be written" + since
	case now.KindServer:
		return "server " + subject + ": " + printable(c.State, 64) + since
	case now.KindAtom:
		return "atom " + subject + " is red: the capabilities that depend on it cannot be used" + since
	case now.KindPin:
		if c.Pin == nil {
			break
		}
		return string(c.Pin.Kind) + " " + subject + " is " + printable(c.State, 64) + since
	case now.KindTool:
		return "tool " + cmp.Or(subject, "of a server") + ": " + printable(c.State, 64) + since
	}
	return "this cannot be read now: " + subject
}
