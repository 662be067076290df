package served_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// The timeout in a client's file bounds the calls of the server, served unchanged and after an import. Otherwise this call would take 60s.
func TestTheTimeoutOfAClientsFileBoundsItsCalls(t *testing.T) {
	t.Parallel()
	client := fmt.Sprintf("-- mcp.json --\n"+`{"mcpServers": {"slow": {"command": %q, "args": ["fake", %q], "timeout": 0.5}}}`, rig.FakeProgram, fmt.Sprintf(rig.Tool, "get"))
	for way, serve := range map[string]func(dir string) *rig.Gateway{
		"unchanged": func(dir string) *rig.Gateway { return rig.Serve(t, dir, "--mcp-config", "mcp.json") },
		"imported": func(dir string) *rig.Gateway {
			if out, errs, code := rig.Command(t, dir, "import", "mcp.json"); code != 0 {
				t.Fatalf("import: %d, %s%s", code, out, errs)
			}
			return rig.Serve(t, dir)
		},
	} {
		g := serve(rig.LayOut(t, client))
		g.AwaitServers()
		m, _ := g.Open(t, "/mcp", true).Ask(t, "tools/call", `{"name":"get","arguments":{"do":"wait"}}`)
		if got := string(m.Raw); rig.Code(m) != "SB-EXEC-004" || !strings.Contains(got, "its server's timeout of 500ms is over") {
			t.Errorf("%s: %s", way, got)
		}
	}
}
