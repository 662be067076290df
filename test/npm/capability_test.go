package npm_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/capabilities"
	"github.com/summit-switchboard/switchboard/test/npmlock"
)

// Two servers provide the shipped io.fs.read: the filesystem server of npm, and one on the Go SDK with other names. "%s" is filled in by
// the test.
const providers = `
-- switchboard.yaml --
start_deadline: 2m
servers:
  files:
    transport: stdio
    command: [node, "%s/@modelcontextprotocol/server-filesystem/dist/index.js", "${workspace}/work"]
  shelf: {transport: http, url: %q}
tenants: {example: {servers: ["*"], permissions: ["fs:read"]}}
-- overlays/files.yaml --
server: files
provides:
  - {capability: io.fs.read@^1, tools: {read_file: read_text_file, list_dir: list_directory}}
-- overlays/shelf.yaml --
server: shelf
provides:
  - capability: io.fs.read@^1
    tools: {read_file: {tool: cat, map: {path: file}, constants: {raw: true}}, list_dir: {tool: ls, map: {path: folder}}}
-- tenants/example/tenant.yaml --
tenant: example
default_task: work
ranking: {adjust: [{server: %s, by: 30}]}
-- tenants/example/tasks/work.yaml --
task_id: work
required_capabilities: [{capability: io.fs.read@^1}]
-- work/plan.md --
in the file
`

// newShelf starts the other server. It answers with the arguments that it has received.
func newShelf(t *testing.T) *httptest.Server {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "shelf", Version: "1"}, nil)
	said := func(text string) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	}
	type cat struct {
		File string `json:"file"`
		Raw  bool   `json:"raw"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "cat", Description: "Prints."}, func(_ context.Context, _ *mcp.CallToolRequest, in cat) (*mcp.CallToolResult, any, error) {
		return said(fmt.Sprintf("shelf: cat %s %v", filepath.Base(in.File), in.Raw))
	})
	type ls struct {
		Folder string `json:"folder"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "ls"}, func(_ context.Context, _ *mcp.CallToolRequest, in ls) (*mcp.CallToolResult, any, error) {
		return said("shelf: ls " + filepath.Base(in.Folder))
	})
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(server.Close)
	return server
}

func TestAnyServerThatProvidesACapabilityGivesTheSameList(t *testing.T) {
	t.Parallel()
	npmlock.Need(t, "npm server that provides io.fs.read")
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	var first [2]string // the list of each client
	for _, preferred := range []string{"files", "shelf"} {
		shelf := newShelf(t)
		dir := layOut(t, fmt.Appendf(nil, providers, modules, shelf.URL, preferred))
		if err := os.CopyFS(filepath.Join(dir, "capabilities"), capabilities.Standard); err != nil {
			t.Fatal(err)
		}
		g := serve(t, dir)
		read, look := call("read_file", in(dir, `{"path":"WORK/plan.md"}`)), call("list_dir", in(dir, `{"path":"WORK"}`))
		texts := map[string][2]string{"files": {"in the file", "plan.md"}, "shelf": {"shelf: cat plan.md true", "shelf: ls work"}}
		for i, c := range []client{clients[0], clients[2]} {
			ask := c.open(t, g, "work")
			listed := string(ask(list).result)
			if first[i] == "" {
				first[i] = listed
			}
			if listed != first[i] || !strings.Contains(listed, `"read_file"`) || !strings.Contains(listed, `"list_dir"`) {
				t.Errorf("%s: from %s the list is\n%s\nand from the other server\n%s", c.name, preferred, listed, first[i])
			}
			served := func(by string) {
				t.Helper()
				for j, o := range []op{read, look} {
					if a := ask(o); !strings.Contains(string(a.result), texts[by][j]) || strings.Contains(string(a.result), `"isError":true`) {
						t.Errorf("%s: %s by %s: %s%s", c.name, o.Name, by, a.result, a.err)
					}
				}
			}
			served(preferred)
			if preferred == "shelf" && i == 1 { // the server ends in the middle of the conversation
				shelf.CloseClientConnections()
				shelf.Close()
				served("files")
				if again := string(ask(list).result); again != listed {
					t.Errorf("%s: after the move the list is\n%s\nand before\n%s", c.name, again, listed)
				}
			}
		}
	}
}
