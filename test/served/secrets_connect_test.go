package served_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/vault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const (
	keyOfVault  = "key of the vault"                // what it is planted as
	formOfAdmin = "token of the forms of a session" // what that of the admin is planted as
)

// A consentRound is what people, agents and providers do with connections, with secrets in all that they send.
type consentRound struct {
	*round
	a                    *rig.Authority
	tracker, desk, robot *rig.Hosted
}

// LK-02, for connections: forty secrets and more (of clients, keys, tickets, cookies, codes and tokens, also of refreshes and revocations that fail) are sealed with the
// key of the vault, and are found nowhere else, at debug level, with each store.
func TestLK02TheSecretsOfConnectionsAreFoundInNoOtherPlace(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	for _, kind := range []string{"file", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			consentSecrets(t, kind)
		})
	}
}

func consentSecrets(t *testing.T, kind string) {
	a := rig.ServeAuthority(t, time.Hour)
	r := &consentRound{&round{t: t, p: planted{}, keys: officers{}}, a, rig.ServeHostedBy(t, a), rig.ServeHostedBy(t, a), rig.ServeHostedBy(t, a)}
	p := r.p
	settings, disk := "", ""
	if kind == "redis" {
		redis := redistest.Start(t)
		disk = redis.Do("config", "get", "dir").([]any)[1].(string)
		redis.Do("config", "set", "requirepass", p.plant("password of Redis"))
		settings = fmt.Sprintf("store: \"redis://:${file:secrets/redis}@%s\"\ncluster: {secret: \"${file:secrets/cluster}\", listen: \"127.0.0.1:0\"}\nvault: {key: \"${file:secrets/vault}\"}\n", redis.Addr)
		p[keyOfVault] = p.plant("vault") + "0123456789"
		delete(p, "vault")
	}
	private, _ := serviceKey(t)
	block, _ := pem.Decode([]byte(private))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := key.(*ecdsa.PrivateKey).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	p["private key of a client"] = string(scalar)
	for i, line := range strings.Split(private, "\n")[1:3] {
		p[fmt.Sprint("line of a private key ", i+1)] = line
	}
	text := `
-- secrets/redis --
` + p["password of Redis"] + `
-- secrets/cluster --
` + p.plant("secret of the cluster") + `
-- secrets/vault --
` + p[keyOfVault] + `
-- secrets/desk --
` + p.plant("secret of a client") + `
-- secrets/header --
` + p.plant("header of a hosted server") + `
-- secrets/robot.pem --
` + private + `
-- switchboard.yaml --
` + settings + fmt.Sprintf(`operators: [{key: %s, hash: "HASH:operator"}]
servers:
  tracker: {transport: http, url: %q, headers: {X-Api-Key: "Token ${file:secrets/header}"}, credential: {user: {scopes: ["files:read", offline_access]}}}
  desk: {transport: http, url: %q, credential: {operator: {id: desk-client, secret: "${file:secrets/desk}", issuer: %q, scopes: ["files:read", offline_access]}}}
  robot: {transport: http, url: %q, credential: {client: {id: robot-client, key: "${file:secrets/robot.pem}", issuer: %q}}}
`, marker, r.tracker.Resource, r.desk.Resource, a.URL, r.robot.Resource, a.URL) + `tenants: {acme: {servers: ["*"], allow: [by_name], offices: [admin]}}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [{id: ann, hash: "HASH:agent ann"}, {id: bob, hash: "HASH:agent bob"}]
members: [{key: ada, hash: "HASH:admin", offices: [admin]}]
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"], optional: true}]
`
	for _, who := range []string{"operator", "agent ann", "agent bob", "admin"} {
		prefix := identity.PersonPrefix
		if strings.HasPrefix(who, "agent") {
			prefix = identity.AgentPrefix
		}
		key, hash := identity.Mint(prefix)
		r.keys[who], p["key of "+who] = key, key
		text = strings.Replace(text, "HASH:"+who, hash, 1)
	}
	r.dir = rig.LayOut(t, text)
	g := rig.ServeAtOnce(t, r.dir)
	r.g = g
	row, err := g.Row()
	if err != nil {
		t.Fatal(err)
	}
	p["token of operator.json"] = row.Token.Reveal()
	if kind == "file" {
		p[keyOfVault] = strings.TrimSpace(rig.ReadFile(t, filepath.Join(r.dir, ".switchboard", vault.KeyName)))
	}
	events := follow(t, http.MethodGet, g.AdminURL()+"/v1/events", "", http.Header{"Authorization": {"Bearer " + r.keys["operator"]}})

	r.atTheDesk("desk", "ops")
	r.atTheDesk("tracker", "ops")
	admin := &tab{r.round, map[string]string{}}
	admin.open("the sign-in", "/sign-in", url.Values{"key": {r.keys["admin"]}})
	admin.session("of the admin")
	r.connect(admin, "ann", false)
	r.connect(admin, "bob", false)
	r.wrongLinks(admin)
	r.calls()
	r.failingRefreshes(admin)
	r.disconnects()
	r.reads(admin)

	g.Signal(t, syscall.SIGTERM)
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	r.see("events", wait.Receive(t, "the events", events))
	r.see("the log", g.Logged())
	known := map[string]bool{}
	for _, secret := range p {
		known[secret] = true
	}
	for what, secret := range a.Secrets() {
		if !known[secret] {
			p[what] = secret
		}
	}
	for _, what := range []string{"access token", "refresh token", "code", "verifier", "assertion", "client secret", "registration token"} {
		if !strings.Contains(fmt.Sprint(a.Secrets()), what+" ") {
			t.Errorf("no %s was given out", what)
		}
	}
	belong := []string{"code without a consent", formOfAdmin}
	if kind == "file" {
		belong = append(belong, keyOfVault)
	}
	r.kept(disk, "connection", "session", "revoked")
	places := []string{"answers", "pages", "commands", "metrics", "events", "the log", "the data folder", "the store"}
	if kind == "redis" {
		places = append(places, "Redis")
	}
	r.judge(places, belong)
}

// plantAs plants a secret as what it is, with a number, and returns its name: the one that it had before, if it is planted.
func (r *consentRound) plantAs(what, secret string) (name string) {
	r.t.Helper()
	if secret == "" {
		r.t.Fatalf("there is no %s", what)
	}
	for name, s := range r.p {
		if s == secret {
			return name
		}
	}
	name = fmt.Sprintf("%s %d", what, len(r.p))
	r.p[name] = secret
	return name
}

// plantState plants the state in the address of a provider.
func (r *consentRound) plantState(address string) (name string) {
	r.t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.plantAs("state in an address", at.Query().Get("state"))
}

// atTheDesk connects a server by the command.
func (r *consentRound) atTheDesk(server, account string) {
	r.t.Helper()
	cmd := rig.Switchboard(r.t, "-v", "server", "connect", "--no-browser", server)
	cmd.Dir = r.dir
	c := awaitAddress(r.t, cmd)
	state := r.plantState(c.address)
	fmt.Fprintln(c.in, r.a.Consent(r.t, c.address, account))
	said, code := c.end()
	if code != 0 {
		r.t.Fatalf("exit %d: %s", code, said)
	}
	r.see("commands", said, state)
}

// agent returns a session of the key of who, and the names of the tools that say whose token a server was sent: of the servers that are listed.
func (r *consentRound) agent(who string, modern bool) (*rig.HTTPSession, []string) {
	r.t.Helper()
	s := r.g.OpenAtOnce(r.t, "/mcp", modern, "Authorization", "Bearer "+r.keys["agent "+who])
	m, _ := s.Ask(r.t, "tools/list", "{}")
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(m.Result, &list); err != nil {
		r.t.Fatalf("%v: %s", err, m.Raw)
	}
	var names []string
	for _, tool := range list.Tools {
		if strings.Contains(tool.Name, "whoami") {
			names = append(names, tool.Name)
		}
	}
	return s, names
}

var pathOfTicket = regexp.MustCompile(`/connect/([A-Za-z0-9_-]{20,})`)

// link returns the ticket of a call that is answered with a link. It is planted.
func (r *consentRound) link(who string) (ticket string) {
	r.t.Helper()
	rig.Eventually(r.t, "a call of "+who+" is answered with a link", func() string {
		s, names := r.agent(who, true)
		said := ""
		for _, name := range names {
			m, _ := s.Ask(r.t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, name))
			said += string(m.Raw) + "\n"
			if found := pathOfTicket.FindStringSubmatch(m.Text()); found != nil {
				ticket = found[1]
				r.see("answers", said, r.plantAs("ticket", ticket))
				return ""
			}
		}
		return said
	})
	return ticket
}

// connect makes the connection of who by a link, unless the person says no.
func (r *consentRound) connect(admin *tab, who string, no bool) {
	r.t.Helper()
	ticket := r.link(who)
	form := formToken.FindStringSubmatch(admin.open("the page of a link", "/connect/"+ticket, nil, r.plantAs("ticket", ticket), formOfAdmin))
	if form == nil {
		r.t.Fatal("the page of the link has no form")
	}
	r.p[formOfAdmin] = form[1] // one for each session
	b := *admin
	b.round = &round{t: r.t, p: r.p, g: r.g} // its page is seen below, when its secret is known
	page := b.open("the button of a link", "/connect/"+ticket, url.Values{"token": {form[1]}})
	found := leadsOn.FindStringSubmatch(page)
	if found == nil {
		r.t.Fatalf("the button leads to %s", page)
	}
	r.see("pages", b.all[0].text, r.plantState(html.UnescapeString(found[1])))
	for name, value := range admin.cookies {
		if strings.Contains(name, "connect") && value != "" {
			r.plantAs("cookie of a consent", value)
		}
	}
	back := r.a.Consent(r.t, html.UnescapeString(found[1]), who+"-at-the-provider")
	if no {
		q := back.Query()
		q.Set("error", "access_denied")
		q.Set("error_description", "no: "+q.Get("code")+" "+q.Get("state"))
		back.RawQuery = q.Encode()
	}
	page = admin.open("the end of a consent", "/connect/callback?"+back.RawQuery, nil)
	if connected := strings.Contains(page, "is connected"); connected == no {
		r.t.Errorf("the end of a consent of %s shows %s", who, page)
	}
}

// wrongLinks opens what is no link, and ends consents that are none.
func (r *consentRound) wrongLinks(admin *tab) {
	r.t.Helper()
	admin.open("a link of nobody", "/connect/"+r.p.plant("ticket of nobody")+"0123456789abcdef", nil)
	// This place shows that the search works in pages: the test itself writes the secret there.
	const code = "code without a consent"
	page := admin.open("an end without a consent", "/connect/callback?code="+r.p.plant(code)+"&state="+r.p.plant("state without a consent"), nil)
	r.see("pages", marker+page+r.p[code], code)
	if _, errs, code := rig.Command(r.t, r.dir, "server", "disconnect", "tracker", "--for", "acme/bob"); code != 0 {
		r.t.Fatal(errs)
	}
	r.connect(admin, "bob", true)
	r.connect(admin, "bob", false)
}

// calls makes calls that the servers answer, and calls whose answer repeats the whole request.
func (r *consentRound) calls() {
	r.t.Helper()
	all := map[string]*rig.Hosted{"tracker": r.tracker, "desk": r.desk, "robot": r.robot}
	for _, status := range []int{0, http.StatusInternalServerError, http.StatusForbidden} {
		for _, modern := range []bool{false, true} {
			s, names := r.agent("ann", modern)
			if len(names) != len(all) && status == 0 {
				r.t.Errorf("modern %v: ann's tools are %q", modern, names)
			}
			for _, h := range all {
				h.Echo(status)
			}
			for _, name := range names {
				m, said := s.Ask(r.t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, name))
				r.see("answers", fmt.Sprintf("%d: %s %s", status, m.Raw, said))
				if m.Text() == "" && status == 0 {
					r.t.Errorf("%s answers %s", name, m.Raw)
				}
			}
			for _, h := range all {
				h.Echo(0)
			}
		}
	}
}

// failingRefreshes has refreshes fail in each way: the provider repeats what it was sent.
func (r *consentRound) failingRefreshes(admin *tab) {
	r.t.Helper()
	secret := r.p["secret of a client"]
	refuse := func(status int, kind, text string) func(http.ResponseWriter, url.Values) bool {
		return func(w http.ResponseWriter, form url.Values) bool {
			if form.Get("grant_type") != "refresh_token" {
				return false
			}
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Location", r.a.URL+"/x?"+form.Encode())
			w.WriteHeader(status)
			echo := form.Get("refresh_token") + " " + form.Encode()
			if form.Get("client_id") == "" { // the client has authenticated itself with its secret
				echo += " " + secret
			}
			_, _ = w.Write([]byte(strings.ReplaceAll(text, "ECHO", echo)))
			return true
		}
	}
	const asJSON = "application/json"
	for what, answer := range map[string]func(http.ResponseWriter, url.Values) bool{
		"refused":              refuse(400, asJSON, `{"error":"invalid_grant","error_description":"ECHO"}`),
		"another client":       refuse(401, asJSON, `{"error":"invalid_client","error_description":"ECHO","error_uri":"ECHO"}`),
		"a code that echoes":   refuse(400, asJSON, `{"error":"ECHO","error_description":"no"}`),
		"a page":               refuse(500, "text/html", `<h1>ECHO</h1>`),
		"what is no JSON":      refuse(200, asJSON, `{"access_token": ECHO`),
		"another type":         refuse(200, asJSON, `{"access_token":"`+r.p.plant("token of another type")+`","token_type":"ECHO"}`),
		"a wider token":        refuse(200, asJSON, `{"access_token":"`+r.p.plant("token that is too wide")+`","token_type":"Bearer","scope":"ECHO"}`),
		"somewhere else":       refuse(302, asJSON, `{"error":"ECHO"}`),
		"an answer that ends":  func(w http.ResponseWriter, f url.Values) bool { panicUnlessOther(f); return false },
		"a token after a time": nil, // it works
	} {
		r.a.Answer(answer)
		r.a.ExpireAll()
		said, tickets := "", []string(nil)
		for _, modern := range []bool{false, true} {
			s, names := r.agent("ann", modern)
			for _, name := range names {
				m, _ := s.Ask(r.t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, name))
				if found := pathOfTicket.FindStringSubmatch(string(m.Raw)); found != nil {
					tickets = append(tickets, r.plantAs("ticket", found[1]))
				}
				said += string(m.Raw) + "\n"
			}
		}
		r.see("answers", what+": "+said, tickets...)
		r.a.Answer(nil)
		rig.Eventually(r.t, "ann is connected again after "+what, func() string {
			s, names := r.agent("ann", true)
			for _, name := range names {
				m, _ := s.Ask(r.t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, name))
				if m.Text() == "ann-at-the-provider" {
					return ""
				}
				if strings.Contains(m.Text(), "/connect/") {
					r.connect(admin, "ann", false)
					return "not yet"
				}
			}
			return "no answer of the server"
		})
		if r.t.Failed() {
			r.t.Fatalf("after %s", what)
		}
	}
}

// panicUnlessOther ends a refresh without an answer.
func panicUnlessOther(form url.Values) {
	if form.Get("grant_type") == "refresh_token" {
		panic(http.ErrAbortHandler)
	}
}

// disconnects ends connections at a provider that does not revoke, and at one that does, and revokes a key.
func (r *consentRound) disconnects() {
	r.t.Helper()
	r.a.Answer(func(w http.ResponseWriter, form url.Values) bool {
		if form.Get("grant_type") != "" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		text, _ := json.Marshal(map[string]string{"error": "invalid_request", "error_description": "not revoked: " + form.Get("token") + " " + form.Encode()})
		_, _ = w.Write(text)
		return true
	})
	r.command("", nil, "server", "disconnect", "tracker", "--for", "acme/ann")
	r.command("", nil, "server", "disconnect", "desk")
	r.ask("operator", http.MethodPost, "/v1/keys/"+hashOf(r.t, r.g, "agent", "bob")+"/revoke", `{"reason":"lost"}`, nil)
	r.a.Answer(nil)
	r.atTheDesk("desk", "ops")
	r.command("", nil, "server", "disconnect", "desk")
}

// reads reads all that can be read.
func (r *consentRound) reads(admin *tab) {
	r.t.Helper()
	at := r.g.AdminURL()
	for _, path := range []string{"/metrics", "/v1/status", "/v1/servers", "/v1/tools", "/v1/keys", "/v1/runs", "/v1/sessions", "/v1/receipts?limit=500", "/v1/receipts?tenant=acme&limit=500", "/v1/metrics/history", "/v1/tenants", "/v1/configuration/files"} {
		a := r.ask("operator", http.MethodGet, path, "", nil)
		if path == "/metrics" {
			r.see("metrics", a.Body)
		}
	}
	page := &tab{r.round, map[string]string{}}
	page.open("the sign-in of the operator", "/sign-in", url.Values{"key": {r.keys["operator"]}})
	page.session("of the operator")
	page.open("the operator's page", "/now", nil)
	admin.open("the admin's page", "/now", nil, formOfAdmin)
	for _, args := range []string{"status", "status --json", "server list", "tools", "runs", "explain --tenant acme", "key list --json", "sessions list --json", "metrics", "ready"} {
		r.command(r.keys["operator"], nil, append(strings.Fields(args), "--url", at)...)
	}
	for _, args := range []string{"validate", "doctor", "doctor --json", "store check --json", "receipts list --limit 5000", "receipts list --limit 5000 --json", "receipts export", "receipts verify", "logs --lines 0", "logs --lines 0 --json"} {
		r.command("", nil, strings.Fields(args)...)
	}
}
