//go:build agents && unix

package agents_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/programs"
)

// questions are what a server asks a person, by the tool that asks.
var questions = []struct {
	tool   string
	params mcp.ElicitParams
	answer func(treatment) string
}{
	{"ask_nothing", mcp.ElicitParams{Mode: "form", Message: "May I?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}, func(t treatment) string { return t.empty }},
	{
		"ask_color", mcp.ElicitParams{
			Mode: "form", Message: "Which color?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"color":{"type":"string","enum":["red","blue"]}},"required":["color"]}`),
		}, func(t treatment) string { return t.form },
	},
	{"ask_page", mcp.ElicitParams{Mode: "url", Message: "Look.", URL: "https://example.com/page", ElicitationID: "page-1"}, func(t treatment) string { return t.page }},
}

// addQuestions adds tools that ask the client of their call. A result has the client's answer.
func addQuestions(server *mcp.Server) {
	for _, q := range questions {
		server.AddTool(&mcp.Tool{Name: q.tool, Description: "Asks.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				text := "nobody is asked"
				if answer, err := r.Session.Elicit(ctx, &q.params); err == nil {
					text = "the answer is " + answer.Action
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
			})
	}
}

// A server behind Switchboard asks each agent's person, where no person is. Then Switchboard asks whether a call is approved: by a form, and by the address
// of a page. The answers are those of the table in docs/approvals.md, and no agent approves a call.
func TestAgentsWithoutAPersonApproveNothingWhenTheyAreAsked(t *testing.T) {
	t.Parallel()
	program, err := programs.Plain()
	if err != nil {
		t.Fatal(err)
	}
	all[0].find(t) // so that no agent waits for the packages
	mail := &mailer{sent: map[string]int{}}
	server := mail.server()
	mail.addSend(server, "send_reviewed")
	addQuestions(server)
	address, config := serveMail(t, program, server, "approvals: {wait: 7s, self: true, ask_client: true}\nadmin: {listen: \"127.0.0.1:0\", url: \"https://sb.example.com\"}\n")
	var running sync.WaitGroup
	for _, a := range all {
		for _, transport := range []string{"http", "stdio"} {
			e, to := newEar(), a.name+" over "+transport
			end := e.awaitTurn()
			running.Go(func() {
				defer end()
				t.Run(a.name+"/"+transport, func(t *testing.T) {
					a.find(t)
					var tools, wants []string
					for _, q := range questions {
						tools = append(tools, q.tool)
						if answer := q.answer(a.asked); answer != "" {
							wants = append(wants, "the answer is "+answer)
						} else {
							wants = append(wants, "nobody is asked")
						}
					}
					tools, wants = append(tools, "send", "send_reviewed"), append(wants, "SB-APPR-001", "SB-APPR-001")
					model := &agents.Model{Script: func(turn agents.Turn) agents.Reply {
						if len(turn.Results) == len(tools) {
							return agents.Reply{Say: "all was asked"}
						}
						tool := turn.Offers(tools[len(turn.Results)])
						if tool == nil {
							return agents.Reply{Say: "this is not offered: " + tools[len(turn.Results)]}
						}
						return agents.Reply{Call: tool, Args: fmt.Sprintf(`{"to":%q}`, to)}
					}}
					said := a.run(t, listen(t, model), e.endpoint(t, transport, program, address, config))
					results := model.Last().Results
					if len(results) != len(wants) {
						t.Fatalf("in the end it says %q; the results are %q", said, results)
					}
					for i, want := range wants {
						if !strings.Contains(results[i], want) {
							t.Errorf("%s: want %q in the result %s", tools[i], want, results[i])
						}
					}
					if got := e.elicitation(); got != a.asked.declares {
						t.Errorf("it declares the elicitation %q, want %q", got, a.asked.declares)
					}
					if n := mail.calls(to); n != 0 {
						t.Errorf("%d calls were made that no person has approved", n)
					}
				})
			})
		}
	}
	running.Wait()
}

// row returns the agent's row in docs/approvals.md.
func (a agent) row(version string) string {
	answer := func(action string) string {
		return cmp.Or(map[string]string{"accept": "**accepts it**", "decline": "declines", "cancel": "cancels"}[action], "is never asked")
	}
	progress := "gives up"
	if a.asked.extends {
		progress = "goes on waiting"
	}
	return fmt.Sprintf("| %s %s | %s | %s | %s | %s |\n", a.name, version, progress, answer(a.asked.empty), answer(a.asked.form), answer(a.asked.page))
}

func TestThePageOfApprovalsSaysHowEachAgentIsAsked(t *testing.T) {
	const page = root + "/docs/approvals.md"
	text, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	var pinned struct{ Dependencies, OptionalDependencies map[string]string }
	if err := json.Unmarshal(raw, &pinned); err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if row := a.row(pinned.Dependencies[a.pkg] + pinned.OptionalDependencies[a.pkg]); !strings.Contains(string(text), row) {
			t.Errorf("docs/approvals.md does not have the row\n%s", row)
		}
	}
}
