package served_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/policies"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A house is a configuration of several tenants, each with a key of its own and
// the task all, and a switchboard that serves them over HTTP.
type house struct {
	*gateway
	keys map[string]string // by tenant
}

// A resident is what one tenant of a house has besides.
type resident struct {
	word string // its policy:, in YAML of one line
	rego string // its layer, without the package
	key  string // what its key has besides, such as "tier: pro"
	more string // what its tenant.yaml has besides
}

const allowAll = "allowed_tools contains c.id if some c in input.candidate_tools\n"

const fromAll = "required_capabilities:\n  - {tools: [\"*/*\"]}\n"

// inhabit lays out and serves a house. archive has its files but for those of
// tenants; bound is what the operator gives each tenant besides all servers.
func inhabit(t *testing.T, archive, bound string, tenants map[string]resident) *house {
	t.Helper()
	h := &house{keys: map[string]string{}}
	rows := ""
	for _, id := range slices.Sorted(maps.Keys(tenants)) {
		r := tenants[id]
		rows += fmt.Sprintf("  %s: {servers: [\"*\"], allow: [by_name]%s}\n", id, bound)
		key, hash := identity.Mint()
		h.keys[id] = key
		text := "tenant: " + id + "\ndefault_task: all\n" + r.more
		if r.word != "" {
			text += "policy: " + r.word + "\n"
		}
		text += fmt.Sprintf("keys:\n  - {id: someone, hash: %q", hash)
		if r.key != "" {
			text += ", " + r.key
		}
		archive += "-- tenants/" + id + "/tenant.yaml --\n" + text + "}\n"
		if !strings.Contains(archive, "-- tenants/"+id+"/tasks/all.yaml --") {
			archive += "-- tenants/" + id + "/tasks/all.yaml --\ntask_id: all\n" + fromAll
		}
		if r.rego != "" {
			archive += layerFile(id) + r.rego
		}
	}
	h.gateway = serve(t, layOut(t, strings.Replace(archive, "TENANTS\n", "tenants:\n"+rows, 1)))
	return h
}

func layerFile(tenant string) string {
	return "-- tenants/" + tenant + "/policies/own.rego --\npackage switchboard.tenant\n"
}

// as opens a client of a tenant.
func (h *house) as(tenant string, modern bool) *httpSession {
	h.t.Helper()
	return h.open(h.t, "/mcp", modern, "Authorization", "Bearer "+h.keys[tenant])
}

// clients are the tenant's, one of each era on each transport.
func (h *house) clients(t *testing.T, tenant string) map[string]session {
	t.Helper()
	legacy := stdio(t, h.dir, false, "--tenant", tenant)
	modern := *legacy // the same process
	modern.modern, modern.next = true, 1000
	return map[string]session{
		"http/legacy": h.as(tenant, false), "http/modern": h.as(tenant, true),
		"stdio/legacy": legacy, "stdio/modern": &modern,
	}
}

// get asks for what people look at from the side.
func (h *house) get(t *testing.T, tenant, path string) string {
	t.Helper()
	_, body := h.look(t, tenant, path)
	return body
}

// look is get with its status; "" is nobody.
func (h *house) look(t *testing.T, tenant, path string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if tenant != "" {
		req.Header.Set("Authorization", "Bearer "+h.keys[tenant])
	}
	resp, err := http.DefaultClient.Do(req)
	wait.Read(t, path, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	wait.Read(t, path, err)
	return resp.StatusCode, string(text)
}

// codeOf is the code with which something was refused; "" means that it was not.
func codeOf(m message) string {
	var data struct{ Code string }
	if m.Error != nil {
		_ = json.Unmarshal(m.Error.Data, &data) // an error without our data has no code of ours
		return cmp.Or(data.Code, fmt.Sprint("error ", m.Error.Code))
	}
	var r struct {
		IsError bool
		Meta    map[string]json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Result, &r)
	if !r.IsError {
		return ""
	}
	for _, raw := range r.Meta {
		if json.Unmarshal(raw, &data) == nil && data.Code != "" {
			return data.Code
		}
	}
	return string(m.raw)
}

// called is the code of a call.
func called(t *testing.T, s session, tool, arguments string) string {
	t.Helper()
	m, _ := s.ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
	if m.Result == nil && m.Error == nil {
		return "no answer"
	}
	return codeOf(m)
}

// shippedPolicies are the files of policies/ as an operator copies them, to add
// to them.
func shippedPolicies(t *testing.T) (archive string) {
	t.Helper()
	names, err := fs.Glob(policies.Shipped, "*.rego")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := policies.Shipped.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		archive += "-- policies/" + name + " --\n" + string(text)
	}
	return archive
}

func fileOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// PO-01, PO-02, PO-10: what any layer vetoes is not there: in no list, and by no
// name, also where a capability, an alias or a pattern of the task asks for it.
func TestPO01_AVetoedToolIsInNoListAndUnknownByAnyName(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	dir := t.TempDir()
	marks, tape := filepath.Join(dir, "marks"), filepath.Join(dir, "tape")
	const veto = `deny[id] contains "never" if some id in ["a/secret", "b/zonly"]` + "\n"
	tenants := map[string]resident{
		"free":     {},
		"tenants":  {rego: allowAll + veto},
		"operator": {rego: allowAll},
		"word":     {word: `{deny: ["a/secret", "b/*"]}`},
	}
	archive := "-- switchboard.yaml --\nservers:\n  " +
		fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "plain"), fmt.Sprintf(tool, "secret")) + "\n  " +
		fakeServer("b", "tape="+tape, `prompts={"name":"greet"}`, `resources={"uri":"doc://x","name":"x"}`, fmt.Sprintf(tool, "zonly")) + "\nTENANTS\n" + `
-- taxonomy.yaml --
resources:
  cloud:
  aws-eu: {parent: cloud}
-- overlays/a.yaml --
server: a
tools:
  secret: {capabilities: [{verb: search, resource: knowledge_graph}, {verb: write, resource: aws-eu}]}
`
	for id := range tenants {
		archive += "-- tenants/" + id + "/tasks/all.yaml --\ntask_id: all\n" + fromAll + `
  - {verb: search, resource: knowledge_graph, select: tool, as: hush, optional: true}
  - {verb: write, resource: cloud, optional: true}
`
	}
	archive += shippedPolicies(t) + "-- policies/more.rego --\npackage switchboard\n" + strings.Replace(veto, " if ", ` if { input.tenant_id == "operator"; `, 1)
	archive = strings.TrimSuffix(archive, "\n") + " }\n"
	h := inhabit(t, archive, "", tenants)

	// Without a veto all of it is there.
	free := h.as("free", true)
	if got := names(t, free); !slices.Equal(got, []string{"plain", "secret", "zonly"}) {
		t.Fatalf("without a veto it lists %q", got)
	}
	if m, _ := free.ask(t, "prompts/list", ""); !strings.Contains(string(m.raw), "greet") {
		t.Fatalf("without a veto there are no prompts: %s", m.raw)
	}

	for _, tenant := range []string{"tenants", "operator", "word"} {
		if x := h.get(t, tenant, "/v1/explain?task=all"); !strings.Contains(x, `"plain"`) || strings.Contains(x, "secret") || strings.Contains(x, "zonly") || strings.Contains(x, "never") {
			t.Errorf("%s: explain: %s", tenant, x)
		}
		for name, s := range h.clients(t, tenant) {
			name = tenant + ", " + name
			for method, want := range map[string]string{
				"tools/list": "plain", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
			} {
				m, _ := s.ask(t, method, "")
				if m.Error != nil || !strings.Contains(string(m.raw), want) {
					t.Errorf("%s: %s: %s", name, method, m.raw)
				}
				for _, gone := range []string{"secret", "hush", "zonly", "greet", "doc://x"} {
					if strings.Contains(string(m.raw), gone) {
						t.Errorf("%s: %s has %s: %s", name, method, gone, m.raw)
					}
				}
			}
			for _, spelt := range []string{
				"secret", "hush", "a__secret", "a/secret", "a.secret", "a:secret", "free__secret", "zonly", "b__zonly", "b/zonly",
				"SECRET", "Secret", "hUsh", "secret ", " secret", "secret\\t", "secret\\u0000", "secret\\n",
				"se%63ret", "%73ecret", "secret%20", "a%2Fsecret", "..%2fa%2fsecret", "./secret", "secret/",
				"\\uff53ecret", "s\\u0435cret", "secre\\u0074", "sec\\u200bret", "secret\\u0301", "se\\u00adcret", "ſecret",
			} {
				m, _ := s.ask(t, "tools/call", `{"name":"`+spelt+`","arguments":{}}`)
				var decoded string
				_ = json.Unmarshal([]byte(`"`+spelt+`"`), &decoded)
				if m.Error == nil || m.Error.Code != -32602 || m.Error.Message != "Unknown tool: "+decoded || string(m.Error.Data) != `{"code":"SB-CAP-001","retryable":"no"}` {
					t.Errorf("%s: %q: %s", name, spelt, m.raw)
				}
			}
			for method, params := range map[string]string{
				"prompts/get": `{"name":"greet"}`, "resources/read": `{"uri":"doc://x"}`, "resources/subscribe": `{"uri":"doc://x"}`,
				"completion/complete": `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"x","value":"y"}}`,
			} {
				if m, _ := s.ask(t, method, params); m.Error == nil {
					t.Errorf("%s: %s: %s", name, method, m.raw)
				}
			}
		}
	}
	if got := fileOf(t, marks); got != "" {
		t.Errorf("tools were called: %q", got)
	}
	for _, method := range []string{"tools/call", "prompts/get", "resources/read", "resources/subscribe", "completion/complete"} {
		if strings.Contains(fileOf(t, tape), method) {
			t.Errorf("%s reached the server", method)
		}
	}
	if got := called(t, free, "secret", `{}`); got != "" || !strings.Contains(fileOf(t, marks), "secret") {
		t.Errorf("without a veto it cannot be called: %s", got)
	}
}
