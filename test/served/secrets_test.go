package served_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// planted are secrets by what they are, each with a text of its own.
type planted map[string]string

// plant returns a text that stands nowhere else. What begins with ghp_ looks like a
// credential by itself; all others are known only by where they come from.
func (p planted) plant(what string) string {
	sum := sha256.Sum256([]byte("secret: " + what))
	p[what] = "plum" + hex.EncodeToString(sum[:12])
	if strings.HasPrefix(what, "credential ") {
		p[what] = "ghp_" + p[what]
	}
	return p[what]
}

// digestOf is what a plain digest of something that was sent is planted as.
const digestOf = "SHA-256 of "

// guess plants the plain digests of what could be guessed: each says whether a guess is
// right, to all who see it.
func (p planted) guess(t *testing.T, what string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		form, err := canonical.Append(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{text, string(form)} {
			sum := sha256.Sum256([]byte(text))
			p[digestOf+what+" "+text] = string(sum[:])
		}
	}
}

// found are the secrets in text: as they are, in hexadecimal, and in base64 wherever in
// a longer text they stand.
func (p planted) found(text string) (found []string) {
	lower := strings.ToLower(text)
	for what, secret := range p {
		forms := []string{secret}
		for shift := range 3 {
			coded := base64.RawStdEncoding.EncodeToString([]byte("xxx"[:shift] + secret))
			coded = coded[[]int{0, 2, 3}[shift] : len(coded)-1] // what is the same whatever stands around it
			forms = append(forms, coded, strings.NewReplacer("+", "-", "/", "_").Replace(coded))
		}
		if slices.ContainsFunc(forms, func(f string) bool { return strings.Contains(text, f) }) ||
			strings.Contains(lower, hex.EncodeToString([]byte(secret))) {
			found = append(found, what)
		}
	}
	slices.Sort(found)
	return found
}

// nowhere checks that none of the secrets stands in text, but those that may.
func (p planted) nowhere(t *testing.T, place, text string, but ...string) {
	t.Helper()
	for _, what := range p.found(text) {
		if slices.Contains(but, what) {
			continue
		}
		at := max(strings.Index(text, p[what]), strings.Index(text, hex.EncodeToString([]byte(p[what]))), 0)
		t.Errorf("%s: the secret of %q: …%q…", place, what, text[max(at-150, 0):min(at+150, len(text))])
	}
}

// LK-02, LK-03: what is secret goes where it belongs, and nowhere else: whatever becomes
// of the calls, in both eras, with each store.
func TestASecretIsFoundInNoOtherPlace(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	p := planted{}
	env := map[string]string{
		"SB_LK_BEARER": p.plant("header Authorization"),
		"SB_LK_BASIC":  base64.StdEncoding.EncodeToString([]byte("app:" + p.plant("password in a Basic header"))),
		"SB_LK_TOKEN":  p.plant("variable of a server"),
		"SB_LK_DSN":    "postgres://app:" + p.plant("password in a DSN") + "@db.example/x?sslkey=" + p.plant("query of a DSN"),
		"SB_LK_OTHER":  p.plant("variable of ours"),
		"SB_LK_REDIS":  p.plant("password of Redis"),
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	for _, kind := range []string{"file", "redis"} {
		t.Run(kind, func(t *testing.T) {
			settings, files := "", func(dir string) string { return filepath.Join(dir, ".switchboard") }
			if kind == "redis" {
				redis := redistest.Start(t)
				disk := redis.Do("config", "get", "dir").([]any)[1].(string)
				redis.Do("config", "set", "requirepass", env["SB_LK_REDIS"])
				settings = fmt.Sprintf("store: \"redis://:${env:SB_LK_REDIS}@%s\"\ncluster: {secret: \"${file:cluster}\", listen: \"127.0.0.1:0\"}\n", redis.Addr)
				files = func(string) string { return disk }
			}
			leak(t, maps.Clone(p), settings, files)
		})
	}
}

// jsonOf is v as JSON.
func jsonOf(v any) string { text, _ := json.Marshal(v); return string(text) }

// leak has secrets go through all that a Switchboard does, and looks for them.
func leak(t *testing.T, p planted, settings string, files func(dir string) string) {
	url := p.plant("query of a server's address")
	fake := fakeserver.New([]string{
		fmt.Sprintf(rig.Tool, "post"), finder, fmt.Sprintf(rig.Tool, "refuse"), fmt.Sprintf(rig.Tool, "stack"),
		fmt.Sprintf(rig.Tool, "noted"), fmt.Sprintf(rig.Tool, "told"), askerTool,
		`resources={"uri":"doc://x","name":"x"}`, `resourceTemplates={"uriTemplate":"doc://shelf/{id}","name":"y"}`, `prompts={"name":"greet","arguments":[{"name":"who"}]}`,
	})
	var said atomic.Value // the body of an error, once it is planted
	said.Store("")
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var q fakeserver.Request
		_ = json.Unmarshal(text, &q)
		echo := fmt.Sprintf("%s: %s %v", said.Load(), r.URL, r.Header)
		switch {
		case q.Method == "tools/call" && q.Params.Name == "refuse":
			http.Error(w, echo, http.StatusUnauthorized)
		case q.Method == "tools/call" && q.Params.Name == "find" && q.Params.Arguments["do"] == nil:
			http.Error(w, echo, http.StatusServiceUnavailable)
		case q.Method == "tools/call" && q.Params.Name == "stack":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-5,"message":%s,"data":%s}}`, q.ID, jsonOf(echo), jsonOf(echo))
		default:
			r.Body = io.NopCloser(bytes.NewReader(text))
			fake.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		behind.CloseClientConnections()
		behind.Close()
	})
	h := rig.ServeTenants(t, `
-- secrets/api --
`+p.plant("key file of a server")+`
-- cluster --
`+p.plant("secret of the cluster")+`
-- switchboard.yaml --
`+settings+`cache: {ttl: 10m}
start_deadline: 20s
servers:
  web: {transport: http, url: "`+behind.URL+"/mcp?site="+url+`", headers: {Authorization: "Bearer ${env:SB_LK_BEARER}", X-Second: "Basic ${env:SB_LK_BASIC}", X-Api-Key: "${file:secrets/api}"}}
  db: {transport: stdio, env: {API_TOKEN: "${env:SB_LK_TOKEN}", DATABASE_URL: "${env:SB_LK_DSN}"}, command: [sh, -c, 'env >&2; exec "$@"', sh, FAKE, '`+finder+`', '`+fmt.Sprintf(rig.Tool, "get")+`']}
TENANTS
-- overlays/web.yaml --
server: web
tools:
  find:
    capabilities: [{verb: search, resource: internet, constraints: [readonly]}]
    equivalents: [{tool: db/find, map: {q: q}}]
-- overlays/db.yaml --
server: db
tools:
  find: {capabilities: [{verb: search, resource: internet, constraints: [readonly]}]}
  get: {deterministic: true}
-- tenants/acme/tasks/all.yaml --
`+secretTask+`-- tenants/umbrella/tasks/all.yaml --
`+secretTask, "", map[string]rig.TenantConfig{
		"acme":     {Rego: secretRules, More: "record: policy_inputs\n" + searchesWeb},
		"umbrella": {Rego: secretRules, More: searchesWeb},
	})
	configured := slices.Collect(maps.Keys(p)) // which nobody is told
	said.Store(p.plant("body of a server's error"))
	for tenant, key := range h.Keys {
		p["API key of "+tenant] = key
	}
	may := func(what string) string { // of which policy is asked, for acme alone
		return p.plant("credential that policy reads: " + what)
	}
	plain := p.plant("argument")
	result, kept, cached := p.plant("result"), p.plant("result that is kept under a key"), p.plant("result that is cached")
	key, header := p.plant("idempotency key"), p.plant("idempotency key of a header")
	call := func(s rig.Session, want, tool string, arguments map[string]any, more string) rig.Message {
		t.Helper()
		p.guess(t, "arguments", jsonOf(arguments))
		for name, v := range arguments { // of which some are results
			if text, ok := v.(string); ok && name == "bytes" {
				p.guess(t, "a result", text)
			}
			p.guess(t, "the argument "+name, jsonOf(v))
		}
		m, said := s.Ask(t, "tools/call", fmt.Sprintf(`{%s"name":%q,"arguments":%s}`, more, tool, jsonOf(arguments)))
		if got := rig.Code(m); got != want {
			t.Errorf("%s: %q, want %q: %s", tool, got, want, m.Raw)
		}
		for _, what := range p.found(string(m.Raw) + strings.Join(said, "")) {
			if slices.Contains(configured, what) {
				t.Errorf("%s: the client is told of the %s: %s", tool, what, m.Raw)
			}
		}
		m.Raw = append(m.Raw, strings.Join(said, "")...)
		return m
	}
	gives := func(result string) map[string]any { return map[string]any{"do": "result", "bytes": result} }
	for _, tenant := range []string{"acme", "umbrella"} {
		for _, modern := range []bool{false, true} {
			s := h.OpenAs(tenant, modern)
			has := func(m rig.Message, what string) {
				t.Helper()
				if !strings.Contains(string(m.Raw), p[what]) {
					t.Errorf("%s, modern %v: the client is not given the %s: %s", tenant, modern, what, m.Raw)
				}
			}
			has(call(s, "", "post", map[string]any{"a": plain, p.plant("name of an argument"): 1}, fmt.Sprintf(`"_meta":{"example.com/x":%q},`, p.plant("_meta of a request"))), "argument")
			has(call(s, "", "post", gives(fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"structuredContent":{"a":%q},"_meta":{"example.com/b":%q}}`, result, p.plant("structured result"), p.plant("_meta of a result"))), ""), "structured result")
			failed, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"post","arguments":%s}`, jsonOf(gives(fmt.Sprintf(`{"isError":true,"content":[{"type":"text","text":%q}]}`, p.plant("error of a tool"))))))
			has(failed, "error of a tool")
			has(call(s, "error -5", "post", map[string]any{"do": "error", "bytes": fmt.Sprintf(`{"code":-5,"message":%q,"data":{"a":%q}}`, p.plant("error of a server"), p.plant("data of an error"))}, ""), "error of a server")
			call(s, "SB-EXEC-003", "post", gives(`"`+p.plant("result that is none")+`"`), "")
			call(s, "SB-CAP-001", p.plant("name of no tool"), map[string]any{}, "")
			has(call(s, "", "post", map[string]any{"do": "talk", "times": "2", "logs": "yes", "mark": p.plant("progress and log message")}, `"_meta":{"progressToken":"t"},`), "progress and log message")

			call(s, "", "post", map[string]any{"path": "/w/" + may("allowed")}, "")
			call(s, "", "post", map[string]any{"path": "/w/pin", "pin": 4711}, "")
			call(s, "SB-POL-001", "post", map[string]any{"path": "/pin", "pin": 4711}, "")
			call(s, "", "post", map[string]any{"pin": 4711}, fmt.Sprintf(`"_meta":{"io.switchboard/idempotency-key":"pin %v"},`, modern))
			call(s, "", "get", map[string]any{"pin": 4711}, "")
			call(s, "SB-POL-001", "post", map[string]any{"path": "/" + may("denied")}, "")
			call(s, "SB-POL-003", "told", map[string]any{"whom": may("asked for")}, "")
			call(s, "", "noted", map[string]any{"whom": may("logged")}, "")

			for range 2 {
				has(call(s, "", "post", gives(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, kept)), fmt.Sprintf(`"_meta":{"io.switchboard/idempotency-key":%q},`, key)), "result that is kept under a key")
				has(call(s, "", "get", gives(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, cached)), ""), "result that is cached")
			}
			call(s, "SB-CAP-006", "post", map[string]any{"other": plain}, fmt.Sprintf(`"_meta":{"io.switchboard/idempotency-key":%q},`, key))
			web := *s
			web.Header = s.Header.Clone()
			web.Header.Set("Idempotency-Key", header)
			call(&web, "", "post", map[string]any{"a": kept}, "")

			if got := call(s, "", "find", map[string]any{"q": p.plant("argument of a call that moves")}, ""); !strings.Contains(string(got.Raw), "db/find") {
				t.Errorf("it has not moved: %s", got.Raw)
			}
			call(s, "SB-EXEC-001", "refuse", map[string]any{"q": plain}, "")
			call(s, "error -5", "stack", map[string]any{"q": plain}, "")

			for method, params := range map[string]string{
				"resources/read":      fmt.Sprintf(`{"uri":"doc://shelf/%s"}`, p.plant("URI of a resource")),
				"prompts/get":         fmt.Sprintf(`{"name":"greet","arguments":{"who":%q}}`, p.plant("argument of a prompt")),
				"completion/complete": fmt.Sprintf(`{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":%q}}`, p.plant("text to complete")),
			} {
				if m, _ := s.Ask(t, method, params); rig.Code(m) != "error -32601" { // as the fake says
					t.Errorf("%s: %s", method, m.Raw)
				}
			}
			version := "2025-11-25"
			if modern {
				version = ""
			}
			ask := gosdkPerson(t, h.URL+"/mcp", &person{name: p.plant("answer of a person"), header: s.Header}, version)
			question := fmt.Sprintf(`{"mode":"form","message":%q,"requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`, p.plant("question of a server"))
			if text, err := ask(t.Context(), "asker", map[string]any{"do": "ask", "method": "elicitation/create", "params": question}); err != nil || !strings.Contains(text, p["answer of a person"]) {
				t.Errorf("%s, modern %v: %q, %v", tenant, modern, text, err)
			}
		}
	}
	for _, path := range []string{"/mcp", "/v1/status", "/metrics"} {
		for _, bearer := range []string{"", "sb_" + p.plant("key that is nobody's")} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+path+"?api_key="+p.plant("query of a request"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+bearer)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			p.nowhere(t, path, string(text))
		}
	}
	if t.Failed() {
		return
	}
	digests := 0
	for what := range p {
		if strings.HasPrefix(what, digestOf) {
			digests++
		}
	}
	if len(p)-digests < 40 || digests < 40 {
		t.Errorf("%d secrets were planted, and %d digests", len(p)-digests, digests)
	}

	for _, tenant := range []string{"acme", "umbrella", ""} {
		for _, path := range []string{"/readyz", "/healthz"} {
			_, text := h.GetStatus(t, tenant, path)
			p.nowhere(t, path, text)
		}
		paths := []string{"/metrics", "/v1/status", "/v1/servers", "/v1/tools", "/v1/search?query=find"}
		if tenant != "" {
			paths = []string{"/metrics?tenant=" + tenant, "/v1/status?tenant=" + tenant, "/v1/servers?tenant=" + tenant, "/v1/tenants/" + tenant + "/decision?task=all"}
		}
		for _, path := range paths {
			p.nowhere(t, path, h.AskAdmin(t, "", http.MethodGet, path, "").Body)
		}
	}
	byDesign := []string{"result that is kept under a key", "result that is cached"}
	rig.Eventually(t, "what came of the last call is recorded", func() string {
		if out, _, _ := rig.Command(t, h.Dir, "receipts", "list", "--json", "--tenant", "umbrella", "--limit", "5"); !strings.Contains(out, `"tool":"asker"`) || !strings.Contains(out, `"kind":"call"`) {
			return out
		}
		return ""
	})
	for _, args := range []string{
		"receipts list --limit 5000", "receipts list --limit 5000 --json", "receipts export", "receipts verify", "policy diff --against . --json",
		"validate", "status --url URL --json", "status --url URL", "explain --url URL --task all --json", "tools --url URL", "search --url URL find", "server list --url URL", "store check --json",
	} {
		for _, tenant := range []string{"acme", "umbrella"} {
			t.Setenv("SWITCHBOARD_KEY", h.Keys[tenant])
			out, errs, _ := rig.Command(t, h.Dir, append([]string{"-v"}, strings.Fields(strings.ReplaceAll(args, "URL", h.URL))...)...)
			p.nowhere(t, args, out+errs)
			if strings.Contains(args, "receipts") && len(out) < 100 {
				t.Errorf("%s says %q, %s", args, out, errs)
			}
		}
	}
	id := ""
	out, _, _ := rig.Command(t, h.Dir, "receipts", "list", "--limit", "5000", "--outcome", "refused")
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[2], "/") {
			id = f[2]
			show, errs, code := rig.Command(t, h.Dir, "receipts", "show", id)
			if p.nowhere(t, "receipts show "+id, show+errs); code != 0 {
				t.Errorf("show %s: exit %d: %s", id, code, errs)
			}
		}
	}
	if id == "" {
		t.Errorf("there is no receipt of a refusal:\n%s", out)
	}
	_ = h.Cmd.Process.Signal(os.Interrupt)
	_ = h.Cmd.Wait()
	p.nowhere(t, "the log", h.Logged())

	export, errs, code := rig.Command(t, h.Dir, "-v", "store", "export", "-")
	if p.nowhere(t, "what store export says", errs); code != 0 {
		t.Fatalf("export: exit %d: %s", code, errs)
	}
	read := store.NewMemory()
	if err := store.Import(t.Context(), read, strings.NewReader(export)); err != nil {
		t.Fatal(err)
	}
	var groups []string
	err := read.Dump(t.Context(), func(r store.Record) error {
		text := append(r.Value.Data, r.Entry.Data...)
		if z, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			if text, err = io.ReadAll(z); err != nil {
				return err
			}
		}
		group, _, _ := strings.Cut(r.Group, "/")
		groups = append(groups, group)
		switch group {
		case "once":
			p.nowhere(t, r.Group, r.Group+" "+r.Name+" "+string(text), byDesign[0])
		case "cache":
			p.nowhere(t, r.Group, r.Group+" "+r.Name+" "+string(text), byDesign[1])
		default:
			p.nowhere(t, r.Group, r.Group+" "+r.Name+" "+string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"once", "cache", "archive"} {
		if !slices.Contains(groups, group) {
			t.Errorf("nothing is kept of %s: %q", group, slices.Compact(groups))
		}
	}
	n := 0
	err = filepath.WalkDir(files(h.Dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		n += len(text)
		p.nowhere(t, path, string(text), byDesign...)
		return err
	})
	if err != nil || n < 10<<10 {
		t.Errorf("%d bytes of files were searched, %v", n, err)
	}
}

const finder = `{"name":"find","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}`

const secretTask = `task_id: all
required_capabilities:
  - {verb: search, resource: internet}
  - {tools: ["web/post", "web/refuse", "web/stack", "web/noted", "web/told", "web/asker", "db/get"]}
`

const searchesWeb = "ranking: {prefer: [{verb: search, resource: internet, servers: [web]}]}\n"

// secretRules look at arguments, and say what they have seen.
const secretRules = rig.AllowAll + `
deny[c.id] contains sprintf("outside of the workspace: %s", [input.call.arguments.path]) if {
	some c in input.candidate_tools
	not startswith(input.call.arguments.path, "/w/")
}
obligations["web/told"] contains {"type": "notify", "who": [input.call.arguments.whom]}
obligations["web/noted"] contains {"type": "log", "level": "error"} if input.call.arguments.whom != ""
obligations["web/noted"] contains {"type": "redact", "fields": [concat("/", ["", input.call.arguments.whom])]}
`

// LK-06: what cannot be served, or not as it is, is said without what is secret in it.
func TestARefusalDoesNotShowTheSecret(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	p := planted{}
	say := func(what, config string, args ...string) {
		t.Helper()
		dir := rig.LayOut(t, "-- switchboard.yaml --\n"+strings.ReplaceAll(config, "SECRET", p.plant(what))+"\n")
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "SECRET", p[what])
		}
		out, errs, code := rig.Command(t, dir, append([]string{"-v"}, args...)...)
		if code == 0 || len(errs)+len(out) < 20 {
			t.Errorf("%s: exit %d: %s%s", what, code, out, errs)
		}
		p.nowhere(t, what, out+errs)
	}
	const server, cluster = "servers: {a: {transport: http, url: \"http://127.0.0.1:1/mcp\"", "cluster: {secret: \"a secret is no reference\"}\n"
	serving := []string{"serve", "--listen", "127.0.0.1:0"}
	for _, args := range [][]string{{"validate"}, serving} {
		for what, config := range map[string]string{
			"password in an address":          `servers: {a: {transport: http, url: "https://me:SECRET@mcp.example.com/mcp"}}`,
			"key in the query of an address":  `servers: {a: {transport: http, url: "https://mcp.example.com/mcp?api_key=SECRET"}}`,
			"literal header":                  server + `, headers: {Authorization: "Bearer SECRET"}}}`,
			"literal variable":                `servers: {a: {transport: stdio, command: [x], env: {API_TOKEN: SECRET}}}`,
			"literal DSN":                     `servers: {a: {transport: stdio, command: [x], env: {DB: "postgres://u:SECRET@h/x"}}}`,
			"literal secret of the cluster":   "store: \"redis://127.0.0.1:1\"\ncluster: {secret: SECRET}\n" + server + "}}",
			"literal password of Redis":       "store: \"redis://u:SECRET@127.0.0.1:1\"\n" + cluster + server + "}}",
			"store that is none":              "store: \"redid://u:SECRET@127.0.0.1:1\"\n" + server + "}}",
			"Redis address that is none":      "store: \"redis://u:SECRET@127.0.0.1:port\"\n" + cluster + server + "}}",
			"unknown key beside a credential": server + `, tocken: SECRET}}`,
		} {
			say(what, config, slices.Clone(args)...)
		}
	}
	for _, url := range []string{"redis://u:SECRET@127.0.0.1:1", "redis://:SECRET@127.0.0.1:port", "redis+cluster://:SECRET@127.0.0.1:1", "redis+sentinel://:SECRET@127.0.0.1:1/m", "redid://:SECRET@x", "redis://127.0.0.1:1?password=SECRET"} {
		for _, args := range []string{"store check", "receipts list", "receipts verify"} {
			say(url+" of "+args, "", append(strings.Fields(args), "--store", url)...)
		}
	}
	if len(p) < 25 {
		t.Errorf("%d secrets were planted", len(p))
	}
}
