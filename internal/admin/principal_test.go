package admin

import (
	"errors"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestWithoutAPrincipalTheOnlyCallerCountsAndSeveralAreListed(t *testing.T) {
	keys := []identity.Key{{Tenant: "acme", ID: "tmp", Hash: [32]byte{1}}, {Tenant: "acme", ID: "ci", Hash: [32]byte{2}}, {Tenant: "umbrella", ID: "only", Hash: [32]byte{3}}}
	ring := identity.New(keys, &switchboard.Tenant{ID: "default"}, false, nil)
	r := &Reader{o: ReaderOptions{Configuration: func() Configuration { return Configuration{State: &bind.State{Ring: ring}} }}}
	for _, tt := range []struct {
		tenant   switchboard.TenantID
		id, want string
		text     string
		hint     string
	}{
		{"default", "", switchboard.LocalID, "", ""},
		{"umbrella", "", "only", "", ""},
		{"acme", "ci", "ci", "", ""},
		{"acme", "", "", "tenant acme has several keys", "name one with --principal, in a request with principal=: ci, tmp"},
		{"acme", "cu", "", `tenant acme has no key "cu"`, "name one with --principal, in a request with principal=: ci, tmp"},
		{"empty", "", "", "tenant empty has no key, so it has no caller here", `make one with "switchboard key new --tenant empty"; a command with --alone says what a client on stdio gets`},
	} {
		p, err := r.Principal(tt.tenant, tt.id)
		refused, _ := errors.AsType[*switchboard.Error](err)
		if refused == nil {
			refused = &switchboard.Error{}
		}
		if p.ID != tt.want || refused.Text != tt.text || refused.Hint != tt.hint {
			t.Errorf("%s, %q: %q, %v (%s)", tt.tenant, tt.id, p.ID, err, refused.Hint)
		}
	}
}
