package served_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// tied is a configuration in which only a name chooses the tool of a requirement.
const tied = `
-- switchboard.yaml --
servers:
  atlas: {transport: stdio, command: [BIN, sample, atlas-search], trust: operator}
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search], trust: operator}
tenants:
  default: {servers: ["*"]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: research
-- tenants/default/tasks/research.yaml --
task_id: research
required_capabilities:
  - {verb: search, resource: internet, select: tool}
`

func TestFirstMinutes11AToolThatOnlyItsNameChoosesIsWarnedOfOncePerChange(t *testing.T) {
	t.Parallel()
	dir := layOut(t, tied)
	g := serve(t, dir)
	for _, modern := range []bool{false, false, true} {
		if got := names(t, g.open(t, "/mcp", modern)); len(got) != 1 || got[0] != "search_web" {
			t.Fatalf("it lists %q", got)
		}
	}
	if text, _, _ := command(t, dir, "explain", "--url", g.url); !strings.Contains(text, "  TIE           only its name puts atlas/search_web before atlas/watch_web, nimbus/") {
		t.Errorf("explain does not say that only a name chooses:\n%s", text)
	}
	replace(t, filepath.Join(dir, "tenants/default/tenant.yaml"), `tenant: default
default_task: research
ranking:
  prefer: [{verb: search, resource: internet, servers: [nimbus]}]
`)
	g.reload(t) // the log has then all that was logged before
	for tie, want := range map[string]int{"puts atlas/search_web before": 1, "puts nimbus/news_search before": 1} {
		n := 0
		for line := range strings.Lines(g.logged()) {
			if strings.Contains(line, `level=WARN msg="a name alone decides which tool serves a requirement" tenant=default task=research requirement="search internet"`) && strings.Contains(line, tie) {
				n++
			}
		}
		if n != want {
			t.Errorf("the log has %d warnings that only its name %s, want %d", n, tie, want)
		}
	}
}
