package served_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// Number 13: a tool that policy vetoes for one requirement of a task is selected for another, unless the operator has a veto
// count for the whole task.
func TestNames13AVetoCountsForTheRequirementOrForTheTask(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	labelled := func(name string, verbs ...string) string {
		var all []string
		for _, verb := range verbs {
			all = append(all, fmt.Sprintf(`{"verb":%q,"resource":"fs"}`, verb))
		}
		return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[%s]}}`, name, strings.Join(all, ","))
	}
	rule := func(phase string) string {
		return fmt.Sprintf("package switchboard\n%sdeny[c.id] contains \"no writing\" if {\n\tinput.phase in %s\n\tsome c in input.candidate_tools\n\tinput.requirement.verb == \"write\"\n\tc.tool != \"only_write\"\n}\n", rig.AllowAll, phase)
	}
	lay := func(t *testing.T, veto, phase string) string {
		dir := rig.LayOut(t, strings.Replace(rig.Fakes(rig.FakeRow("a", labelled("only_write", "write")), rig.FakeRow("b", labelled("both", "write", "read")), rig.FakeRow("c", labelled("only_read", "read"))),
			"start_deadline: 30s\n", "start_deadline: 30s\n"+veto, 1))
		rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), "tenant: default\ndefault_task: all\nranking: {adjust: [{server: a, by: 20}, {server: b, by: 10}]}\n")
		rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/all.yaml"), "task_id: all\nrequired_capabilities:\n  - {verb: write, resource: fs}\n  - {verb: read, resource: fs}\n")
		rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/lazy.yaml"), "task_id: lazy\nrequired_capabilities:\n  - {verb: write, resource: fs}\n  - {verb: read, resource: fs, load: on_demand, group: files}\n")
		rig.WriteFile(t, filepath.Join(dir, "policies/p.rego"), rule(phase))
		return dir
	}
	const always, called = `{"select", "list", "search", "expand", "call"}`, `{"call"}`
	for _, tt := range []struct {
		name, veto, phase string
		lists             []string
		call              string // of both
	}{
		{"for the requirement", "", always, []string{"both", "only_write"}, ""},
		{"for the task", "policies: {veto: task}\n", always, []string{"only_read", "only_write"}, "error -32602"},
		{"of calls, for the requirement", "", called, []string{"both", "only_write"}, ""},
		{"of calls, for the task", "policies: {veto: task}\n", called, []string{"both", "only_write"}, "SB-POL-001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := lay(t, tt.veto, tt.phase)
			g := rig.Serve(t, dir)
			legacy := rig.Stdio(t, dir, false)
			for who, s := range map[string]rig.Session{"http, legacy": g.Open(t, "/mcp", false), "http, modern": g.Open(t, "/mcp", true), "stdio, legacy": legacy} {
				got := rig.ListNames(t, s)
				slices.Sort(got)
				if !slices.Equal(got, tt.lists) {
					t.Errorf("%s: it lists %q, want %q", who, got, tt.lists)
				}
				m, _ := s.Ask(t, "tools/call", `{"name":"both","arguments":{}}`)
				if code := rig.Code(m); code != tt.call && (tt.call != "error -32602" || code != "SB-CAP-001") {
					t.Errorf("%s: a call of both gives %q, want %q: %s", who, code, tt.call, m.Raw)
				}
			}
			for _, modern := range []bool{false, true} {
				s := g.Open(t, "/mcp/tasks/lazy", modern)
				m, _ := s.Ask(t, "tools/call", `{"name":"files_helper","arguments":{"action":"call","tool":"both","arguments":{}}}`)
				if ok := m.Error == nil && !strings.Contains(string(m.Result), `"isError":true`); ok != (tt.call == "") {
					t.Errorf("modern %v: through the stub: %s", modern, m.Raw)
				}
			}
			out, errs, _ := rig.Command(t, dir, "explain", "--tool", "b/both", "--url", g.URL)
			if says := strings.Contains(out, "it is vetoed for write fs, and a veto counts for the whole task"); says != (tt.name == "for the task") {
				t.Errorf("explain says:\n%s%s", out, errs)
			}
			// What was decided is decided again from what was recorded.
			if out, errs, code := rig.Command(t, dir, "policy", "diff", "--against", dir); code != 0 {
				t.Errorf("policy diff: exit %d\n%s%s", code, out, errs)
			}
			_, errs, code := rig.Command(t, dir, "policy", "check")
			out, _, _ = rig.Command(t, dir, "policy", "check")
			if warned := strings.Contains(out+errs, "(requirement)"); warned != (tt.veto == "") {
				t.Errorf("policy check: exit %d\n%s%s", code, out, errs)
			}
		})
	}
}
