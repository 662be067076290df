package served_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
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
	dir := rig.LayOut(t, tied)
	g := rig.Serve(t, dir)
	for _, modern := range []bool{false, false, true} {
		if got := rig.ListNames(t, g.Open(t, "/mcp", modern)); len(got) != 1 || got[0] != "search_web" {
			t.Fatalf("it lists %q", got)
		}
	}
	if text, _, _ := rig.Command(t, dir, "explain", "--url", g.URL); !strings.Contains(text, "  TIE           only its name puts atlas/search_web before atlas/watch_web, nimbus/") {
		t.Errorf("explain does not say that only a name chooses:\n%s", text)
	}
	rig.ReplaceFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), `tenant: default
default_task: research
ranking:
  prefer: [{verb: search, resource: internet, servers: [nimbus]}]
`)
	g.Reload(t) // the log has then all that was logged before
	for tie, want := range map[string]int{"puts atlas/search_web before": 1, "puts nimbus/news_search before": 1} {
		n := 0
		for line := range strings.Lines(g.Logged()) {
			if strings.Contains(line, `level=WARN msg="a name alone decides which tool serves a requirement" tenant=default task=research requirement="search internet"`) && strings.Contains(line, tie) {
				n++
			}
		}
		if n != want {
			t.Errorf("the log has %d warnings that only its name %s, want %d", n, tie, want)
		}
	}
}

func TestFirstMinutes11NoTieIsWarnedOfWhileServersStart(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, strings.Replace(gated, `sh, FAKE, '{"name":"read_file"`, `sh, FAKE, '{"name":"list_files","inputSchema":{"type":"object"}}', '{"name":"read_file"`, 1))
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), "tenant: default\ndefault_task: one\nranking: {adjust: [{server: web, by: 1}]}\n")
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/one.yaml"), "task_id: one\nrequired_capabilities: [{tools: [\"*/*\"], select: tool}]\n")
	g := rig.ServeAtOnce(t, dir)
	s := g.OpenAtOnce(t, "/mcp", true)
	for _, next := range []struct{ server, tool string }{
		{"files", "list_files"}, // which ties with read_file
		{"web", "fetch"},        // which is the best alone
	} {
		begin(t, dir, next.server, "well")
		rig.Eventually(t, "it lists "+next.tool, func() string {
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{next.tool}) {
				return strings.Join(got, ", ")
			}
			return ""
		})
	}
	g.Reload(t) // the log has then all that was logged before
	if text := g.Logged(); strings.Contains(text, "a name alone decides") {
		t.Errorf("it warns of a tie that ends once all servers have answered:\n%s", text)
	}
}
