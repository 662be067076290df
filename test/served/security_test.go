package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// twoTenants is acme with alice and bob, and other with eve.
func twoTenants(t *testing.T) (dir string, keys map[string]string) {
	t.Helper()
	keys = map[string]string{}
	rows := map[string]string{}
	for _, who := range []struct {
		id   string
		args []string
	}{{"alice", []string{"--task", "work", "--task", "rest"}}, {"bob", nil}, {"mallory", nil}} {
		keys[who.id], rows[who.id] = rig.NewKey(t, who.id, who.args...)
	}
	dir = rig.LayOut(t, `
-- switchboard.yaml --
servers:
  a: {transport: stdio, command: [FAKE, '{"name":"one","inputSchema":{"type":"object"}}']}
  b: {transport: stdio, command: [FAKE, '{"name":"two","inputSchema":{"type":"object"}}']}
tenants:
  acme: {servers: [a], allow: [by_name]}
  other: {servers: [b], allow: [by_name]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: work
keys:
`+rows["alice"]+rows["bob"]+`
-- tenants/acme/tasks/work.yaml --
task_id: work
required_capabilities: [{tools: ["a/*"]}]
-- tenants/acme/tasks/rest.yaml --
task_id: rest
required_capabilities: [{tools: ["a/*"]}]
-- tenants/other/tenant.yaml --
tenant: other
default_task: work
keys:
`+rows["mallory"]+`
-- tenants/other/tasks/work.yaml --
task_id: work
required_capabilities: [{tools: ["b/*"]}]
`)
	return dir, keys
}

func TestAKeyBindsTheTasksThatItNamesAndSeesItsOwnTenantOnly(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := twoTenants(t)
	g := rig.Serve(t, dir)
	for _, tt := range []struct {
		who, path string
		want      string // the tools, or the code
	}{
		{"alice", "/mcp", "one"},
		{"alice", "/mcp/tasks/rest", "one"},
		{"bob", "/mcp", "one"},
		{"bob", "/mcp/tasks/work", "one"},
		{"bob", "/mcp/tasks/rest", "SB-TASK-001"},
		{"mallory", "/mcp", "two"},
		{"mallory", "/mcp/tasks/rest", "SB-TASK-001"},
		{"nobody", "/mcp", "SB-AUTH-001"},
	} {
		s := g.Open(t, tt.path, true, "Authorization", "Bearer "+keys[tt.who])
		if m, _ := s.Ask(t, "tools/list", ""); m.Error != nil {
			if !strings.Contains(string(m.Error.Data), tt.want) {
				t.Errorf("%s at %s: %s, want %s", tt.who, tt.path, m.Raw, tt.want)
			}
		} else if got := rig.ListNames(t, s); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s at %s lists %q, want %s", tt.who, tt.path, got, tt.want)
		}
	}
}

func TestAViewerIsToldThatTheConfigurationWasRefusedAndNotWhy(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	elsewhere, url := t.TempDir(), g.AdminURL()
	rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])) // all servers have answered
	out, errs, code := rig.CommandAs(t, elsewhere, keys["viewer"], "status", "--url", url)
	if code != 0 || strings.Contains(out, "refused") {
		t.Errorf("while all is well: exit %d\n%s%s", code, out, errs)
	}
	rig.WriteFile(t, filepath.Join(dir, "tenants/umbrella/tasks/broken.yaml"), "task_id: broken\nrequired: []\n")
	rig.Eventually(t, "the faulty part is counted", func() string {
		if _, body := g.Ready(t); !strings.Contains(body, `"configuration_faulty_parts":1`) {
			return body
		}
		return ""
	})
	if out, _, code := rig.CommandAs(t, elsewhere, keys["viewer"], "status", "--url", url); code != 0 || strings.Contains(out, "faulty") || strings.Contains(out, "broken") {
		t.Errorf("the viewer is told of another tenant's fault: exit %d\n%s", code, out)
	}
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, main, rig.ReadFile(t, main)+"broken: true\n")
	rig.Eventually(t, "the refusal is said", func() string {
		out, errs, code = rig.CommandAs(t, elsewhere, keys["viewer"], "status", "--url", url)
		if code != 1 || !strings.Contains(out, "was refused; the one from") || !strings.Contains(out, "its operator's log says why") {
			return fmt.Sprintf("exit %d\n%s%s", code, out, errs)
		}
		return ""
	})
	raw, _, _ := rig.CommandAs(t, elsewhere, keys["viewer"], "status", "--url", url, "--json")
	var st struct {
		Refused map[string]any `json:"configuration_refused"`
	}
	if err := json.Unmarshal([]byte(raw), &st); err != nil || st.Refused["when"] == nil {
		t.Errorf("%v: %s", err, raw)
	}
	for _, text := range []string{out, raw} {
		if strings.Contains(text, "broken") || strings.Contains(text, `\"required\"`) || strings.Contains(text, `"pid`) || strings.Contains(text, `"faults"`) {
			t.Errorf("the viewer is told what is the operator's: %s", text)
		}
	}
}

// AZ-01, SE-01, SE-02: what is another's is as if it did not exist.
func TestSessionsAndRunsAreTheirPrincipalsAlone(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := twoTenants(t)
	g := rig.Serve(t, dir)
	alice := g.Open(t, "/mcp", false, "Authorization", "Bearer "+keys["alice"])
	if alice.ID == "" {
		t.Fatal("no session id")
	}
	run := rig.MintRun(t, g, keys["alice"], "work")
	if got := rig.ListNames(t, g.Open(t, "/mcp/runs/"+run, true, "Authorization", "Bearer "+keys["alice"])); !slices.Equal(got, []string{"one"}) {
		t.Errorf("alice's own run lists %q", got)
	}
	for _, who := range []string{"bob", "mallory"} {
		thief := &rig.HTTPSession{URL: g.URL + "/mcp", ID: alice.ID, Header: http.Header{"Authorization": {"Bearer " + keys[who]}}}
		_, r := thief.Post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil)
		if r.StatusCode != http.StatusNotFound {
			t.Errorf("%s with alice's session gets %d", who, r.StatusCode)
		}
		m, _ := g.Open(t, "/mcp/runs/"+run, true, "Authorization", "Bearer "+keys[who]).Ask(t, "tools/list", "")
		never, _ := g.Open(t, "/mcp/runs/"+strings.Repeat("0", 32), true, "Authorization", "Bearer "+keys[who]).Ask(t, "tools/list", "")
		if m.Error == nil || string(m.Raw) != string(never.Raw) {
			t.Errorf("%s with alice's run gets %s, with one that never was %s", who, m.Raw, never.Raw)
		}
	}
	if got := rig.ListNames(t, alice); !slices.Equal(got, []string{"one"}) {
		t.Errorf("alice is affected: %q", got)
	}
}

// What was open before a reload is no way around it.
func TestAReloadThatNarrowsOrRemovesAKeyReachesItsOpenSessions(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	dir, keys := twoTenants(t)
	g := rig.Serve(t, dir)
	file := filepath.Join(dir, "tenants/acme/tenant.yaml")
	tenant, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	auth := []string{"Authorization", "Bearer " + keys["alice"]}
	run := rig.MintRun(t, g, keys["alice"], "rest")
	open := map[string]*rig.HTTPSession{
		"a session": g.Open(t, "/mcp/tasks/rest", false, auth...), "a run": g.Open(t, "/mcp/runs/"+run, true, auth...), "the base run": g.Open(t, "/mcp/tasks/rest", true, auth...),
	}
	work := g.Open(t, "/mcp", false, auth...)
	bob := g.Open(t, "/mcp", false, "Authorization", "Bearer "+keys["bob"])
	for who, s := range open {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"one"}) {
			t.Fatalf("%s lists %q", who, got)
		}
	}
	call := func(s *rig.HTTPSession) string {
		m, _ := s.Ask(t, "tools/call", `{"name":"one","arguments":{}}`)
		return string(m.Raw)
	}

	narrowed := strings.Replace(string(tenant), "tasks: [work, rest]", "tasks: [work]", 1)
	if narrowed == string(tenant) {
		t.Fatalf("alice has no such tasks: %s", tenant)
	}
	rig.WriteFile(t, file, narrowed)
	for who, s := range open {
		rig.Eventually(t, who+" of the task is of no use", func() string {
			if m, _ := s.Ask(t, "tools/list", ""); m.Error == nil && strings.Contains(string(m.Raw), `"one"`) {
				return string(m.Raw)
			}
			return ""
		})
		if got := call(s); !strings.Contains(got, `"error"`) {
			t.Errorf("a call by %s: %s", who, got)
		}
	}
	for who, s := range map[string]*rig.HTTPSession{"alice at work": work, "bob": bob} {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"one"}) {
			t.Errorf("%s is affected: %q", who, got)
		}
	}

	var rows []string
	for row := range strings.Lines(narrowed) {
		if !strings.Contains(row, "id: alice") {
			rows = append(rows, row)
		}
	}
	rig.WriteFile(t, file, strings.Join(rows, ""))
	open["the session at work"] = work
	for who, s := range open {
		rig.Eventually(t, who+" is nobody's", func() string {
			if m, _ := s.Ask(t, "tools/list", ""); m.Error == nil || !strings.Contains(string(m.Error.Data), "SB-AUTH-001") {
				return string(m.Raw)
			}
			return ""
		})
	}
	if got := rig.ListNames(t, bob); !slices.Equal(got, []string{"one"}) {
		t.Errorf("bob is affected: %q", got)
	}
}

// AZ-02: under load, no answer is another's.
func TestNoAnswerCrossesTenants(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	dir, keys := twoTenants(t)
	g := rig.Serve(t, dir)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			who, name := "alice", "one"
			if i%2 == 0 {
				who, name = "mallory", "two"
			}
			s := g.Open(t, "/mcp", i%4 < 2, "Authorization", "Bearer "+keys[who])
			for range 40 {
				m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"tenant":%q}}`, name, who))
				other := map[string]string{"alice": "mallory", "mallory": "alice"}[who]
				if !strings.Contains(string(m.Raw), who) || strings.Contains(string(m.Raw), other) {
					t.Errorf("%s got %s", who, m.Raw)
					return
				}
			}
		})
	}
	wg.Wait()
}

// AZ-09: nothing listens beyond this machine without a key.
func TestAListenerOnAnotherAddressNeedsAKey(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, samples)
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		_, errs, code := rig.Command(t, dir, "serve", "--listen", addr)
		if code != 2 || !strings.Contains(errs, "switchboard key new") {
			t.Errorf("%s: exit %d: %s", addr, code, errs)
		}
	}
}

// CD-01, LK-01, LK-02: secrets go where they belong and nowhere else.
func TestSecretsReachTheirServerAndNothingElse(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	const headerCanary, envCanary, ownCanary = "canary-header-5f2a", "canary-env-77c1", "canary-own-9b3d"
	t.Setenv("SB_TEST_HEADER", headerCanary)
	t.Setenv("SB_TEST_ENV", envCanary)
	t.Setenv("SB_TEST_OWN", ownCanary)
	var mu sync.Mutex
	var seen []http.Header
	fake := fakeserver.New([]string{fmt.Sprintf(rig.Tool, "web")})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Clone())
		mu.Unlock()
		fake.ServeHTTP(w, r)
	}))
	defer behind.Close()
	key, rows := rig.NewKey(t, "alice")
	dir := rig.LayOut(t, `
-- switchboard.yaml --
servers:
  web: {transport: http, url: `+behind.URL+`/mcp, headers: {Authorization: "Bearer ${env:SB_TEST_HEADER}"}}
  child: {transport: stdio, command: [sh, -c, "env >&2; echo bad-line; exec cat >/dev/null"], env: {API_TOKEN: "${env:SB_TEST_ENV}"}}
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
keys:
`+rows+`
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`)
	text, err := os.ReadFile(filepath.Join(dir, "switchboard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), "start_deadline: 5s\n"+string(text))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+key)
	if m, _ := s.Ask(t, "tools/call", `{"name":"web","arguments":{}}`); m.Error != nil {
		t.Fatalf("call: %s", m.Raw)
	}
	rig.Eventually(t, "the child's standard error is in the log", func() string {
		if log := g.Logged(); !strings.Contains(log, "API_TOKEN") {
			return log
		}
		return ""
	})
	mu.Lock()
	defer mu.Unlock()
	for _, h := range seen {
		if h.Get("Authorization") != "Bearer "+headerCanary {
			t.Errorf("the server got Authorization %q", h.Get("Authorization"))
		}
		if strings.Contains(fmt.Sprint(h), key) {
			t.Errorf("the client's key was sent on: %v", h)
		}
	}
	log := g.Logged()
	for _, canary := range []string{headerCanary, envCanary, ownCanary, key} {
		if strings.Contains(log, canary) {
			t.Errorf("the log has %q:\n%s", canary, log)
		}
	}
	for _, ours := range []string{"SB_TEST_OWN", "SB_TEST_HEADER"} {
		if strings.Contains(log, ours) {
			t.Errorf("the child inherited %s", ours)
		}
	}
}

func TestABadRequestGetsAClearErrorAndHurtsNobody(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, samples))
	good := g.Open(t, "/mcp", true)
	want := rig.ListNames(t, good)
	for _, tt := range []struct {
		name   string
		body   string
		header []string
		status int
		text   string
	}{
		{"JS-01 a key twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"web_search","name":"notify"}}`, nil, 400, "-32"},
		{"JS-01 a key in another case", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"web_search","Name":"notify"}}`, nil, 400, "-32"},
		{"JS-01 a key twice in the arguments", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"web_search","arguments":{"q":1,"q":2}}}`, nil, 400, "-32"},
		{"JS-03 an id that is null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, 400, "-32600"},
		{"JS-04 a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, nil, 400, "batch"},
		{"JS-04 no JSON", `rubbish`, nil, 400, "-32700"},
		{"JS-04 two values", `{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, nil, 400, "-32"},
		{"JS-05 too deep", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}}`, nil, 400, "-32"},
		{"RX-01 too large", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("x", 5<<20) + `"}}`, nil, 413, "4"},
		{"a body that is compressed", `{}`, []string{"Content-Encoding", "gzip"}, 415, "send it as it is"},
		{"OR-01 a foreign origin", `{}`, []string{"Origin", "https://evil.example"}, 403, "origin"},
		{"OR-02 a foreign host", `{}`, []string{"Host", "evil.example"}, 403, "host"},
		{"OR-03 a form", `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, ""},
		{"OR-03 another site's page", `{}`, []string{"Sec-Fetch-Site", "cross-site"}, 403, ""},
		{"AZ-08 through a proxy", `{}`, []string{"X-Forwarded-For", "203.0.113.1"}, 401, "SB-AUTH-001"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if len(tt.header) > 0 {
			req.Header.Set(tt.header[0], tt.header[1])
			if tt.header[0] == "Host" {
				req.Host = tt.header[1]
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		body := make([]byte, 4096)
		n, _ := resp.Body.Read(body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(body[:n]), tt.text) {
			t.Errorf("%s: %s: %s; want %d and %q", tt.name, resp.Status, body[:n], tt.status, tt.text)
		}
	}
	if got := rig.ListNames(t, good); !slices.Equal(got, want) {
		t.Errorf("another client lists %q now", got)
	}
}

func TestAnOddPathIsAnsweredHereAndNotSentElsewhere(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, samples))
	for _, path := range []string{"//mcp", "/mcp/../mcp", "/./mcp", "/mcp//", "/mcp/."} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req) // a client would follow
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Content-Type-Options") == "" {
			t.Errorf("%s: %s %v", path, resp.Status, resp.Header)
		}
	}
	got, err := rig.SendRaw(t, g, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if len(got) > 1 || len(got) == 1 && got[0] != 404 || len(got) == 0 && err == nil {
		t.Errorf("OPTIONS *: %d", got)
	}
	wait.Read(t, "the end of the connection", err)
}

// JS-11: a head that two readers may divide differently gets 400, and nothing behind it is read. Behind a body in chunks, nothing is read either.
func TestAttack11JS11_NothingIsReadBehindARequestThatMayEndInTwoPlaces(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, samples))
	const ping, hidden = `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(ping), ping)
	head := func(version string, more ...string) string {
		return "POST /mcp HTTP/" + version + "\r\nHost: localhost\r\nContent-Type: application/json\r\n" + strings.Join(more, "\r\n") + "\r\n\r\n"
	}
	length := func(n int) string { return fmt.Sprint("Content-Length: ", n) }
	var late wait.Lateness
	health := func(more string) string { return "GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + more }
	for _, tt := range []struct {
		name, request string
		answers       []int
	}{
		{"one length", head("1.1", length(len(ping))) + ping, []int{400, 200}}, // 400: it names no session
		{"chunks", head("1.1", "Transfer-Encoding: chunked") + chunked, []int{400}},
		{"chunks in HTTP/1.0", head("1.0", "Transfer-Encoding: chunked", "Connection: keep-alive") + chunked, []int{401}}, // proxies send it,
		{"another encoding", head("1.1", "Transfer-Encoding: gzip, chunked") + chunked, []int{501}},
		{"a good request before", health("\r\n"), []int{200, 200}},
		{"a body that is not wanted", health("Content-Length: 5\r\n\r\nabcde"), []int{200, 200}},

		{"a length and chunks", health(length(len(chunked+hidden)) + "\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked), []int{400}},
		{"chunks and a length", health("Transfer-Encoding: chunked\r\n" + length(len(chunked+hidden)) + "\r\n\r\n" + chunked), []int{400}},
		{"two lengths that differ", health("Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), []int{400}},
		{"two lengths that are equal", health("Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"), []int{400}},
		{"a header that continues on a second line", health("A: b\r\n c: d\r\n\r\n"), []int{400}},
		{"a line that ends in LF", health("A: b\nC: d\r\n\r\n"), []int{400}},
		{"a head that ends in LF", health("\n"), []int{400}},
		{"a CR within a line", health("A: b\rC: d\r\n\r\n"), []int{400}},
		{"a bad head behind a good request", health("\r\n") + health("A: b\n\r\n"), []int{200, 400}},
		{"a bad head behind a body", health("Content-Length: 5\r\n\r\nabcde") + health(" A: b\r\n\r\n"), []int{200, 400}},
	} {
		got, err := rig.SendRaw(t, g, tt.request+strings.Replace(hidden, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
		switch {
		case !slices.Equal(got, tt.answers) && err == nil:
			t.Errorf("%s: the answers are %d, want %d", tt.name, got, tt.answers)
		case err != nil:
			late.Add("%s: after answers %d the connection was not closed: %v", tt.name, got, err)
		}
	}
	late.State(t)
}
