package provider_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/provider"
)

const redirect = "https://sb.example.com/connect/callback"

// serveResource serves an MCP server that names its authorization server. It returns the server's URL.
func serveResource(t *testing.T, issuer func() string) string {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"resource": %q, "authorization_servers": [%q]}`, server.URL+"/mcp", issuer())
	})
	return server.URL + "/mcp"
}

// discover returns a client of the server, and what it has discovered.
func discover(t *testing.T, server string, use oauth.GrantKind) (*oauth.Client, *oauth.Provider) {
	t.Helper()
	c, err := oauth.New(server, oauth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Discover(t.Context(), oauth.Challenge{}, use)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

// connect takes a person through a consent.
func connect(t *testing.T, c *oauth.Client, p *oauth.Provider, r *oauth.ClientRegistration, scopes ...string) *oauth.Tokens {
	t.Helper()
	address, attempt, err := c.Begin(p, r, redirect, scopes)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := c.Redeem(t.Context(), p, r, attempt, provider.Consent(t, address, redirect).Query())
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// claims returns the claims of a JWT.
func claims(t *testing.T, token switchboard.Secret) (c struct{ Aud, Iss, Scope, Sub string }) {
	t.Helper()
	parts := strings.Split(token.Reveal(), ".")
	if len(parts) != 3 {
		t.Fatal("the access token is no JWT")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAPersonConnectsAtOidcProvider(t *testing.T) {
	var as *provider.Server
	server := serveResource(t, func() string { return as.Issuer })
	documents := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := oauth.MetadataDocument("https://sb.example.com"+r.URL.Path, oauth.RegistrationRequest{Redirect: redirect})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}))
	t.Cleanup(documents.Close)
	as = provider.Node(t, provider.Options{
		Register: true, Documents: documents.URL, Resources: []string{server},
		Clients: []provider.Client{{ID: "known", Secret: "s+cr/t of:the test", Redirect: redirect}, {ID: "public", Redirect: redirect}},
	})
	c, p := discover(t, server, oauth.ForPerson)
	if !p.StatesIssuer || !p.MetadataDocuments || p.RegistrationEndpoint == "" || p.RevocationEndpoint == "" || !p.S256 || !p.OfflineAccess {
		t.Errorf("it is %+v", p)
	}
	for name, ways := range map[string]oauth.Ways{
		"with a secret":              {Configured: &oauth.ClientRegistration{Issuer: as.Issuer, ClientID: "known", Secret: switchboard.NewSecret("s+cr/t of:the test")}},
		"without a secret":           {Configured: &oauth.ClientRegistration{ClientID: "public"}},
		"by our metadata document":   {Document: "https://sb.example.com/oauth/client.json"},
		"by dynamic registration":    {Request: oauth.RegistrationRequest{Redirect: redirect}},
		"registered on this machine": {Request: oauth.RegistrationRequest{Redirect: "http://127.0.0.1:7420/connect/callback"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.ChooseRegistration(t.Context(), p, ways)
			if err != nil {
				t.Fatal(err)
			}
			if to := ways.Request.Redirect; to != "" && to != redirect {
				if r.Method != "none" || r.Secret.Reveal() != "" {
					t.Errorf("it is registered with %s", r.Method)
				}
				return
			}
			tokens := connect(t, c, p, r, "files:read", "offline_access")
			if got := claims(t, tokens.Access); got.Aud != server || got.Iss != as.Issuer || got.Scope != "files:read" || got.Sub != "ann" {
				t.Errorf("the token is of %+v", got)
			}
			if until := time.Until(tokens.Expires); until < 50*time.Minute || until > time.Hour || !slices.Contains(tokens.Scopes, "files:read") {
				t.Errorf("the tokens are %+v", tokens)
			}
			again, err := c.Refresh(t.Context(), p, r, tokens)
			if err != nil {
				t.Fatal(err)
			}
			if again.Refresh.Equal(tokens.Refresh) || again.Access.Equal(tokens.Access) || claims(t, again.Access).Aud != server {
				t.Errorf("the new tokens are %+v", again)
			}
			// A refresh token that is sent twice ends the connection, which is why Lost means: never again.
			if _, err := c.Refresh(t.Context(), p, r, tokens); oauth.KindOf(err) != oauth.Refused {
				t.Errorf("the old refresh token: %v", err)
			}
			if _, err := c.Refresh(t.Context(), p, r, again); oauth.KindOf(err) != oauth.Refused {
				t.Errorf("the new refresh token, after a reuse of the old one: %v", err)
			}
			other := connect(t, c, p, r, "files:read")
			if err := c.Revoke(t.Context(), p, r, other); err != nil {
				t.Error(err)
			}
			if _, err := c.Refresh(t.Context(), p, r, other); oauth.KindOf(err) != oauth.Refused {
				t.Errorf("a revoked refresh token: %v", err)
			}
		})
	}
	t.Run("a wrong secret is no reason to ask the person", func(t *testing.T) {
		wrong := &oauth.ClientRegistration{Issuer: as.Issuer, ClientID: "known", Secret: switchboard.NewSecret("wrong")}
		_, err := c.Refresh(t.Context(), p, wrong, &oauth.Tokens{Refresh: switchboard.NewSecret("r")})
		if oauth.KindOf(err) != oauth.Misconfigured || !strings.Contains(err.Error(), "invalid_client") {
			t.Error(err)
		}
	})
	t.Run("a code is good once", func(t *testing.T) {
		r := &oauth.ClientRegistration{ClientID: "public"}
		address, attempt, err := c.Begin(p, r, redirect, []string{"files:read"})
		if err != nil {
			t.Fatal(err)
		}
		query := provider.Consent(t, address, redirect).Query()
		if _, err := c.Redeem(t.Context(), p, r, attempt, query); err != nil {
			t.Error(err)
		}
		if _, err := c.Redeem(t.Context(), p, r, attempt, query); oauth.KindOf(err) != oauth.Refused {
			t.Error(err)
		}
	})
	as.Stop()
	t.Run("while it is away, nothing was sent", func(t *testing.T) {
		_, err := c.Refresh(t.Context(), p, &oauth.ClientRegistration{ClientID: "public"}, &oauth.Tokens{Refresh: switchboard.NewSecret("r")})
		if oauth.KindOf(err) != oauth.NotSent {
			t.Error(err)
		}
	})
}

func TestAProgramGetsItsTokenAtOidcProvider(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := jwk.Import(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := public.Set(jwk.KeyIDKey, "k1"); err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(map[string]any{"keys": []jwk.Key{public}})
	if err != nil {
		t.Fatal(err)
	}
	var as *provider.Server
	server := serveResource(t, func() string { return as.Issuer })
	as = provider.Node(t, provider.Options{Resources: []string{server}, Clients: []provider.Client{{ID: "signs", Keys: keys}, {ID: "knows", Secret: "secret"}}})
	c, p := discover(t, server, oauth.ForProgram)
	if _, err := c.ChooseRegistration(t.Context(), p, oauth.Ways{Request: oauth.RegistrationRequest{Redirect: redirect}}); oauth.KindOf(err) != oauth.Misconfigured {
		t.Errorf("registration is off: %v", err)
	}
	for _, r := range []*oauth.ClientRegistration{
		{Issuer: as.Issuer, ClientID: "signs", KeyID: "k1", Key: switchboard.NewSecret(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))},
		{Issuer: as.Issuer, ClientID: "knows", Secret: switchboard.NewSecret("secret")},
	} {
		tokens, err := c.ClientCredentials(t.Context(), p, r, []string{"files:write"})
		if err != nil {
			t.Errorf("%s: %v", r.ClientID, err)
			continue
		}
		if got := claims(t, tokens.Access); got.Aud != server || got.Scope != "files:write" {
			t.Errorf("the token is of %+v", got)
		}
	}
}

func TestAPersonConnectsAtZitadel(t *testing.T) {
	as, id, secret := provider.Zitadel(t, redirect)
	server := serveResource(t, func() string { return as.Issuer })
	c, p := discover(t, server, oauth.ForPerson)
	r, err := c.ChooseRegistration(t.Context(), p, oauth.Ways{Configured: &oauth.ClientRegistration{Issuer: as.Issuer, ClientID: id, Secret: switchboard.NewSecret(secret)}})
	if err != nil {
		t.Fatal(err)
	}
	tokens := connect(t, c, p, r, "openid", "offline_access")
	again, err := c.Refresh(t.Context(), p, r, tokens)
	if err != nil {
		t.Fatal(err)
	}
	if again.Access.Equal(tokens.Access) {
		t.Error("the access token is the old one")
	}
	if _, err := c.Refresh(t.Context(), p, r, tokens); oauth.KindOf(err) != oauth.Refused {
		t.Errorf("the old refresh token: %v", err)
	}
	if err := c.Revoke(t.Context(), p, r, again); err != nil {
		t.Error(err)
	}
	program := &oauth.ClientRegistration{Issuer: as.Issuer, ClientID: provider.ZitadelProgram, Secret: switchboard.NewSecret(provider.ZitadelSecret)}
	if _, err := c.ClientCredentials(t.Context(), p, program, []string{"openid"}); err != nil {
		t.Error(err)
	}
}
