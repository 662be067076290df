package connect

// A given is a file of a client as real ones look, and what connect makes of it.
type given struct {
	name, client string
	file         string // below the home folder
	text         string
	env          map[string]string
	want         string // the outcome of the servers
	problem      string // a part of a note, or of the error if nothing can be done
}

// The files are of three generations of each client: its first form with servers, a later one, and today's.
var files = []given{
	{
		name: "Claude Code, 2024: with the settings of one folder", client: "claude-code", file: ".claude.json",
		text: `{
  "numStartups": 41,
  "autoUpdaterStatus": "enabled",
  "userID": "3f1c",
  "hasCompletedOnboarding": true,
  "projects": {
    "HOME/work": {
      "allowedTools": ["Bash(ls:*)"],
      "history": [{"display": "fix \u003cit\u003e"}],
      "mcpServers": {
        "everything": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-everything"]
        }
      }
    }
  }
}
`,
		want: "everything=everything",
	},
	{
		name: "Claude Code, 2025: two scopes with the same server, a secret in env, one with OAuth", client: "claude-code", file: ".claude.json",
		text: `{
  "numStartups": 152,
  "mcpServers": {
    "github": {
      "type": "stdio",
      "command": "docker",
      "args": ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"],
      "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdefghij0123456789abcdef"}
    },
    "My Files": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"], "env": {}},
    "sentry": {"type": "http", "url": "https://mcp.sentry.dev/mcp", "oauth": {"clientId": "x", "callbackPort": 8080}}
  },
  "projects": {
    "HOME/work": {
      "mcpServers": {
        "My Files": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"], "cwd": "HOME", "env": {}},
        "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/", "headers": {"Authorization": "Bearer ${GH_TOKEN}"}}
      }
    },
    "/elsewhere": {"mcpServers": {"other": {"command": "x"}}}
  },
  "oauthAccount": {"emailAddress": "ann@example.com"}
}`,
		env:  map[string]string{"GH_TOKEN": "ghp_zzzzzzzzzzzzzzzzzzzz1"},
		want: "github=github; My Files=my-files; sentry=sentry; My Files=my-files-2; github=github-2",
	},
	{
		name: "Claude Code, today: written on one line, in $CLAUDE_CONFIG_DIR", client: "claude-code", file: "cc/.claude.json",
		text: `{"firstStartVersion":"2.1.328","mcpServers":{"a":{"type":"stdio","command":"node","args":["/x/a.js"],"env":{"N":"1"}},"h":{"type":"http","url":"https://example.com/mcp","headersHelper":"/bin/token"},"v":{"type":"sse","url":"https://example.com/sse"}},"migrationVersion":15}`,
		env:  map[string]string{"CLAUDE_CONFIG_DIR": "HOME/cc"},
		want: "a=a; h stays: a program makes its headers (headersHelper); v=v",
	},
	{
		name: "Claude Code with a byte order mark and CRLF", client: "claude-code", file: ".claude.json",
		text: "\ufeff{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {\"command\": \"x\"}\r\n\t}\r\n}\r\n",
		want: "a=a",
	},
	{
		name: "Claude Code with comments, which it cannot read", client: "claude-code", file: ".claude.json",
		text:    "{\n  // mine\n  \"mcpServers\": {\"a\": {\"command\": \"x\"}}\n}\n",
		problem: ".claude.json:2:3: the client reads no comment in this file",
	},
	{
		name: "Claude Code, half written", client: "claude-code", file: ".claude.json",
		text: "{\n  \"numStartups\": 152,\n  \"mcpServers\": {\n    \"a\": {\"comm", problem: "JSON",
	},
	{
		name: "Claude Code: half of a character in the history, and numbers", client: "claude-code", file: ".claude.json",
		text: "{\n  \"projects\": {\"/x\": {\"history\": [{\"display\": \"cut \\ud83d\"}, {\"display\": \"\\\\ud83d \\ud83d\\ude00 \\ude00\"}]}},\n  \"mcpServers\": {\"a\": {\"command\": \"x\", \"args\": [\"--id\", 12345678901234567890]}}\n}\n",
		want: "a=a",
	},
	{
		name: "Claude Code without servers", client: "claude-code", file: ".claude.json",
		text: "{\n  \"numStartups\": 1\n}", want: "",
	},
	{
		name: "Codex, 2025: tables with comments", client: "codex", file: ".codex/config.toml",
		text: `# my codex
model = "o3" # good
approval_policy = "on-request"

[mcp_servers.docs] # context7
command = "npx"
args = ["-y", "@upstash/context7-mcp@latest"]
env = { "CONTEXT7_API_KEY" = "ctx7sk-0123456789abcdef" }

# the one of the team
[mcp_servers."Team Tools"]
command = "/opt/team/mcp"
startup_timeout_ms = 20_000

[mcp_servers."Team Tools".env]
# from the vault
TEAM_TOKEN = 'geheim "x"'

[profiles.fast]
model = "o4-mini"
`,
		want: "docs=docs; Team Tools=team-tools",
	},
	{
		name: "Codex: members of one table, and dotted keys, with CRLF", client: "codex", file: ".codex/config.toml",
		text: "model = 'x'\r\n[mcp_servers]\r\na = { command = \"x\" } # tail\r\nb.command = \"y\"\r\nb.args = [\r\n  \"1\", # one\r\n]\r\n\r\n[tui]\r\n",
		want: "a=a; b=b",
	},
	{
		name: "Codex, today: addresses, variables by name, rules for tools, a server that is off", client: "codex", file: "cod/config.toml",
		text: `[mcp_servers.linear]
url = "https://mcp.linear.app/mcp"
bearer_token_env_var = "LINEAR_TOKEN"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
http_headers = { "X-Figma-Region" = "eu" }
env_http_headers = { "X-Key" = "FIGMA_KEY" }

[mcp_servers.passes]
command = "x"
env_vars = ["LINEAR_TOKEN"]
cwd = "/srv"

[mcp_servers.narrow]
command = "x"
enabled_tools = ["a"]

[mcp_servers.rules]
command = "x"
[mcp_servers.rules.tools.a]
approval_mode = "approve"

[mcp_servers.off]
command = "x"
enabled = false

[mcp_servers.literal]
command = "x"
args = ["${HOME}"]

[projects."/srv"]
trust_level = "trusted"
`,
		env: map[string]string{"CODEX_HOME": "HOME/cod", "LINEAR_TOKEN": "l-123", "FIGMA_KEY": "f-1"},
		want: "linear=linear; figma=figma; passes=passes; narrow stays: \"enabled_tools\" holds tools back, which the row of a server cannot; remove it, bring the server in with \"switchboard import FILE\", and write policy: {allow: [\"SERVER/TOOL\"]} into tenants/default/tenant.yaml (\"switchboard docs configuration#lists-of-tools\" shows the files); " +
			"rules stays: it has rules for the approval of single tools, which would be lost; off stays: it is switched off; " +
			"literal stays: it holds ${…}, which Codex hands over as it is, and Switchboard would replace",
	},
	{
		name: "Codex, all servers on one line", client: "codex", file: ".codex/config.toml",
		text: "mcp_servers = { a = { command = \"x\" } }\n", problem: "is a table on one line",
	},
	{
		name: "Codex, half written", client: "codex", file: ".codex/config.toml",
		text: "[mcp_servers.a]\ncommand = \"x", problem: "config.toml:2:",
	},
	{
		name: "Gemini CLI, 2025", client: "gemini-cli", file: ".gemini/settings.json",
		text: `{
  "theme": "Default",
  "mcpServers": {
    "pg": {
      "command": "npx",
      "args": ["-y", "pg-mcp", "$PG_URL"],
      "env": {"PGPASSWORD": "$PG_PASS", "MODE": "ro"},
      "timeout": 30000,
      "trust": false
    },
    "web": {"httpUrl": "https://example.com/mcp", "headers": {"Authorization": "Bearer abcdefgh12345"}},
    "old": {"url": "https://example.com/sse"}
  },
  "selectedAuthType": "oauth-personal"
}
`,
		env:  map[string]string{"PG_URL": "postgres://x", "PG_PASS": "p"},
		want: "pg=pg; web=web; old=old",
	},
	{
		name: "Gemini CLI, today: with comments and a list of allowed servers", client: "gemini-cli", file: "g/.gemini/settings.json",
		text: `{
  // settings of version 2
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "mcp": {"allowed": ["a"]},
  "mcpServers": { /* two */
    "a": {"command": "x", "includeTools": ["b"]}, // held back
    "b": {"command": "y"} // last
  }
}
`,
		env:     map[string]string{"GEMINI_CLI_HOME": "HOME/g"},
		want:    "a stays: \"includeTools\" holds tools back, which the row of a server cannot; remove it, bring the server in with \"switchboard import FILE\", and write policy: {allow: [\"SERVER/TOOL\"]} into tenants/default/tenant.yaml (\"switchboard docs configuration#lists-of-tools\" shows the files); b stays: it is switched off: mcp.allowed does not name it",
		problem: "mcp.allowed",
	},
	{
		name: "Gemini CLI with a comma that it cannot read", client: "gemini-cli", file: ".gemini/settings.json",
		text: "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"},\n  }\n}\n", problem: "settings.json:3:26: the client reads no comma behind the last member",
	},
	{
		name: "opencode, 2025: opencode.json", client: "opencode", file: ".config/opencode/opencode.json",
		text: `{
  "$schema": "https://opencode.ai/config.json",
  "theme": "opencode",
  "mcp": {
    "weather": {
      "type": "local",
      "command": ["bun", "x", "weather-mcp"],
      "enabled": true,
      "environment": {"KEY": "{env:WEATHER_KEY}"}
    },
    "jira": {"type": "remote", "url": "https://jira.example.com/mcp", "headers": {"Authorization": "Bearer {env:JIRA}"}, "enabled": false}
  }
}`,
		env:  map[string]string{"WEATHER_KEY": "w"},
		want: "weather=weather; jira stays: it is switched off",
	},
	{
		name: "opencode, today: comments and commas, in $XDG_CONFIG_HOME", client: "opencode", file: "xdg/opencode/opencode.jsonc",
		text: "{\n  // mine\n  \"mcp\": {\n    \"a\": {\"type\": \"local\", \"command\": [\"x\"]}, // one\n    /* two */ \"b\": {\"type\": \"remote\", \"url\": \"https://example.com/mcp\", \"oauth\": {}},\n    \"c\": {\"type\": \"remote\", \"url\": \"https://example.com/c\", \"headers\": {\"X\": \"{file:~/k}\"}, \"oauth\": false},\n  },\n}\n",
		env:  map[string]string{"XDG_CONFIG_HOME": "HOME/xdg"},
		want: "a=a; b=b; c stays: it holds {file:…}, which only opencode reads",
	},
	{
		name: "opencode, the file in $OPENCODE_CONFIG", client: "opencode", file: "my.json",
		text: `{"mcp":{"a":{"type":"local","command":["x","${HOME}"]},"b":{"type":"local","command":["y"]}}}`,
		env:  map[string]string{"OPENCODE_CONFIG": "HOME/my.json"},
		want: "a stays: it holds ${…}, which opencode hands over as it is, and Switchboard would replace; b=b",
	},
	{
		name: "Gemini CLI: registrations of sign-ins", client: "gemini-cli", file: ".gemini/settings.json",
		text: `{"mcpServers": {"a": {"httpUrl": "https://example.com/a", "oauth": {"enabled": true}}, "b": {"httpUrl": "https://example.com/b", "oauth": {"clientId": "x", "clientSecret": "s-12345678", "scopes": ["read"]}},
 "c": {"httpUrl": "https://example.com/c", "oauth": {"clientId": "x", "tokenUrl": "https://example.com/t"}}, "d": {"httpUrl": "https://example.com/d", "oauth": "x"}}}`,
		want: "a=a; b=b; c stays: its sign-in has a setting that Switchboard cannot take over (oauth.tokenUrl); d stays: its sign-in cannot be read (oauth)",
	},
	{
		name: "Codex: scopes of a sign-in", client: "codex", file: ".codex/config.toml",
		text: "[mcp_servers.a]\nurl = \"https://example.com/a\"\nscopes = [\"read\"]\n\n[mcp_servers.b]\nurl = \"https://example.com/b\"\noauth_resource = \"https://example.com\"\n",
		want: "a=a; b stays: its tokens are for another resource (oauth_resource)",
	},
	{
		name: "Claude Desktop, 2024", client: "claude-desktop", file: ".config/Claude/claude_desktop_config.json",
		text: "{\n  \"mcpServers\": {\n    \"filesystem\": {\n      \"command\": \"npx\",\n      \"args\": [\n        \"-y\",\n        \"@modelcontextprotocol/server-filesystem\",\n        \"/Users/ann/Desktop\"\n      ]\n    }\n  }\n}\n",
		want: "filesystem=filesystem",
	},
	{
		name: "Claude Desktop, 2025: other settings, a secret in the arguments", client: "claude-desktop", file: ".config/Claude/claude_desktop_config.json",
		text: `{
  "globalShortcut": "Cmd+Space",
  "mcpServers": {
    "pg": {"command": "npx", "args": ["-y", "pg", "--password", "hunter22222"]},
    "lit": {"command": "npx", "args": ["${HOME}/x"]}
  }
}`,
		want: "pg=pg; lit stays: it holds ${…}, which the client hands over as it is, and Switchboard would replace",
	},
	{
		name: "Claude Desktop, today: preferences behind the servers", client: "claude-desktop", file: ".config/Claude/claude_desktop_config.json",
		text: "{\n  \"mcpServers\": {},\n  \"preferences\": {\n    \"menuBarEnabled\": false\n  }\n}", want: "",
	},
	{
		name: "VS Code, 2025: inputs", client: "vscode", file: ".config/Code/User/mcp.json",
		text: `{
	// 💡 https://aka.ms/vscode-mcp
	"inputs": [
		{"type": "promptString", "id": "key", "password": true},
	],
	"servers": {
		"Perplexity": {"type": "stdio", "command": "npx", "args": ["-y", "p"], "env": {"KEY": "${input:key}"}},
		"fetch": {"command": "uvx", "args": ["mcp-server-fetch"]},
	}
}
`,
		want: "Perplexity stays: env: KEY: ${input:…} asks a person in the editor, which nobody can answer here; write ${env:NAME}; fetch=fetch",
	},
	{
		name: "VS Code: a file of variables, and a sandbox", client: "vscode", file: ".config/Code/User/mcp.json",
		text: `{"servers": {"a": {"command": "x", "envFile": "/srv/.env"}, "b": {"command": "y", "sandboxEnabled": true}, "c": {"type": "http", "url": "https://example.com/mcp", "headers": {"K": "${env:K}"}}}}`,
		env:  map[string]string{"K": "v"},
		want: "a stays: \"envFile\" is not supported yet; put the variables into env; b stays: VS Code starts it in a sandbox, which would be lost; c=c",
	},
	{
		name: "VS Code: the folder that is open", client: "vscode", file: ".config/Code/User/mcp.json",
		text: `{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}/src"]}, "b": {"command": "${userHome}/bin/b"}}}`,
		env:  map[string]string{"HOME": "/home/ann"},
		want: "a stays: it depends on the folder that is open (${workspaceFolder}); b=b",
	},
	{
		name: "VS Code, today: from the gallery", client: "vscode", file: ".config/Code/User/mcp.json",
		text: "{\n\t\"servers\": {\n\t\t\"microsoft/playwright-mcp\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"npx\",\n\t\t\t\"args\": [\n\t\t\t\t\"@playwright/mcp@latest\"\n\t\t\t],\n\t\t\t\"gallery\": \"https://api.mcp.github.com\",\n\t\t\t\"version\": \"0.0.1-seed\"\n\t\t}\n\t},\n\t\"inputs\": []\n}",
		want: "microsoft/playwright-mcp=microsoft-playwright-mcp",
	},
	{
		name: "Cursor, 2025", client: "cursor", file: ".cursor/mcp.json",
		text: "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"npx\", \"args\": [\"-y\", \"x\"], \"env\": {\"API_KEY\": \"value-1234567\"}}\n  }\n}\n", want: "a=a",
	},
	{
		name: "Cursor: addresses and variables", client: "cursor", file: ".cursor/mcp.json",
		text: `{"mcpServers": {"web": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${env:TOK}"}}, "o": {"url": "https://example.com/o", "auth": {"CLIENT_ID": "x"}}, "u": {"command": "${userHome}/bin/x"}}}`,
		env:  map[string]string{"TOK": "t", "HOME": "/home/ann"},
		want: "web=web; o=o; u=u",
	},
	{
		name: "Cursor, today: a variable that is not set", client: "cursor", file: ".cursor/mcp.json",
		text: "{\n  \"mcpServers\": {\n    \"a\": {\"type\": \"stdio\", \"command\": \"x\", \"env\": {\"K\": \"${env:NOT_SET}\"}},\n    \"b\": {\"command\": \"y\"},\n    // the last\n  }\n}\n",
		want: "a stays: env: K: the variable NOT_SET is not set; set it before the start; b=b",
	},
	{
		name: "a server of the user's own with our name", client: "cursor", file: ".cursor/mcp.json",
		text: "{\n  \"mcpServers\": {\n    \"switchboard\": {\"command\": \"telephone\"}\n  }\n}\n", want: "switchboard=switchboard",
	},
	{
		name: "a server of the user's own with our name that stays", client: "cursor", file: ".cursor/mcp.json",
		text: "{\n  \"mcpServers\": {\n    \"switchboard\": {\"command\": \"telephone\", \"envFile\": \"x\"}\n  }\n}\n", want: "switchboard stays: \"envFile\" is not supported yet; put the variables into env",
	},
}
