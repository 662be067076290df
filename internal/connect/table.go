package connect

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
)

// The sections of the clients' files.
var (
	mcpServers = []string{"mcpServers"}
	tomlMCP    = []string{"mcp_servers"}
)

// table has a row for each client. The comment of a row says what was tried with the client's program on Linux, and what was only read, in November
// 2026. test/agents repeats the trial of the user's file for each row with Tried. The paths for macOS and Windows were only read.
var table = []*Client{
	// Version 2.1.328 was tried with the user's servers, and with those of a folder, whose key is its repository. The documents were read for the
	// project's file, and for permissions, hooks and lists of servers in settings (code.claude.com/docs). The spelling of folders on Windows
	// comes from programs of others.
	{
		ID: "claude-code", Name: "Claude Code", Tried: true,
		Home:     "~/.claude.json, or .claude.json in $CLAUDE_CONFIG_DIR",
		Then:     "start a new session of Claude Code",
		programs: []string{"claude"},
		form:     clientfile.Form{Syntax: clientfile.JSON, BOM: true},
		places: func(h *Host) []Location {
			file := h.join(h.Home, ".claude.json")
			if dir := h.env("CLAUDE_CONFIG_DIR"); dir != "" {
				file = h.join(dir, ".claude.json")
			}
			return []Location{
				{Scope: ScopeUser, File: file, Section: mcpServers},
				{Scope: ScopeLocal, File: file, Section: []string{"projects", claudeProject(h), "mcpServers"}, Dir: repositoryOf(h.Dir)},
				{Scope: ScopeProject, File: h.join(h.Dir, ".mcp.json"), Section: mcpServers, Dir: h.Dir},
			}
		},
		dialect: entryDialect{
			rules:  claudeRules,
			signIn: signInKeys{key: "oauth", names: oauthNames},
			refused: map[string]string{
				"headersHelper": "a program makes its headers (headersHelper)",
			},
		},
		spell: func(t SwitchboardEntry) any {
			if t.URL != "" {
				return withKey(object{{"type", "http"}, {"url", t.URL}}, t.Key, "${", "}")
			}
			return object{{"type", "stdio"}, {"command", t.Command[0]}, {"args", t.Command[1:]}}
		},
		command: func(t SwitchboardEntry) []string {
			if t.URL != "" {
				words := []string{"claude", "mcp", "add", "--scope", "user", "--transport", "http", Name, t.URL}
				if t.Key != "" {
					words = append(words, "--header", "Authorization: Bearer ${"+t.Key+"}")
				}
				return words
			}
			return append([]string{"claude", "mcp", "add", "--scope", "user", Name, "--"}, t.Command...)
		},
	},
	// Tried, 0.169.0: the user's file, and the project's in a trusted project. Read: the other keys of an entry (Codex's documents on MCP).
	{
		ID: "codex", Name: "Codex", Tried: true,
		Home:     "~/.codex/config.toml, or config.toml in $CODEX_HOME",
		Then:     "start a new session of Codex",
		programs: []string{"codex"},
		form:     clientfile.Form{Syntax: clientfile.TOML, BOM: true},
		places: func(h *Host) []Location {
			dir := h.env("CODEX_HOME")
			if dir == "" {
				dir = h.join(h.Home, ".codex")
			}
			user := Location{Scope: ScopeUser, File: h.join(dir, "config.toml"), Section: tomlMCP}
			project := Location{Scope: ScopeProject, File: h.join(h.Dir, ".codex", "config.toml"), Section: tomlMCP, Dir: h.Dir}
			if project.File == user.File {
				return []Location{user}
			}
			return []Location{user, project}
		},
		dialect: entryDialect{literal: true, codex: true, signIn: signInKeys{key: "oauth", names: map[string]string{"client_id": "clientId"}, scopes: "scopes"}, refused: map[string]string{
			"oauth_resource":              "its tokens are for another resource (oauth_resource)",
			"tools":                       "it has rules for the approval of single tools, which would be lost",
			"default_tools_approval_mode": "it has a rule for the approval of its tools, which would be lost",
			"experimental_environment":    "Codex starts it elsewhere (experimental_environment)",
		}},
		spell: func(t SwitchboardEntry) any {
			if t.URL != "" {
				o := object{{"url", t.URL}}
				if t.Key != "" {
					o = append(o, pair{"bearer_token_env_var", t.Key})
				}
				return o
			}
			return object{{"command", t.Command[0]}, {"args", t.Command[1:]}}
		},
		command: func(t SwitchboardEntry) []string {
			if t.URL != "" {
				words := []string{"codex", "mcp", "add", Name, "--url", t.URL}
				if t.Key != "" {
					words = append(words, "--bearer-token-env-var", t.Key)
				}
				return words
			}
			return append([]string{"codex", "mcp", "add", Name, "--"}, t.Command...)
		},
	},
	// Tried, 0.61.0: the user's file. Read: the project's file, $GEMINI_CLI_HOME, the lists of servers and tools (geminicli.com/docs).
	{
		ID: "gemini-cli", Name: "Gemini CLI", Tried: true,
		Home:     "~/.gemini/settings.json, or .gemini/settings.json in $GEMINI_CLI_HOME",
		Then:     "start a new session of Gemini CLI",
		programs: []string{"gemini"},
		form:     clientfile.Form{Syntax: clientfile.JSONComments},
		places:   geminiPlaces,
		dialect: entryDialect{dollar: true, rules: geminiRules, signIn: signInKeys{key: "oauth", names: oauthNames}, refused: map[string]string{
			"authProviderType":     "it signs in by a provider of Gemini CLI",
			"targetAudience":       "it signs in by a provider of Gemini CLI",
			"targetServiceAccount": "it signs in by a provider of Gemini CLI",
			"tcp":                  "it is reached over a WebSocket",
			"extension":            "it belongs to an extension of Gemini CLI",
		}},
		spell: func(t SwitchboardEntry) any {
			if t.URL != "" {
				return withKey(object{{"httpUrl", t.URL}}, t.Key, "$", "")
			}
			return object{{"command", t.Command[0]}, {"args", t.Command[1:]}}
		},
		command: func(t SwitchboardEntry) []string {
			if t.URL != "" {
				words := []string{"gemini", "mcp", "add", "--scope", "user", "--transport", "http", Name, t.URL}
				if t.Key != "" {
					words = append(words, "--header", "Authorization: Bearer $"+t.Key)
				}
				return words
			}
			return append([]string{"gemini", "mcp", "add", "--scope", "user", Name}, t.Command...)
		},
		blocked: func(values map[string]any) string {
			mcp, _ := values["mcp"].(map[string]any)
			if allowed, ok := mcp["allowed"].([]any); ok && !slices.Contains(allowed, any(Name)) {
				return `its setting mcp.allowed does not name "switchboard", so that Gemini CLI will not start it; add it there`
			}
			if excluded, ok := mcp["excluded"].([]any); ok && slices.Contains(excluded, any(Name)) {
				return `its setting mcp.excluded names "switchboard", so that Gemini CLI will not start it; remove it there`
			}
			return ""
		},
	},
	// Tried, 1.18.33: the user's file, .opencode, $OPENCODE_CONFIG_DIR. Read: the order of the files, rules for tools (opencode.ai/docs).
	{
		ID: "opencode", Name: "opencode", Tried: true,
		Home:     "~/.config/opencode/opencode.jsonc or opencode.json (also in $XDG_CONFIG_HOME), or the file in $OPENCODE_CONFIG",
		Then:     "start a new session of opencode",
		programs: []string{"opencode"},
		form:     clientfile.Form{Syntax: clientfile.JSONC, BOM: true},
		places:   opencodePlaces,
		dialect:  entryDialect{literal: true, opencode: true, rules: opencodeRules, signIn: signInKeys{key: "oauth", names: oauthNames}},
		spell: func(t SwitchboardEntry) any {
			if t.URL != "" {
				return withKey(object{{"type", "remote"}, {"url", t.URL}}, t.Key, "{env:", "}")
			}
			return object{{"type", "local"}, {"command", t.Command}}
		},
		command: func(t SwitchboardEntry) []string {
			if t.URL != "" {
				words := []string{"opencode", "mcp", "add", Name, "--url", t.URL}
				if t.Key != "" {
					words = append(words, "--header", "Authorization=Bearer {env:"+t.Key+"}")
				}
				return words
			}
			return append([]string{"opencode", "mcp", "add", Name, "--"}, t.Command...)
		},
	},
	// Read: the path on macOS and Windows; that the Windows package has another (anthropics/claude-code, issues 25600 and 26073). The path on
	// Linux is that of unofficial builds.
	{
		ID: "claude-desktop", Name: "Claude Desktop", desktop: true,
		Home:   "claude_desktop_config.json in ~/Library/Application Support/Claude (macOS), %APPDATA%\\Claude (Windows), ~/.config/Claude (Linux)",
		Then:   "quit Claude Desktop, and start it again",
		noHTTP: "its file takes only servers that it starts; leave out --http",
		form:   clientfile.Form{Syntax: clientfile.JSON},
		marks:  func(h *Host) []string { return []string{h.join(h.settings(), "Claude")} },
		places: func(h *Host) []Location {
			file := h.join(h.settings(), "Claude", "claude_desktop_config.json")
			// Since 2026 the Windows installer makes a package. Its program sees this file instead, as soon as it exists.
			if packaged := h.join(h.localSettings(), "Packages", "Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming", "Claude", "claude_desktop_config.json"); h.OS == "windows" && h.exists(packaged) {
				file = packaged
			}
			return []Location{{Scope: ScopeUser, File: file, Section: mcpServers}}
		},
		dialect: entryDialect{literal: true},
		spell: func(t SwitchboardEntry) any {
			return object{{"command", t.Command[0]}, {"args", t.Command[1:]}}
		},
	},
	// Read: form and variables (code.visualstudio.com/docs/agents/reference/mcp-configuration), the path of the default profile. Other profiles have
	// files of their own, which are not found. microsoft/vscode issue 336232 reports that ${env:NAME} is not replaced in headers.
	{
		ID: "vscode", Name: "VS Code", desktop: true,
		Home:     "mcp.json in ~/Library/Application Support/Code/User (macOS), %APPDATA%\\Code\\User (Windows), ~/.config/Code/User (Linux)",
		Then:     "open the list of MCP servers in VS Code, and start switchboard there",
		programs: []string{"code"},
		form:     clientfile.Form{Syntax: clientfile.JSONC},
		marks:    func(h *Host) []string { return []string{h.join(h.settings(), "Code", "User")} },
		places: func(h *Host) []Location {
			section := []string{"servers"}
			return []Location{
				{Scope: ScopeUser, File: h.join(h.settings(), "Code", "User", "mcp.json"), Section: section},
				{Scope: ScopeProject, File: h.join(h.Dir, ".vscode", "mcp.json"), Section: section, Dir: h.Dir},
			}
		},
		dialect: entryDialect{editor: true, signIn: signInKeys{key: "oauth", names: oauthNames}, refused: map[string]string{
			"sandboxEnabled": "VS Code starts it in a sandbox, which would be lost",
			"sandbox":        "VS Code starts it in a sandbox, which would be lost",
		}},
		spell: func(t SwitchboardEntry) any {
			if t.URL != "" {
				return withKey(object{{"type", "http"}, {"url", t.URL}}, t.Key, "${env:", "}")
			}
			return object{{"type", "stdio"}, {"command", t.Command[0]}, {"args", t.Command[1:]}}
		},
	},
	// Read: paths, form and variables, in others' guides by cursor.com/docs/mcp.
	{
		ID: "cursor", Name: "Cursor", desktop: true,
		Home:     "~/.cursor/mcp.json",
		Then:     "switch switchboard on in Cursor's settings, under MCP",
		programs: []string{"cursor", "cursor-agent"},
		form:     clientfile.Form{Syntax: clientfile.JSONC},
		marks:    func(h *Host) []string { return []string{h.join(h.Home, ".cursor")} },
		places: func(h *Host) []Location {
			user := Location{Scope: ScopeUser, File: h.join(h.Home, ".cursor", "mcp.json"), Section: mcpServers}
			project := Location{Scope: ScopeProject, File: h.join(h.Dir, ".cursor", "mcp.json"), Section: mcpServers, Dir: h.Dir}
			if project.File == user.File {
				return []Location{user}
			}
			return []Location{user, project}
		},
		dialect: entryDialect{editor: true, signIn: signInKeys{key: "auth", names: map[string]string{
			"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "scopes": "scopes",
		}}},
		spell: func(t SwitchboardEntry) any {
			if t.URL != "" {
				return withKey(object{{"url", t.URL}}, t.Key, "${env:", "}")
			}
			return object{{"type", "stdio"}, {"command", t.Command[0]}, {"args", t.Command[1:]}}
		},
	},
}

// withKey adds the header with the key to an entry; before and after spell a variable's name as the client does.
func withKey(o object, key, before, after string) object {
	if key == "" {
		return o
	}
	return append(o, pair{"headers", object{{"Authorization", "Bearer " + before + key + after}}})
}

// claudeProject returns the key under which Claude Code keeps the servers of the folder that the user works in: the repository, with / on every system.
func claudeProject(h *Host) string {
	dir := repositoryOf(h.Dir)
	if h.OS == "windows" {
		return strings.ReplaceAll(dir, `\`, "/")
	}
	return dir
}

// maxGitFile limits what is read of a file that leads to a repository.
const maxGitFile = 4096

// repositoryOf returns the folder of the git repository that a folder belongs to; for a linked worktree, that of the main one. Without a
// repository it is the folder itself.
func repositoryOf(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Lstat(filepath.Join(at, ".git"))
		switch {
		case err != nil && filepath.Dir(at) == at:
			return dir
		case err != nil:
			continue
		case info.Mode().IsRegular() && info.Size() <= maxGitFile:
			return mainWorktree(at)
		}
		return at
	}
}

// mainWorktree returns the main worktree of a linked one. Any other folder with a file .git, such as a submodule, is returned as it is.
func mainWorktree(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, ".git"))
	own, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if err != nil || !ok {
		return dir
	}
	own = absolute(dir, own)
	if info, err := os.Stat(filepath.Join(own, "commondir")); err != nil || info.Size() > maxGitFile {
		return dir
	}
	common, err := os.ReadFile(filepath.Join(own, "commondir"))
	if shared := absolute(own, strings.TrimSpace(string(common))); err == nil && filepath.Base(shared) == ".git" {
		return filepath.Dir(shared)
	}
	return dir
}

// absolute returns a path that may be relative to a folder.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func geminiPlaces(h *Host) []Location {
	home := h.Home
	if dir := h.env("GEMINI_CLI_HOME"); dir != "" {
		home = dir
	}
	user := Location{Scope: ScopeUser, File: h.join(home, ".gemini", "settings.json"), Section: mcpServers}
	project := Location{Scope: ScopeProject, File: h.join(h.Dir, ".gemini", "settings.json"), Section: mcpServers, Dir: h.Dir}
	if project.File == user.File {
		return []Location{user}
	}
	return []Location{user, project}
}

func opencodePlaces(h *Host) []Location {
	section := []string{"mcp"}
	var out []Location
	add := func(scope Scope, dir, in string) {
		for _, name := range []string{"opencode.jsonc", "opencode.json"} {
			out = append(out, Location{Scope: scope, File: h.join(dir, name), Section: section, Dir: in})
		}
	}
	if file := h.env("OPENCODE_CONFIG"); file != "" {
		out = append(out, Location{Scope: ScopeUser, File: file, Section: section})
	}
	if dir := h.env("OPENCODE_CONFIG_DIR"); dir != "" {
		add(ScopeUser, dir, "")
	}
	user := h.join(h.xdg(), "opencode")
	add(ScopeUser, user, "")
	out = append(out, Location{Scope: ScopeUser, File: h.join(user, "config.json"), Section: section})
	if h.Dir != user {
		add(ScopeProject, h.Dir, h.Dir)
		add(ScopeProject, h.join(h.Dir, ".opencode"), h.Dir)
	}
	return out
}
