package served_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A typeScriptServer is test/npm/hosted-server.mjs, which runs.
type typeScriptServer struct {
	resource string
	provider *provider.Server
	in       io.Writer
	lines    *bufio.Reader
}

// startTypeScript starts the server on a version of the official SDK, with a provider for its tokens.
func startTypeScript(t *testing.T, sdk string) *typeScriptServer {
	t.Helper()
	npmlock.NeedIn(t, "../npm", "a hosted server on the official TypeScript SDK")
	cmd := exec.Command("node", "hosted-server.mjs", sdk)
	cmd.Dir, cmd.Stderr = "../npm", t.Output()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	s := &typeScriptServer{in: in, lines: bufio.NewReader(out)}
	s.resource = s.line(t)
	s.provider = provider.Node(t, provider.Options{Register: true, Resources: []string{s.resource}})
	s.tell(t, s.provider.Issuer, "ready")
	return s
}

// line returns the next line that the server prints.
func (s *typeScriptServer) line(t *testing.T) string {
	t.Helper()
	text, err := s.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the server ends: %v", err)
	}
	return strings.TrimSpace(text)
}

// tell gives the server a line, and waits for the reply.
func (s *typeScriptServer) tell(t *testing.T, what, reply string) {
	t.Helper()
	fmt.Fprintln(s.in, what)
	if said := s.line(t); said != reply {
		t.Fatalf("the server replies %q", said)
	}
}

// A hosted server that the middleware of the official TypeScript SDK guards is connected once, and called in both eras. It refuses a token, which is renewed for
// the same call, and it is disconnected.
func TestHostedSDKAServerOnTheTypeScriptSDKIsConnectedCalledAndItsTokenRenewed(t *testing.T) {
	t.Parallel()
	for _, sdk := range []string{"1", "2"} {
		t.Run("sdk "+sdk, func(t *testing.T) {
			t.Parallel()
			server := startTypeScript(t, sdk)
			dir := rig.LayOut(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  tracker: {transport: http, url: %q}\n", server.resource))
			g := rig.ServeAtOnce(t, dir)
			awaitDemand(t, dir)
			c := beginConnect(t, dir, "tracker")
			fmt.Fprintln(c.in, provider.Consent(t, c.address, redirectOf(t, c.address)))
			if said, code := c.end(); code != 0 || !strings.Contains(said, server.provider.Issuer) || !strings.Contains(said, "files:read") {
				t.Fatalf("exit %d: %s", code, said)
			}
			awaitTools(t, g)
			legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
			before := askWho(t, legacy)
			server.tell(t, "refuse", "refused")
			renewed := askWho(t, modern)
			if !strings.HasPrefix(before, "ann ") || !strings.HasPrefix(renewed, "ann ") || renewed == before {
				t.Errorf("whoami answers %q, and after its token was refused %q", before, renewed)
			}
			if again := askWho(t, legacy); again != renewed {
				t.Errorf("after a call of the other era, whoami answers %q", again)
			}
			if out, errs, code := rig.Command(t, dir, "server", "disconnect", "tracker"); code != 0 || !strings.Contains(out, "its tokens are revoked") {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			awaitDemand(t, dir)
		})
	}
}

// zitadel/oidc registers no clients, ignores the resource, and gives opaque tokens. The row has the client, and the port of the redirect is registered.
func TestHostedZitadelAServerIsConnectedAtZitadelCalledAndItsTokenRenewed(t *testing.T) {
	t.Parallel()
	address, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	redirect := "http://" + address + "/callback"
	as, id, secret := provider.Zitadel(t, redirect)
	h := rig.ServeHostedOpaque(t, as)
	dir := rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
servers:
  tracker:
    transport: http
    url: %q
    credential: {operator: {id: %q, secret: "${file:secrets/tracker}", issuer: %q, scopes: [openid, offline_access]}}
-- secrets/tracker --
%s
`, h.Resource, id, as.Issuer, secret))
	g := rig.ServeAtOnce(t, dir)
	awaitDemand(t, dir)
	_, port, _ := strings.Cut(address, ":")
	c := beginConnect(t, dir, "tracker", "--port", port)
	back := provider.Consent(t, c.address, redirect)
	resp, err := http.Get(back.String())
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.Contains(string(page), "Server tracker is connected") {
		t.Errorf("the browser shows %s %s", resp.Status, page)
	}
	if said, code := c.end(); code != 0 || !strings.Contains(said, as.Issuer) {
		t.Fatalf("exit %d: %s", code, said)
	}
	awaitTools(t, g)
	s := g.Open(t, "/mcp", true)
	if got := askWho(t, s); got != "id1" {
		t.Fatalf("whoami answers %q", got)
	}
	seen := tokensSeen(h)
	if len(seen) != 1 {
		t.Fatalf("the server has seen %d tokens", len(seen))
	}
	for token := range seen {
		h.Refuse(token)
	}
	if got := askWho(t, s); got != "id1" {
		t.Errorf("after its token was refused, whoami answers %q", got)
	}
	rig.Eventually(t, "the server has seen a second token", func() string { // it notes a request after its answer
		n := len(tokensSeen(h))
		return rig.ReasonUnless(n == 2, fmt.Sprint("it has seen ", n))
	})
	if out, errs, code := rig.Command(t, dir, "server", "disconnect", "tracker"); code != 0 || !strings.Contains(out, "its tokens are revoked") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	awaitDemand(t, dir)
	if strings.Contains(g.Logged(), secret) {
		t.Error("the log shows the secret")
	}
}

// A client of each era whose only server waits for a sign-in has a session, is told what is missing, and gets the tools without connecting again.
func TestHostedAClientThatCameBeforeTheSignInGetsTheToolsAfterIt(t *testing.T) {
	t.Parallel()
	h := rig.ServeHosted(t, provider.Options{Register: true})
	dir := rig.LayOut(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  tracker: {transport: http, url: %q}\n", h.Resource))
	g := rig.ServeAtOnce(t, dir)
	awaitDemand(t, dir)
	const command = "switchboard server connect tracker"
	legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
	if m, _ := modern.Ask(t, "server/discover", `{}`); !strings.Contains(field(t, m.Result, "instructions"), command) {
		t.Errorf("before the sign-in, server/discover answers %s", m.Raw)
	}
	heard := make(chan string, 2)
	for _, s := range []*rig.HTTPSession{legacy, modern} {
		if names := rig.ListNames(t, s); !slices.Equal(names, []string{"switchboard_status"}) {
			t.Errorf("before the sign-in, the tools are %q", names)
		}
		if m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{}}`); !strings.Contains(m.Text(), command) {
			t.Errorf("before the sign-in, the status is %s", m.Raw)
		}
		if m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`); rig.Code(m) != "SB-CAP-004" || !strings.Contains(string(m.Raw), command) {
			t.Errorf("before the sign-in, a call answers %s", m.Raw)
		}
	}
	rig.Listen(t, heard, "legacy", http.MethodGet, legacy.URL, "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
	header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
	rig.Listen(t, heard, "modern", http.MethodPost, modern.URL, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`, header)
	c := beginConnect(t, dir, "tracker")
	fmt.Fprintln(c.in, provider.Consent(t, c.address, redirectOf(t, c.address)))
	if said, code := c.end(); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	for range 2 {
		wait.Receive(t, "a client hears of the tools", heard)
	}
	for _, s := range []*rig.HTTPSession{legacy, modern} {
		if got := askWho(t, s); got != "ann" {
			t.Errorf("after the sign-in, whoami answers %q", got)
		}
	}
}

// awaitDemand waits until "server list" says that the server tracker needs a connection.
func awaitDemand(t *testing.T, dir string) {
	t.Helper()
	rig.Eventually(t, "the server needs a connection", func() string {
		s := stateOf(t, dir)
		return rig.ReasonUnless(strings.Contains(s, "needs_connection"), "it is "+s)
	})
}
