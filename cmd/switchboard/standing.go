package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type standingCmd struct {
	List standingListCmd `cmd:"" help:"List what people have said yes to in advance, also what has ended within a week."`
	Make standingMakeCmd `cmd:"" help:"Say yes in advance to calls like the one of a request. It does not decide the request itself."`
	End  standingEndCmd  `cmd:"" help:"End a standing yes: people are asked again."`
}

const standingPath = "/v1/standing-approvals"

type standingListCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Only those of this tenant." placeholder:"ID"`
}

// Run prints the standing yeses of a running Switchboard.
func (c *standingListCmd) Run(ctx context.Context, io streams) error {
	q := url.Values{}
	if c.Tenant != "" {
		q.Set("tenant", string(c.Tenant))
	}
	rows, err := fetchList[approvals.StandingRow](ctx, c.asTarget(), standingPath, "standing", q)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(io.out, "there is no standing yes")
		return err
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STANDING\tUSED\tTENANT\tPRINCIPAL\tTASK\tFOR\tUNTIL\tBY\tARGUMENTS\t")
	for i := range rows {
		r := &rows[i]
		until := clockText(r.Until)
		if r.Over {
			until += ", over"
		}
		fmt.Fprintf(w, "%s\t%d of %d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.ID, r.Used, r.Uses, r.Tenant, printable(r.Principal, 40), r.Task, printable(r.Tool, 60), until,
			printable(r.By, 40), printable(string(r.Arguments), 200))
	}
	return w.Flush()
}

type standingMakeCmd struct {
	requestFlags
	Uses      int64         `help:"How many calls it spares the asking, up to 1000." required:"" placeholder:"N"`
	For       time.Duration `help:"How long, up to what the operator allows." required:"" placeholder:"2h"`
	Arguments string        `help:"A test for each argument, as JSON: \"any\", {\"equals\": VALUE} or {\"in\": [VALUE, …]} by the argument's JSON Pointer. An argument without a test does not fit." required:"" placeholder:"JSON"`
}

// Run makes a standing yes.
func (c *standingMakeCmd) Run(ctx context.Context, io streams) error {
	if !json.Valid([]byte(c.Arguments)) {
		return usageError{fmt.Errorf(`--arguments is not JSON; write it as '{"/to": {"in": ["ops@example.com"]}, "/body": "any"}'`)}
	}
	answer, err := c.asTarget().changeAdmin(ctx, http.MethodPost, c.path("/standing"), map[string]any{
		"uses": c.Uses, "for": c.For.String(), "arguments": json.RawMessage(c.Arguments),
	})
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := io.raw.Write(answer.body)
		return err
	}
	var r approvals.StandingRow
	if err := json.Unmarshal(answer.body, &r); err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.out, "%s: no person is asked about %d calls of %s by %s with these arguments, until %s\n", r.ID, r.Uses, printable(r.Tool, 60), printable(r.Principal, 40), clockText(r.Until))
	return err
}

type standingEndCmd struct {
	serverFlags
	ID     string               `arg:"" name:"standing" help:"The id of the standing yes, as approvals standing list shows it."`
	Tenant switchboard.TenantID `help:"Its tenant; without it, it is looked for in all tenants that you see." placeholder:"ID"`
}

// Run ends a standing yes.
func (c *standingEndCmd) Run(ctx context.Context, io streams) error {
	path := standingPath + "/" + url.PathEscape(c.ID) + "/end"
	if c.Tenant != "" {
		path += "?tenant=" + url.QueryEscape(string(c.Tenant))
	}
	answer, err := c.asTarget().changeAdmin(ctx, http.MethodPost, path, nil)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := io.raw.Write(answer.body)
		return err
	}
	var r approvals.StandingRow
	if err := json.Unmarshal(answer.body, &r); err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.out, "%s has ended, after %d of %d uses: people are asked again\n", r.ID, r.Used, r.Uses)
	return err
}
