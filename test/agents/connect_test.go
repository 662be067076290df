//go:build agents && unix

package agents_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/internal/connect"
	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/programs"
)

// wordServer returns a server with one tool, which gives a word.
func wordServer(tool, word string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: tool, Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: tool, Description: "Gives a word.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: word}}}, nil
		})
	return server
}

// serveWord is a server on stdio: this test binary, started with "word". Its word is a secret in its environment.
func serveWord() error {
	return wordServer("second", os.Getenv("WORD_TOKEN")).Run(context.Background(), &mcp.StdioTransport{})
}

// adders are the clients' own commands that add a server.
var adders = map[string]struct {
	id      string
	address func(name, url string) []string
	program func(name, env string, words ...string) []string
}{
	"Claude Code": {
		"claude-code",
		func(name, url string) []string { return []string{"mcp", "add", "-s", "user", "-t", "http", name, url} },
		func(name, env string, words ...string) []string {
			return append([]string{"mcp", "add", "-s", "user", name, "-e", env, "--"}, words...)
		},
	},
	"Codex": {
		"codex",
		func(name, url string) []string { return []string{"mcp", "add", name, "--url", url} },
		func(name, env string, words ...string) []string {
			return append([]string{"mcp", "add", name, "--env", env, "--"}, words...)
		},
	},
	"Gemini CLI": {
		"gemini-cli",
		func(name, url string) []string { return []string{"mcp", "add", "-s", "user", "-t", "http", name, url} },
		func(name, env string, words ...string) []string {
			return append([]string{"mcp", "add", "-s", "user", name, "-e", env, words[0]}, words[1:]...)
		},
	},
	"opencode": {
		"opencode",
		func(name, url string) []string { return []string{"mcp", "add", name, "--url", url} },
		func(name, env string, words ...string) []string {
			return append([]string{"mcp", "add", name, "--env", env, "--"}, words...)
		},
	},
}

// RD-01 with the programs themselves: two servers are added in the client's own way, connect takes them over, and the client calls the same
// tools through Switchboard. The client then writes its file anew, with one more server. disconnect puts everything back and keeps that one.
func TestRD01ConnectedClientsCallTheSameToolsAndGetTheirServersBack(t *testing.T) {
	t.Parallel()
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			a.find(t)
			program, err := programs.Plain()
			if err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			home, add := t.TempDir(), adders[a.name]
			first, second := rand.Text(), rand.Text()
			url := listen(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return wordServer("first", first) }, nil))
			model := &agents.Model{Script: func(turn agents.Turn) agents.Reply {
				for tool, word := range map[string]string{"first": first, "second": second} {
					if call := turn.Offers(tool); call != nil && !turn.Has(word) {
						return agents.Reply{Call: call}
					}
				}
				return agents.Reply{Say: "done"}
			}}
			args, env := a.prepare(t, home, listen(t, model), endpoint{})
			a.runIn(t, patience, home, add.address("one", url), env)
			a.runIn(t, patience, home, add.program("two", "WORD_TOKEN="+second, self, "word"), env)

			t.Cleanup(func() { endShared(t, home) }) // which the client starts
			out := switchboard(t, program, home, "connect", add.id)
			if !strings.Contains(out, "adopted  one") || !strings.Contains(out, "adopted  two") || strings.Contains(out, "does not start") {
				t.Errorf("connect says\n%s", out)
			}
			if got := serversOf(t, add.id, home); !slices.Equal(got, []string{"switchboard"}) {
				t.Errorf("the client's file has %q", got)
			}

			a.runIn(t, patience, home, args, env)
			if last := model.Last(); !last.Has(first) || !last.Has(second) {
				t.Errorf("through Switchboard the client was given %q, and offered %v", last.Results, last.Tools)
			}

			a.runIn(t, patience, home, add.program("later", "X=1", self, "word"), env)
			out = switchboard(t, program, home, "disconnect", add.id)
			if got := serversOf(t, add.id, home); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"later", "one", "two"}) {
				t.Errorf("after disconnect, the client's file has %q; it says\n%s", got, out)
			}
		})
	}
}

// switchboard runs a command in a home folder, and returns its output.
func switchboard(t *testing.T, program, home string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}
	out, err := cmd.CombinedOutput()
	t.Logf("switchboard %s:\n%s", strings.Join(args, " "), out)
	if err != nil {
		t.Fatalf("switchboard %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// serversOf returns the names of the servers in the user's files of a client, with ours.
func serversOf(t *testing.T, client, home string) []string {
	t.Helper()
	none := func(string) (string, bool) { return "", false }
	host := &connect.Host{OS: "linux", Home: home, Dir: filepath.Join(home, "nowhere"), Env: none}
	names, err := connect.ListNames(connect.Find(client), host)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
