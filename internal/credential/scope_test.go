package credential

import (
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

const tooFew = `Bearer error="insufficient_scope", scope="write"`

func TestAServerThatDemandsMoreScopesIsConnectedAgainWithThem(t *testing.T) {
	user := &switchboard.Principal{Tenant: "acme", ID: "ann"}
	for _, tt := range []struct {
		name      string
		row       switchboard.Credential
		principal *switchboard.Principal
		challenge string
		hint      string   // a part of it; "none" means that there is no error at all
		next      []string // what the next consent asks for
	}{
		{"the operator's", switchboard.Credential{Kind: switchboard.CredentialOperator}, nil, tooFew, "switchboard server connect wiki", []string{"read", "write"}},
		{"a user's", switchboard.Credential{Kind: switchboard.CredentialUser}, user, tooFew, "", []string{"read", "write"}},
		{"within the row", switchboard.Credential{Kind: switchboard.CredentialOperator, Scopes: []string{"read", "write"}}, nil, tooFew, "server connect", []string{"read", "write"}},
		{"beyond the row", switchboard.Credential{Kind: switchboard.CredentialOperator, Scopes: []string{"read"}}, nil, tooFew, "scopes in the row", []string{"read"}},
		{"Switchboard's own", switchboard.Credential{Kind: switchboard.CredentialClient}, nil, tooFew, "scopes in the row", []string{"read"}},
		{"another error", switchboard.Credential{Kind: switchboard.CredentialOperator}, nil, `Bearer error="invalid_token", scope="write"`, "none", []string{"read"}},
		{"another scheme", switchboard.Credential{Kind: switchboard.CredentialOperator}, nil, `Basic error="insufficient_scope"`, "none", []string{"read"}},
		{"no scope", switchboard.Credential{Kind: switchboard.CredentialOperator}, nil, `Bearer error="insufficient_scope", scope="a\"b"`, "which scopes", []string{"read"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newTestBroker(t)
			s := &switchboard.Server{ID: "wiki", Transport: switchboard.TransportHTTP, URL: "https://wiki.example/mcp", Credential: tt.row}
			owner := OwnerOf(s, tt.principal)
			if _, err := b.vault.Save(t.Context(), owner, vault.ServerConnection{Access: switchboard.NewSecret("a"), Scopes: []string{"read"}, Label: "https://id.example"}); err != nil {
				t.Fatal(err)
			}
			refused := b.Of(s).Demanded(tt.principal, link.ShownToken{}, []string{tt.challenge})
			switch {
			case refused == nil:
				if tt.hint != "none" {
					t.Error("the demand is not seen")
				}
			case refused.Code != switchboard.CodeConnectFirst || !refused.Unsent || !strings.Contains(refused.Hint, tt.hint) || strings.Contains(refused.Text+refused.Hint, "write"):
				t.Errorf("%+v", refused)
			}
			got := b.widen(t.Context(), s, owner, "https://id.example", oauth.Challenge{Scope: "read"}).Scope
			if !slices.Equal(strings.Fields(got), tt.next) {
				t.Errorf("the next consent asks for %q, want %q", got, tt.next)
			}
			if got := b.widen(t.Context(), s, owner, "https://other.example", oauth.Challenge{Scope: "read"}).Scope; got != "read" {
				t.Errorf("another provider is asked for %q", got)
			}
		})
	}
}
