package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type policyRulesCmd struct {
	serverFlags
	Tenant switchboard.TenantID `required:"" help:"The tenant." placeholder:"ID"`
	Since  dayDuration          `help:"Count the decisions of the last TIME, such as 7d or 12h." default:"7d" placeholder:"TIME"`
}

// Run prints the rules of a tenant's policies: those that held in most decisions first, and those that never held last.
func (c *policyRulesCmd) Run(ctx context.Context, io streams) error {
	var found admin.PolicyRules
	since := time.Now().Add(-time.Duration(c.Since))
	if err := c.asTarget().fetchInto(ctx, "/v1/tenants/"+url.PathEscape(string(c.Tenant))+"/policies/rules?since="+url.QueryEscape(instantText(since)), &found); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(found)
	}
	if found.Stopped != "" {
		return errors.New(found.Stopped)
	}
	fmt.Fprintf(io.out, "%s since %s\n", count(found.Looked.Of, "decision"), since.Local().Format(time.DateTime))
	if !found.Looked.Complete() {
		fmt.Fprintf(io.out, "It has %s.\n", lookedText(found.Looked))
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DECISIONS\tLAST\tRULE\tAT")
	for i := range found.Rules {
		r := &found.Rules[i]
		times, last := "never", ""
		if r.Decisions > 0 {
			times, last = strconv.Itoa(r.Decisions), r.Last.Local().Format(time.DateTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", times, last, printable(r.Rule, 200), printable(r.String(), 400))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, n := range found.NotReplayed {
		if i == 0 {
			fmt.Fprint(io.out, "\nNot evaluated again, so nothing is known about them\n")
		}
		fmt.Fprintf(io.out, "  %s: %s\n", countText(n.Decisions, n.Of), n.Why)
	}
	return nil
}
