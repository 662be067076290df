package connect

import (
	"os"
	"strings"
	"testing"
)

// The paths for macOS and Windows are by the clients' documents. This test holds the table to them; no client has run there.
func TestEachClientHasItsPathOnEachSystem(t *testing.T) {
	want := map[string][3]string{
		"claude-code":    {"/h/.claude.json", "/h/.claude.json", `C:\h\.claude.json`},
		"codex":          {"/h/.codex/config.toml", "/h/.codex/config.toml", `C:\h\.codex\config.toml`},
		"gemini-cli":     {"/h/.gemini/settings.json", "/h/.gemini/settings.json", `C:\h\.gemini\settings.json`},
		"opencode":       {"/h/.config/opencode/opencode.jsonc", "/h/.config/opencode/opencode.jsonc", `C:\h\.config\opencode\opencode.jsonc`},
		"claude-desktop": {"/h/.config/Claude/claude_desktop_config.json", "/h/Library/Application Support/Claude/claude_desktop_config.json", `C:\h\AppData\Roaming\Claude\claude_desktop_config.json`},
		"vscode":         {"/h/.config/Code/User/mcp.json", "/h/Library/Application Support/Code/User/mcp.json", `C:\h\AppData\Roaming\Code\User\mcp.json`},
		"cursor":         {"/h/.cursor/mcp.json", "/h/.cursor/mcp.json", `C:\h\.cursor\mcp.json`},
	}
	for _, c := range Clients() {
		for i, system := range []string{"linux", "darwin", "windows"} {
			h := &Host{OS: system, Home: "/h", Dir: "/h/work", Env: func(string) (string, bool) { return "", false }}
			if system == "windows" {
				h.Home, h.Dir = `C:\h`, `C:\h\work`
			}
			if got := c.places(h)[0].File; got != want[c.ID][i] {
				t.Errorf("%s on %s: %s, want %s", c.ID, system, got, want[c.ID][i])
			}
		}
	}
}

func TestEachClientSpellsAnAddressWithItsKey(t *testing.T) {
	target := SwitchboardEntry{URL: "http://127.0.0.1:7420/mcp", Key: "SWITCHBOARD_KEY"}
	for id, want := range map[string]string{
		"claude-code": `"Authorization": "Bearer ${SWITCHBOARD_KEY}"`,
		"codex":       `bearer_token_env_var = "SWITCHBOARD_KEY"`,
		"gemini-cli":  `"Authorization": "Bearer $SWITCHBOARD_KEY"`,
		"opencode":    `"Authorization": "Bearer {env:SWITCHBOARD_KEY}"`,
		"vscode":      `"Authorization": "Bearer ${env:SWITCHBOARD_KEY}"`,
		"cursor":      `"Authorization": "Bearer ${env:SWITCHBOARD_KEY}"`,
	} {
		text, err := Find(id).Entry(target)
		if err != nil || !strings.Contains(text, want) || !strings.Contains(text, target.URL) {
			t.Errorf("%s: %v\n%s", id, err, text)
		}
	}
	if Find("claude-desktop").WhyNoURL() == "" {
		t.Error("Claude Desktop takes an address")
	}
}

// Since 2026, Claude Desktop on Windows is a package, and its program sees another file.
func TestThePackagedClaudeDesktopHasItsOwnFile(t *testing.T) {
	packaged := `C:\h\AppData\Local\Packages\Claude_pzs8sxrjxfjjc\LocalCache\Roaming\Claude\claude_desktop_config.json`
	h := &Host{OS: "windows", Home: `C:\h`, Dir: `C:\h\work`, Env: func(string) (string, bool) { return "", false }, Exists: func(file string) bool { return file == packaged }}
	if got := Find("claude-desktop").places(h)[0].File; got != packaged {
		t.Errorf("got %s", got)
	}
}

// Claude Code writes the folders of projects with / on every system.
func TestTheServersOfOneFolderAreFoundOnWindows(t *testing.T) {
	h := &Host{OS: "windows", Home: `C:\h`, Dir: `C:\h\work`, Env: func(string) (string, bool) { return "", false }}
	if got := Find("claude-code").places(h)[1].Section[1]; got != "C:/h/work" {
		t.Errorf("got %s", got)
	}
}

// A file that two names lead to is not changed twice.
func TestOneFileWithTwoNamesCountsOnce(t *testing.T) {
	d := newDesk(t)
	d.write(".gemini/settings.json", `{"mcpServers": {"a": {"command": "x"}}}`)
	if err := os.Symlink(d.path(".gemini"), d.path("work/.gemini")); err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(t.Context(), d.options("gemini-cli"))
	if err != nil || outcome(p) != "a=a" || len(p.Elsewhere) > 0 {
		t.Fatalf("%v, %s, %v", err, outcome(p), p.Elsewhere)
	}
}

// As the program does: claude 2.1.328 writes the servers of a folder under its repository, also from a linked worktree.
func TestTheServersOfARepositoryAreFoundFromItsFoldersAndWorktrees(t *testing.T) {
	d := newDesk(t)
	d.mkdir("repo/.git/worktrees/w")
	d.mkdir("repo/sub/deep")
	d.write("repo/.git/worktrees/w/commondir", "../..\n")
	d.write("w/.git", "gitdir: "+d.path("repo/.git/worktrees/w")+"\n")
	d.mkdir("repo/.git/modules/m")
	d.write("repo/m/.git", "gitdir: ../.git/modules/m\n")
	for dir, want := range map[string]string{"repo": "repo", "repo/sub/deep": "repo", "w": "repo", "repo/m": "repo/m", "work": "work"} {
		if got := repositoryOf(d.path(dir)); got != d.path(want) {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
	d.host.Dir = d.path("repo/sub")
	d.write(".claude.json", `{"projects": {"`+d.path("repo")+`": {"mcpServers": {"a": {"command": "x"}}}}}`)
	if got := outcome(d.connect(d.options("claude-code"))); got != "a=a" {
		t.Errorf("got %q", got)
	}
}
