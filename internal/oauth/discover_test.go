package oauth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/dial"
)

const (
	resourcePath = "/.well-known/oauth-protected-resource/mcp"
	rootPath     = "/.well-known/oauth-protected-resource"
	serverPath   = "/.well-known/oauth-authorization-server"
	openIDPath   = "/.well-known/openid-configuration"
)

func TestCD09MetadataIsBelievedOnlyWithinTheRules(t *testing.T) {
	const refusedURL = "cannot be used"
	for _, tt := range []struct {
		name  string
		set   func(w *world)
		words string // of the error; "" means that it is used
	}{
		{"sound metadata", func(*world) {}, ""},
		{"the resource is the origin, above the server", func(w *world) { w.json(resourcePath, w.resource(map[string]any{"resource": w.origin})) }, ""},
		{"the resource has a slash more", func(w *world) { w.json(resourcePath, w.resource(map[string]any{"resource": w.origin + "/mcp/"})) }, ""},
		{"the resource is a sibling", func(w *world) { w.json(resourcePath, w.resource(map[string]any{"resource": w.origin + "/mc"})) }, "is of the resource"},
		{"the resource is below the server", func(w *world) { w.json(resourcePath, w.resource(map[string]any{"resource": w.origin + "/mcp/more"})) }, "is of the resource"},
		{"the resource has dots", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"resource": w.origin + "/mcp/%2e%2e"}))
		}, "is of the resource"},
		{"the resource has a query", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"resource": w.origin + "/mcp?tenant=other"}))
		}, "is of the resource"},
		{"the resource is another server", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"resource": "https://bank.example.com/mcp"}))
		}, "is of the resource"},
		{"the resource is at another port", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"resource": "http://127.0.0.1:1/mcp"}))
		}, "is of the resource"},
		{"there is no resource", func(w *world) { w.json(resourcePath, w.resource(map[string]any{"resource": nil})) }, "is of the resource"},
		{"no authorization servers", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"authorization_servers": []string{}}))
		}, "names no authorization_servers"},
		{"tokens in the query only", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"bearer_methods_supported": []string{"query"}}))
		}, "header Authorization"},
		{"tokens bound to a key only", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"dpop_bound_access_tokens_required": true}))
		}, "DPoP"},
		{"a scope that is none", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"scopes_supported": []string{"a b"}}))
		}, "which is no scope"},
		{"a member twice", func(w *world) {
			w.json(resourcePath, `{"resource":"`+w.origin+`/mcp","authorization_servers":["https://evil.example.com"],"authorization_servers":["`+w.origin+`"]}`)
		}, "a member twice"},
		{"a member twice, deep down", func(w *world) {
			w.json(serverPath, strings.Replace(jsonOf(w.metadata(nil)), "{", `{"x":[{"a":1,"a":2}],`, 1))
		}, "a member twice"},
		{"a member with other letters counts for nothing", func(w *world) {
			w.json(serverPath, strings.Replace(jsonOf(w.metadata(nil)), "{", `{"Token_Endpoint":"https://evil.example.com/token",`, 1))
		}, ""},
		{"no JSON", func(w *world) { w.json(resourcePath, "{") }, "cannot be used"},
		{"a page for every path", func(w *world) { w.on(serverPath, page); w.on(openIDPath, page) }, "has no metadata"},
		{"the issuer with a slash more", func(w *world) { w.json(serverPath, w.metadata(map[string]any{"issuer": w.origin + "/"})) }, "byte for byte"},
		{"another issuer", func(w *world) { w.json(serverPath, w.metadata(map[string]any{"issuer": "https://idp.example.com"})) }, "byte for byte"},
		{"the issuer in other letters", func(w *world) { w.json(serverPath, w.metadata(map[string]any{"issuer": strings.ToUpper(w.origin)})) }, "byte for byte"},
		{"no S256", func(w *world) {
			w.json(serverPath, w.metadata(map[string]any{"code_challenge_methods_supported": []string{"plain"}}))
		}, "PKCE with S256"},
		{"nothing said of PKCE", func(w *world) {
			w.json(serverPath, w.metadata(map[string]any{"code_challenge_methods_supported": nil}))
		}, "PKCE with S256"},
		{"no authorization endpoint", func(w *world) { w.json(serverPath, w.metadata(map[string]any{"authorization_endpoint": nil})) }, "no authorization_endpoint"},
		{"no token endpoint", func(w *world) { w.json(serverPath, w.metadata(map[string]any{"token_endpoint": nil})) }, "token_endpoint"},
		{"an http endpoint elsewhere", func(w *world) {
			w.json(serverPath, w.metadata(map[string]any{"token_endpoint": "http://idp.example.com/token"}))
		}, refusedURL},
		{"a revocation endpoint with a user", func(w *world) {
			w.json(serverPath, w.metadata(map[string]any{"revocation_endpoint": "https://u:p@idp.example.com/revoke"}))
		}, refusedURL},
		{"an issuer with a query", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"authorization_servers": []string{w.origin + "?x=1"}}))
		}, "it has a query"},
		{"an http issuer elsewhere", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"authorization_servers": []string{"http://idp.example.com"}}))
		}, "no https URL"},
		{"the second authorization server is sound", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"authorization_servers": []string{w.origin + "/none", w.origin}}))
		}, ""},
		{"a redirect", func(w *world) { w.on(serverPath, redirectTo(w.origin+openIDPath)) }, "has no metadata"},
		{"OpenID Connect discovery only", func(w *world) { w.on(serverPath, nil); w.json(openIDPath, w.metadata(nil)) }, ""},
		{"metadata of the resource at the root", func(w *world) {
			w.on(resourcePath, nil)
			w.json(rootPath, w.resource(map[string]any{"resource": w.origin}))
		}, ""},
		{"no metadata of the resource: the specification of 2025-03-26", func(w *world) { w.on(resourcePath, nil) }, ""},
		{"2025-03-26, the origin with a slash", func(w *world) {
			w.on(resourcePath, nil)
			w.json(serverPath, w.metadata(map[string]any{"issuer": w.origin + "/"}))
		}, ""},
		{"2025-03-26, no metadata at all", func(w *world) { w.on(resourcePath, nil); w.on(serverPath, nil) }, "has no metadata"},
		{"unusable metadata is no reason for 2025-03-26", func(w *world) {
			w.json(resourcePath, w.resource(map[string]any{"resource": "https://bank.example.com/"}))
		}, "is of the resource"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.set(w)
			p, err := w.client(Options{}).Discover(t.Context(), Challenge{}, ForPerson)
			wants(t, err, Misconfigured, tt.words)
			if err == nil && (p.TokenEndpoint != w.origin+"/token" || p.AuthorizationEndpoint != w.origin+"/authorize") {
				t.Errorf("it is %+v", p)
			}
		})
	}
}

// An authorization server for programs needs neither PKCE nor an authorization endpoint.
func TestAProgramNeedsNoPKCE(t *testing.T) {
	w := newWorld(t)
	w.json(serverPath, w.metadata(map[string]any{"code_challenge_methods_supported": nil, "authorization_endpoint": nil}))
	c := w.client(Options{})
	p, err := c.Discover(t.Context(), Challenge{}, ForProgram)
	wants(t, err, "", "")
	_, _, err = c.Begin(p, w.registration(), redirect, nil)
	wants(t, err, Misconfigured, "no authorization code flow with PKCE")
}

// The order of the MCP specification, for an issuer with a path.
func TestMetadataIsAskedForInTheOrderOfTheSpecification(t *testing.T) {
	w := newWorld(t)
	issuer := w.origin + "/tenant1"
	w.json(resourcePath, w.resource(map[string]any{"authorization_servers": []string{issuer}}))
	w.on(resourcePath, nil)
	w.json(rootPath, w.resource(map[string]any{"authorization_servers": []string{issuer}}))
	w.json("/tenant1/.well-known/openid-configuration", w.metadata(map[string]any{"issuer": issuer}))
	if _, err := w.client(Options{}).Discover(t.Context(), Challenge{ResourceMetadata: w.origin + "/described"}, ForPerson); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, r := range w.requests {
		asked = append(asked, r.path)
	}
	if want := []string{
		"/described", resourcePath, rootPath,
		serverPath + "/tenant1", openIDPath + "/tenant1", "/tenant1/.well-known/openid-configuration",
	}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

func TestTheOperatorsIssuerIsTheOnlyOne(t *testing.T) {
	w := newWorld(t)
	_, err := w.client(Options{Issuer: "https://idp.example.com"}).Discover(t.Context(), Challenge{}, ForPerson)
	wants(t, err, Misconfigured, "its row has")
	w.json(resourcePath, w.resource(map[string]any{"authorization_servers": []string{"https://evil.example.com", w.origin}}))
	p, err := w.client(Options{Issuer: w.origin}).Discover(t.Context(), Challenge{}, ForPerson)
	wants(t, err, "", "")
	if p.Issuer != w.origin {
		t.Errorf("it is %+v", p)
	}
	_, err = w.client(Options{Issuer: w.origin + "/other"}).Refresh(t.Context(), p, &ClientRegistration{ClientID: "sb"}, &Tokens{})
	wants(t, err, Misconfigured, "the server's row has the issuer")
	w.on(resourcePath, nil)
	_, err = w.client(Options{Issuer: w.origin}).Discover(t.Context(), Challenge{}, ForPerson)
	wants(t, err, "", "")
	if _, err := New(w.origin, Options{Issuer: "javascript:alert(1)"}); err == nil {
		t.Error("an issuer that is no URL is accepted")
	}
	for _, address := range []string{"", "mcp.example.com", "stdio://x", "https://", "://"} {
		if _, err := New(address, Options{}); err == nil {
			t.Errorf("the server %q is accepted", address)
		}
	}
}

func TestCD06AnAddressThatIsMoreThanAnAddressIsRefused(t *testing.T) {
	remote, err := New("https://mcp.example.com/mcp", Options{})
	if err != nil {
		t.Fatal(err)
	}
	local, err := New("http://localhost:3000/mcp", Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := New("http://mcp.corp.example/mcp", Options{}) // http is the operator's choice for the server, and for nothing else
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		address       string
		remote, local bool // whether a server there may name it
	}{
		{"https://idp.example.com/authorize", true, true},
		{"https://idp.example.com:8443/a%20b?x=1&y=(2);z", true, true},
		{"https://[2606:4700::1]/authorize", true, true},
		{"http://127.0.0.1:9000/authorize", false, true},
		{"http://localhost/authorize", false, true},
		{"http://[::1]:80/authorize", false, true},
		{"http://idp.example.com/authorize", false, false},
		{"http://localhost.example.com/authorize", false, false},
		{"http://10.0.0.1/authorize", false, false},
		{"http://x/$(calc)", false, false},
		{"https://x/$(calc)", false, false},
		{"https://x/`calc`", false, false},
		{"https://x/|calc", false, false},
		{"https://x/'", false, false},
		{`https://x/"`, false, false},
		{`https://x/\calc`, false, false},
		{`https:\\x\calc`, false, false},
		{"javascript:alert(1)", false, false},
		{"JavaScript://x/%0aalert(1)", false, false},
		{"file:///etc/passwd", false, false},
		{"data:text/html,x", false, false},
		{"ms-settings://x/", false, false},
		{"--flag", false, false},
		{"https://--flag/", false, false},
		{"https://-x.example.com/", false, false},
		{"//idp.example.com/authorize", false, false},
		{"/authorize", false, false},
		{"", false, false},
		{"https:idp.example.com", false, false},
		{"https:///authorize", false, false},
		{"https://user@idp.example.com/", false, false},
		{"https://user:secret@idp.example.com/", false, false},
		{"https://idp.example.com/#x", false, false},
		{"https://idp.example.com/#", false, false},
		{"https://idp.example.com/a b", false, false},
		{"https://idp.example.com/\n", false, false},
		{"https://idp.example.com/\x00", false, false},
		{"https://idp.example.com/\x7f", false, false},
		{"https://idp.example.com/ü", false, false},
		{"https://idp..example.com/", false, false},
		{"https://idp.example.com:/", false, false},
		{"https://idp.example.com:0/", false, false},
		{"https://idp.example.com:65536/", false, false},
		{"https://idp.example.com:http/", false, false},
		{"https://[fe80::1%25eth0]/", false, false},
		{"https://idp%2eexample.com/", false, false},
		{"https://" + strings.Repeat("a", 64) + ".example.com/", false, false},
		{"https://idp.example.com/" + strings.Repeat("a", maxAddress), false, false},
	} {
		if _, err := remote.checkAddress(tt.address); (err == nil) != tt.remote {
			t.Errorf("%.80q of a remote server: %v", tt.address, err)
		}
		if _, err := plain.checkAddress(tt.address); (err == nil) != tt.remote {
			t.Errorf("%.80q of a server over http: %v", tt.address, err)
		}
		if _, err := local.checkAddress(tt.address); (err == nil) != tt.local {
			t.Errorf("%.80q of a local server: %v", tt.address, err)
		}
		if tt.remote {
			continue
		}
		p := &Provider{Issuer: "https://idp.example.com", TokenEndpoint: "https://idp.example.com/token", AuthorizationEndpoint: tt.address, S256: true}
		_, _, err := remote.Begin(p, &ClientRegistration{ClientID: "sb"}, redirect, nil)
		if err == nil {
			t.Errorf("a person is sent to %.80q", tt.address)
		}
	}
}

// SS-02: every place in metadata where a stranger can write an address.
func TestSS02MetadataLeadsToNoInnerAddress(t *testing.T) {
	inner := newWorld(t) // what must not be reached
	const canary = "inner-secret"
	inner.on("/", nil)
	for _, path := range []string{"/token", "/register", "/revoke", serverPath, openIDPath, "/prm"} {
		inner.on(path, answerJSON(http.StatusOK, `{"error":"`+canary+`"}`))
	}
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
		"10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "198.18.0.1", "[fd00:ec2::254]", "[fe80::1]", "[fec0::1]", "localhost",
	} {
		t.Run(host, func(t *testing.T) {
			at := "https://" + host + inner.origin[strings.LastIndex(inner.origin, ":"):]
			c := publicClient(t, nil)
			p := &Provider{Resource: "https://mcp.example.com/mcp", Issuer: "https://idp.example.com", AuthorizationEndpoint: at + "/authorize", TokenEndpoint: at + "/token", RegistrationEndpoint: at + "/register", RevocationEndpoint: at + "/revoke", S256: true}
			r := &ClientRegistration{Issuer: p.Issuer, ClientID: "sb"}
			_, errPRM := c.askResource(t.Context(), at+"/prm")
			_, errIssuer := c.askIssuer(t.Context(), at, false, ForPerson)
			_, errToken := c.Refresh(t.Context(), p, r, tokensOf("refresh-1"))
			_, errRegister := c.Register(t.Context(), p, RegistrationRequest{Redirect: redirect})
			errRevoke := c.Revoke(t.Context(), p, r, tokensOf("refresh-1"))
			for name, err := range map[string]error{"resource_metadata": errPRM, "authorization_servers": errIssuer, "token_endpoint": errToken, "registration_endpoint": errRegister, "revocation_endpoint": errRevoke} {
				if err == nil || strings.Contains(err.Error(), canary) {
					t.Errorf("%s: %v", name, err)
				}
				if _, refused := errors.AsType[*dial.NotPublicError](err); !refused && !isResolveError(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	if len(inner.requests) > 0 {
		t.Errorf("%d requests arrived: %v", len(inner.requests), inner.requests)
	}
}

// A public server whose metadata leads inward, over the dialer that Switchboard uses.
func TestSS02ADiscoveryThatLeadsInwardEndsBeforeTheInnerHost(t *testing.T) {
	inner := newWorld(t)
	at := "https://localhost" + inner.origin[strings.LastIndex(inner.origin, ":"):]
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != resourcePath {
			http.NotFound(w, r)
			return
		}
		answerJSON(http.StatusOK, map[string]any{"resource": "https://mcp.example.com/mcp", "authorization_servers": []string{at, "https://169.254.169.254", "https://10.0.0.1/", "https://[fd00:ec2::254]", "https://idp.example.com"}})(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := New("https://mcp.example.com/mcp", Options{Trusted: dialTo(server.Listener.Addr().String()), TrustedTLS: server.Client().Transport.(*http.Transport).TLSClientConfig})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Discover(t.Context(), Challenge{ResourceMetadata: at + "/latest/meta-data"}, ForPerson)
	wants(t, err, Misconfigured, "which is not a public address")
	if len(inner.requests) > 0 {
		t.Errorf("%v arrived", inner.requests)
	}
	// The operator may name an issuer that is inside.
	c.options.Issuer = "https://idp.example.com"
	_, err = c.Discover(t.Context(), Challenge{}, ForPerson)
	wants(t, err, Misconfigured, "has no metadata") // it was dialled: the fake server answers there
}

// isResolveError reports whether the resolver of this system does not take the spelling for an address.
func isResolveError(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// publicClient returns a client of https://mcp.example.com/mcp, whose name is resolved by nobody; strangers' hosts are dialled with public, or dial.Public.
func publicClient(t *testing.T, public Dialer) *Client {
	t.Helper()
	c, err := New("https://mcp.example.com/mcp", Options{Public: public, Trusted: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the operator's own host is not asked here")
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOnlyTheOperatorsHostsAreTrusted(t *testing.T) {
	for _, tt := range []struct {
		server, issuer, host string
		want                 bool
	}{
		{"https://mcp.example.com/mcp", "", "mcp.example.com", true},
		{"https://mcp.example.com/mcp", "", "MCP.example.com.", true},
		{"https://mcp.example.com/mcp", "", "idp.example.com", false},
		{"https://mcp.example.com/mcp", "", "127.0.0.1", false},
		{"https://mcp.example.com/mcp", "", "localhost", false},
		{"https://mcp.example.com/mcp", "https://idp.corp.example/x", "idp.corp.example", true},
		{"https://mcp.example.com/mcp", "https://idp.corp.example/x", "mcp.corp.example", false},
		{"https://10.0.0.5/mcp", "", "10.0.0.5", true},
		{"https://10.0.0.5/mcp", "", "10.0.0.6", false},
		{"http://localhost:3000/mcp", "", "127.0.0.1", true},
		{"http://127.0.0.1:3000/mcp", "", "localhost", true},
		{"http://127.0.0.1:3000/mcp", "", "[::1]", false},
		{"http://127.0.0.1:3000/mcp", "", "::1", true},
		{"http://127.0.0.1:3000/mcp", "", "10.0.0.1", false},
		{"http://127.0.0.1:3000/mcp", "", "169.254.169.254", false},
		{"http://localhost:3000/mcp", "", "localhost.example.com", false},
	} {
		c, err := New(tt.server, Options{Issuer: tt.issuer})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.trusts(tt.host); got != tt.want {
			t.Errorf("a server at %s with the issuer %q trusts %s: %t", tt.server, tt.issuer, tt.host, got)
		}
	}
}

// A stranger's host is dialled with Public and the roots of the system, the operator's with Trusted and its own roots.
func TestEachHostHasItsOwnDialerAndRoots(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metadata := map[string]any{
			"issuer": "https://idp.example.com", "authorization_endpoint": "https://idp.example.com/a", "token_endpoint": "https://idp.example.com/t",
			"code_challenge_methods_supported": []string{"S256"},
		}
		switch r.Host + r.URL.Path {
		case "mcp.example.com" + resourcePath:
			answerJSON(http.StatusOK, map[string]any{"resource": "https://mcp.example.com/mcp", "authorization_servers": []string{"https://idp.example.com"}})(w, r)
		case "idp.example.com" + serverPath:
			answerJSON(http.StatusOK, metadata)(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	server.Config.ErrorLog = discardLog
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig
	var public, trusted []string
	record := func(list *[]string) Dialer {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			*list = append(*list, address)
			return dialTo(server.Listener.Addr().String())(ctx, network, address)
		}
	}
	c, err := New("https://mcp.example.com/mcp", Options{Public: record(&public), Trusted: record(&trusted), PublicTLS: roots, TrustedTLS: roots})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Discover(t.Context(), Challenge{}, ForPerson); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(public, []string{"idp.example.com:443"}) || !slices.Equal(trusted, []string{"mcp.example.com:443"}) {
		t.Errorf("public %q, trusted %q", public, trusted)
	}
	c.options.PublicTLS = nil
	_, err = c.Discover(t.Context(), Challenge{}, ForPerson)
	wants(t, err, NotSent, "certificate")
}

func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte("<html><script>location='https://evil.example.com'</script>"))
}

func redirectTo(address string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, address, http.StatusTemporaryRedirect)
	}
}

func TestScopesAreThoseOfTheChallengeWithinTheRow(t *testing.T) {
	p := &Provider{Scopes: []string{"read", "write"}}
	offline := &Provider{Scopes: []string{"read"}, OfflineAccess: true}
	for _, tt := range []struct {
		name    string
		p       *Provider
		demand  string
		allowed []string
		want    string
		words   string
	}{
		{"the challenge's", p, "read", nil, "read", ""},
		{"all of the server's, without a challenge", p, "", nil, "read write", ""},
		{"only the allowed ones of the server's", p, "", []string{"read"}, "read", ""},
		{"CD-07: a demand beyond the row is refused", p, "read admin", []string{"read"}, "", "does not allow"},
		{"a demand within the row", p, "write", []string{"read", "write"}, "write", ""},
		{"the row's, if the server names others only", p, "", []string{"other"}, "other", ""},
		{"a row that allows none", p, "", []string{}, "", ""},
		{"with offline access", offline, "read", nil, "read offline_access", ""},
		{"offline access is within the row", offline, "read", []string{"read", "offline_access"}, "read offline_access", ""},
		{"offline access is beyond the row", offline, "read", []string{"read"}, "read", ""},
		{"each once", p, "read read", nil, "read", ""},
	} {
		got, err := tt.p.ChooseScopes(Challenge{Scope: tt.demand}, tt.allowed)
		wants(t, err, Refused, tt.words)
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	if _, err := p.ChooseScopes(Challenge{Scope: "a\"b"}, nil); KindOf(err) != Misconfigured {
		t.Error(err)
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"https://idp.example.com/a?b=c", "http://[::1]:80", "https://x:0", "https://u@x", "https://x/$(calc)", "javascript:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := parseAddress(s)
		if err != nil {
			return
		}
		again, err := url.Parse(u.String())
		if err != nil || again.Hostname() != u.Hostname() || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
			t.Errorf("%q is accepted as %q", s, u)
		}
	})
}
