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

type runsCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Only the runs of this tenant." placeholder:"ID"`
}

// Run prints the runs that a running Switchboard knows.
func (r *runsCmd) Run(ctx context.Context, io streams) error {
	q := url.Values{}
	if r.Tenant != "" {
		q.Set("tenant", string(r.Tenant))
	}
	runs, err := fetchList[admin.RunRow](ctx, r.asTarget(), "/v1/runs", "runs", q)
	if err != nil {
		return err
	}
	if r.JSON {
		return json.NewEncoder(io.raw).Encode(runs)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tTENANT\tPRINCIPAL\tTASK\tTOOLS\tCONTEXT\t")
	for _, one := range runs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d tokens\t%s\n", one.Run, one.Tenant, one.Principal, one.Task, one.Tools, one.Context.Tokens, printable(one.Why, 200))
	}
	return w.Flush()
}
