package npm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/npmlock"
)

// Two servers of the same package, of which one has its arguments checked. tee writes down
// what reaches them.
const checkedServers = `
-- switchboard.yaml --
servers:
  checked: {transport: stdio, dir: work, command: [sh, -c, "tee -a checked.log | MEMORY_FILE_PATH=$PWD/checked.jsonl exec %[1]s"], trust: operator}
  strict: {transport: stdio, dir: work, command: [sh, -c, "tee -a strict.log | MEMORY_FILE_PATH=$PWD/strict.jsonl exec %[1]s"], check_input: strict}
  unchecked: {transport: stdio, dir: work, command: [sh, -c, "tee -a unchecked.log | MEMORY_FILE_PATH=$PWD/unchecked.jsonl exec %[1]s"], check_input: "off"}
tenants: {example: {servers: ["*"], allow: [by_name], token_budget: 20000}}
-- work/README.md --
The servers write here: they can make no files beside switchboard.yaml.
-- tenants/example/tenant.yaml --
tenant: example
-- tenants/example/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"]}
`

func TestFirstMinutes8ArgumentsThatPlainlyDoNotFitReachNoServer(t *testing.T) {
	t.Parallel() // it times nothing
	npmlock.Need(t, "npm servers that are called wrongly")
	program, err := filepath.Abs("node_modules/.bin/mcp-server-memory")
	if err != nil {
		t.Fatal(err)
	}
	dir := layOut(t, fmt.Appendf(nil, checkedServers, program))
	g := serve(t, dir)
	for _, c := range []client{clients[0], clients[2]} {
		ask := c.open(t, g, "all")
		for i, tt := range []struct {
			tool, args string
			sent       bool
			says       []string // what the result holds
		}{
			{"checked__create_entities", `{"entities":[{"name":"MARK","entityType":"person","observations":[]}]}`, true, []string{"MARK"}},
			{"checked__create_entities", `{"mark":"MARK"}`, false, []string{"SB-CAP-003", `\"entities\" is missing`, `\"entityType\":{`}},
			{"checked__create_entities", `{"entities":[{"name":"MARK"}]}`, false, []string{"SB-CAP-003", `\"entityType\" is missing, \"observations\" is missing`}},
			{"checked__search_nodes", `{"Query":"MARK"}`, false, []string{"SB-CAP-003", `\"query\" is missing`}},
			{"checked__create_entities", `{"entities":"MARK"}`, true, []string{`at \"/entities\": want array, not string`, "Switchboard adds"}},
			{"strict__create_entities", `{"entities":"MARK"}`, false, []string{"SB-CAP-003", `at \"/entities\": want array, not string`}},
			{"unchecked__search_nodes", `{"query":7,"mark":"MARK"}`, true, nil},
		} {
			mark := fmt.Sprintf("mark-%d-%v", i, c.modern)
			a := ask(call(tt.tool, strings.ReplaceAll(tt.args, "MARK", mark)))
			got := string(a.result) + string(a.err)
			for _, want := range tt.says {
				if !strings.Contains(got, strings.ReplaceAll(want, "MARK", mark)) {
					t.Errorf("%s: %s %s gave %s, want it to hold %s", c.name, tt.tool, tt.args, got, want)
				}
			}
			if isError := strings.Contains(got, `"isError":true`); !tt.sent && !isError {
				t.Errorf("%s: %s %s gave %s", c.name, tt.tool, tt.args, got)
			}
			server, _, _ := strings.Cut(tt.tool, "__")
			reached, err := os.ReadFile(filepath.Join(dir, "work", server+".log"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(reached), mark) != tt.sent {
				t.Errorf("%s: %s %s: that it reached the server is %v", c.name, tt.tool, tt.args, !tt.sent)
			}
		}
	}
}
