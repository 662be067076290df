package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// tenantQuery returns the query that names the tenant; "" without one.
func tenantQuery(id switchboard.TenantID) string {
	if id == "" {
		return ""
	}
	return "?tenant=" + url.QueryEscape(string(id))
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
