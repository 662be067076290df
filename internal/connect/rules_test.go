package connect

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
)

// Law 4: what the client holds back must not become callable because the server has moved.
func TestAServerThatItsClientHoldsBackStays(t *testing.T) {
	const claude = `{"mcpServers": {"git hub": {"command": "x"}}, "projects": {"/p": {"disabledMcpServers": ["other"]}}}`
	for _, c := range []struct {
		name, client string
		files        map[string]string
		want         string
	}{
		{"no rule", "claude-code", map[string]string{".claude.json": claude, ".claude/settings.json": `{"permissions": {"allow": ["mcp__git_hub__x"], "deny": ["mcp__git_hub2__x", "Bash(rm:*)"]}}`}, "git hub=git-hub"},
		{"a denied tool", "claude-code", map[string]string{".claude.json": claude, ".claude/settings.json": `{"permissions": {"deny": ["mcp__git_hub__delete"]}}`}, `git hub stays: settings.json has the rule deny "mcp__git_hub__delete", which would not hold any more`},
		{"a question, in this folder", "claude-code", map[string]string{".claude.json": claude, "work/.claude/settings.local.json": `{"permissions": {"ask": ["mcp__git_hub"]}}`}, `git hub stays: settings.local.json has the rule ask "mcp__git_hub", which would not hold any more`},
		{"a hook", "claude-code", map[string]string{".claude.json": claude, "work/.claude/settings.json": `{"hooks": {"PreToolUse": [{"matcher": "mcp__git_hub__.*", "hooks": []}]}}`}, `git hub stays: settings.json has a hook for its tools ("mcp__git_hub__.*"), which would not run any more`},
		{"denied as a whole", "claude-code", map[string]string{".claude.json": claude, ".claude/settings.json": `{"deniedMcpServers": [{"serverName": "git hub"}]}`}, "git hub stays: it is switched off (deniedMcpServers in settings.json)"},
		{"switched off in one folder", "claude-code", map[string]string{".claude.json": strings.Replace(claude, "other", "git hub", 1)}, `git hub stays: it is switched off in "/p"`},
		{"settings that cannot be read", "claude-code", map[string]string{".claude.json": claude, ".claude/settings.json": `{`}, "git hub stays: its client may have rules for it in a file that cannot be read: the JSON ends too early; a bracket or quote is missing"},
		{"Gemini CLI: not allowed", "gemini-cli", map[string]string{".gemini/settings.json": `{"mcp": {"allowed": ["b"]}, "mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}`}, "a stays: it is switched off: mcp.allowed does not name it; b=b"},
		{"Gemini CLI: excluded in this folder", "gemini-cli", map[string]string{".gemini/settings.json": `{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}`, "work/.gemini/settings.json": `{"excludeMCPServers": ["b"]}`}, "a=a; b stays: it is switched off: excludeMCPServers names it"},
		{"Gemini CLI: a tool", "gemini-cli", map[string]string{".gemini/settings.json": `{"tools": {"exclude": ["b__drop"]}, "mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}`}, `a=a; b stays: tools.exclude holds back "b__drop", which would not hold any more`},
		{"opencode: tools", "opencode", map[string]string{".config/opencode/opencode.json": `{"tools": {"a_*": false, "b_x": true, "*": false}, "mcp": {"a": {"type": "local", "command": ["x"]}, "b": {"type": "local", "command": ["y"]}}}`}, `a stays: tools has the rule "a_*" for its tools, which would not hold any more; b=b`},
		{"opencode: a permission of an agent", "opencode", map[string]string{".config/opencode/opencode.json": `{"mcp": {"my-a": {"type": "local", "command": ["x"]}, "b": {"type": "local", "command": ["y"]}}}`, "work/opencode.json": `{"agent": {"plan": {"permission": {"my-*": "ask"}}}}`}, `my-a stays: agent.plan.permission has the rule "my-*" for its tools, which would not hold any more; b=b`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			for name, text := range c.files {
				d.write(name, text)
			}
			p, err := Prepare(t.Context(), d.options(c.client))
			if err != nil {
				t.Fatal(err)
			}
			if got := outcome(p); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestANumberKeepsItsSpelling(t *testing.T) {
	value, why := Find("claude-code").dialect.translate(clientfile.Entry{Value: []byte(`{"command":"x","args":["--id",12345678901234567890,1.50]}`)}, Location{})
	if string(value) != `{"args":["--id",12345678901234567890,1.50],"command":"x"}` {
		t.Errorf("%s %s", value, why)
	}
}

func TestTheAddressOfSwitchboardItselfStays(t *testing.T) {
	d := newDesk(t)
	d.write("sb/switchboard.yaml", "listen: 127.0.0.1:7499\nservers: {}\n")
	d.write(".cursor/mcp.json", `{"mcpServers": {"by hand": {"url": "http://localhost:7499/mcp/tasks/review"}, "a": {"command": "x"}}}`)
	if got := outcome(d.connect(d.options("cursor"))); got != "by hand stays: it is Switchboard itself; a=a" {
		t.Errorf("got %s", got)
	}
}
