package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A TenantSummary is a tenant and its tasks.
type TenantSummary struct {
	Tenant      switchboard.TenantID `json:"tenant"`
	Tasks       []switchboard.TaskID `json:"tasks"` // sorted
	DefaultTask switchboard.TaskID   `json:"default_task,omitempty"`
	Tiers       []string             `json:"tiers,omitempty"`   // that the operator gives the tenant; the first is that of principals without one
	Refused     bool                 `json:"refused,omitempty"` // its files are faulty, and no earlier state of them is known
}

// TenantIDs returns the ids of all tenants, sorted.
func TenantIDs(r *Reader) []switchboard.TenantID {
	c := r.o.Configuration()
	return c.tenantIDs()
}

func (c *Configuration) tenantIDs() []switchboard.TenantID {
	ids := slices.Collect(maps.Keys(c.Tenants))
	for id := range c.Config.Refused {
		if c.Tenants[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Tenants returns all tenants, sorted.
func (r *Reader) Tenants() []TenantSummary {
	c := r.o.Configuration()
	ids := c.tenantIDs()
	all := make([]TenantSummary, 0, len(ids))
	for _, id := range ids {
		s := TenantSummary{Tenant: id, Tasks: []switchboard.TaskID{}, Refused: c.Tenants[id] == nil}
		if t := c.Tenants[id]; t != nil {
			s.Tasks, s.DefaultTask, s.Tiers = slices.Sorted(maps.Keys(t.Tasks)), t.DefaultTask, t.Tiers
		}
		all = append(all, s)
	}
	return all
}

// Principal returns the principal of the key id in the tenant. If id is "", it is whoever calls without a key. Where keyless callers belong to
// another tenant, it is the only one with a key then; if the tenant has several, the caller has to name one. The error is a *switchboard.Error.
func (r *Reader) Principal(tenant switchboard.TenantID, id string) (switchboard.Principal, error) {
	c := r.o.Configuration()
	if c.Ring.Local().Tenant == tenant && (id == "" || id == switchboard.LocalID) {
		return c.Ring.Local(), nil
	}
	keys := c.Ring.KeyIDs(tenant)
	refuse := func(text string) (switchboard.Principal, error) {
		e := &switchboard.Error{Code: switchboard.CodeBadArguments, Text: text, Hint: "name one with --principal, in a request with principal=: " + strings.Join(keys[:min(len(keys), 20)], ", ")}
		if len(keys) == 0 {
			e.Hint = "make one with \"switchboard key new --tenant " + string(tenant) + "\"; a command with --alone says what a client on stdio gets"
		}
		return switchboard.Principal{}, e
	}
	switch {
	case id == "" && len(keys) == 0:
		return refuse(fmt.Sprintf("tenant %s has no key, so it has no caller here", tenant))
	case id == "" && len(keys) > 1:
		return refuse(fmt.Sprintf("tenant %s has several keys", tenant))
	case id == "":
		id = keys[0]
	case !slices.Contains(keys, id):
		return refuse(fmt.Sprintf("tenant %s has no key %.64q", tenant, id))
	}
	return c.CurrentPrincipal(switchboard.Principal{Tenant: tenant, ID: id, Auth: switchboard.AuthAPIKey})
}

// Servers returns the servers that a tenant may use, sorted by id; all servers for the empty tenant. Without messages, it holds no texts of
// servers and of the system.
func (r *Reader) Servers(id switchboard.TenantID, messages bool) []ServerStatus {
	c := r.o.Configuration()
	served := map[switchboard.ServerID]int{}
	for _, t := range c.Catalog.Tools() {
		served[t.ID.Server]++
	}
	all := r.serverStatuses(&c, served, func(server switchboard.ServerID) bool {
		return id == "" || c.Tenants[id] != nil && c.Tenants[id].MayUseServer(server)
	})
	if !messages {
		for i := range all {
			all[i] = all[i].withoutMessages()
		}
	}
	return all
}
