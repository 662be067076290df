//go:build agents && unix

package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/programs"
)

// search is a server with one tool, which gives its own name and the arguments
// that it was called with.
func search(t *testing.T, tool, properties string) *httptest.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: tool, Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: tool, Description: "Searches the web.", InputSchema: json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text := tool + " " + strings.NewReplacer(`"`, "", " ", "").Replace(string(r.Params.Arguments))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
	s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func TestAnAgentIsServedByAnotherServerInTheMiddleOfItsConversation(t *testing.T) {
	t.Parallel()
	const (
		first  = "search_web {query:one,country:de}"
		second = "web_search {q:two,safe:true}"
	)
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			a.find(t)
			program, err := programs.Plain()
			if err != nil {
				t.Fatal(err)
			}
			brave := search(t, "search_web", `"query":{"type":"string"},"country":{"type":"string"}`)
			google := search(t, "web_search", `"q":{"type":"string"},"safe":{"type":"boolean"}`)
			dir := t.TempDir()
			config := write(t, dir, "switchboard.yaml", fmt.Sprintf(`servers:
  brave: {transport: http, url: %q}
  google: {transport: http, url: %q}
tenants: {default: {servers: ["*"]}}
`, brave.URL, google.URL))
			const searches = "capabilities: [{verb: search, resource: internet, constraints: [readonly]}]"
			for file, text := range map[string]string{
				"overlays/brave.yaml": "server: brave\ntools:\n  search_web:\n    " + searches + `
    equivalents: [{tool: google/web_search, map: {query: q}, constants: {safe: true}, drop: [country]}]
`,
				"overlays/google.yaml": "server: google\ntools: {web_search: {" + searches + "}}\n",
				"tenants/default/tenant.yaml": `tenant: default
default_task: browse
ranking: {prefer: [{verb: search, resource: internet, servers: [brave]}]}
`,
				"tenants/default/tasks/browse.yaml": "task_id: browse\nrequired_capabilities: [{verb: search, resource: internet}]\n",
			} {
				write(t, dir, filepath.FromSlash(file), text)
			}
			model := &agents.Model{Script: func(turn agents.Turn) agents.Reply {
				tool := turn.Offers("search_web")
				switch {
				case tool == nil:
					return agents.Reply{Say: "there is nothing to search with"}
				case len(turn.Results) == 0:
					return agents.Reply{Call: tool, Args: `{"query":"one","country":"de"}`}
				case len(turn.Results) == 1:
					_ = brave.Listener.Close() // first, or a stream comes back, and is waited for
					brave.CloseClientConnections()
					brave.Close()
					return agents.Reply{Call: tool, Args: `{"query":"two","country":"de"}`}
				}
				return agents.Reply{Say: strings.Join(turn.Results, " ")}
			}}
			said := a.run(t, listen(t, model), endpoint{url: serve(t, program, config)})
			last := model.Last()
			for _, want := range []string{first, second} {
				if !last.Has(want) || !strings.Contains(said, want) {
					t.Errorf("%s is not in the conversation: %q; in the end it says %q", want, last.Results, said)
				}
			}
		})
	}
}
