package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// The pause between two looks at a comparison.
const comparePause = 200 * time.Millisecond

// cancelTimeout limits the request that cancels a comparison when the command is interrupted.
const cancelTimeout = 2 * time.Second

type configCompareCmd struct {
	configPathFlags
	File   string               `arg:"" help:"The file with the other text; - is stdin."`
	Since  dayDuration          `help:"Compare the decisions of the last TIME, such as 7d or 12h." default:"7d" placeholder:"TIME"`
	Tenant switchboard.TenantID `help:"Only decisions of this tenant." placeholder:"ID"`
}

// Run lets a running Switchboard compare, and prints the differences. It exits 1 if any decision would change, or if that is not known.
func (c *configCompareCmd) Run(ctx context.Context, io streams) error {
	text, err := readText(io, c.File)
	if err != nil {
		return usageError{err}
	}
	t := c.asTarget()
	answer, err := t.askAdmin(ctx, http.MethodPost, "/v1/comparisons"+tenantQuery(c.Tenant), map[string]any{
		"path": c.Path, "text": string(text), "since": time.Now().Add(-time.Duration(c.Since)).UTC(),
	})
	if err != nil {
		return err
	}
	var now whatif.Comparison
	if err := json.Unmarshal(answer.body, &now); err != nil {
		return err
	}
	at := "/v1/comparisons/" + url.PathEscape(now.ID)
	tell := progressPrinter(io.err)
	for now.State == whatif.Running {
		if tell != nil && now.Of > 0 {
			tell(now.Looked, now.Of)
		}
		select {
		case <-time.After(comparePause):
		case <-ctx.Done():
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
			defer cancel()
			_, err := t.askAdmin(late, http.MethodDelete, at, nil)
			return errors.Join(ctx.Err(), err)
		}
		if err := t.fetchInto(ctx, at, &now); err != nil {
			return err
		}
	}
	switch {
	case c.JSON:
		if err := json.NewEncoder(io.raw).Encode(now); err != nil {
			return err
		}
	case now.Result != nil:
		writeDiff(io.out, now.Result)
	}
	if now.State != whatif.Done {
		return fmt.Errorf("the comparison has %s: %s", now.State, printable(now.Failure, 500))
	}
	if d := now.Result; d.Changed+len(d.Broken) > 0 || d.Decisions > 0 && d.Replayed == 0 {
		return errNegative
	}
	return nil
}

// tenantQuery returns the query that names the tenant; "" without one.
func tenantQuery(id switchboard.TenantID) string {
	if id == "" {
		return ""
	}
	return "?tenant=" + url.QueryEscape(string(id))
}

type configComparisonsCmd struct {
	serverFlags
	Cancel string `help:"Cancel this comparison instead." placeholder:"ID"`
}

// Run prints the comparisons of a running Switchboard.
func (c *configComparisonsCmd) Run(ctx context.Context, io streams) error {
	if c.Cancel != "" {
		_, err := c.asTarget().askAdmin(ctx, http.MethodDelete, "/v1/comparisons/"+url.PathEscape(c.Cancel), nil)
		return err
	}
	var list struct {
		Comparisons []whatif.Comparison `json:"comparisons"`
	}
	if err := c.asTarget().fetchInto(ctx, "/v1/comparisons", &list); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(list.Comparisons)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tBY\tBEGAN\tTENANT\tFILE\tSTATE\tDECISIONS\t")
	for _, one := range list.Comparisons {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\t\n", one.ID, printable(one.By, 80), one.Began.Local().Format(time.DateTime), one.Tenant, printable(one.Path, 100), one.State, one.Looked, one.Of)
	}
	return w.Flush()
}

type policyListCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Only the layer of this tenant." placeholder:"ID"`
}

// Run prints the layers of policies that a running Switchboard has in force.
func (p *policyListCmd) Run(ctx context.Context, io streams) error {
	var list struct {
		Layers []admin.PolicyLayerRow `json:"layers"`
	}
	if err := p.asTarget().fetchInto(ctx, "/v1/policies"+tenantQuery(p.Tenant), &list); err != nil {
		return err
	}
	if p.JSON {
		return json.NewEncoder(io.raw).Encode(list.Layers)
	}
	for _, layer := range list.Layers {
		fmt.Fprintln(io.out, layer.Layer)
		for _, f := range layer.Files {
			kind := ""
			if f.Test {
				kind = "  test"
			}
			fmt.Fprintf(io.out, "  %s  %.19s%s\n", f.Path, f.Digest, kind)
		}
	}
	return nil
}
