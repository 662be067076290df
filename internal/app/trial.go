package app

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// newTrier returns what makes the calls of persons, through the gateway of a.
func newTrier(a *App) *trial.Trier {
	return trial.New(trial.Options{
		Gateway: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.gateway.ServeHTTP(w, r) }), // it is made later
		Caller: func(who *switchboard.Officer, tenant switchboard.TenantID) (switchboard.Principal, error) {
			return callerOf(a, who, tenant)
		},
		Tasks: func(p switchboard.Principal) []string {
			if t := a.state.Load().Tenants[p.Tenant]; t != nil {
				return t.TaskNames(p)
			}
			return []string{}
		},
		Explain: a.admin.reads.Explain, Version: a.options.Version,
	})
}

// callerOf returns the principal as which an officer calls tools of a tenant. Whoever reads the data folder is the local user, unless the configuration
// has an issuer, or a key of an agent.
func callerOf(a *App, who *switchboard.Officer, tenant switchboard.TenantID) (switchboard.Principal, error) {
	s := a.state.Load()
	if who.Auth != switchboard.AuthDataFolder {
		a.admin.persons.Remember(who)
		if tenant != "" {
			return s.Officers.Caller(who, tenant)
		}
		for _, id := range admin.TenantIDs(a.admin.reads) {
			if p, err := s.Officers.Caller(who, id); err == nil {
				return p, nil
			}
		}
		return s.Officers.Caller(who, tenant)
	}
	local := s.Ring.Local()
	e := &switchboard.Error{Code: switchboard.CodeNotAuthorized, Hint: "sign in as a person with a task in a row under members of the tenant; switchboard call uses the key of an agent"}
	switch {
	case !s.config.Keyless() || len(s.config.Issuers) > 0:
		e.Text = "the operator of this machine calls no tools, because the configuration has keys of agents, or issuers"
	case tenant != "" && tenant != local.Tenant:
		e.Text, e.Hint = "the local user belongs to tenant "+string(local.Tenant), "choose that tenant"
	default:
		return local, nil
	}
	return switchboard.Principal{}, e
}

// findClaims looks for the claims of a person among the sessions, also those of other replicas.
func findClaims(s *signin.Sessions, id string) (claims map[string][]string, ok bool) {
	all, err := s.List(context.Background())
	if err != nil {
		return nil, false
	}
	for i := range all {
		if p := all[i].Person; p != nil && p.ID() == id {
			return p.Claims, true
		}
	}
	return nil, false
}
