package credential

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A server names its provider itself. So a client secret goes nowhere unless the row names the provider too: otherwise the server could name one of its own.
func TestAClientSecretNeedsTheIssuerInTheServersRow(t *testing.T) {
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"resource": "%s/mcp", "authorization_servers": [%q]}`, s.URL, s.URL)
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"issuer": %q, "authorization_endpoint": "%[1]s/auth", "token_endpoint": "%[1]s/token", "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}`, s.URL)
	})
	b := newTestBroker(t)
	for _, c := range []struct {
		name, secret, issuer, refusal string
	}{
		{"a public client", "", "", ""},
		{"a secret without an issuer", "geheim", "", "write the issuer into the server's row"},
		{"a secret with the issuer", "geheim", s.URL, ""},
		{"a secret for another issuer", "geheim", s.URL + "/other", "its row has"},
	} {
		row := &switchboard.Server{ID: "tracker", Transport: switchboard.TransportHTTP, URL: s.URL + "/mcp", Credential: switchboard.Credential{
			Kind: switchboard.CredentialOperator, ClientID: "abc", ClientSecret: switchboard.NewSecret(c.secret), Issuer: c.issuer,
		}}
		_, err := b.Begin(t.Context(), row, OwnerOf(row, nil), "http://127.0.0.1:1/callback")
		if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
