//go:build agents && unix

package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/officer"
	"github.com/summit-switchboard/switchboard/test/programs"
)

// words is a server each of whose tools gives its own name and a word. One is too
// large for any budget.
func words(t *testing.T) string {
	server := mcp.NewServer(&mcp.Implementation{Name: "words", Version: "1"}, nil)
	for _, name := range []string{"read_word", "write_word", "late_word", "huge_word"} {
		description := "Gives a word."
		if name == "huge_word" {
			description = strings.Repeat("Gives one word after the other. ", 1000)
		}
		server.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the word of " + name}}}, nil
			})
	}
	return listen(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
}

// hours denies the expansion of writing in business hours, in a zone where it is
// noon or midnight now.
func hours(noon bool) string {
	ahead := 12 - time.Now().UTC().Hour()
	if !noon {
		ahead = -time.Now().UTC().Hour()
		if ahead < -12 {
			ahead += 24
		}
	}
	return fmt.Sprintf(`package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "business hours" if {
	input.phase == "expand"
	some c in input.candidate_tools
	c.tool == "write_word"
	[hour, _, _] := time.clock([time.parse_rfc3339_ns(input.now), "Etc/GMT%+d"])
	hour >= 9
	hour < 17
}
`, -ahead)
}

const noLateWord = `
deny[c.id] contains "not any more" if {
	some c in input.candidate_tools
	c.tool == "late_word"
}
`

// policies is what the switchboard says of the policies that it runs with.
func policies(t *testing.T, base, dir string) string {
	text, err := officer.Read(t.Context(), base, filepath.Join(dir, ".switchboard"), "/v1/status")
	if err != nil {
		t.Error(err)
		return ""
	}
	return string(regexp.MustCompile(`"policies":\[[^]]*\]`).Find(text))
}

// An agent works with tools that are on demand: through the stub without listing
// again, by name after it has expanded them, and is refused what policy and budget
// refuse.
// Claude Code searches tools itself, as it does unless it is told otherwise, and still
// sees the stub.
func TestFirstMinutes5AgentsWithAToolSearchOfTheirOwnUseTheStub(t *testing.T) {
	t.Parallel()
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			a.find(t)
			program, err := programs.Plain()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			config := write(t, dir, "switchboard.yaml", fmt.Sprintf("servers:\n  words: {transport: http, url: %q}\ntenants: {default: {servers: [\"*\"], allow: [by_name], token_budget: 1000}}\n", words(t)))
			write(t, dir, "tenants/default/tenant.yaml", "tenant: default\ndefault_task: work\n")
			write(t, dir, filepath.FromSlash("tenants/default/tasks/work.yaml"), "task_id: work\nrequired_capabilities: [{tools: [\"words/*\"], load: on_demand, group: words, stub: words_helper}]\n")
			const rules = "tenants/default/policies/own.rego"
			write(t, dir, rules, hours(true))
			e := newEar()
			address := serve(t, program, config)
			base := strings.TrimSuffix(address, "/mcp")
			reload := func(text string) {
				was := policies(t, base, dir)
				write(t, dir, rules, text)
				for range time.Tick(20 * time.Millisecond) {
					if policies(t, base, dir) != was || t.Failed() {
						return
					}
				}
			}

			// A modern client's list does not change by what it does.
			relists := a.relists && !strings.HasPrefix(a.opens, "server/discover")
			lists := 0 // that were answered before the last change
			count := func() { lists = e.answers() }

			steps := []struct {
				do    func()
				args  string // for the stub; "" calls read_word by its name
				wants string // in the answer
			}{
				{args: `{"action":"search","query":"read a word"}`, wants: "- read_word ("},
				{args: `{"action":"call","tool":"read_word","arguments":{}}`, wants: "the word of read_word"},
				{do: count, args: `{"action":"expand","tools":["read_word","late_word"]}`, wants: "2 tools expanded"},
				{wants: "the word of read_word"},
				{args: `{"action":"expand","tools":["huge_word"]}`, wants: "SB-LAZY-001"},
				{args: `{"action":"expand","tools":["write_word"]}`, wants: "SB-LAZY-002"},
				{do: func() { reload(hours(false)) }, args: `{"action":"expand","tools":["write_word"]}`, wants: "1 tool expanded"},
				{do: count, args: `{"action":"collapse","tools":["read_word"]}`, wants: "1 tool collapsed"},
				{
					do: func() {
						if relists {
							e.relisted(lists, 2*time.Second)
						}
					},
					args: `{"action":"call","tool":"late_word"}`, wants: "the word of late_word",
				},
				{do: func() { reload(hours(false) + noLateWord) }, args: `{"action":"call","tool":"late_word"}`, wants: "SB-LAZY-003"},
			}
			at, asked, looked := 0, 0, 0
			model := &agents.Model{Script: func(turn agents.Turn) agents.Reply {
				stub := turn.Offers("words_helper")
				if stub == nil {
					return agents.Reply{Say: "there is no stub"}
				}
				if len(turn.Results) > asked { // the last step was answered
					if got := turn.Results[len(turn.Results)-1]; looked == 0 && !strings.Contains(got, steps[at-1].wants) {
						return agents.Reply{Say: fmt.Sprintf("step %d gave %s", at, got)}
					}
					asked = len(turn.Results)
				}
				if at == len(steps) {
					return agents.Reply{Say: "all went well"}
				}
				step := steps[at]
				if step.args == "" {
					named := turn.Offers("read_word")
					if named == nil && relists && looked < looks {
						looked++
						e.relisted(lists, 200*time.Millisecond)
						count()
						return agents.Reply{Call: stub, Args: fmt.Sprintf(`{"action":"search","query":"look %d"}`, looked)}
					}
					looked = 0
					at++
					if named == nil {
						if relists {
							return agents.Reply{Say: "it is not offered the tool that it has expanded"}
						}
						return agents.Reply{Call: stub, Args: `{"action":"call","tool":"read_word"}`} // it never lists again
					}
					return agents.Reply{Call: named}
				}
				at++
				if step.do != nil {
					step.do()
				}
				return agents.Reply{Call: stub, Args: step.args}
			}}
			said := a.run(t, listen(t, model), endpoint{url: e.before(t, address)}, "ENABLE_TOOL_SEARCH=true")
			if !strings.Contains(said, "all went well") {
				t.Errorf("after %d steps it says %q", at, said)
			}
			if last := model.Last(); last.Offers("read_word") != nil {
				t.Errorf("in the end it is still offered what was collapsed: %v", last.Tools)
			}
		})
	}
}
