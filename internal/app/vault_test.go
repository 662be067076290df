package app

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/revocation"
)

func TestOnlyACallerWithoutAnyKeyThatIsNotRevokedIsGone(t *testing.T) {
	old, next := [32]byte{1}, [32]byte{2} // old is revoked
	for _, tt := range []struct {
		name string
		keys []config.Key
		gone bool
	}{
		{"its only key is revoked", []config.Key{{Tenant: "acme", ID: "ann", Hash: old}}, true},
		{"its key is revoked, and its row is removed", nil, true},
		{"another tenant's caller has the same id", []config.Key{{Tenant: "umbrella", ID: "ann", Hash: next}}, true},
		{"another caller has a key", []config.Key{{Tenant: "acme", ID: "bob", Hash: next}}, true},
		{"it has the next key already", []config.Key{{Tenant: "acme", ID: "ann", Hash: old}, {Tenant: "acme", ID: "ann", Hash: next}}, false},
		{"it has a new key", []config.Key{{Tenant: "acme", ID: "ann", Hash: next}}, false},
	} {
		got := goneCallers([]revocation.Revocation{{Tenant: "acme", ID: "ann", By: "lea"}, {ID: "ops", By: "lea"}}, tt.keys, func(hash [32]byte) bool { return hash == old })
		if _, gone := got[callerID{"acme", "ann"}]; gone != tt.gone || gone != (len(got) == 1) {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
