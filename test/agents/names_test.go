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
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/officer"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A frail is a server with one tool, which gives the server's name, and which fails in one of many ways.
type frail struct {
	*httptest.Server
	tools *mcp.Server
	name  string // of the tool
	way   atomic.Value
	over  chan struct{}
}

func newFrail(t *testing.T, server, tool, parameter string) *frail {
	f := &frail{name: tool, over: make(chan struct{})}
	f.way.Store("")
	f.tools = mcp.NewServer(&mcp.Implementation{Name: server, Version: "1"}, nil)
	f.tools.AddTool(&mcp.Tool{
		Name: tool, Description: "Finds.",
		InputSchema: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{%q:{"type":"string"}},"required":[%q],"additionalProperties":false}`, parameter, parameter)),
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found by " + server}}}, nil
	})
	speaks := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.tools }, nil)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch f.way.Load() {
		case "503":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "hangs":
			select {
			case <-f.over:
			case <-r.Context().Done():
			}
		default:
			speaks.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		close(f.over)
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// mishaps are what befalls the first of two servers between two calls. parameter is that of the second server's
// tool; the first's is "query".
var mishaps = []struct {
	tool, parameter string
	befall          func(t *testing.T, f *frail, remove func())
}{
	{"find_killed", "query", func(_ *testing.T, f *frail, _ func()) {
		_ = f.Listener.Close()
		f.CloseClientConnections()
	}},
	{"find_other", "words", func(_ *testing.T, f *frail, _ func()) {
		_ = f.Listener.Close()
		f.CloseClientConnections()
	}},
	{"find_hung", "query", func(_ *testing.T, f *frail, _ func()) { f.way.Store("hangs") }},
	{"find_503", "query", func(_ *testing.T, f *frail, _ func()) { f.way.Store("503") }},
	{"find_unlisted", "query", func(_ *testing.T, f *frail, _ func()) { f.tools.RemoveTools(f.name) }},
	{"find_removed", "query", func(_ *testing.T, _ *frail, remove func()) { remove() }},
}

// thinks is how long a model takes at least to read an error and write another call.
const thinks = 500 * time.Millisecond

// Between two calls of a conversation the first server is killed, hangs, answers 503, changes its list, or is removed from
// the file. The next call works, or says in one sentence how to go on, and the agent goes on by itself: Codex without
// listing again.
func TestNamesAgentsGoOnWhenTheServerOfANameFails(t *testing.T) {
	t.Parallel()
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			a.find(t)
			program, err := programs.Plain()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			var rows, prefer, needs, resources strings.Builder
			firsts := map[string]*frail{}
			for i, m := range mishaps {
				first, second := newFrail(t, "first", m.tool, "query"), newFrail(t, "second", m.tool, m.parameter)
				firsts[m.tool] = first
				for server, f := range map[string]*frail{"first": first, "second": second} {
					fmt.Fprintf(&rows, "  %s-%d: {transport: http, url: %q, timeout: 2s, health: {timeout: 2s}}\n", server, i, f.URL)
					write(t, dir, fmt.Sprintf("overlays/%s-%d.yaml", server, i), fmt.Sprintf("server: %s-%d\ntools: {%s: {capabilities: [{verb: search, resource: place%d}]}}\n", server, i, m.tool, i))
				}
				fmt.Fprintf(&resources, "  place%d: {}\n", i)
				fmt.Fprintf(&prefer, "    - {verb: search, resource: place%d, servers: [first-%d]}\n", i, i)
				fmt.Fprintf(&needs, "  - {verb: search, resource: place%d}\n", i)
			}
			config := write(t, dir, "switchboard.yaml", "grace: 1s\nservers:\n"+rows.String()+"tenants: {default: {servers: [\"*\"]}}\n")
			write(t, dir, "taxonomy.yaml", "resources:\n"+resources.String())
			write(t, dir, filepath.FromSlash("tenants/default/tenant.yaml"), "tenant: default\ndefault_task: find\nranking:\n  prefer:\n"+prefer.String())
			write(t, dir, filepath.FromSlash("tenants/default/tasks/find.yaml"), "task_id: find\nrequired_capabilities:\n"+needs.String())
			address := serve(t, program, config)
			remove := func() {
				// The overlay and the ranking still name it: these are faults, and stay where they are.
				last := len(mishaps) - 1
				name := fmt.Sprintf("first-%d", last)
				kept := strings.Replace(rows.String(), fmt.Sprintf("  %s: {transport: http, url: %q, timeout: 2s, health: {timeout: 2s}}\n", name, firsts[mishaps[last].tool].URL), "", 1)
				write(t, dir, "switchboard.yaml", "grace: 1s\nservers:\n"+kept+"tenants: {default: {servers: [\"*\"]}}\n")
				wait.For(t, wait.Bound, "the server is removed", func() error {
					if text := statusOf(t, address, dir); strings.Contains(text, `"`+name+`"`) {
						<-time.After(20 * time.Millisecond)
						return fmt.Errorf("it is in %s", text)
					}
					return nil
				})
			}

			const most = 4 // calls of one tool that may fail
			at, befallen, failed := 0, false, 0
			var lost []string
			model := &agents.Model{Script: func(turn agents.Turn) agents.Reply {
				for at < len(mishaps) {
					m := mishaps[at]
					var last string
					if len(turn.Results) > 0 {
						last = turn.Results[len(turn.Results)-1]
					}
					switch {
					case befallen && strings.Contains(last, "found by second"), failed > most:
						if failed > most {
							lost = append(lost, m.tool+": "+last)
						}
						at, befallen, failed = at+1, false, 0
						turn.Results = nil
						continue
					case !befallen && strings.Contains(last, "found by first"):
						m.befall(t, firsts[m.tool], remove)
						befallen = true
					case befallen:
						failed++
						<-time.After(thinks)
					}
					tool := turn.Offers(m.tool)
					if tool == nil {
						lost = append(lost, m.tool+" is not offered")
						at, befallen, failed = at+1, false, 0
						continue
					}
					parameter := "query"
					if befallen && strings.Contains(last, "words") {
						parameter = "words" // the answer says so
					}
					return agents.Reply{Call: tool, Args: fmt.Sprintf(`{%q:"x"}`, parameter)}
				}
				return agents.Reply{Say: "all was found"}
			}}
			said := a.run(t, listen(t, model), endpoint{url: address})
			if len(lost) > 0 || at < len(mishaps) || !strings.Contains(said, "all was found") {
				t.Errorf("%d of %d mishaps, lost %q; in the end it says %q; the results: %q", at, len(mishaps), lost, said, model.Last().Results)
			}
		})
	}
}

// statusOf is what the switchboard says of itself.
func statusOf(t *testing.T, address, dir string) string {
	t.Helper()
	text, err := officer.Read(t.Context(), strings.TrimSuffix(address, "/mcp"), filepath.Join(dir, ".switchboard"), "/v1/status")
	if err != nil {
		t.Error(err)
		return ""
	}
	var all struct {
		Servers []struct{ ID string } `json:"servers"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Error(err)
	}
	own, _ := json.Marshal(all)
	return string(own)
}
