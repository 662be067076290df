package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

type resolveCmd struct {
	commonFlags
	targetFlags
	outputFlags
	Capabilities []capabilityRef `arg:"" optional:"" name:"id" help:"The capabilities, such as io.fs.read or io.fs.read@^1. Without any: all that exist for the tenant."`
	Probe        bool            `help:"Probe what the capabilities depend on first, and wait for the results for 5 s at most."`
	Contracts    bool            `help:"Also print what each capability promises and needs, and which tools provide it."`
}

// Run prints the verdict on each capability. It exits 1 unless there is a capability, and all may be used now.
func (r *resolveCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	x, err := r.fetch(ctx, io, log)
	if err != nil {
		return err
	}
	if len(x.Starting) > 0 {
		fmt.Fprintf(io.err, "switchboard: %s after %s: %s\n", notAnsweredText, r.Wait, joinIDs(x.Starting))
	}
	if r.JSON {
		if err := json.NewEncoder(io.raw).Encode(x); err != nil {
			return err
		}
	} else {
		writeVerdicts(io.out, x, r.Tenant)
	}
	if len(x.Verdicts) == 0 || slices.ContainsFunc(x.Verdicts, func(v verdict.Verdict) bool { return v.Verdict != verdict.Yes }) {
		return errNegative
	}
	return nil
}

// fetch returns the verdicts of the running Switchboard, or of one that it starts. It waits for servers that are starting, and
// probes once, after the wait.
func (r *resolveCmd) fetch(ctx context.Context, io streams, log *slog.Logger) (*admin.Resolution, error) {
	q := bind.ResolveQuery{Tenant: r.Tenant}
	for _, id := range r.Capabilities {
		q.Capabilities = append(q.Capabilities, string(id))
	}
	t := taskTarget{commonFlags: r.commonFlags, targetFlags: r.targetFlags}
	ask := func() (*admin.Resolution, error) {
		var x admin.Resolution
		path := "/v1/resolve?" + url.Values{"tenant": {string(q.Tenant)}, "capability": q.Capabilities, "probe": {fmt.Sprint(q.Probe)}, "contracts": {fmt.Sprint(r.Contracts)}}.Encode()
		return &x, t.fetchInto(ctx, path, &x)
	}
	if !t.findTarget() {
		a, err := t.startApp(ctx, log, app.Options{})
		if err != nil {
			return nil, err
		}
		defer a.Stop()
		ask = func() (*admin.Resolution, error) {
			x, err := admin.Resolve(ctx, a.Reads(), q)
			if err == nil && r.Contracts {
				admin.DescribeContracts(a.Reads(), x, q.Tenant, true)
			}
			return x, err
		}
	}
	x, err := pollUntilStarted(ctx, io, r.Wait, func() (*admin.Resolution, []switchboard.ServerID, error) {
		x, err := ask()
		if err != nil {
			return nil, nil, err
		}
		return x, x.Starting, nil
	})
	if err != nil || !r.Probe {
		return x, err
	}
	q.Probe = true
	return ask()
}

// writeVerdicts prints a line for each capability, and the reasons below it.
func writeVerdicts(w io.Writer, x *admin.Resolution, tenant switchboard.TenantID) {
	if len(x.Verdicts) == 0 {
		fmt.Fprintf(w, "no capability exists for tenant %s\n", tenant)
	}
	width := 0
	for _, v := range x.Verdicts {
		width = max(width, len(v.Capability))
	}
	list := func(name string, texts ...string) {
		if text := strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; "); text != "" {
			fmt.Fprintf(w, "  %s  %s\n", name, printable(text, 400))
		}
	}
	for i, v := range x.Verdicts {
		fmt.Fprintf(w, "%-*s  %s\n", width, v.Capability, v.Verdict)
		list("blocking", v.Blocking...)
		list("warnings", v.Warnings...)
		list("do first", v.RequiredActions...)
		if i >= len(x.Contracts) {
			continue
		}
		d := &x.Contracts[i]
		list("promises", d.Description)
		list("needs", append(append([]string{d.Needs}, d.Permissions...), d.Models...)...)
		for _, a := range d.Atoms {
			list("atom", strings.TrimSpace(fmt.Sprintf("%s is %s %s", a.ID, a.State, a.Reason)))
		}
		for _, t := range d.Tools {
			list("tool", t.Name+" from "+cmp.Or(strings.Join(t.Providers, ", "), "no server"))
		}
	}
}
