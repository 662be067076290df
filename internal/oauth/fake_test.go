package oauth

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const redirect = "https://sb.example.com/connect/callback"

// A world is an MCP server and its authorization server, at one address of this machine over plain http.
type world struct {
	t      *testing.T
	server *httptest.Server
	origin string

	mu       sync.Mutex
	answers  map[string]http.HandlerFunc // by path
	requests []request
}

// A request is what arrived.
type request struct {
	path   string
	form   url.Values
	header http.Header
	body   string
}

// newWorld starts a server at /mcp whose metadata and authorization server are sound.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, answers: map[string]http.HandlerFunc{}}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.server.Config.ErrorLog = discardLog // some tests end connections
	w.server.Start()
	t.Cleanup(w.server.Close)
	w.origin = w.server.URL
	w.json("/.well-known/oauth-protected-resource/mcp", w.resource(nil))
	w.json("/.well-known/oauth-authorization-server", w.metadata(nil))
	w.json("/token", tokenAnswer(nil))
	return w
}

// serve answers a request as the world says, and keeps it.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	w.mu.Lock()
	w.requests = append(w.requests, request{r.URL.Path, form, r.Header, string(body)})
	h := w.answers[r.URL.Path]
	w.mu.Unlock()
	if h == nil {
		http.NotFound(rw, r)
		return
	}
	h(rw, r)
}

// on sets the answer of a path.
func (w *world) on(path string, h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[path] = h
}

// json sets the answer of a path to a value, or to a text as it is.
func (w *world) json(path string, v any) { w.on(path, answerJSON(http.StatusOK, v)) }

func answerJSON(status int, v any) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		if text, ok := v.(string); ok {
			_, _ = io.WriteString(rw, text)
			return
		}
		_ = json.NewEncoder(rw).Encode(v)
	}
}

// resource returns the metadata of the server, with changes. A nil value removes a member.
func (w *world) resource(changes map[string]any) map[string]any {
	return changed(map[string]any{"resource": w.origin + "/mcp", "authorization_servers": []string{w.origin}, "scopes_supported": []string{"files:read"}}, changes)
}

// metadata returns the metadata of the authorization server, with changes.
func (w *world) metadata(changes map[string]any) map[string]any {
	return changed(map[string]any{
		"issuer": w.origin, "authorization_endpoint": w.origin + "/authorize", "token_endpoint": w.origin + "/token",
		"registration_endpoint": w.origin + "/register", "revocation_endpoint": w.origin + "/revoke",
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post", "none"},
		"scopes_supported": []string{"files:read", "offline_access"},
	}, changes)
}

// tokenAnswer returns an answer of a token endpoint, with changes.
func tokenAnswer(changes map[string]any) map[string]any {
	return changed(map[string]any{"access_token": "access-1", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "refresh-1", "scope": "files:read"}, changes)
}

func changed(m, changes map[string]any) map[string]any {
	maps.Copy(m, changes)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

// took returns the requests of a path.
func (w *world) took(path string) (out []request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if r.path == path {
			out = append(out, r)
		}
	}
	return out
}

// client returns a client of the server at /mcp.
func (w *world) client(o Options) *Client {
	w.t.Helper()
	c, err := New(w.origin+"/mcp", o)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// provider returns a sound provider.
func (w *world) provider() *Provider {
	return &Provider{
		Resource: w.origin + "/mcp", Issuer: w.origin, AuthorizationEndpoint: w.origin + "/authorize", TokenEndpoint: w.origin + "/token",
		RegistrationEndpoint: w.origin + "/register", RevocationEndpoint: w.origin + "/revoke", S256: true,
	}
}

// registration returns a client with a secret.
func (w *world) registration() *ClientRegistration {
	return &ClientRegistration{Source: Configured, Issuer: w.origin, ClientID: "sb", Secret: switchboard.NewSecret("client-secret+1")}
}

// begin begins a consent for files:read.
func (w *world) begin(c *Client, p *Provider, r *ClientRegistration) (string, *Attempt) {
	w.t.Helper()
	address, a, err := c.Begin(p, r, redirect, []string{"files:read"})
	if err != nil {
		w.t.Fatal(err)
	}
	return address, a
}

// answerOf returns the query of a sound answer.
func answerOf(a *Attempt) url.Values {
	return url.Values{"state": {a.State.Reveal()}, "code": {"code-1"}, "iss": {a.Issuer}}
}

// wants checks kind and words of an error. The words "" mean that there must be none.
func wants(t *testing.T, err error, kind FailureKind, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("%v (%s), want no error", err, KindOf(err))
	case words != "" && err == nil:
		t.Errorf("no error, want %s: %s", kind, words)
	case words != "" && (!strings.Contains(err.Error(), words) || KindOf(err) != kind):
		t.Errorf("%v (%s), want %s: … %s …", err, KindOf(err), kind, words)
	}
	if err != nil && strings.ContainsAny(err.Error(), "\n\r\x00") {
		t.Errorf("the error has several lines: %q", err)
	}
}

// dialTo returns a Dialer that connects every address to one listener.
func dialTo(address string) Dialer {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

func jsonOf(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// tokensOf returns tokens with a refresh token.
func tokensOf(refresh string) *Tokens { return &Tokens{Refresh: switchboard.NewSecret(refresh)} }
