package served_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// connecting is a "switchboard server connect" that waits for the person.
type connecting struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	address string // where the person's browser goes
	said    chan string
}

// beginConnect starts the command, and returns when it has printed the address.
func beginConnect(t *testing.T, dir string, args ...string) *connecting {
	t.Helper()
	cmd := rig.Switchboard(t, append([]string{"server", "connect", "--no-browser"}, args...)...)
	cmd.Dir = dir
	return awaitAddress(t, cmd)
}

// awaitAddress starts a "switchboard server connect", and returns when it has printed the address.
func awaitAddress(t *testing.T, cmd *exec.Cmd) *connecting {
	t.Helper()
	c := &connecting{cmd: cmd, said: make(chan string, 1)}
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	c.cmd.Stderr = c.cmd.Stdout
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	c.in = in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	lines := bufio.NewReader(out)
	var all strings.Builder
	for c.address == "" {
		line, err := lines.ReadString('\n')
		all.WriteString(line)
		if err != nil {
			t.Fatalf("server connect ended: %v\n%s", err, &all)
		}
		if s := strings.TrimSpace(line); strings.HasPrefix(s, "http") {
			c.address = s
		}
	}
	go func() {
		rest, _ := io.ReadAll(lines)
		c.said <- all.String() + string(rest)
	}()
	return c
}

// end waits for the end of the command, and returns what it has printed.
func (c *connecting) end() (said string, code int) {
	said = <-c.said
	_ = c.cmd.Wait()
	return said, c.cmd.ProcessState.ExitCode()
}

// redirectOf returns where the provider sends the browser back to.
func redirectOf(t *testing.T, address string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req.URL.Query().Get("redirect_uri")
}

// stateOf returns what "server list" says of the server tracker.
func stateOf(t *testing.T, dir string) string {
	t.Helper()
	out, errs, _ := rig.Command(t, dir, "server", "list")
	_, row, _ := strings.Cut(out, "\ntracker ")
	return row + errs
}

// awaitTools waits until the only server is healthy and its tools are served, which is a moment later.
func awaitTools(t *testing.T, g *rig.Gateway) {
	t.Helper()
	rig.Eventually(t, "the tools of the server are served", func() string {
		text := g.AskAdmin(t, "", http.MethodGet, "/v1/servers", "").Body
		return rig.ReasonUnless(strings.Contains(text, `"healthy"`) && strings.Contains(text, `"tools_served"`) && !strings.Contains(text, `"tools_served":0`), text)
	})
}

func TestHosted1AServerThatDemandsASignInIsConnectedOnceAtADesk(t *testing.T) {
	t.Parallel()
	h := rig.ServeHosted(t, provider.Options{Register: true})
	dir := rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
servers:
  tracker: {transport: http, url: %q}
-- capabilities/cap.track.yaml --
{id: cap.track, version: 1.0.0, status: active, verb: read, resource: internet, requires: {resources: [acc.tracker]}}
-- capabilities/atoms.yaml --
acc.tracker: {kind: account, critical: true, every: 1s, probe: {oauth: tracker}}
`, h.Resource))
	if _, errs, code := rig.Command(t, dir, "capability", "publish", "cap.track@1.0.0"); code != 0 {
		t.Fatal(errs)
	}
	g := rig.ServeAtOnce(t, dir)
	resolved := func(want string) {
		t.Helper()
		rig.Eventually(t, "the capability that depends on the connection is resolved", func() string {
			body := g.AskAdmin(t, "", http.MethodGet, "/v1/resolve?tenant=default&capability=cap.track", "").Body
			return rig.ReasonUnless(strings.Contains(body, want), body)
		})
	}
	const no, yes = `"verdict":"no","blocking":["acc.tracker: red"]`, `"verdict":"yes"`
	rig.Eventually(t, "the server needs a connection", func() string {
		if s := stateOf(t, dir); !strings.Contains(s, "needs_connection") || !strings.Contains(s, "switchboard server connect tracker") {
			return s
		}
		return ""
	})
	resolved(no)
	out, errs, _ := rig.Command(t, dir, "status", "--url", g.URL)
	if _, atoms, _ := strings.Cut(out, "acc.tracker: red"); !strings.Contains(atoms, "nobody has connected it yet; connect it: switchboard server connect tracker\n") {
		t.Errorf("status does not say what to do: %s%s", out, errs)
	}
	for _, way := range []string{"the browser comes back", "the address is pasted"} {
		c := beginConnect(t, dir, "tracker")
		back := provider.Consent(t, c.address, redirectOf(t, c.address))
		if way == "the address is pasted" {
			fmt.Fprintf(c.in, "hello\n%s\n", back)
		} else {
			for _, guess := range []string{"?code=x&state=y", "", "?state=" + back.Query().Get("state") + "&state=y"} { // of somebody else on this machine
				resp, err := http.Get(strings.Split(back.String(), "?")[0] + guess)
				if err != nil || resp.StatusCode != http.StatusNotFound {
					t.Fatalf("a guess was answered with %v %v", resp, err)
				}
			}
			resp, err := http.Get(back.String())
			if err != nil {
				t.Fatal(err)
			}
			page, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "tracker is connected") {
				t.Errorf("%s: the browser shows %s %s", way, resp.Status, page)
			}
		}
		if said, code := c.end(); code != 0 || !strings.Contains(said, "tracker is connected") || !strings.Contains(said, h.Provider.Issuer) || !strings.Contains(said, "files:read") {
			t.Fatalf("%s: exit %d: %s", way, code, said)
		}
		rig.Eventually(t, "the server is healthy", func() string {
			if s := stateOf(t, dir); !strings.Contains(s, "healthy") {
				return s
			}
			return ""
		})
		awaitTools(t, g)
		resolved(yes)
		for _, modern := range []bool{false, true} {
			if got := askWho(t, g.Open(t, "/mcp", modern)); got != "ann" {
				t.Errorf("%s: modern %v: whoami answers %q", way, modern, got)
			}
		}
		out, errs, code := rig.Command(t, dir, "server", "disconnect", "tracker")
		if code != 0 || !strings.Contains(out, "its tokens are revoked") {
			t.Errorf("%s: exit %d: %s%s", way, code, out, errs)
		}
		rig.Eventually(t, "it needs a connection again", func() string {
			if s := stateOf(t, dir); !strings.Contains(s, "needs_connection") {
				return s
			}
			return ""
		})
		resolved(no)
	}
	if strings.Contains(g.Logged(), "quarantine") {
		t.Errorf("the server was quarantined:\n%s", g.Logged())
	}
}

// askWho returns what the tool whoami answers.
func askWho(t *testing.T, s rig.Session) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
	return m.Text()
}

// ofEachPerson lays out a configuration with two keys of a tenant, each with its own connection at the server, an admin of that tenant and one of another.
func ofEachPerson(t *testing.T, h *rig.Hosted) (dir string, keys map[string]string) {
	t.Helper()
	text, keys := archiveOfPeople(t, h.Resource, "")
	return rig.LayOut(t, text), keys
}

// archiveOfPeople returns the archive of ofEachPerson with these settings.
func archiveOfPeople(t *testing.T, resource, settings string) (text string, keys map[string]string) {
	t.Helper()
	text = strings.NewReplacer("URL", resource, "SETTINGS", settings).Replace(`
-- switchboard.yaml --
SETTINGSservers:
  tracker: {transport: http, url: "URL", credential: {user: {scopes: ["files:read", offline_access]}}}
tenants:
  acme: {servers: ["*"], allow: [by_name], offices: [admin]}
  umbrella: {servers: ["*"], allow: [by_name], offices: [admin]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [{id: ann, hash: "HASH:ann"}, {id: bob, hash: "HASH:bob"}]
members: [{key: ada, hash: "HASH:ada --office=admin", offices: [admin]}]
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
members: [{key: uma, hash: "HASH:uma --office=admin", offices: [admin]}]
`)
	return fillKeys(t, text)
}

// fillKeys puts a new key's hash in the place of each HASH:ID of an archive. After the id there may be flags of "key new".
func fillKeys(t *testing.T, text string) (filled string, keys map[string]string) {
	t.Helper()
	keys = map[string]string{}
	for strings.Contains(text, "HASH:") {
		_, who, _ := strings.Cut(text, "HASH:")
		who, _, _ = strings.Cut(who, `"`)
		id, flags, _ := strings.Cut(who, " ")
		key, row := rig.NewKey(t, id, strings.Fields(flags)...)
		_, hash, _ := strings.Cut(row, "hash: ")
		hash = strings.Trim(strings.TrimRight(hash, "}\n"), `"`)
		keys[id] = key
		text = strings.Replace(text, "HASH:"+who, hash, 1)
	}
	return text, keys
}

// An adminBrowser is the browser of an officer at the admin side.
type adminBrowser struct {
	t    *testing.T
	base string
	*http.Client
}

// openBrowser opens a browser at an admin address.
func openBrowser(t *testing.T, base string) *adminBrowser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &adminBrowser{t, base, &http.Client{Jar: jar}}
}

// openAdmin signs an officer in.
func openAdmin(t *testing.T, g *rig.Gateway, key string) *adminBrowser {
	t.Helper()
	b := openBrowser(t, g.AdminURL())
	if key != "" {
		b.post("/sign-in", url.Values{"key": {key}})
	}
	return b
}

func (b *adminBrowser) get(address string) (status int, page string) {
	b.t.Helper()
	resp, err := b.Get(address)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func (b *adminBrowser) post(path string, form url.Values) (status int, page string) {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodPost, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", b.base)
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

var (
	formToken  = regexp.MustCompile(`name="token" value="([^"]+)"`)
	leadsOn    = regexp.MustCompile(`url=([^"]+)"`)
	ticketLink = regexp.MustCompile(`https?://\S+/connect/\S+`)
)

// begin opens a link and presses its button. It returns where the browser is led.
func (b *adminBrowser) begin(link string) (address string) {
	b.t.Helper()
	status, page := b.get(link)
	token := formToken.FindStringSubmatch(page)
	if status != http.StatusOK || token == nil {
		b.t.Fatalf("the link shows %d %s", status, page)
	}
	for _, want := range []string{"tracker", "acme/", "files:read"} {
		if !strings.Contains(page, want) {
			b.t.Errorf("the page does not name %s: %s", want, page)
		}
	}
	status, page = b.post(strings.TrimPrefix(link, b.base), url.Values{"token": {token[1]}})
	to := leadsOn.FindStringSubmatch(page)
	if status != http.StatusOK || to == nil {
		b.t.Fatalf("the button leads to %d %s", status, page)
	}
	return html.UnescapeString(to[1])
}

// connect makes the connection of a link, as the person at the provider.
func (b *adminBrowser) connect(link, person string) {
	b.t.Helper()
	address := b.begin(link)
	at := provider.NewBrowser(b.t)
	at.Person = person
	if status, page := b.get(at.Consent(b.t, address, redirectOf(b.t, address)).String()); status != http.StatusOK || !strings.Contains(page, ">tracker</bdi> is connected") {
		b.t.Errorf("the browser comes back to %d %s", status, page)
	}
}

// connectCatalog makes the connection that lists the tools.
func connectCatalog(t *testing.T, dir string) {
	t.Helper()
	c := beginConnect(t, dir, "tracker")
	at := provider.NewBrowser(t)
	at.Person = "ops"
	fmt.Fprintln(c.in, at.Consent(t, c.address, redirectOf(t, c.address)))
	if said, code := c.end(); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
}

// visitor is a client of the official SDK whose person opens the links that it is shown.
func visitor(t *testing.T, url, key, version string, open func(link string) (action string)) *gosdk.ClientSession {
	t.Helper()
	c := gosdk.NewClient(&gosdk.Implementation{Name: "test", Version: "1"}, &gosdk.ClientOptions{
		Capabilities: &gosdk.ClientCapabilities{Elicitation: &gosdk.ElicitationCapabilities{URL: &gosdk.URLElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
			return &gosdk.ElicitResult{Action: open(r.Params.URL)}, nil
		},
	})
	tr := &gosdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{http.Header{"Authorization": {"Bearer " + key}}}}}
	s, err := c.Connect(t.Context(), tr, &gosdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestHosted2EachCallerActsAsItsOwnPersonAfterThatPersonHasConnected(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	h := rig.ServeHosted(t, provider.Options{Register: true})
	dir, keys := ofEachPerson(t, h)
	g := rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "an agent is told that the server waits for its operator", func() string {
		s := &rig.HTTPSession{URL: g.URL + "/mcp", Modern: true, Header: http.Header{"Authorization": {"Bearer " + keys["ann"]}}}
		m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{}}`)
		return rig.ReasonUnless(strings.Contains(string(m.Raw), "switchboard server connect tracker"), string(m.Raw))
	})
	connectCatalog(t, dir)
	rig.Eventually(t, "its tools are served", func() string {
		return rig.ReasonUnless(strings.Contains(g.Logged(), "tools=3"), stateOf(t, dir))
	})
	link := ""
	for _, modern := range []bool{false, true} { // clients that cannot show a link
		s := g.Open(t, "/mcp", modern, "Authorization", "Bearer "+keys["ann"])
		m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
		found := ticketLink.FindString(m.Text())
		if rig.Code(m) != "SB-AUTH-005" || found == "" || link != "" && found != link {
			t.Fatalf("modern %v: %s", modern, m.Raw)
		}
		link = found
	}
	if status, page := openAdmin(t, g, "").get(link); status != http.StatusOK || !strings.Contains(page, "sign in") || strings.Contains(page, "tracker") {
		t.Errorf("a stranger sees %d %s", status, page)
	}
	if status, page := openAdmin(t, g, keys["uma"]).get(link); status != http.StatusForbidden || !strings.Contains(page, "an admin of tenant acme") {
		t.Errorf("an admin of another tenant sees %d %s", status, page)
	}
	ada := openAdmin(t, g, keys["ada"])
	for range 3 { // a mail program that opens links does nothing
		ada.get(link)
	}
	ada.connect(link, "ann")
	for _, modern := range []bool{false, true} {
		if got := askWho(t, g.Open(t, "/mcp", modern, "Authorization", "Bearer "+keys["ann"])); got != "ann" {
			t.Errorf("modern %v: ann's agent acts as %q", modern, got)
		}
	}
	if status, page := ada.get(link); status != http.StatusUnauthorized || !strings.Contains(page, "of no use any more") {
		t.Errorf("a used link shows %d %s", status, page)
	}

	for _, version := range []string{"2025-11-25", ""} {
		t.Run("by elicitation "+version, func(t *testing.T) {
			if _, errs, code := rig.Command(t, dir, "server", "disconnect", "tracker", "--for", "acme/bob"); code != 0 {
				t.Fatal(errs)
			}
			s := g.Open(t, "/mcp", false, "Authorization", "Bearer "+keys["bob"])
			rig.Eventually(t, "bob has no connection", func() string {
				m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
				return rig.ReasonUnless(rig.Code(m) == "SB-AUTH-005", m.Text())
			})
			declined := visitor(t, g.URL+"/mcp", keys["bob"], version, func(string) string { return "decline" })
			r, err := declined.CallTool(t.Context(), &gosdk.CallToolParams{Name: "whoami", Arguments: map[string]any{}})
			if err != nil || !r.IsError || !strings.Contains(r.Content[0].(*gosdk.TextContent).Text, "/connect/") {
				t.Errorf("a person who declines gets %v %+v", err, r)
			}
			opened := make(chan string, 1)
			willing := visitor(t, g.URL+"/mcp", keys["bob"], version, func(link string) string { opened <- link; return "accept" })
			go func() { openAdmin(t, g, keys["ada"]).connect(<-opened, "bob") }()
			r, err = willing.CallTool(t.Context(), &gosdk.CallToolParams{Name: "whoami", Arguments: map[string]any{}})
			if err != nil || r.IsError || r.Content[0].(*gosdk.TextContent).Text != "bob" {
				t.Errorf("the call that waited got %v %+v", err, r)
			}
		})
	}
}
