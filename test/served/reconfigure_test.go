package served_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// Modern clients share one run for as long as they come, so what they see must not depend on a failure of last week.
func TestAnEditOfTheRankingEndsTheStayAtAFallback(t *testing.T) {
	t.Parallel()
	const tool = `{"name":"search","description":"of %s","inputSchema":{"type":"object"}}`
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(tool, "a")), rig.FakeRow("b", fmt.Sprintf(tool, "b")))+`
-- overlays/a.yaml --
server: a
tools: {search: {capabilities: [{verb: search, resource: internet}]}}
-- overlays/b.yaml --
server: b
tools: {search: {capabilities: [{verb: search, resource: internet}]}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: look
ranking: {prefer: [{verb: search, resource: internet, servers: [a, b]}]}
-- tenants/default/tasks/look.yaml --
task_id: look
required_capabilities: [{verb: search, resource: internet}]
`)
	g := rig.Serve(t, dir)
	sessions := map[string]rig.Session{"legacy": g.Open(t, "/mcp", false), "modern": g.Open(t, "/mcp", true)}
	serves := func(server string) {
		t.Helper()
		for name, s := range sessions {
			rig.Eventually(t, name+": "+server+" serves", func() string {
				m, _ := s.Ask(t, "tools/list", `{}`)
				return rig.ReasonUnless(strings.Contains(string(m.Result), "of "+server), string(m.Raw))
			})
		}
	}
	operate := func(args ...string) {
		t.Helper()
		if _, errs, code := rig.Command(t, dir, append(args, "--url", g.URL)...); code != 0 {
			t.Fatalf("%q: %s", args, errs)
		}
	}
	serves("a")
	operate("server", "disable", "a", "--reason", "an upgrade")
	serves("b")
	operate("server", "enable", "a")
	rig.Eventually(t, "new runs begin at a", func() string {
		m, _ := g.Open(t, "/mcp", false).Ask(t, "tools/list", `{}`)
		return rig.ReasonUnless(strings.Contains(string(m.Result), "of a"), string(m.Raw))
	})
	serves("b") // they stay
	file := filepath.Join(dir, "tenants/default/tenant.yaml")
	rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), "[a, b]", "[a]", 1))
	serves("a")
}

func TestASettingThatIsReadAtTheStartIsNamedWhenAReloadChangesIt(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))))
	g := rig.Serve(t, dir)
	file := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, file, rig.ReadFile(t, file)+"\nreceipts: {anchor: anchor.jsonl}\n")
	const want = `msg="these settings are read at the start: restart Switchboard" changed=receipts`
	rig.Eventually(t, "the log names it", func() string { return rig.ReasonUnless(strings.Contains(g.Logged(), want), g.Logged()) })
}
