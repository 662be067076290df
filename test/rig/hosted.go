package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/summit-switchboard/switchboard/test/provider"
)

// A Hosted is a server of the official SDK that demands the tokens of an authorization server, with the SDK's own middleware. Its tool whoami answers
// with the person that the token names, and its resource me://profile too. Each person has a list, subscriptions and sessions of that person's own.
type Hosted struct {
	*httptest.Server
	Resource string // its URL, which its tokens are for
	Provider *provider.Server

	authority *Authority // in the place of Provider
	opaque    bool       // only the provider can read its tokens
	mu        sync.Mutex
	keys      jwk.Set
	Seen      []SeenRequest
	refused   map[string]bool // tokens
	servers   map[string]*mcp.Server
	mixed     []string
	streams   map[*modernStream]bool // nil at a legacy server
	sse       bool                   // it is a server over HTTP with SSE
	echo      int                    // if it is not 0, the status of all answers, which repeat the request
}

// A SeenRequest is a request that a Hosted has answered, or refused.
type SeenRequest struct {
	Method, Authorization string
	Status                int
	Whole                 string // the request as it came, at most wholeRequest bytes of its body
}

const wholeRequest = 16 << 10

// ServeHosted starts the server and its provider. o needs no Resources.
func ServeHosted(t *testing.T, o provider.Options) *Hosted {
	t.Helper()
	h := newHosted()
	o.Resources = []string{h.Resource}
	h.Provider = provider.Node(t, o)
	h.start(t)
	return h
}

// ServeHostedBy starts the server with the authority as its provider.
func ServeHostedBy(t *testing.T, a *Authority) *Hosted {
	t.Helper()
	h := newHosted()
	h.authority, h.Provider = a, providerOf(a)
	h.start(t)
	return h
}

// ServeSSEHostedBy is ServeHostedBy for a server over HTTP with SSE. It demands a token for streams and their messages, and refuses a POST to its address with
// 405, whoever sends it.
func ServeSSEHostedBy(t *testing.T, a *Authority) *Hosted {
	t.Helper()
	h := newHosted()
	h.sse = true
	h.authority, h.Provider = a, providerOf(a)
	h.start(t)
	return h
}

// ServeHostedOpaque starts the server with a provider that runs already. Its tokens are opaque: the server asks the provider for the person of each.
func ServeHostedOpaque(t *testing.T, as *provider.Server) *Hosted {
	t.Helper()
	h := newHosted()
	h.opaque, h.Provider = true, as
	h.start(t)
	return h
}

func providerOf(a *Authority) *provider.Server { return &provider.Server{Issuer: a.URL, Stop: a.Close} }

func newHosted() *Hosted {
	h := &Hosted{refused: map[string]bool{}, servers: map[string]*mcp.Server{}}
	h.Server = httptest.NewUnstartedServer(nil)
	h.Resource = "http://" + h.Listener.Addr().String() + "/mcp"
	return h
}

func (h *Hosted) start(t *testing.T) {
	metadata := "http://" + h.Listener.Addr().String() + "/.well-known/oauth-protected-resource/mcp"
	mux := http.NewServeMux()
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: h.Resource, AuthorizationServers: []string{h.Provider.Issuer}, ScopesSupported: []string{"files:read"},
	}))
	ofPerson := func(r *http.Request) *mcp.Server { return h.serverOf(auth.TokenInfoFromContext(r.Context()).UserID) }
	var mcpHandler http.Handler = mcp.NewStreamableHTTPHandler(ofPerson, nil)
	switch {
	case h.streams != nil:
		mcpHandler = http.HandlerFunc(h.serveModern)
	case h.sse:
		mcpHandler = mcp.NewSSEHandler(ofPerson, nil)
	}
	protected := auth.RequireBearerToken(h.verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: metadata})(mcpHandler)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if h.sse && r.Method == http.MethodPost && r.URL.Query().Get("sessionid") == "" {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		protected.ServeHTTP(w, r)
	})
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head, _ := httputil.DumpRequest(r, false)
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		c := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		h.mu.Lock()
		echo := h.echo
		h.mu.Unlock()
		if echo == 0 || r.Method != http.MethodPost {
			mux.ServeHTTP(c, r)
		} else {
			c.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="invalid_token", error_description=%q, resource_metadata=%q`, "it is expired: "+r.Header.Get("Authorization"), metadata))
			http.Error(c, string(head)+string(body), echo)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.Seen = append(h.Seen, SeenRequest{r.Method + " " + r.URL.Path, r.Header.Get("Authorization"), c.status, string(head) + string(body[:min(len(body), wholeRequest)])})
	})
	h.Start()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
}

// serverOf returns the MCP server of a person.
func (h *Hosted) serverOf(person string) *mcp.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.servers[person] == nil {
		h.servers[person] = h.newServer(person)
	}
	return h.servers[person]
}

func (h *Hosted) newServer(owner string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "hosted", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	text := func(s string) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}, nil, nil
	}
	type nothing struct{}
	mcp.AddTool(s, &mcp.Tool{Name: "whoami", Annotations: reads}, func(_ context.Context, r *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		return text(h.personOf(owner, owner, r.Extra))
	})
	// expect answers with its person, after a progress notification that names the person too. Its argument says which person the caller is.
	type expectation struct {
		As string `json:"as"`
		ID int    `json:"id"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "expect", Annotations: reads}, func(ctx context.Context, r *mcp.CallToolRequest, e expectation) (*mcp.CallToolResult, any, error) {
		person := h.personOf(owner, e.As, r.Extra)
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "at work for " + person})
		}
		return text(fmt.Sprint(person, " ", e.ID))
	})
	// statement has the same arguments for everybody. An overlay may call it deterministic.
	type month struct {
		Month int `json:"month"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "statement", Annotations: reads}, func(_ context.Context, r *mcp.CallToolRequest, m month) (*mcp.CallToolResult, any, error) {
		return text(fmt.Sprint(h.personOf(owner, owner, r.Extra), " ", m.Month))
	})
	s.AddResource(&mcp.Resource{URI: "me://profile", Name: "profile"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: h.personOf(owner, owner, r.Extra)}}}, nil
	})
	return s
}

// personOf returns the person of a request's token. expected begins the name of the person that the caller is. personOf keeps the request as mixed if that is another person than the owner of the session, or than the
// expected one.
func (h *Hosted) personOf(owner, expected string, x *mcp.RequestExtra) string {
	if h.sse { // its SDK does not say which token a message came with
		return owner
	}
	person := x.TokenInfo.UserID
	if person != owner || !strings.HasPrefix(person, expected) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mixed = append(h.mixed, fmt.Sprintf("the session of %s has a request of %s with the token of %s", owner, expected, person))
	}
	return person
}

// Mixed returns the requests that had the token or the session of another person.
func (h *Hosted) Mixed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.mixed...)
}

// Touch says to the subscribers of me://profile among the person's sessions that it has changed. The notification names the person.
func (h *Hosted) Touch(t *testing.T, person string) {
	t.Helper()
	if h.streams != nil {
		h.touchModern(person)
		return
	}
	if err := h.serverOf(person).ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "me://profile", Meta: mcp.Meta{"person": person}}); err != nil {
		t.Error(err)
	}
}

// verify is an auth.TokenVerifier.
func (h *Hosted) verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	if h.authority != nil {
		person, ends := h.authority.person(token, h.Resource)
		if person == "" || h.isRefused(token) {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: person, Expiration: ends}, nil
	}
	if h.isRefused(token) {
		return nil, fmt.Errorf("%w: it was refused by the test", auth.ErrInvalidToken)
	}
	if h.opaque {
		return h.askProvider(ctx, token)
	}
	keys, err := h.keySet(ctx)
	if err != nil {
		return nil, err
	}
	parsed, err := jwt.Parse([]byte(token), jwt.WithKeySet(keys), jwt.WithAudience(h.Resource), jwt.WithIssuer(h.Provider.Issuer))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
	}
	subject, _ := parsed.Subject()
	ends, _ := parsed.Expiration()
	return &auth.TokenInfo{UserID: subject, Expiration: ends}, nil
}

// askProvider asks the provider for the person of a token.
func (h *Hosted) askProvider(ctx context.Context, token string) (*auth.TokenInfo, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.Provider.Issuer+"/userinfo", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var person struct{ Sub string }
	if err := json.NewDecoder(resp.Body).Decode(&person); err != nil || resp.StatusCode != http.StatusOK || person.Sub == "" {
		return nil, fmt.Errorf("%w: the provider answers %s", auth.ErrInvalidToken, resp.Status)
	}
	return &auth.TokenInfo{UserID: person.Sub, Expiration: time.Now().Add(time.Minute)}, nil
}

func (h *Hosted) isRefused(token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused[token]
}

// keySet returns the keys of the provider.
func (h *Hosted) keySet(ctx context.Context) (jwk.Set, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys != nil {
		return h.keys, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.Provider.Issuer+"/jwks", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	h.keys, err = jwk.Parse(text)
	return h.keys, err
}

// Refuse makes the server refuse a token from now on.
func (h *Hosted) Refuse(authorization string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused[authorization[len("Bearer "):]] = true
}

// Echo makes the server answer with the status, and with the request as the body, from now on. 0 ends that.
func (h *Hosted) Echo(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.echo = status
}

// Requests returns the requests so far.
func (h *Hosted) Requests() []SeenRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]SeenRequest(nil), h.Seen...)
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which the SDK wants.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
