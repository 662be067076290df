package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	oauthprovider "github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// An office is a Switchboard with a hosted server, where each caller acts as its own person. It has the machine of the operator.
type office struct {
	*laptop
	gateway *rig.Gateway
	keys    map[string]string // of ann, who calls, and ada, who is an admin
}

// newOffice returns an office. Its operator has connected the server.
func newOffice(t *testing.T, tls bool) *office {
	t.Helper()
	findChromium(t)
	at, line, lead := placeAdmin(t, tls)
	o := &office{keys: map[string]string{}}
	server := rig.ServeHosted(t, oauthprovider.Options{Register: true})
	hash := func(id string, flags ...string) string {
		key, row := rig.NewKey(t, id, flags...)
		o.keys[id] = key
		return strings.Trim(row, "- \n{}")
	}
	dir := rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
%sservers:
  tracker: {transport: http, url: %q, credential: {user: {scopes: ["files:read", offline_access]}}}
tenants:
  acme: {servers: ["*"], allow: [by_name], offices: [admin]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [{%s}]
members: [{%s, offices: [admin]}]
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`, line, server.Resource, hash("ann"), strings.Replace(hash("ada", "--office=admin"), "id: ", "key: ", 1)))
	o.gateway = rig.ServeAtOnce(t, dir)
	lead(o.gateway.AdminURL())
	o.laptop = &laptop{t: t, home: dir, server: server, admin: at}

	command := o.begin("server", "connect", "tracker", "--no-browser")
	address := command.address()
	operator := oauthprovider.NewBrowser(t)
	operator.Person = "ops"
	fmt.Fprintln(command.in, operator.Consent(t, address, "http://"+hostOfRedirect(t, address)+"/callback"))
	command.succeed()
	o.read.Reset()
	rig.Eventually(t, "its tools are served", func() string {
		return rig.ReasonUnless(strings.Contains(o.gateway.Logged(), "tools=3"), "they are not")
	})
	return o
}

// connect opens a link that a call of ann's agent has led to. The admin signs in with a key, opens the link again, and signs in at the provider.
func (o *office) connect(b *browser, link string) {
	o.t.Helper()
	b.do(chromedp.Navigate(link))
	b.await("this link connects a server")
	o.notePage(b)
	b.do(chromedp.SendKeys(chromedp.CSS("#key"), o.keys["ada"]))
	b.press("Sign in with a key")
	b.await("You are ada")
	b.do(chromedp.Navigate(link))
	b.await("Connect tracker")
	o.notePage(b)
	b.press("Go to the provider and sign in")
	o.signIn(b)
	b.press("Continue")
	b.await("Server tracker is connected")
	o.notePage(b)
	if at, _, _ := strings.Cut(b.text(), "\n"); !strings.HasPrefix(at, o.admin+"/connect/callback") {
		o.t.Errorf("the browser ends at %s", at)
	}
	b.do(chromedp.Navigate(link))
	b.await("of no use any more")
	o.notePage(b)
}

// caller returns a client of the official SDK with ann's key. Its person is shown each link that a server asks to open; open is nil if it can show none.
func (o *office) caller(version string, open func(*mcp.ElicitParams)) *mcp.ClientSession {
	o.t.Helper()
	options := &mcp.ClientOptions{}
	if open != nil {
		options.Capabilities = &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}}
		options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			open(r.Params)
			return &mcp.ElicitResult{Action: "accept"}, nil
		}
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	tr := &mcp.StreamableClientTransport{Endpoint: o.gateway.URL + "/mcp", HTTPClient: &http.Client{Transport: withKey(o.keys["ann"])}}
	s, err := c.Connect(wait.Context(o.t), tr, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = s.Close() })
	return s
}

// withKey is a transport that sends a key with each request.
type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// The steps of CD-08 with a real browser. Behind TLS, the provider is another site than Switchboard, which decides what cookies the browser sends.
func TestACallerIsConnectedAsItsPersonInABrowserAndTheCallGoesOn(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		tls           bool
	}{
		{"legacy, on this machine", "2025-11-25", false},
		{"modern, behind TLS", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOffice(t, tt.tls)
			asked := make(chan *mcp.ElicitParams, 1)
			s := o.caller(tt.version, func(p *mcp.ElicitParams) { asked <- p })
			answer := make(chan string, 1)
			go func() {
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami", Arguments: map[string]any{}})
				if err != nil {
					answer <- err.Error()
					return
				}
				answer <- r.Content[0].(*mcp.TextContent).Text
			}()
			question := wait.Receive(t, "the client is asked to open a link", asked)
			o.note("the client asks", question.Message)
			o.connect(newBrowser(t), question.URL)
			if got := wait.Receive(t, "the call that waited is answered", answer); got != "ann" {
				t.Errorf("the call that waited got %q", got)
			}
			o.checkRead("person_asked.txt")
		})
	}

	t.Run("a client that shows no links", func(t *testing.T) {
		o := newOffice(t, false)
		s := o.caller("", nil)
		refused := callWhoami(t, s)
		link := ticketLink.FindString(refused)
		if link == "" {
			t.Fatalf("the call is answered with %q", refused)
		}
		o.note("the client is told", refused)
		o.connect(newBrowser(t), link)
		rig.Eventually(t, "the call is made when it is called again", func() string {
			got := callWhoami(t, s)
			return rig.ReasonUnless(got == "ann", "it is answered with "+got)
		})
		o.checkRead("person_told.txt")
	})
}
