package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// PO-01, PO-03: what policy says of tools it says of resources, prompts and completions too. What is refused reaches no server, and a
// URI that is neither listed nor described does not exist.
func TestAttack3PolicyJudgesWhatIsReadPromptedAndCompleted(t *testing.T) {
	t.Parallel()
	tape := filepath.Join(t.TempDir(), "tape")
	const look = `{"name":"look","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"read","resource":"fs","constraints":["readonly"]}]}}`
	files := rig.FakeRow("files", "tape="+tape, `resources={"uri":"file:///srv/data/a","name":"a"},{"uri":"memo://one","name":"m"}`,
		`resourceTemplates={"uriTemplate":"file:///{+path}","name":"t"}`, `prompts={"name":"greet"}`, look)
	plain := rig.FakeRow("plain", "tape="+tape, `resources={"uri":"doc://listed","name":"l"}`, fmt.Sprintf(rig.Tool, "rest"))
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+files+"\n  "+plain+"\nTENANTS\n", "", map[string]rig.TenantConfig{
		"walled": {Policy: `{egress: [{tool: "files/look", arguments: [path], roots: [/srv/data], schemes: [memo]}]}`},
		"rego": {Rego: rig.AllowAll + `
deny[c.id] contains "no" if { some c in input.candidate_tools; c.kind == "template"; startswith(input.call.uri, "file:///etc/") }
deny["files/prompt:greet"] contains "no" if input.call.arguments.path == "/etc/passwd"
deny["files/completion:file:///{+path}"] contains "no" if contains(input.call.arguments.path, "..")
deny["files/resource:memo://one"] contains "no" if input.phase == "call"
`},
		"observes": {More: "mode: observe\n"},
		"old":      {Rego: `allowed_tools contains "files/look"` + "\n"},
		"free":     {},
	})
	const (
		read, subscribe, prompt, complete = "resources/read", "resources/subscribe", "prompts/get", "completion/complete"

		passwd   = `{"uri":"file:///etc/passwd"}`
		data     = `{"uri":"file:///srv/data/b"}`
		listed   = `{"uri":"file:///srv/data/a"}`
		memo     = `{"uri":"memo://one"}`
		unlisted = `{"uri":"doc://other"}`
		greet    = `{"name":"greet","arguments":{"path":"/etc/passwd"}}`
		dotted   = `{"ref":{"type":"ref/resource","uri":"file:///{+path}"},"argument":{"name":"path","value":"../../etc/passwd"}}`
		word     = `{"ref":{"type":"ref/resource","uri":"file:///{+path}"},"argument":{"name":"path","value":"rep"}}`
	)
	for _, tt := range []struct{ tenant, method, params, code string }{
		{"walled", read, listed, ""},
		{"walled", read, data, ""},
		{"walled", read, memo, ""},
		{"walled", read, passwd, "SB-POL-001"},
		{"walled", read, `{"uri":"file:///srv/data/../../etc/passwd"}`, "SB-POL-001"},
		{"walled", read, `{"uri":"switchboard://files/file:///etc/passwd"}`, "SB-POL-001"},
		{"walled", subscribe, passwd, "SB-POL-001"},
		{"walled", prompt, greet, "SB-POL-001"},
		{"walled", complete, dotted, "SB-POL-001"},
		{"walled", complete, word, ""},
		{"rego", read, data, ""},
		{"rego", read, passwd, "SB-POL-001"},
		{"rego", read, memo, "SB-POL-001"},
		{"rego", subscribe, passwd, "SB-POL-001"},
		{"rego", prompt, greet, "SB-POL-001"},
		{"rego", prompt, `{"name":"greet","arguments":{"path":"/srv"}}`, ""},
		{"rego", complete, dotted, "SB-POL-001"},
		{"rego", complete, word, ""},
		{"old", read, listed, "SB-POL-001"}, // it allows one tool by its id, and nothing else
		{"old", prompt, greet, "SB-POL-001"},
		{"free", read, passwd, ""},
		{"free", read, unlisted, "SB-CAP-001"},
		{"free", subscribe, unlisted, "SB-CAP-001"},
		{"free", read, `{"uri":"switchboard://plain/doc://other"}`, "SB-CAP-001"},
		{"free", read, `{"uri":"switchboard://plain/doc://listed"}`, ""},
	} {
		for _, modern := range []bool{false, true} {
			if modern && tt.method == subscribe {
				continue // it listens instead
			}
			_ = os.Truncate(tape, 0)
			m, _ := h.OpenAs(tt.tenant, modern).Ask(t, tt.method, tt.params)
			if got := strings.TrimPrefix(rig.Code(m), "error -32601"); got != tt.code { // the fake has no such method, and so says who answered
				t.Errorf("%s, modern %t: %s %s: %q, want %q: %s", tt.tenant, modern, tt.method, tt.params, got, tt.code, m.Raw)
			}
			if sent := rig.ReadFile(t, tape); strings.Contains(sent, tt.method) != (tt.code == "") {
				t.Errorf("%s, modern %t: %s %s: its server was sent %s", tt.tenant, modern, tt.method, tt.params, sent)
			}
		}
	}
	t.Run("in mode observe", func(t *testing.T) {
		s := h.OpenAs("observes", true)
		m, _ := s.Ask(t, "tools/list", "")
		if got := rig.Code(m); got != "SB-POL-001" { // that it reads is its own word alone
			t.Errorf("%q: %s", got, m.Raw)
		}
	})
	t.Run("receipts", func(t *testing.T) {
		out, errs, code := rig.Command(t, h.Dir, "receipts", "list", "--json")
		if code != 0 || !strings.Contains(out, `"resource":{"scheme":"file","uri":"hmac-sha256:`) {
			t.Errorf("%d %s\n%.2000s", code, errs, out)
		}
		if strings.Contains(out, "passwd") || strings.Contains(out, "srv/data") {
			t.Errorf("a receipt holds a URI:\n%.2000s", out)
		}
	})
}
