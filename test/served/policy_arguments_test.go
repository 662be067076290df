package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// PO-03: what a rule judges is what the server gets, however it is spelt.
func TestPO03_ARuleOnArgumentsSeesWhatTheServerWouldGet(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "open"))+"\nTENANTS\n", "", map[string]rig.TenantConfig{
		"acme": {Rego: rig.AllowAll + `
deny[c.id] contains "outside" if {
	some c in input.candidate_tools
	input.phase == "call"
	not inside
}
inside if {
	args := input.call.arguments
	is_string(args.path)
	startswith(args.path, "/w/")
	not contains(args.path, "..")
	not contains(args.path, "//")
	object.get(args, ["opts", "deep", 0, "root"], "/w") == "/w"
	object.get(args, "n", 0) <= 100
	not args.user
}
`},
	})
	const denied, failed = "SB-POL-001", "SB-POL-002"
	for name, s := range h.Clients(t, "acme") {
		for _, tt := range []struct{ arguments, want string }{
			{`{"path":"/w/a"}`, ""},
			{`{ "path" : "\u002fw\/\u0061" }`, ""},
			{`{"p\u0061th":"/w/a","else":[1.0,{"x":null}]}`, ""},
			{`{"path":"/w/a","n":1e2,"opts":{"deep":[{"root":"\/w"}]}}`, ""},
			{`{"path":"/w/a","n":100.000,"N":1e3}`, ""},
			{`{"path":"/w/a","n":-0}`, ""},

			{`{"path":"/w/../etc"}`, denied},
			{`{"path":"/w/\u002e\u002e/etc"}`, denied},
			{`{"path":"/w/.\u002E\/etc"}`, denied},
			{`{"path":"/w//etc"}`, denied},
			{`{"path":"/w\/\/etc"}`, denied},
			{`{"path":["/w/a"]}`, denied},
			{`{"path":{"0":"/w/a"}}`, denied},
			{`{"path":7}`, denied},
			{`{"path":null}`, denied},
			{`{}`, denied},
			{`{"Path":"/w/a"}`, denied},
			{`{"path ":"/w/a"}`, denied},
			{`{"path":"/W/a"}`, denied},
			{`{"path":"/w/a","opts":{"deep":[{"root":"/"}]}}`, denied},
			{`{"path":"/w/a","opts":{"deep":[{"r\u006fot":"\/"},{"root":"/w"}]}}`, denied},
			{`{"path":"/w/a","n":101}`, denied},
			{`{"path":"/w/a","n":1.01E+2}`, denied},
			{`{"path":"/w/a","n":0.0101e4}`, denied},
			{`{"path":"/w/a","n":100.00000000000000000000000000001}`, denied},
			{`{"path":"/w/a","n":36893488147419103232}`, denied},
			{`{"path":"/w/a","n":"7"}`, denied}, // a text is more than any number
			{`{"path":"/w/a","n":1e999999999}`, failed},
			{`{"path":"/w/a","user":"root"}`, denied},
			{`{"path":"/w/a","us\u0065r":"root"}`, denied},
			{`{"path":"/w/a","user":false}`, ""}, // "not" is about this too: it is what the rule says
		} {
			before := rig.ReadFile(t, marks)
			m, _ := s.Ask(t, "tools/call", `{"name":"open","arguments":`+tt.arguments+`}`)
			if got := rig.Code(m); got != tt.want {
				t.Errorf("%s: %s: %s, want %q", name, tt.arguments, m.Raw, tt.want)
			}
			if executed := rig.ReadFile(t, marks) != before; executed != (tt.want == "") {
				t.Errorf("%s: %s: executed %v", name, tt.arguments, executed)
			}
			if tt.want == "" {
				same(t, name+": what the server got", decoded(t, text(t, m)), decoded(t, tt.arguments))
			}
			if strings.Contains(string(m.Raw), "outside") {
				t.Errorf("%s: the caller is told of the rule: %s", name, m.Raw)
			}
		}
		// What two readers could read in two ways is no message.
		before := rig.ReadFile(t, marks)
		for _, arguments := range []string{
			`{"path":"/w/a","path":"/etc"}`, `{"path":"/w/a","p\u0061th":"/etc"}`, `{"path":"/w/a","opts":{"deep":[{"root":"/w","root":"/"}]}}`,
			`{"path":"/w/a","n":0x7}`, `{"path":"/w/a","n":01}`, `{"path":"/w/a","n":NaN}`, `{"path":"/w/a"},"arguments":{"path":"/etc"}`, "{\"path\":\"/w/\xff\"}",
		} {
			m, _ := s.Ask(t, "tools/call", `{"name":"open","arguments":`+arguments+`}`)
			if m.Error == nil || m.Error.Code != -32700 && m.Error.Code != -32600 {
				t.Errorf("%s: %q: %s", name, arguments, m.Raw)
			}
		}
		m, _ := s.Ask(t, "tools/call", `{"name":"open"}`)
		if got := rig.Code(m); got != denied || rig.ReadFile(t, marks) != before {
			t.Errorf("%s: without arguments: %s", name, m.Raw)
		}
	}
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // as they are spelt
	if err := d.Decode(&v); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return v
}
