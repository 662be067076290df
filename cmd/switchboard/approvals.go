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

	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

type approvalsCmd struct {
	List     approvalsListCmd    `cmd:"" help:"List what agents have asked people for: what waits, or all of the last days."`
	Show     approvalsShowCmd    `cmd:"" help:"Show one request: what a yes would allow, exactly."`
	Approve  approvalsApproveCmd `cmd:"" help:"Say yes to a request."`
	Refuse   approvalsRefuseCmd  `cmd:"" help:"Say no to a request. The agent gets your note."`
	Revoke   approvalsRevokeCmd  `cmd:"" help:"Take back a yes that was not used."`
	Standing standingCmd         `cmd:"" help:"What people have said yes to in advance."`
	Watch    approvalsWatchCmd   `cmd:"" help:"Print what waits, and then each request that is made, decided or used, until it is interrupted."`
}

const approvalsPath = "/v1/approvals"

type approvalsListCmd struct {
	serverFlags
	Tenant    switchboard.TenantID `help:"Only the requests of this tenant." placeholder:"ID"`
	State     string               `help:"Only those in this state; any lists all: pending, approved, used, refused, withdrawn, revoked, expired or any." default:"pending" enum:"pending,approved,used,refused,withdrawn,revoked,expired,any"`
	Principal string               `help:"Only those of this principal." placeholder:"ID"`
}

// Run prints the requests that a running Switchboard has.
func (c *approvalsListCmd) Run(ctx context.Context, io streams) error {
	q := url.Values{}
	if c.State != "any" {
		q.Set("state", c.State)
	}
	for name, value := range map[string]string{"tenant": string(c.Tenant), "principal": c.Principal} {
		if value != "" {
			q.Set(name, value)
		}
	}
	rows, err := fetchList[approvals.ApprovalRow](ctx, c.asTarget(), approvalsPath, "approvals", q)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	if len(rows) == 0 {
		text := "nothing waits for a person"
		if c.State != string(approval.Pending) {
			text = "there are no such requests"
		}
		_, err := fmt.Fprintln(io.out, text)
		return err
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REQUEST\tSTATE\tTENANT\tPRINCIPAL\tTASK\tFOR\tASKED\tUNTIL\tBY\t")
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.ID, stateText(r), r.Tenant, printable(r.Principal, 40), r.Task, printable(cmp.Or(r.Tool, r.Capability), 60),
			clockText(r.Asked), clockText(endOf(r)), printable(r.By, 40))
	}
	return w.Flush()
}

// endOf returns when an open request expires, or when the capability ends that a person has said yes to.
func endOf(r *approvals.ApprovalRow) time.Time {
	if r.Grant != nil {
		return r.Grant.Until
	}
	return r.Until
}

// stateText returns the state of a request, with the yeses that are still missing.
func stateText(r *approvals.ApprovalRow) string {
	if r.State == approval.Pending && r.Needed > 1 {
		return fmt.Sprintf("%s, %d of %d", r.State, r.Yeses, r.Needed)
	}
	return string(r.State)
}

// clockText returns an instant of today as a time, and any other with its day. It is in UTC, like the texts of requests that people and agents read.
func clockText(at time.Time) string {
	at = at.UTC()
	if at.Format(time.DateOnly) == time.Now().UTC().Format(time.DateOnly) {
		return at.Format("15:04 UTC")
	}
	return at.Format("2006-01-02 15:04 UTC")
}

// requestFlags name a request.
type requestFlags struct {
	serverFlags
	ID     string               `arg:"" name:"request" help:"The id of the request, as approvals list shows it."`
	Tenant switchboard.TenantID `help:"The tenant of the request; without it, the request is looked for in all tenants that you see." placeholder:"ID"`
}

// path returns the path of the request, or of something that is done to it.
func (f *requestFlags) path(action string) string {
	path := approvalsPath + "/" + url.PathEscape(f.ID) + action
	if f.Tenant != "" {
		path += "?tenant=" + url.QueryEscape(string(f.Tenant))
	}
	return path
}

type approvalsShowCmd struct{ requestFlags }

// Run prints a request as the page shows it.
func (c *approvalsShowCmd) Run(ctx context.Context, io streams) error {
	var v approvals.ApprovalView
	if err := c.asTarget().fetchInto(ctx, c.path(""), &v); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(v)
	}
	_, err := fmt.Fprintln(io.out, v.Text)
	return err
}

// sayingFlags are what a person says to a request.
type sayingFlags struct {
	requestFlags
	Note string `help:"Your words. They are recorded, and the agent gets those of a no." placeholder:"TEXT"`
}

type approvalsApproveCmd struct {
	sayingFlags
	Scope string        `help:"Of a capability: run for the run that asked, task for all runs of its task." enum:"run,task," default:""`
	For   time.Duration `help:"Of a capability: how long, such as 30m, or 720h for 30 days; 8h if absent." placeholder:"8h"`
}

// Run says yes.
func (c *approvalsApproveCmd) Run(ctx context.Context, io streams) error {
	body := map[string]string{}
	for name, value := range map[string]string{"note": c.Note, "scope": c.Scope} {
		if value != "" {
			body[name] = value
		}
	}
	if c.For != 0 {
		body["for"] = c.For.String()
	}
	return c.say(ctx, io, "/approve", body)
}

type approvalsRefuseCmd struct{ sayingFlags }

// Run says no.
func (c *approvalsRefuseCmd) Run(ctx context.Context, io streams) error {
	return c.say(ctx, io, "/refuse", map[string]string{"note": c.Note})
}

type approvalsRevokeCmd struct{ sayingFlags }

// Run takes a yes back.
func (c *approvalsRevokeCmd) Run(ctx context.Context, io streams) error {
	return c.say(ctx, io, "/revoke", map[string]string{"note": c.Note})
}

// say sends what a person says, and prints what has become of the request.
func (f *requestFlags) say(ctx context.Context, io streams, action string, body map[string]string) error {
	answer, err := f.asTarget().changeAdmin(ctx, http.MethodPost, f.path(action), body)
	if err != nil {
		return err
	}
	if f.JSON {
		_, err := io.raw.Write(answer.body)
		return err
	}
	var r approvals.ApprovalRow
	if err := json.Unmarshal(answer.body, &r); err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.out, "%s is %s%s\n", r.ID, stateText(&r), meaning(&r))
	return err
}

// meaning says what follows from the state of a request.
func meaning(r *approvals.ApprovalRow) string {
	what, who := printable(cmp.Or(r.Tool, r.Capability), 60), printable(r.Principal, 40)
	switch {
	case r.State == approval.Approved && r.Kind == approval.ForCall:
		return ": one call of " + what + " by " + who + ", until " + clockText(r.Until)
	case r.State == approval.Approved && r.Grant != nil:
		return ": " + what + " for " + r.Grant.Place() + " of " + who + ", until " + clockText(r.Grant.Until)
	case r.State == approval.Pending:
		return ": your yes is recorded, and another person must say yes too"
	}
	return ": " + askedText(r)
}

// askedText names what was asked for, the principal that asked, and its tenant.
func askedText(r *approvals.ApprovalRow) string {
	return printable(cmp.Or(r.Tool, r.Capability), 60) + ", asked for by " + printable(r.Principal, 40) + " of tenant " + string(r.Tenant)
}

type approvalsWatchCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Only the requests of this tenant." placeholder:"ID"`
}

// Run prints what waits now, and then each request that changes.
func (c *approvalsWatchCmd) Run(ctx context.Context, out streams) error {
	t := c.asTarget()
	q := url.Values{}
	if c.Tenant != "" {
		q.Set("tenant", string(c.Tenant))
	}
	resp, err := t.openAdmin(ctx, "/v1/events?"+q.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	type heard struct {
		event.Occurrence
		err error
	}
	all := make(chan heard)
	go func() { // ends with the stream
		for events := wire.NewEventReader(resp.Body, maxEvent); ; {
			var h heard
			next, err := events.Next()
			if h.err = err; err == nil {
				h.err = json.Unmarshal(next.Data, &h.Occurrence)
			}
			select {
			case all <- h:
			case <-ctx.Done():
				return
			}
			if h.err != nil {
				return
			}
		}
	}()
	w := &approvalWatch{c: c, t: t, out: out, said: map[string]string{}}
	look := time.NewTicker(relistInterval) // other processes that share the folder send no events
	defer look.Stop()
	for err := w.all(ctx, q); ; {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
		case <-look.C:
			err = w.all(ctx, q)
		case h := <-all:
			switch {
			case errors.Is(h.err, io.EOF), errors.Is(h.err, io.ErrUnexpectedEOF):
				return unreachableError{errors.New("the stream has ended: Switchboard stops, or the key is not valid any more")}
			case h.err != nil:
				err = unreachableError{h.err}
			case h.Type == event.Resync:
				err = w.all(ctx, q)
			case h.Type == event.Approval:
				err = w.one(ctx, h.Tenant, h.Subject)
			}
		}
	}
}

// relistInterval is how often a watch looks by itself.
const relistInterval = 2 * time.Second

// An approvalWatch prints each state of each request once.
type approvalWatch struct {
	c    *approvalsWatchCmd
	t    *taskTarget
	out  streams
	said map[string]string // by request
}

// maxSaid limits the requests that a watch remembers.
const maxSaid = 10_000

// all prints what waits.
func (w *approvalWatch) all(ctx context.Context, q url.Values) error {
	q = url.Values{"tenant": q["tenant"], "state": {string(approval.Pending)}}
	rows, err := fetchList[approvals.ApprovalRow](ctx, w.t, approvalsPath, "approvals", q)
	if err != nil {
		return err
	}
	for i := len(rows) - 1; i >= 0; i-- { // the oldest first
		if err := w.print(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// one prints a request that may have changed.
func (w *approvalWatch) one(ctx context.Context, tenant switchboard.TenantID, id string) error {
	named := requestFlags{ID: id, Tenant: tenant}
	var v approvals.ApprovalView
	answer, err := w.t.exchange(ctx, http.MethodGet, named.path(""), nil)
	if err != nil || answer.status == http.StatusNotFound { // it is gone
		return err
	}
	if answer, err = w.t.refuseProblem(approvalsPath, answer); err != nil {
		return err
	}
	if err := json.Unmarshal(answer.body, &v); err != nil {
		return err
	}
	return w.print(&v.ApprovalRow)
}

func (w *approvalWatch) print(r *approvals.ApprovalRow) error {
	state := stateText(r)
	if w.said[r.ID] == state {
		return nil
	}
	if len(w.said) >= maxSaid {
		clear(w.said)
	}
	w.said[r.ID] = state
	if w.c.JSON {
		return json.NewEncoder(w.out.raw).Encode(r)
	}
	switch {
	case r.By == "":
	case r.State == approval.Used:
		state += ", approved by " + printable(r.By, 40)
	default:
		state += " by " + printable(r.By, 40)
	}
	_, err := fmt.Fprintf(w.out.out, "%s  %s  %s: %s\n", time.Now().UTC().Format("15:04:05 UTC"), r.ID, state, askedText(r))
	return err
}
