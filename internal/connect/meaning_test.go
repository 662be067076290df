package connect

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// meaning says how a server is called, on one line, with its secrets.
func meaning(s switchboard.Server) string {
	parts := s.Command
	if s.URL != "" {
		parts = []string{s.URL}
	}
	for _, m := range []map[string]switchboard.Secret{s.Headers, s.Env} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, name+"="+m[name].Reveal())
		}
	}
	if s.Dir != "" {
		parts = append(parts, "in "+s.Dir)
	}
	if s.Timeout != 0 {
		parts = append(parts, "within "+s.Timeout.String())
	}
	return strings.Join(parts, " ")
}

// RD-01: the server is called as its client has called it: with the same words, variables, headers, folder and time limit.
func TestRD01AnAdoptedServerIsCalledAsItsClientCalledIt(t *testing.T) {
	for _, c := range []struct{ client, file, text, want string }{
		{"claude-code", ".claude.json", `{"mcpServers": {"a": {"type": "stdio", "command": "x", "args": ["${T1}", "${NONE:-d}", "$T1"], "env": {"K": "${T2}", "P_TOKEN": "s-1"}, "timeout": 300000}}}`, "x one d $T1 K=two P_TOKEN=s-1 within 5m0s"},
		{"claude-code", ".claude.json", `{"mcpServers": {"a": {"type": "sse", "url": "https://h/${T1}", "headers": {"Authorization": "Bearer ${T2}", "X-Key": "k-1"}}}}`, "https://h/one Authorization=Bearer two X-Key=k-1"},
		{"claude-code", ".claude.json", `{"projects": {"HOME/work": {"mcpServers": {"a": {"command": "x"}}}}}`, "x in HOME/work"},
		{"claude-code", ".claude.json", `{"projects": {"HOME/work": {"mcpServers": {"a": {"command": "./x", "cwd": "HOME"}}}}}`, "HOME/x in HOME"},
		{"codex", ".codex/config.toml", "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"$T1\"]\nenv_vars = [\"T2\"]\ncwd = \"/srv\"\nstartup_timeout_sec = 9\ntool_timeout_sec = 300\n[mcp_servers.a.env]\nP_TOKEN = \"s-1\"\n", "x $T1 P_TOKEN=s-1 T2=two in /srv within 5m0s"},
		{"codex", ".codex/config.toml", "[mcp_servers.a]\nurl = \"https://h\"\nbearer_token_env_var = \"T1\"\nhttp_headers = { X-Key = \"k-1\" }\nenv_http_headers = { X-Two = \"T2\" }\n", "https://h Authorization=Bearer one X-Key=k-1 X-Two=two"},
		{"gemini-cli", ".gemini/settings.json", `{"mcpServers": {"a": {"command": "x", "args": ["$T1", "${T2}"], "env": {"K": "$T2"}, "cwd": "/srv", "timeout": 9}}}`, "x one two K=two in /srv within 9s"},
		{"gemini-cli", ".gemini/settings.json", `{"mcpServers": {"a": {"url": "https://sse", "httpUrl": "https://h", "headers": {"Authorization": "Bearer $T1"}}}}`, "https://h Authorization=Bearer one"},
		{"opencode", ".config/opencode/opencode.json", `{"mcp": {"a": {"type": "local", "command": ["x", "{env:T1}", "$T1"], "environment": {"K": "{env:T2}", "L": "l"}, "timeout": 5000}}}`, "x one $T1 K=two L=l"},
		{"opencode", ".config/opencode/opencode.json", `{"mcp": {"a": {"type": "remote", "url": "https://h", "headers": {"Authorization": "Bearer {env:T1}"}}}}`, "https://h Authorization=Bearer one"},
		{"claude-desktop", ".config/Claude/claude_desktop_config.json", `{"mcpServers": {"a": {"command": "x", "args": ["$T1"], "env": {"K": "k"}}}}`, "x $T1 K=k"},
		{"vscode", ".config/Code/User/mcp.json", `{"servers": {"a": {"command": "x", "args": ["${env:T1}"], "env": {"K": "${env:T2}", "N": null}}}}`, "x one K=two"},
		{"cursor", ".cursor/mcp.json", `{"mcpServers": {"a": {"url": "https://h", "headers": {"Authorization": "Bearer ${env:T1}"}}}}`, "https://h Authorization=Bearer one"},
	} {
		d := newDesk(t)
		d.env["T1"], d.env["T2"] = "one", "two"
		here := func(s string) string { return strings.ReplaceAll(s, "HOME", d.home) }
		d.write(c.file, here(c.text))
		p := d.connect(d.options(c.client))
		cfg, err := config.Load(t.Context(), d.path("sb/switchboard.yaml"), config.Options{Env: d.host.Env})
		if err != nil || len(cfg.Servers) != 1 {
			t.Errorf("%s: %v, %s, in\n%s", c.client, err, outcome(p), d.read("sb/switchboard.yaml"))
			continue
		}
		if got := meaning(cfg.Servers[0]); got != here(c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.client, got, here(c.want))
		}
	}
}

// An entry of opencode without a type only changes a server of another file.
func TestAnEntryThatOnlyChangesAnotherOneStays(t *testing.T) {
	d := newDesk(t)
	d.write(".config/opencode/opencode.json", `{"mcp": {"jira": {"enabled": true}, "a": {"type": "local", "command": ["x"]}}}`)
	if got := outcome(d.connect(d.options("opencode"))); got != "jira stays: it only changes a server that stands elsewhere; a=a" {
		t.Errorf("got %s", got)
	}
}

func TestTheSameServerInTwoScopesIsOneServer(t *testing.T) {
	d := newDesk(t)
	before := `{"mcpServers": {"web": {"type": "http", "url": "https://h", "headers": {"X-Key": "k"}}}, "projects": {"` + d.path("work") + `": {"mcpServers": {"web": {"type": "http", "url": "https://h", "headers": {"X-Key": "k"}}, "other": {"type": "http", "url": "https://h", "headers": {"X-Key": "l"}}}}}}`
	d.write(".claude.json", before)
	if got := outcome(d.connect(d.options("claude-code"))); got != "web=web; web=web shared; other=other" {
		t.Errorf("got %s", got)
	}
	d.disconnect("claude-code")
	if d.read(".claude.json") != before || strings.Contains(d.read("sb/switchboard.yaml"), "web") {
		t.Errorf("after disconnect:\n%s\n%s", d.read(".claude.json"), d.read("sb/switchboard.yaml"))
	}
}

func TestWhatIsNoFileOfTheClientIsRefused(t *testing.T) {
	for want, make := range map[string]func(d *desk) error{
		"is no regular file": func(d *desk) error { return os.Mkdir(d.path(".claude.json"), 0o700) },
		"is larger than 8388608": func(d *desk) error {
			d.write(".claude.json", "{}")
			return os.Truncate(d.path(".claude.json"), 8<<20+1)
		},
	} {
		d := newDesk(t)
		if err := make(d); err != nil {
			t.Fatal(err)
		}
		if _, err := Prepare(t.Context(), d.options("claude-code")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The user has made a second file of the client since: our entry is in the first.
func TestASecondRunFindsOurEntryInTheOtherFile(t *testing.T) {
	d := newDesk(t)
	d.write(".config/opencode/opencode.json", `{"mcp": {}}`)
	d.connect(d.options("opencode"))
	d.write(".config/opencode/opencode.jsonc", "{}")
	p, err := Prepare(t.Context(), d.options("opencode"))
	if err != nil || p.Changed() || p.Place.File != d.path(".config/opencode/opencode.json") {
		t.Errorf("%v, %+v, %s", err, p.Changes, p.Place.File)
	}
}

// The same as in JSON, where an entry keeps no text of its own under another name.
func TestAnAdoptedTableGetsAnotherNameIfItsOwnIsTaken(t *testing.T) {
	d := newDesk(t)
	d.write(".codex/config.toml", "[mcp_servers.web]\nurl = \"https://h\" # mine\n")
	d.connect(d.options("codex"))
	d.write(".codex/config.toml", d.read(".codex/config.toml")+"\n[mcp_servers.web]\nurl = \"https://else\"\n")
	d.disconnect("codex")
	if got := d.names("codex", ".codex/config.toml"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"web", "web-2"}) {
		t.Errorf("the file has %q", got)
	}
}

func TestAFileThatHasChangedMeanwhileIsNotWritten(t *testing.T) {
	c := FileChange{Before: []byte("a"), After: []byte("b")}
	for _, now := range [][]byte{nil, {}, []byte("c")} {
		if _, err := c.expect(now); err != ErrChanged { //nolint:errorlint // itself
			t.Errorf("%q: %v", now, err)
		}
	}
	if next, err := c.expect([]byte("a")); err != nil || string(next) != "b" {
		t.Errorf("%q, %v", next, err)
	}
	if _, err := (FileChange{After: []byte("b")}).expect([]byte{}); fmt.Sprint(err) != ErrChanged.Error() {
		t.Errorf("%v", err)
	}
}
