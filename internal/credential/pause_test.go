package credential

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

func TestAProviderThatSaysWhenToComeBackIsNotAskedBefore(t *testing.T) {
	var asked atomic.Int64
	var after atomic.Value // of strings
	after.Store("")
	mux := http.NewServeMux()
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	document := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", document(`{"resource":"`+site.URL+`/mcp","authorization_servers":["`+site.URL+`"]}`))
	mux.HandleFunc("/.well-known/oauth-authorization-server", document(`{"issuer":"`+site.URL+`","authorization_endpoint":"`+site.URL+`/auth","token_endpoint":"`+site.URL+`/token","code_challenge_methods_supported":["S256"]}`))
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", after.Load().(string))
		w.WriteHeader(http.StatusTooManyRequests)
	})
	user := switchboard.Credential{Kind: switchboard.CredentialUser}
	client := switchboard.Credential{Kind: switchboard.CredentialClient, ClientID: "sb", ClientSecret: switchboard.NewSecret("geheim"), Issuer: site.URL}
	for _, tt := range []struct {
		name       string
		row        switchboard.Credential
		retryAfter string
		want       time.Duration
	}{
		{"a person's token, in two minutes", user, "120", 2 * time.Minute},
		{"a person's token, tomorrow", user, "86400", vault.MaxPause},
		{"a person's token, at once", user, "0", obtainPause},
		{"a person's token, it does not say", user, "", obtainPause},
		{"Switchboard's own token, in two minutes", client, "120", 2 * time.Minute},
		{"Switchboard's own token, tomorrow", client, "86400", vault.MaxPause},
		{"Switchboard's own token, it does not say", client, "", obtainPause},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked.Store(0)
			after.Store(tt.retryAfter)
			b := newTestBroker(t)
			row := &switchboard.Server{ID: "tracker", Transport: switchboard.TransportHTTP, URL: site.URL + "/mcp", Credential: tt.row}
			c, _ := b.Of(row).(*credentials)
			ann := &switchboard.Principal{Tenant: "acme", ID: "ann"}
			if tt.row.Kind == switchboard.CredentialUser { // its token has expired
				p := &oauth.Provider{Resource: row.URL, Issuer: site.URL, AuthorizationEndpoint: site.URL + "/auth", TokenEndpoint: site.URL + "/token", S256: true}
				old := &oauth.Tokens{Access: switchboard.NewSecret("a"), Refresh: switchboard.NewSecret("r"), Expires: time.Now().Add(-time.Minute)}
				made, err := newConnection(p, &oauth.ClientRegistration{Source: oauth.Registered, Issuer: site.URL, ClientID: "abc", Method: "none"}, old)
				if err == nil {
					_, err = b.vault.Save(t.Context(), OwnerOf(row, ann), made)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, when := range []string{"at first", "in the pause"} {
				if when != "at first" && tt.want == obtainPause { // on a busy machine it may be over
					continue
				}
				_, err := c.Get(t.Context(), ann)
				refused, _ := errors.AsType[*switchboard.Error](err)
				if refused == nil || refused.Code != switchboard.CodeProviderAway || !refused.Unsent {
					t.Fatalf("%s: %v", when, err)
				}
				least := tt.want
				if when == "in the pause" { // some of it is over
					least = obtainPause + time.Second
				}
				if refused.RetryAfter < least || refused.RetryAfter > tt.want {
					t.Errorf("%s: the caller is told to come back after %v, want %v", when, refused.RetryAfter, tt.want)
				}
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("the provider was asked %d times", n)
			}
		})
	}
}
