package app

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/revocation"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestOnlyACallerWithoutAnyKeyThatIsNotRevokedIsGone(t *testing.T) {
	old, next, persons := [32]byte{1}, [32]byte{2}, [32]byte{3} // old and persons are revoked
	agent := func(tenant switchboard.TenantID, id string, hash [32]byte) config.Key {
		return config.Key{Tenant: tenant, ID: id, Hash: hash}
	}
	person := func(tenant switchboard.TenantID, id string, hash [32]byte) config.PersonKey {
		return config.PersonKey{Tenant: tenant, ID: id, Hash: hash}
	}
	for _, tt := range []struct {
		name   string
		keys   []config.Key
		people []config.PersonKey
		gone   string
	}{
		{"its only key is revoked", []config.Key{agent("acme", "ann", old)}, nil, "acme/ann acme/ann@page"},
		{"its key is revoked, and its row is removed", nil, nil, "acme/ann acme/ann@page"},
		{"another tenant's caller has the same id", []config.Key{agent("umbrella", "ann", next)}, nil, "acme/ann acme/ann@page"},
		{"another caller has a key", []config.Key{agent("acme", "bob", next)}, nil, "acme/ann acme/ann@page"},
		{"it has the next key already", []config.Key{agent("acme", "ann", old), agent("acme", "ann", next)}, nil, "acme/ann@page"},
		{"it has a new key", []config.Key{agent("acme", "ann", next)}, nil, "acme/ann@page"},
		{"a person of its name has a key", []config.Key{agent("acme", "ann", old)}, []config.PersonKey{person("acme", "ann", next)}, "acme/ann"},
		{"the person's key is revoked, and the agent's is not", []config.Key{agent("acme", "ann", next)}, []config.PersonKey{person("acme", "ann", persons)}, "acme/ann@page"},
		{"the key of a person of two tenants is revoked", []config.Key{agent("acme", "ann", next)}, []config.PersonKey{person("acme", "ann", persons), person("umbrella", "abe", persons)}, "acme/ann@page umbrella/abe@page"},
	} {
		got := goneCallers([]revocation.Revocation{{Tenant: "acme", ID: "ann", By: "lea"}, {ID: "ops", By: "lea"}}, &config.Config{Keys: tt.keys, People: tt.people}, func(hash [32]byte) (revocation.Revocation, bool) {
			return revocation.Revocation{By: "lea"}, hash == old || hash == persons
		})
		var names []string
		for id := range maps.Keys(got) {
			names = append(names, string(id.tenant)+"/"+id.id)
		}
		slices.Sort(names)
		if text := strings.Join(names, " "); text != tt.gone {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.gone)
		}
	}
	blocked := map[callerID]string{}
	addBlocked(blocked, []revocation.Revocation{{ID: "idp/00u1", Person: true, By: "ops"}})
	if why := blocked[callerID{everyTenant, "idp/00u1@page"}]; len(blocked) != 1 || why == "" {
		t.Errorf("a blocked person: %v", blocked)
	}
}
