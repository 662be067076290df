package app

import (
	"context"
	"net/http"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/config"
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
		return personOf(a, s, who, tenant)
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

// personOf returns the principal that the officer's own session or key, and the newest session of the same person, make of the officer.
func personOf(a *App, s *servingState, who *switchboard.Officer, tenant switchboard.TenantID) (p switchboard.Principal, err error) {
	tenants := []switchboard.TenantID{tenant}
	if tenant == "" {
		tenants = append(admin.TenantIDs(a.admin.reads), "") // "" makes the refusal
	}
	for _, id := range tenants {
		if p, err = s.Officers.Caller(who, id); err == nil {
			return s.CurrentPrincipal(p)
		}
	}
	return p, err
}

// claimsOfSignedIn returns the claims of each person's newest session, here or at another replica, by the person's id.
func claimsOfSignedIn(s *signin.Sessions) (map[string]map[string][]string, error) {
	all, err := s.List(context.Background())
	if err != nil {
		return nil, err
	}
	claims := map[string]map[string][]string{}
	for i := range all { // the oldest first
		if p := all[i].Person; p != nil {
			claims[p.ID()] = p.Claims
		}
	}
	return claims, nil
}

// hasOneUser reports whether the local user is the only one who calls tools: there are no keys of agents, and no row gives a person a task.
func hasOneUser(c *config.Config) bool {
	return c.Keyless() &&
		!slices.ContainsFunc(c.People, func(p config.PersonKey) bool { return len(p.Calls.Tasks) > 0 }) &&
		!slices.ContainsFunc(c.Claims, func(p config.PersonClaim) bool { return len(p.Calls.Tasks) > 0 })
}
