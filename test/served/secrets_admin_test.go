package served_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/vault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/openapi"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// marker is the id of the operator of the round. It is no secret, so it is found in each place that is searched.
const marker = "opal-of-the-round"

// A searched is a text that was shown or kept in a place.
type searched struct {
	place, text string
	but         []string // the secrets that belong there
}

// A round is what operators and other officers do in a day, with secrets in all that they send.
type round struct {
	t    *testing.T
	p    planted
	g    *rig.Gateway
	dir  string
	keys officers
	is   *issuer

	mu  sync.Mutex
	all []searched
}

// see keeps a text, to search it when all secrets are known.
func (r *round) see(place, text string, but ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, searched{place, text, but})
}

// ask sends a request to the admin API, and keeps the answer. header has names and values in turn.
func (r *round) ask(who, method, path, body string, but []string, header ...string) rig.Answer {
	r.t.Helper()
	a := r.g.AskAdmin(r.t, r.keys[who], method, path, body, header...)
	r.see("answers", fmt.Sprintf("%s %s as %s: %d %v %s", method, strings.SplitN(path, "?", 2)[0], who, a.Status, a.Header, a.Body), but...)
	return a
}

// command runs a command, at debug level, and keeps its output.
func (r *round) command(key string, but []string, args ...string) (stdout string) {
	r.t.Helper()
	out, errs, code := rig.CommandAs(r.t, r.dir, key, append([]string{"-v"}, args...)...)
	shown := slices.Clone(args)
	for i, a := range shown {
		if strings.HasPrefix(a, "http") {
			shown[i] = "URL"
		}
	}
	r.see("commands", fmt.Sprintf("%q: exit %d\n%s%s", shown, code, out, errs), but...)
	return out
}

// send sends a request that may be refused, and keeps the answer.
func (r *round) send(what, method, to, body string, header http.Header) (*http.Response, string) {
	ctx, cancel := context.WithTimeout(r.t.Context(), rig.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return nil, ""
	}
	maps.Copy(req.Header, header)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		r.t.Errorf("%s: %v", what, err)
		return nil, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Errorf("%s: %v", what, err)
	}
	return resp, string(text)
}

// A tab is a browser, as far as a sign-in needs one.
type tab struct {
	*round
	cookies map[string]string
}

// open opens a page, or posts a form. The page may show the secrets in but.
func (b *tab) open(what, path string, form url.Values, but ...string) (page string) {
	b.t.Helper()
	at := b.g.AdminURL()
	header, method, body := http.Header{}, http.MethodGet, ""
	for name, value := range b.cookies {
		header.Add("Cookie", name+"="+value)
	}
	if form != nil {
		method, body = http.MethodPost, form.Encode()
		header.Set("Content-Type", "application/x-www-form-urlencoded")
		header.Set("Origin", at)
	}
	resp, page := b.send(what, method, at+path, body, header)
	if resp == nil {
		b.t.FailNow()
	}
	for _, c := range resp.Cookies() {
		b.cookies[c.Name] = c.Value
	}
	resp.Header.Del("Set-Cookie") // where the cookie belongs
	b.see("pages", fmt.Sprintf("%s: %s %v %s", what, resp.Status, resp.Header, page), but...)
	return page
}

// session plants the cookie of the tab's session.
func (b *tab) session(what string) (secret string) {
	b.t.Helper()
	for name, value := range b.cookies {
		if !strings.Contains(name, "sign-in") && value != "" {
			b.p["session cookie: "+what] = value
			return value
		}
	}
	b.t.Errorf("%s: there is no session", what)
	return ""
}

var ledTo = regexp.MustCompile(`<a href="([^"]+)"`)

// signInAt signs a person in at the issuer, whose token endpoint fails as mode says; "" means that it works.
func (r *round) signInAt(mode string) *tab {
	r.t.Helper()
	b := &tab{r, map[string]string{}}
	state, nonce, verifier := "state: "+mode, "nonce: "+mode, "PKCE verifier: "+mode
	page := b.open("the start of a sign-in, "+mode, "/sign-in", url.Values{"issuer": {"idp"}}, state, nonce)
	found := ledTo.FindStringSubmatch(page)
	if found == nil {
		r.t.Fatalf("the sign-in does not lead to the issuer: %s", page)
	}
	at, err := url.Parse(html.UnescapeString(found[1]))
	if err != nil {
		r.t.Fatal(err)
	}
	r.p[state], r.p[nonce] = at.Query().Get("state"), at.Query().Get("nonce")
	for _, value := range b.cookies {
		r.p["sealed sign-in: "+mode] = value
	}
	code := r.p.plant("code of the issuer: " + mode)
	r.is.mode, r.is.code, r.is.nonce = mode, code, r.p[nonce]
	r.is.access, r.is.refresh = r.p.plant("access token: "+mode), r.p.plant("refresh token: "+mode)
	b.open("the end of a sign-in, "+mode, "/sign-in/callback?"+url.Values{"code": {code}, "state": {r.p[state]}}.Encode(), nil)
	if r.p[verifier] = r.is.gotVerifier; r.is.gotVerifier == "" || r.is.gotBasic == "" {
		r.t.Errorf("%s: the issuer was not asked", mode)
	}
	if r.is.idToken != "" {
		r.p["ID token: "+mode] = r.is.idToken
	}
	return b
}

// LK-02, for officers: forty secrets and more, everywhere where one can stand at the admin side, are found nowhere else, at debug level, with each store.
func TestLK02TheSecretsOfOfficersAreFoundInNoOtherPlace(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	for _, kind := range []string{"file", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			goRound(t, kind)
		})
	}
}

func goRound(t *testing.T, kind string) {
	r := &round{t: t, p: planted{}, keys: officers{}, is: newIssuer(t)}
	p := r.p
	settings, disk := "", ""
	if kind == "redis" {
		redis := redistest.Start(t)
		disk = redis.Do("config", "get", "dir").([]any)[1].(string)
		redis.Do("config", "set", "requirepass", p.plant("password of Redis"))
		settings = fmt.Sprintf("store: \"redis://:${file:secrets/redis}@%s\"\ncluster: {secret: \"${file:secrets/cluster}\", listen: \"127.0.0.1:0\"}\n", redis.Addr)
	}
	text := `
-- secrets/redis --
` + p["password of Redis"] + `
-- secrets/cluster --
` + p.plant("secret of the cluster") + `
-- secrets/idp --
` + p.plant("client secret at the issuer") + `
-- secrets/token --
` + p.plant("variable of a server") + `
-- secrets/header --
` + p.plant("header of a server") + `
-- switchboard.yaml --
` + settings + fmt.Sprintf(`issuers: {idp: {url: %q, sign_in: {id: sb, secret: "${file:secrets/idp}"}}}
operators: [{key: %s, hash: "HASH:operator"}, {key: spare, hash: "HASH:spare operator"}, {issuer: idp, claim: team, value: platform}]
servers:
  a: {transport: stdio, env: {API_TOKEN: "${file:secrets/token}"}, command: [sh, -c, 'env >&2; exec "$@"', sh, FAKE, '%s']}
  away: {transport: http, url: "http://127.0.0.1:1/mcp?site=%s", headers: {Authorization: "Bearer ${file:secrets/header}"}}
tenants:
  acme: {servers: ["*"], allow: [by_name], offices: [admin, author, viewer], approvers: [{key: lea, hash: "HASH:approver"}]}
  umbrella: {servers: ["*"], allow: [by_name], offices: [admin]}
`, r.is.URL, marker, fmt.Sprintf(rig.Tool, "work"), p.plant("query of a server's address")) + `
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [{id: alice, hash: "HASH:agent", next: "HASH:next agent"}, {id: eve, hash: "HASH:revoked agent"}]
members:
  - {key: ann, hash: "HASH:admin", offices: [admin]}
  - {key: art, hash: "HASH:author", offices: [author]}
  - {key: vic, hash: "HASH:viewer", offices: [viewer]}
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"], optional: true}]
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
default_task: all
members: [{key: uma, hash: "HASH:other admin", offices: [admin]}]
-- tenants/umbrella/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"], optional: true}]
`
	for _, who := range []string{"operator", "spare operator", "approver", "agent", "next agent", "revoked agent", "admin", "author", "viewer", "other admin"} {
		prefix := identity.PersonPrefix
		if strings.HasSuffix(who, "agent") {
			prefix = identity.AgentPrefix
		}
		key, hash := identity.Mint(prefix)
		r.keys[who], p["key of "+who] = key, key
		text = strings.Replace(text, `"HASH:`+who+`"`, fmt.Sprintf("%q", hash), 1)
	}
	r.dir = rig.LayOut(t, text)
	g := rig.ServeAtOnce(t, r.dir)
	r.g = g
	row, err := g.Row()
	if err != nil {
		t.Fatal(err)
	}
	p["token of operator.json"] = row.Token.Reveal()
	admin := g.AdminURL()

	streams := map[string]<-chan string{}
	for _, who := range []string{"operator", "viewer"} {
		streams[who] = follow(t, http.MethodGet, admin+"/v1/events", "", http.Header{"Authorization": {"Bearer " + r.keys[who]}})
	}
	r.agents()
	r.people()
	r.files()
	r.wrong()
	r.looks()
	r.keysAndBlocks()

	g.Signal(t, syscall.SIGTERM)
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	for who, said := range streams {
		r.see("events", who+": "+wait.Receive(t, "the events of "+who, said))
	}
	r.see("the log", g.Logged())
	kept := []string{"revoked", "session", "once-admin", "archive"}
	if kind == "file" {
		kept = append(kept, "changes")
	}
	r.kept(disk, kept...)

	want := []string{"answers", "pages", "commands", "metrics", "events", "the log", "the data folder", "the store"}
	if kind == "redis" {
		want = append(want, "Redis")
	}
	r.judge(want, []string{"state: ", "nonce: ", "comment that was tried", "new key of a person", "code of the page by the command"})
}

// judge searches all texts for the secrets. They must be at least 40. The marker must be in each place, and each of belong where it belongs: otherwise the
// search does not work.
func (r *round) judge(places, belong []string) {
	t, p := r.t, r.p
	t.Helper()
	if len(p) < 40 {
		t.Errorf("%d secrets were planted", len(p))
	}
	for what, secret := range p {
		if len(secret) < 20 {
			t.Errorf("the %s is too short to be searched: %q", what, secret)
		}
	}
	marked, found := map[string]int{}, map[string]bool{}
	for _, s := range r.all {
		if strings.Contains(s.text, marker) || s.place == "metrics" && strings.Contains(s.text, `tenant="acme"`) || s.place == "Redis" && strings.Contains(s.text, "switchboard:") {
			marked[s.place]++
		}
		for _, what := range p.found(s.text) {
			if slices.Contains(s.but, what) {
				found[what] = true
			}
		}
		p.nowhere(t, s.place, s.text, s.but...)
	}
	for _, place := range places {
		if marked[place] == 0 {
			t.Errorf("what is no secret is not found in %s: the search does not work there", place)
		}
	}
	for _, what := range belong {
		if !found[what] {
			t.Errorf("the secret of %q is not found where it belongs: the search does not work", what)
		}
	}
	t.Logf("%d secrets, %d texts; the marker is found in %v", len(p), len(r.all), marked)
}

// agents makes calls, with each key.
func (r *round) agents() {
	r.t.Helper()
	for who, want := range map[string]string{"agent": "", "next agent": "", "revoked agent": ""} {
		s := r.g.Open(r.t, "/mcp", true, "Authorization", "Bearer "+r.keys[who])
		for _, params := range []string{
			fmt.Sprintf(`{"name":"work","arguments":{"q":%q}}`, r.p.plant("argument of "+who)), // which is in the result
			fmt.Sprintf(`{"_meta":{"io.switchboard/idempotency-key":%q},"name":"work","arguments":{}}`, r.p.plant("idempotency key of "+who)),
		} {
			if m, _ := s.Ask(r.t, "tools/call", params); rig.Code(m) != want {
				r.t.Errorf("a call of the %s: %s", who, m.Raw)
			}
		}
	}
}

// people sign in and out, in each way.
func (r *round) people() {
	r.t.Helper()
	for _, mode := range []string{
		"the description echoes", "the code of the error echoes", "it fails and echoes", "it answers what is no JSON", "it leads elsewhere", "the person's claims fail and echo", "the nonce is wrong", "the signature is wrong",
	} {
		if b := r.signInAt(mode); len(slices.DeleteFunc(slices.Collect(maps.Keys(b.cookies)), func(name string) bool { return strings.Contains(name, "sign-in") })) > 0 {
			r.t.Errorf("%s: somebody is signed in", mode)
		}
	}
	at := r.signInAt("")
	if page := at.open("the page of ann", "/now", nil); !strings.Contains(page, "idp/ann") {
		r.t.Errorf("ann is not signed in: %s", page)
	}
	at.session("signed in at the issuer")

	stays := &tab{r, map[string]string{}}
	stays.open("a sign-in that stays", "/sign-in", url.Values{"key": {r.keys["spare operator"]}})
	stays.session("that stays")
	byKey := &tab{r, map[string]string{}}
	byKey.open("a sign-in with a key", "/sign-in", url.Values{"key": {r.keys["operator"]}})
	if page := byKey.open("the page of the operator", "/now", nil); !strings.Contains(page, marker) {
		r.t.Errorf("the operator is not signed in: %s", page)
	}
	secret := byKey.session("with a key")
	for _, path := range []string{"/v1/sessions", "/v1/status", "/metrics"} {
		_, body := askWithSession(r.t, r.g, secret, http.MethodGet, path, "")
		r.see("answers", "with a session: "+body)
	}
	mistyped := r.keys["spare operator"][:len(r.keys["spare operator"])-1] + "~"
	r.p["mistyped key in a form"] = mistyped
	(&tab{r, map[string]string{}}).open("a sign-in with a mistyped key", "/sign-in", url.Values{"key": {mistyped}})

	// The codes of "switchboard page".
	codes := map[string]string{}
	const once = "idempotency key of a code"
	for what, header := range map[string][]string{"by the API": nil, "by the API with an idempotency key": {"Idempotency-Key", r.p.plant(once)}} {
		var made struct{ Path string }
		a := r.g.AskAdmin(r.t, r.keys["operator"], http.MethodPost, "/v1/page-codes", "", header...)
		if err := json.Unmarshal([]byte(a.Body), &made); err != nil || a.Status != http.StatusCreated {
			r.t.Fatalf("%d %s", a.Status, a.Body)
		}
		_, codes[what], _ = strings.Cut(made.Path, "code=")
	}
	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(r.command(r.keys["operator"], []string{"code of the page by the command"}, "page", "--json", "--url", r.g.AdminURL())), &opened); err != nil {
		r.t.Fatal(err)
	}
	_, codes["by the command"], _ = strings.Cut(opened.URL, "code=")
	for what, code := range codes {
		r.p["code of the page "+what] = code
	}
	b := &tab{r, map[string]string{}}
	for range 2 { // the second time it is refused
		b.open("a sign-in with a code", "/sign-in/code?code="+codes["by the command"], nil)
	}
	b.session("with a code")
	b.open("a sign-in with a code of nobody", "/sign-in/code?code="+r.p.plant("code of nobody"), nil)

	// Out again.
	token := regexp.MustCompile(`name="token" value="([0-9a-f]+)"`).FindStringSubmatch(byKey.open("the page again", "/now", nil))
	if token == nil {
		r.t.Fatal("the page has no form to sign out with")
	}
	byKey.open("a sign-out", "/sign-out", url.Values{"token": {token[1]}})
	var list struct {
		Sessions []struct{ ID, Officer string }
	}
	a := r.ask("operator", http.MethodGet, "/v1/sessions", "", nil)
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || len(list.Sessions) != 3 {
		r.t.Fatalf("%v %s", err, a.Body)
	}
	list.Sessions = slices.DeleteFunc(list.Sessions, func(s struct{ ID, Officer string }) bool {
		return s.Officer == hashOf(r.t, r.g, "operator", "spare")
	})
	r.command(r.keys["operator"], nil, "sessions", "list", "--url", r.g.AdminURL())
	r.command(r.keys["operator"], nil, "sessions", "end", list.Sessions[0].ID, "--url", r.g.AdminURL())
	r.ask("operator", http.MethodDelete, "/v1/sessions/"+list.Sessions[1].ID, "", nil, "Idempotency-Key", r.p.plant("idempotency key of an end"))
}

// files tries changes of files, makes some and reverts them.
func (r *round) files() {
	r.t.Helper()
	const main, tenant = "switchboard.yaml", "tenants/acme/tenant.yaml"
	read := func(name string) (text, etag string) {
		text = rig.ReadFile(r.t, filepath.Join(r.dir, filepath.FromSlash(name)))
		return text, r.g.AskAdmin(r.t, r.keys["operator"], http.MethodGet, changePath(name), "").Header.Get("ETag")
	}
	comment := func(what string) string { return "\n# " + r.p.plant(what) + "\n" }
	text, etag := read(tenant)
	tried := textBody(r.t, text+comment("comment that was tried"))
	r.ask("admin", http.MethodPut, changePath(tenant, "dry_run=true"), tried, []string{"comment that was tried"}, "Idempotency-Key", r.p.plant("idempotency key of a trial"))

	// A change that is made; where a Redis is shared, it is refused with the difference.
	const made = "comment of a change"
	r.ask("admin", http.MethodPut, changePath(tenant), textBody(r.t, text+comment(made)), []string{made}, "If-Match", etag, "Idempotency-Key", r.p.plant("idempotency key of a change"))
	rig.WriteFile(r.t, filepath.Join(r.dir, "new.yaml"), text+comment("comment of a change by a command"))
	r.command(r.keys["admin"], []string{made, "comment of a change by a command"}, "config", "put", tenant, "new.yaml", "--reason", "a new day", "--url", r.g.AdminURL())
	r.command(r.keys["admin"], []string{made, "comment of a change by a command"}, "config", "set", allTask, "token_budget", "50000", "--url", r.g.AdminURL())
	r.ask("admin", http.MethodPost, "/v1/configuration/changes/2/revert", `{"reason":"back"}`, nil)

	// Changes with faults, and one that is refused because it changes what is run.
	text, etag = read(main)
	for what, change := range map[string]func(secret string) string{
		"literal header in a change":   func(s string) string { return strings.Replace(text, "Bearer ${file:secrets/header}", "Bearer "+s, 1) },
		"literal variable in a change": func(s string) string { return strings.Replace(text, `"${file:secrets/token}"`, s, 1) },
		"unknown key in a change":      func(s string) string { return text + "pasword: " + s + "\n" },
		"line that is no YAML":         func(s string) string { return text + "x: [" + s + "\n\ty: }\n" },
		"client secret in a change":    func(s string) string { return strings.Replace(text, "${file:secrets/idp}", s, 1) },
		"key in the place of a hash": func(string) string {
			key, _ := identity.Mint(identity.PersonPrefix)
			r.p["key in the place of a hash"] = key
			return strings.Replace(text, "operators: [", fmt.Sprintf("operators: [{key: new, hash: %q}, ", key), 1)
		},
		"password in an address": func(s string) string {
			return strings.Replace(text, "http://127.0.0.1:1/", "http://me:"+s+"@127.0.0.1:1/", 1)
		},
	} {
		for _, query := range []string{"dry_run=true", "dry_run=false"} {
			// The trial's difference has the text of the file; the refusal has faults alone.
			but := []string{what, "query of a server's address"}
			if query == "dry_run=false" {
				but = nil
			}
			a := r.ask("operator", http.MethodPut, changePath(main, query), textBody(r.t, change(r.p.plant(what))), but, "If-Match", etag, "Idempotency-Key", r.p.plant("idempotency key: "+what))
			if a.Status != http.StatusUnprocessableEntity && query == "dry_run=false" {
				r.t.Errorf("%s: %d %s", what, a.Status, a.Body)
			}
		}
	}
	const programs = "comment beside another program"
	a := r.ask("operator", http.MethodPut, changePath(main), textBody(r.t, strings.Replace(text, "env >&2", "env >&2; true", 1)+comment(programs)), []string{programs, "query of a server's address"}, "If-Match", etag, "Idempotency-Key", r.p.plant("idempotency key of another program"))
	if a.Status != http.StatusConflict || !strings.Contains(a.Body, "SB-CONF-003") {
		r.t.Errorf("another program: %d %s", a.Status, a.Body)
	}
	const misplaced = "value in the wrong place" // of which the fault tells who has sent it
	r.ask("admin", http.MethodPatch, changePath(allTask), fmt.Sprintf(`{"edits":[{"at":"/token_budget","value":%q}]}`, r.p.plant(misplaced)), []string{misplaced}, "If-Match", r.g.AskAdmin(r.t, r.keys["admin"], http.MethodGet, changePath(allTask), "").Header.Get("ETag"))

	// What if, and the tests of policies.
	rego := func(what string) string {
		return "package switchboard.tenant\n" + rig.AllowAll + "# " + r.p.plant(what) + "\n"
	}
	files := func(path, text string) string {
		body, err := json.Marshal(map[string]any{"files": []any{map[string]string{"path": path, "text": text}}})
		if err != nil {
			r.t.Fatal(err)
		}
		return string(body)
	}
	a = r.ask("author", http.MethodPost, "/v1/policy-diffs", files(ownPolicy, rego("comment in a proposal")), nil, "Idempotency-Key", r.p.plant("idempotency key of a proposal"))
	at := a.Header.Get("Location")
	rig.Eventually(r.t, "the comparison ends", func() string {
		if a := r.ask("author", http.MethodGet, at, "", nil); a.Status != http.StatusOK || strings.Contains(a.Body, `"state":"running"`) {
			return a.Body
		}
		return ""
	})
	r.ask("author", http.MethodPost, "/v1/tenants/acme/policies/test", files("veto.rego", rego("comment in a test")), nil)
	r.ask("author", http.MethodPut, changePath(ownPolicy, "dry_run=true"), textBody(r.t, rego("comment in a policy that was tried")), []string{"comment in a policy that was tried"})
}

// wrong sends secrets in all the wrong ways.
func (r *round) wrong() {
	r.t.Helper()
	admin := r.g.AdminURL()
	agent, _ := identity.Mint(identity.AgentPrefix)
	person, _ := identity.Mint(identity.PersonPrefix)
	r.p["agent's key of nobody"], r.p["person's key of nobody"] = agent, person
	part := base64.RawURLEncoding.EncodeToString
	r.p["foreign token"] = part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(`{"sub":"ann","iss":"`+r.is.URL+`"}`)) + "." + part([]byte(r.p.plant("signature of a foreign token")))
	basic := base64.StdEncoding.EncodeToString([]byte("app:" + r.p.plant("password in a Basic header")))
	port := admin[strings.LastIndex(admin, ":")+1:]
	json := http.Header{"Content-Type": {"application/json"}}
	with := func(name, value string) http.Header {
		h := json.Clone()
		h.Set(name, value)
		return h
	}
	operator := with("Authorization", "Bearer "+r.keys["operator"])
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	var all sync.WaitGroup
	for _, q := range []struct {
		what, method, to, body string
		header                 http.Header
	}{
		{"an agent's key of nobody", "POST", r.g.URL + "/mcp", ping, with("Authorization", "Bearer "+agent)},
		{"a person's key at the agents' address", "POST", r.g.URL + "/mcp", ping, with("Authorization", "Bearer "+r.keys["operator"])},
		{"a revoked key", "POST", r.g.URL + "/mcp", ping, with("Authorization", "Bearer "+r.keys["revoked agent"])},
		{"a foreign token at the agents' address", "POST", r.g.URL + "/mcp", ping, with("Authorization", "Bearer "+r.p["foreign token"])},
		{"a Basic header at the agents' address", "POST", r.g.URL + "/mcp", ping, with("Authorization", "Basic "+basic)},
		{"a key in the query of the agents' address", "POST", r.g.URL + "/mcp?key=" + r.p.plant("query at the agents' address"), ping, json},
		{"a key in the path of the agents' address", "POST", r.g.URL + "/mcp/tasks/" + r.p.plant("path at the agents' address"), ping, json},
		{"a method of MCP that is none", "POST", r.g.URL + "/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"keys/new","params":{"key":%q}}`, r.p.plant("argument of a method that is none")), with("Authorization", "Bearer "+r.keys["agent"])},
		{"a method of HTTP that is none", "PUT", r.g.URL + "/mcp", r.p.plant("body of a method that is none"), json},

		{"a person's key of nobody", "GET", admin + "/v1/status", "", with("Authorization", "Bearer "+person)},
		{"an agent's key at the admin address", "GET", admin + "/v1/status", "", with("Authorization", "Bearer "+r.keys["agent"])},
		{"a foreign token", "GET", admin + "/v1/status", "", with("Authorization", "Bearer "+r.p["foreign token"])},
		{"a Basic header", "GET", admin + "/v1/status", "", with("Authorization", "Basic "+basic)},
		{"a bare key", "GET", admin + "/v1/status", "", with("Authorization", r.p.plant("bare key"))},
		{"a word and a key", "GET", admin + "/v1/status", "", with("Authorization", "Token "+r.p.plant("key behind another word"))},
		{"a long token", "GET", admin + "/v1/status", "", with("Authorization", "Bearer "+r.p.plant("begin of a long token")+strings.Repeat("x", 9000))},
		{"a key in another header", "GET", admin + "/v1/status", "", with("X-Api-Key", r.p.plant("key in another header"))},
		{"a session of nobody", "GET", admin + "/v1/status", "", with("Cookie", "switchboard-"+port+"="+r.p.plant("session of nobody"))},
		{"a key in a query", "GET", admin + "/v1/status?key=" + r.p.plant("query of a request"), "", operator},
		{"a token in the query of the metrics", "GET", admin + "/metrics?access_token=" + r.p.plant("query of the metrics"), "", operator},
		{"a key in a path", "POST", admin + "/v1/keys/" + r.p.plant("key in a path") + "/revoke", "{}", operator},
		{"a key in a path that is none", "GET", admin + "/v1/" + r.p.plant("path that is none"), "", operator},
		{"a member that is none", "POST", admin + "/v1/blocks", fmt.Sprintf(`{"issuer":"idp","subject":"x","password":%q}`, r.p.plant("member that is none")), operator},
		{"a value of another type", "POST", admin + "/v1/servers/a/restart", fmt.Sprintf(`{"reason":{"key":%q}}`, r.p.plant("value of another type")), operator},
		{"a member twice", "POST", admin + "/v1/servers/a/restart", fmt.Sprintf(`{"reason":%q,"reason":"x"}`, r.p.plant("member that is there twice")), operator},
		{"a body that is no JSON", "POST", admin + "/v1/blocks", "key=" + r.p.plant("body that is no JSON"), operator},
		{"a method that is none here", "PUT", admin + "/v1/keys", fmt.Sprintf(`{"key":%q}`, r.p.plant("body of a wrong method")), operator},
		{"an entity tag", "DELETE", admin + changePath(allTask), "", func() http.Header {
			h := operator.Clone()
			h.Set("If-Match", `"`+r.p.plant("entity tag")+`"`)
			return h
		}()},
		{"an idempotency key with a space", "POST", admin + "/v1/servers/a/restart", "{}", func() http.Header {
			h := operator.Clone()
			h.Set("Idempotency-Key", r.p.plant("idempotency key with a space")+" x")
			return h
		}()},
		{"a query of the callback", "GET", admin + "/sign-in/callback?code=" + r.p.plant("code without a sign-in") + "&state=" + r.p.plant("state without a sign-in"), "", nil},
		{"a body of a wrong type", "POST", admin + "/sign-in", "key=" + r.p.plant("key in a form of another page"), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {"https://evil.example"}}},
	} {
		all.Go(func() {
			resp, text := r.send(q.what, q.method, q.to, q.body, q.header)
			if resp == nil {
				return
			}
			if resp.StatusCode < 400 && resp.StatusCode != http.StatusOK {
				r.t.Errorf("%s: %s", q.what, resp.Status)
			}
			r.see("answers", fmt.Sprintf("%s: %s %v %s", q.what, resp.Status, resp.Header, text))
		})
	}
	all.Wait()
	// Commands that are given secrets in the wrong place.
	r.command(person, nil, "status", "--url", admin)
	r.command("", nil, "status", "--url", "http://me:"+r.p.plant("password in --url")+"@127.0.0.1:1")
	r.command("", nil, "status", "--url", "http://127.0.0.1:1/?key="+r.p.plant("query of --url"))
	r.command(r.p.plant("key of a command that is none"), nil, "key", "list", "--url", admin)
}

// looks reads everything that can be read, as several officers and by commands.
func (r *round) looks() {
	r.t.Helper()
	admin := r.g.AdminURL()
	var decision string
	rig.Eventually(r.t, "a decision and the receipts of calls can be read", func() string {
		var list struct{ Decisions []struct{ ID string } }
		a := r.g.AskAdmin(r.t, r.keys["operator"], http.MethodGet, "/v1/decisions?tenant=acme", "")
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil || len(list.Decisions) == 0 {
			return a.Body
		}
		decision = list.Decisions[0].ID
		return ""
	})
	node, entry, _ := strings.Cut(decision, "/")
	texts := []string{"comment of a change", "comment of a change by a command"} // of files, for who may read the files
	n := 0
	for _, op := range openapi.Operations() {
		if op.Method != http.MethodGet || op.Path == "/v1/events" || strings.Contains(op.Path, "{diff}") {
			continue
		}
		path := strings.NewReplacer("{tenant}", "acme", "{server}", "a", "{change}", "1", "{node}", node, "{entry}", entry).Replace(op.Path)
		query := ""
		switch path {
		case "/v1/search":
			query = "?query=work"
		case "/v1/receipt":
			query = "?tenant=acme&id=" + decision
		case "/v1/configuration/file":
			query = "?path=tenants/acme/tenant.yaml"
		}
		for _, who := range []string{"operator", "admin", "viewer", "other admin"} {
			var but []string
			if (path == "/v1/configuration/file" || strings.HasPrefix(path, "/v1/configuration/changes/")) && (who == "operator" || who == "admin") {
				but = texts
			}
			if a := r.ask(who, http.MethodGet, path+query, "", but); a.Status == http.StatusOK {
				n++
				if path == "/metrics" {
					r.see("metrics", a.Body)
				}
			}
		}
	}
	if n < 40 {
		r.t.Errorf("%d answers were read", n)
	}
	for _, args := range []string{
		"status", "status --json", "metrics", "metrics --history", "runs", "server list", "tools", "tasks --tenant acme", "explain --tenant acme", "search work", "ready",
		"decisions list", "decisions list --json", "decisions show " + decision, "config files", "config history", "policy list --tenant acme", "key list", "key list --json", "sessions list --json", "person blocked",
	} {
		r.command(r.keys["operator"], nil, append(strings.Fields(args), "--url", admin)...)
	}
	r.command(r.keys["operator"], texts, "config", "get", "tenants/acme/tenant.yaml", "--url", admin)
	for _, args := range []string{
		"validate", "doctor", "doctor --json", "store check --json", "receipts list --limit 5000", "receipts list --limit 5000 --json", "receipts export", "receipts verify", "receipts show " + decision, "logs --lines 0", "logs --lines 0 --json", "policy diff --against . --json",
	} {
		r.command("", nil, strings.Fields(args)...)
	}
}

// keysAndBlocks makes keys, revokes one, and blocks a person.
func (r *round) keysAndBlocks() {
	r.t.Helper()
	admin := r.g.AdminURL()
	for what, args := range map[string]string{"new key of a person": "key new ann2 --operator --json", "new key of an agent": "key new bob --tenant acme --json", "key that replaces another": "key rotate eve --tenant acme --json"} {
		var made struct{ Key string }
		// This is the one place where a new key is shown.
		if err := json.Unmarshal([]byte(r.command("", []string{what}, strings.Fields(args)...)), &made); err != nil || made.Key == "" {
			r.t.Errorf("%s: %v", args, err)
		}
		r.p[what] = made.Key
	}
	r.command(r.keys["operator"], nil, "key", "revoke", "eve", "--tenant", "acme", "--reason", "lost", "--url", admin)
	r.command(r.keys["revoked agent"], nil, "key", "list", "--url", admin)
	r.ask("operator", http.MethodPost, "/v1/blocks", `{"issuer":"idp","subject":"mallory","reason":"left"}`, nil, "Idempotency-Key", r.p.plant("idempotency key of a block"))
	r.command(r.keys["operator"], nil, "person", "unblock", "idp", "mallory", "--url", admin)
	r.ask("operator", http.MethodPost, "/v1/servers/a/disable", `{"reason":"it is moved"}`, nil, "Idempotency-Key", r.p.plant("idempotency key of a disable"))
	r.command(r.keys["operator"], nil, "server", "enable", "a", "--url", admin)
	r.ask("operator", http.MethodGet, "/v1/receipts?limit=500", "", nil)
	r.ask("operator", http.MethodGet, "/v1/keys", "", nil)
}

// kept looks at what has stayed on the disk and in the store, which has these groups. disk is the folder of a Redis.
func (r *round) kept(disk string, want ...string) {
	r.t.Helper()
	texts := []string{"comment of a change", "comment of a change by a command"} // the history keeps the texts of changed files
	err := filepath.WalkDir(filepath.Join(r.dir, ".switchboard"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		but := texts
		switch {
		case strings.HasSuffix(path, "operator.json"):
			but = []string{"token of operator.json"}
		case filepath.Base(path) == vault.KeyName:
			but = []string{keyOfVault}
		case strings.Contains(path, "logs"):
			but = nil
		}
		r.see("the data folder", path+": "+string(text), but...)
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
	export, errs, code := rig.Command(r.t, r.dir, "-v", "store", "export", "-")
	if r.see("commands", "store export: "+errs); code != 0 {
		r.t.Fatalf("export: exit %d: %s", code, errs)
	}
	read := store.NewMemory()
	if err := store.Import(r.t.Context(), read, strings.NewReader(export)); err != nil {
		r.t.Fatal(err)
	}
	groups := map[string]bool{}
	err = read.Dump(r.t.Context(), func(e store.Record) error {
		text := append(e.Value.Data, e.Entry.Data...)
		if z, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			if text, err = io.ReadAll(z); err != nil {
				return err
			}
		}
		group, _, _ := strings.Cut(e.Group, "/")
		groups[group] = true
		var but []string
		if group == "changes" {
			but = texts
		}
		r.see("the store", e.Group+" "+e.Name+" "+string(text), but...)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, group := range want {
		if !groups[group] {
			r.t.Errorf("nothing is kept of %s: %q", group, slices.Sorted(maps.Keys(groups)))
		}
	}
	if disk == "" {
		return
	}
	err = filepath.WalkDir(disk, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		r.see("Redis", path+": "+string(text))
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
}
