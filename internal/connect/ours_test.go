package connect

import (
	"fmt"
	"strings"
	"testing"
)

func TestLookFindsTheEntriesThatLeadToASwitchboard(t *testing.T) {
	for _, g := range []struct{ client, file, text, want string }{
		{"claude-code", ".claude.json", `{"mcpServers": {"switchboard": {"command": "/opt/switchboard", "args": ["stdio", "--config", "/x.yaml", "--task", "a"]}, "files": {"command": "npx"}}}`, "switchboard /opt/switchboard /x.yaml ; 1 other"},
		{"claude-code", ".claude.json", `{"mcpServers": {"mine": {"command": "switchboard", "args": ["stdio", "--config=/x.yaml"]}}}`, "mine switchboard /x.yaml ; 0 other"},
		{"claude-code", ".claude.json", `{"mcpServers": {"mine": {"command": "switchboard", "args": ["stdio"]}}}`, "mine switchboard  ; 0 other"},
		{"claude-code", ".claude.json", `{"mcpServers": {"switchboard": {"type": "http", "url": "http://127.0.0.1:7420/mcp"}, "other": {"type": "http", "url": "http://127.0.0.1:7420/mcp"}}}`, "switchboard   http://127.0.0.1:7420/mcp; 1 other"},
		{"claude-code", ".claude.json", `{"mcpServers": {"switchboard": {"command": "npx", "args": ["-y", "switchboard"]}}}`, "; 1 other"},
		{"codex", ".codex/config.toml", "[mcp_servers.switchboard]\ncommand = \"switchboard\"\nargs = [\"stdio\", \"--config\", \"/x.yaml\"]\n", "switchboard switchboard /x.yaml ; 0 other"},
		{"opencode", ".config/opencode/opencode.json", `{"mcp": {"switchboard": {"type": "local", "command": ["switchboard", "stdio", "--config", "/x.yaml"]}}}`, "switchboard switchboard /x.yaml ; 0 other"},
		{"gemini-cli", ".gemini/settings.json", `{"mcp": {"excluded": ["switchboard"]}, "mcpServers": {"switchboard": {"httpUrl": "http://127.0.0.1:7420/mcp"}}}`, "switchboard   http://127.0.0.1:7420/mcp; 0 other; its setting mcp.excluded"},
		{"claude-code", ".claude.json", `{"mcpServers": {`, "; 0 other; .claude.json"},
	} {
		d := newDesk(t)
		d.write(g.file, g.text)
		o := d.options(g.client)
		v := Look(o.Client, o.Host)
		var said []string
		for _, e := range v.Entries {
			program := ""
			if len(e.Command) > 0 {
				program = e.Command[0]
			}
			said = append(said, fmt.Sprint(e.Name, " ", program, " ", e.Config, " ", e.URL))
		}
		got := fmt.Sprintf("%s; %d other", strings.Join(said, ", "), v.Others)
		want, problem, hasProblem := strings.Cut(g.want, " other; ")
		if hasProblem {
			want += " other"
		}
		if got != want || hasProblem != (len(v.Problems) > 0) || hasProblem && !strings.Contains(v.Problems[0].Error(), problem) {
			t.Errorf("%s: %s\n%q, %v\nwant %q", g.client, g.text, got, v.Problems, g.want)
		}
	}
}
