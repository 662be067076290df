package served_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/policies"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

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

// PO-01, PO-02, PO-10: what any layer vetoes is not there: in no list, and by no
// name, also where a capability, an alias or a pattern of the task asks for it.
func TestPO01_AVetoedToolIsInNoListAndUnknownByAnyName(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	dir := t.TempDir()
	marks, tape := filepath.Join(dir, "marks"), filepath.Join(dir, "tape")
	const veto = `deny[id] contains "never" if some id in ["a/secret", "b/zonly"]` + "\n"
	tenants := map[string]rig.TenantConfig{
		"free":     {},
		"tenants":  {Rego: rig.AllowAll + veto},
		"operator": {Rego: rig.AllowAll},
		"word":     {Policy: `{deny: ["a/secret", "b/*"]}`},
	}
	archive := "-- switchboard.yaml --\nservers:\n  " +
		rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "plain"), fmt.Sprintf(rig.Tool, "secret")) + "\n  " +
		rig.FakeRow("b", "tape="+tape, `prompts={"name":"greet"}`, `resources={"uri":"doc://x","name":"x"}`, fmt.Sprintf(rig.Tool, "zonly")) + "\nTENANTS\n" + `
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
		archive += "-- tenants/" + id + "/tasks/all.yaml --\ntask_id: all\n" + rig.RequireAll + `
  - {verb: search, resource: knowledge_graph, select: tool, as: hush, optional: true}
  - {verb: write, resource: cloud, optional: true}
`
	}
	archive += shippedPolicies(t) + "-- policies/more.rego --\npackage switchboard\n" + strings.Replace(veto, " if ", ` if { input.tenant_id == "operator"; `, 1)
	archive = strings.TrimSuffix(archive, "\n") + " }\n"
	h := rig.ServeTenants(t, archive, "", tenants)

	// Without a veto all of it is there.
	free := h.OpenAs("free", true)
	if got := rig.ListNames(t, free); !slices.Equal(got, []string{"plain", "secret", "zonly"}) {
		t.Fatalf("without a veto it lists %q", got)
	}
	if m, _ := free.Ask(t, "prompts/list", ""); !strings.Contains(string(m.Raw), "greet") {
		t.Fatalf("without a veto there are no prompts: %s", m.Raw)
	}

	for _, tenant := range []string{"tenants", "operator", "word"} {
		if x := h.Explain(t, tenant, "all", ""); !strings.Contains(x, `"name":"plain"`) || strings.Contains(x, `"name":"secret"`) || strings.Contains(x, `"name":"zonly"`) || strings.Contains(x, `"name":"never"`) {
			t.Errorf("%s: explain: %s", tenant, x)
		}
		for name, s := range h.Clients(t, tenant) {
			name = tenant + ", " + name
			for method, want := range map[string]string{
				"tools/list": "plain", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
			} {
				m, _ := s.Ask(t, method, "")
				if m.Error != nil || !strings.Contains(string(m.Raw), want) {
					t.Errorf("%s: %s: %s", name, method, m.Raw)
				}
				for _, gone := range []string{"secret", "hush", "zonly", "greet", "doc://x"} {
					if strings.Contains(string(m.Raw), gone) {
						t.Errorf("%s: %s has %s: %s", name, method, gone, m.Raw)
					}
				}
			}
			for _, spelt := range []string{
				"secret", "hush", "a__secret", "a/secret", "a.secret", "a:secret", "free__secret", "zonly", "b__zonly", "b/zonly",
				"SECRET", "Secret", "hUsh", "secret ", " secret", "secret\\t", "secret\\u0000", "secret\\n",
				"se%63ret", "%73ecret", "secret%20", "a%2Fsecret", "..%2fa%2fsecret", "./secret", "secret/",
				"\\uff53ecret", "s\\u0435cret", "secre\\u0074", "sec\\u200bret", "secret\\u0301", "se\\u00adcret", "ſecret",
			} {
				m, _ := s.Ask(t, "tools/call", `{"name":"`+spelt+`","arguments":{}}`)
				var decoded string
				_ = json.Unmarshal([]byte(`"`+spelt+`"`), &decoded)
				if m.Error == nil || m.Error.Code != -32602 || m.Error.Message != "Unknown tool: "+decoded || string(m.Error.Data) != `{"code":"SB-CAP-001","retryable":"no"}` {
					t.Errorf("%s: %q: %s", name, spelt, m.Raw)
				}
			}
			for method, params := range map[string]string{
				"prompts/get": `{"name":"greet"}`, "resources/read": `{"uri":"doc://x"}`, "resources/subscribe": `{"uri":"doc://x"}`,
				"completion/complete": `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"x","value":"y"}}`,
			} {
				if m, _ := s.Ask(t, method, params); m.Error == nil {
					t.Errorf("%s: %s: %s", name, method, m.Raw)
				}
			}
		}
	}
	if got := rig.ReadFile(t, marks); got != "" {
		t.Errorf("tools were called: %q", got)
	}
	for _, method := range []string{"tools/call", "prompts/get", "resources/read", "resources/subscribe", "completion/complete"} {
		if strings.Contains(rig.ReadFile(t, tape), method) {
			t.Errorf("%s reached the server", method)
		}
	}
	if got := rig.Call(t, free, "secret", `{}`); got != "" || !strings.Contains(rig.ReadFile(t, marks), "secret") {
		t.Errorf("without a veto it cannot be called: %s", got)
	}
}
