// Package provider starts real OAuth authorization servers for tests, which others wrote: oidc-provider from npm, and zitadel/oidc. It also has the browser
// of a person who signs in there and consents to everything.
//
// A test of a whole flow:
//
//	as := provider.Node(t, provider.Options{Register: true, Resources: []string{server.URL + "/mcp"}})
//	// A fake MCP server states {"resource": server.URL + "/mcp", "authorization_servers": [as.Issuer]} as its protected resource metadata.
//	address := …                                          // that the program under test gives to the person
//	back := provider.Consent(t, address, redirect)         // the URL with code, state and iss that the browser is sent to
//
// The redirect is not followed, so nothing needs to listen there. A test of the served path gives back to Switchboard, with the cookies that
// Switchboard wants. Both servers are at http URLs of this machine. oidc-provider has JWT access tokens for the resource, PKCE, iss, registration on
// demand, rotation of refresh tokens with detection of reuse, revocation, client credentials and client ID metadata documents. zitadel/oidc ignores resource, and has neither
// registration nor iss.
package provider

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/summit-switchboard/switchboard/test/npmlock"
)

// A Client is registered from the start.
type Client struct {
	ID       string
	Secret   string          // "" means a public client, unless it has Keys
	Redirect string          // "" means client credentials only
	Keys     json.RawMessage `json:",omitempty"` // the JWK set of private_key_jwt
}

// Options are the settings of Node.
type Options struct {
	Clients   []Client
	Register  bool     // it registers clients
	Documents string   // the base URL at which the test serves metadata documents, whatever their host is; "" means that it reads none
	Resources []string // the MCP servers that it gives tokens for
	Scopes    []string // of the resources; nil means files:read and files:write
	Lifetime  int      // of access tokens in seconds; 0 means 3600
	Port      int      // 0 means a free one
}

// A Server is an authorization server that runs until the end of the test.
type Server struct {
	Issuer string
	Stop   func() // stops it earlier
}

// Node starts oidc-provider. Without node or npm, the test is skipped, or fails where everything is required.
func Node(t testing.TB, o Options) *Server {
	t.Helper()
	dir := folder(t)
	npmlock.NeedIn(t, dir, "tokens of oidc-provider")
	if o.Scopes == nil {
		o.Scopes = []string{"files:read", "files:write"}
	}
	if o.Lifetime == 0 {
		o.Lifetime = 3600
	}
	if o.Clients == nil {
		o.Clients = []Client{}
	}
	if o.Resources == nil {
		o.Resources = []string{}
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", filepath.Join(dir, "provider.mjs"), string(text))
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	var said strings.Builder
	cmd.Stderr = &said
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	watchdog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewReader(stdout)
	issuer, err := lines.ReadString('\n')
	if err != nil {
		stop()
		t.Fatalf("oidc-provider does not start: %v\n%s", err, &said)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return &Server{Issuer: strings.TrimSpace(issuer), Stop: stop}
}

// folder returns the folder of this package, for tests of other packages of the module.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "test", "provider")
		}
		above := filepath.Dir(dir)
		if above == dir {
			t.Fatal("the tests run outside of the module")
		}
		dir = above
	}
}

// The client and the secret that Zitadel has for client credentials.
const (
	ZitadelProgram = "sid1"
	ZitadelSecret  = "verysecret"
)

var zitadelClients sync.Mutex // zitadel/oidc keeps the clients of its example in one place

// Zitadel starts zitadel/oidc in this process, with a client for the redirect. The client has the id and the secret that are returned. It
// silences slog's default logger of the test program.
func Zitadel(t testing.TB, redirect string) (_ *Server, id, secret string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	issuer := "http://" + server.Listener.Addr().String()
	id, secret = "client-"+server.Listener.Addr().String(), "provider-secret-of-the-test"
	zitadelClients.Lock()
	storage.RegisterClients(storage.WebClient(id, secret, redirect))
	kept := storage.NewStorage(storage.NewUserStore(issuer))
	zitadelClients.Unlock()
	server.Config.Handler = exampleop.SetupServer(issuer, kept, slog.New(slog.DiscardHandler), false)
	server.Start()
	t.Cleanup(server.Close)
	return &Server{Issuer: issuer, Stop: server.Close}, id, secret
}
