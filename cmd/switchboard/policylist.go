package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type policyListCmd struct {
	serverFlags
	Tenant switchboard.TenantID `required:"" help:"The tenant." placeholder:"ID"`
}

// Run prints the policy files of a tenant, and whether they are in force.
func (c *policyListCmd) Run(ctx context.Context, io streams) error {
	var l admin.PolicyList
	if err := c.asTarget().fetchInto(ctx, "/v1/tenants/"+url.PathEscape(string(c.Tenant))+"/policies", &l); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(l)
	}
	fmt.Fprintf(io.out, "policy of tenant %s: %s\n", l.Tenant, l.State)
	for _, f := range l.Faults {
		fmt.Fprintln(io.out, "fault:", printable(f, 400))
	}
	if len(l.Files) == 0 {
		fmt.Fprintln(io.out, "it has no policies of its own")
	}
	rows := l.Files
	for _, f := range l.Operator {
		f.Path = "the operator's " + f.Path
		rows = append(rows, f)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FILE\tBYTES\tDIGEST\t")
	for _, f := range rows {
		test := ""
		if f.Test {
			test = "tests"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", printable(f.Path, 200), f.Bytes, f.Digest, test)
	}
	return w.Flush()
}
