package served_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// layOutWipe is a server with two tools, each of which provides a capability, and a task that requires both. A policy reads
// the arguments of calls, so that each call is recorded.
func layOutWipe(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(fakeserver.New([]string{
		`{"name":"cat","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}}`,
		`{"name":"rm","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}}`,
	}))
	t.Cleanup(s.Close)
	version := func(id, verb, facts string) string {
		return fmt.Sprintf("id: %s\nversion: 1.0.0\nstatus: active\nverb: %s\nresource: fs\n%srequired_tools:\n  %s: {description: Works., input_schema: {type: object, properties: {path: {type: string}}}}\n",
			id, verb, facts, strings.ReplaceAll(id, ".", "_"))
	}
	dir := rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
start_deadline: 30s
servers:
  one: {transport: http, url: %q}
tenants:
  default: {servers: ["*"]}
-- capabilities/read.yaml --
%s-- capabilities/wipe.yaml --
%s-- overlays/one.yaml --
server: one
provides:
  - {capability: cap.read, tools: {cap_read: cat}}
  - {capability: cap.wipe, tools: {cap_wipe: rm}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: both
record: policy_inputs
-- tenants/default/policies/far.rego --
package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "too far" if {
	some c in input.candidate_tools
	input.call.arguments.path == "/far"
}
-- tenants/default/tasks/both.yaml --
task_id: both
required_capabilities: [{capability: cap.read}, {capability: cap.wipe}]
`, s.URL, version("cap.read", "read", ""), version("cap.wipe", "write", "side_effects: [writes-external]\nrisk_level: high\n")))
	publish(t, dir)
	return dir
}

// What a boundary would have stopped last week: its capability alone, with the name and the line of the row.
func TestAProposedBoundaryStopsExactlyTheCallsThatItMatches(t *testing.T) {
	t.Parallel()
	dir := layOutWipe(t)
	for name, row := range map[string]string{
		"deny":   `{id: no_wipe, severity: hard, id_matches: 'cap\.wipe', decision: deny}`,
		"ask":    `{id: ask_wipe, severity: hard, side_effects_any: [writes-external], decision: require_approval, who: [ops]}`,
		"soft":   `{id: warn_wipe, severity: soft, id_matches: 'cap\.wipe', decision: deny}`,
		"except": `{id: no_write, severity: hard, side_effects_any: [writes-external], exceptions: [cap.wipe], decision: deny}`,
		"bad":    "{id: no_wipe, severity: hardly, id_matches: 'cap\\.wipe', decision: deny}\n- {id: b, severity: hard, risk_level: high, exceptions: [cap.wype], decision: deny}",
	} {
		rig.WriteFile(t, filepath.Join(dir, name, "boundaries.yaml"), "# proposed\n- "+row+"\n")
	}
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	for _, call := range []string{"cap_read /a", "cap_read /b", "cap_read /c", "cap_wipe /a", "cap_wipe /b"} {
		name, path, _ := strings.Cut(call, " ")
		if m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"path":%q}}`, name, path)); m.Error != nil {
			t.Fatalf("%s: %+v", call, m.Error)
		}
	}
	var d diff
	rig.Eventually(t, "five calls are recorded", func() string {
		if d, _ = policyDiff(t, dir, "--against", "deny/boundaries.yaml"); d.Calls < 5 {
			return fmt.Sprintf("%+v", d)
		}
		return ""
	})
	stopped := func(d diff, kind string) (calls int) {
		for _, c := range d.Changes {
			if strings.HasSuffix(c.Tool, "/cat") {
				t.Errorf("a row about cap.wipe changes %+v", c)
			}
			if c.Change == kind && c.Of == "call" && c.Tool == "one/rm" {
				calls += c.Decisions
			}
		}
		return calls
	}
	if calls := stopped(d, "denied"); calls != 2 || d.Replayed != d.Decisions || len(d.Broken) > 0 {
		t.Errorf("the row stops %d calls of cap.wipe, want 2: %+v", calls, d)
	}
	names := func(d diff, row string) bool {
		return slices.ContainsFunc(d.Changes, func(c change) bool { return c.Of == "call" && strings.Contains(c.Why, row) })
	}
	if !names(d, "policy:no_wipe (capabilities/boundaries.yaml:2)") {
		t.Errorf("no change names the row: %+v", d.Changes)
	}
	if d, _ := policyDiff(t, dir, "--against", "ask"); stopped(d, "would_ask") != 2 {
		t.Errorf("a row that asks: %+v", d)
	}
	for _, name := range []string{"soft", "except"} {
		if d, code := policyDiff(t, dir, "--against", name); d.Changed != 0 || code != 0 {
			t.Errorf("%s: exit %d, %+v", name, code, d)
		}
	}
	for _, tt := range []struct {
		want []string
		code int
		args string
	}{
		{[]string{"bad/boundaries.yaml:2:27: "}, -1, "diff --against bad/boundaries.yaml"},
		{[]string{"bad/boundaries.yaml:2:27: ", "bad/boundaries.yaml:3:58: ", "cap.wype"}, -1, "check --boundaries bad/boundaries.yaml"},
		{[]string{"3 layers"}, -1, "check --boundaries except/boundaries.yaml"},
		{[]string{"capability/cap.wipe@1.0.0: denied", "boundary no_wipe at deny/boundaries.yaml:2: deny, denies, because id_matches: cap\\.wipe"}, 1, "eval --capability cap.wipe --boundaries deny/boundaries.yaml"},
		{[]string{"capability/cap.read@1.0.0: allowed"}, 0, "eval --capability cap.read --boundaries deny/boundaries.yaml"},
	} {
		out, errs, code := rig.Command(t, dir, append([]string{"policy"}, strings.Fields(tt.args)...)...)
		if tt.code >= 0 && code != tt.code {
			t.Errorf("%s: exit %d, want %d\n%s%s", tt.args, code, tt.code, out, errs)
		}
		for _, want := range tt.want {
			if !strings.Contains(out+errs, want) {
				t.Errorf("%s says nothing of %q\n%s%s", tt.args, want, out, errs)
			}
		}
	}
	text := func(name string) string {
		b, err := json.Marshal(rig.ReadFile(t, filepath.Join(dir, name, "boundaries.yaml")))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, tt := range []struct {
		path, body, want string
		status           int
	}{
		{"check", `{"boundaries":` + text("bad") + `}`, "capabilities/boundaries.yaml:2:27: ", 422},
		{"check", `{"boundaries":` + text("deny") + `}`, `"layers":3`, 200},
		{"eval?tenant=default", `{"capability":"cap.wipe","boundaries":` + text("deny") + `}`, `"file":"capabilities/boundaries.yaml","line":2,"row":"no_wipe"`, 200},
	} {
		a := g.AskAdmin(t, "", "POST", "/v1/policies/"+tt.path, tt.body)
		if a.Status != tt.status || !strings.Contains(a.Body, tt.want) {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, a.Status, a.Body)
		}
	}
}
