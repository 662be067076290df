package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/summit-switchboard/switchboard/test/provider"
)

// A Hosted is a server of the official SDK that demands the tokens of an authorization server, with the SDK's own middleware. Its tool whoami answers
// with the person that the token names, and its resource me://profile too.
type Hosted struct {
	*httptest.Server
	Resource string // its URL, which its tokens are for
	Provider *provider.Server

	mu      sync.Mutex
	keys    jwk.Set
	Seen    []SeenRequest
	refused map[string]bool // tokens
}

// A SeenRequest is a request that a Hosted has answered, or refused.
type SeenRequest struct {
	Method, Authorization string
	Status                int
}

// ServeHosted starts the server and its provider. o needs no Resources.
func ServeHosted(t *testing.T, o provider.Options) *Hosted {
	t.Helper()
	h := &Hosted{refused: map[string]bool{}}
	h.Server = httptest.NewUnstartedServer(nil)
	h.Resource = "http://" + h.Listener.Addr().String() + "/mcp"
	o.Resources = []string{h.Resource}
	h.Provider = provider.Node(t, o)
	metadata := "http://" + h.Listener.Addr().String() + "/.well-known/oauth-protected-resource/mcp"
	mux := http.NewServeMux()
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: h.Resource, AuthorizationServers: []string{h.Provider.Issuer}, ScopesSupported: []string{"files:read"},
	}))
	s := h.newServer()
	mcpHandler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	mux.Handle("/mcp", auth.RequireBearerToken(h.verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: metadata})(mcpHandler))
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		mux.ServeHTTP(c, r)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.Seen = append(h.Seen, SeenRequest{r.Method + " " + r.URL.Path, r.Header.Get("Authorization"), c.status})
	})
	h.Start()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

func (h *Hosted) newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "hosted", Version: "1"}, nil)
	type nothing struct{}
	mcp.AddTool(s, &mcp.Tool{Name: "whoami", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(_ context.Context, r *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Extra.TokenInfo.UserID}}}, nil, nil
	})
	s.AddResource(&mcp.Resource{URI: "me://profile", Name: "profile"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: r.Extra.TokenInfo.UserID}}}, nil
	})
	return s
}

// verify is an auth.TokenVerifier.
func (h *Hosted) verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	keys, err := h.keySet(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	refused := h.refused[token]
	h.mu.Unlock()
	if refused {
		return nil, fmt.Errorf("%w: it was refused by the test", auth.ErrInvalidToken)
	}
	parsed, err := jwt.Parse([]byte(token), jwt.WithKeySet(keys), jwt.WithAudience(h.Resource), jwt.WithIssuer(h.Provider.Issuer))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
	}
	subject, _ := parsed.Subject()
	ends, _ := parsed.Expiration()
	return &auth.TokenInfo{UserID: subject, Expiration: ends}, nil
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
