package app

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// PolicySources are the files of all layers of a configuration, the operator's
// first, then the tenants' by id.
func PolicySources(c *config.Config) []*policy.Sources {
	operator := &policy.Sources{Kind: policy.Operator, Name: "policies", Files: c.Policies}
	if c.Policies == nil {
		operator = &policy.Sources{Kind: policy.Operator, Name: "policies (shipped)", Files: shipped(), Shipped: true}
	}
	all := []*policy.Sources{operator}
	for _, id := range slices.Sorted(maps.Keys(c.TenantPolicies)) {
		all = append(all, &policy.Sources{
			Kind: policy.Tenant, Tenant: id, Name: filepath.Join("tenants", string(id), "policies"), Files: c.TenantPolicies[id],
		})
	}
	return all
}

// Offered returns the tools that a tenant may use, and the servers that have not
// said what they offer.
func (a *App) Offered(id switchboard.TenantID) (tools []*switchboard.Tool, silent []switchboard.ServerID) {
	s := a.state.Load()
	t := s.tenants[id]
	if t == nil {
		return nil, nil
	}
	for _, server := range t.Servers {
		if s.offers[server].Tools == nil {
			silent = append(silent, server)
		}
	}
	return t.view.Named("*/*"), silent
}
