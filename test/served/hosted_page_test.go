package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// pageBlock matches the blocks of a page: its language, its file, its text.
var pageBlock = regexp.MustCompile("(?ms)^```(\\w+) ?(.*?)\n(.*?)^```$")

// The page's example at a desk, with a server of the official SDK and oidc-provider in the place of the page's. UPDATE=1 writes the output into the page.
func TestTheDeskExampleOfThePageAboutHostedServersWorksAsWritten(t *testing.T) {
	t.Parallel()
	const page = "../../docs/hosted-servers.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "## As each person")
	if !ok {
		t.Fatal("the page has another order now")
	}
	h := rig.ServeHosted(t, provider.Options{Register: true})
	address, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	here := strings.NewReplacer("https://tracker.example.com/mcp", h.Resource, "127.0.0.1:7420", address)
	onPage := strings.NewReplacer(h.Resource, "https://tracker.example.com/mcp", h.Provider.Issuer, "https://id.example.com", address, "127.0.0.1:7420", dir, "/home/ann")
	commands := 0
	now := pageBlock.ReplaceAllStringFunc(before, func(block string) string {
		b := pageBlock.FindStringSubmatch(block)
		if b[1] != "console" {
			rig.WriteFile(t, filepath.Join(dir, b[2]), here.Replace(b[3]))
			return block
		}
		commands++
		line, _, _ := strings.Cut(b[3], "\n")
		out := runAtDesk(t, dir, strings.Fields(line)[2:])
		return "```console\n" + line + "\n" + longQuery.ReplaceAllString(onPage.Replace(out), "$1…") + "```"
	})
	if commands < 5 {
		t.Errorf("the page shows %d commands", commands)
	}
	switch {
	case now == before:
	case os.Getenv("UPDATE") == "1":
		if err := os.WriteFile(page, []byte(now+"## As each person"+rest), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the page shows another output (UPDATE=1 writes it):\n%s", now)
	}
	rig.WriteFile(t, filepath.Join(dir, ".claude.json"), here.Replace(`{"mcpServers": {"again": {"type": "http", "url": "https://tracker.example.com/mcp"}}}`))
	line := "tracker needs a sign-in: run switchboard server connect tracker"
	if out := runAtDesk(t, dir, []string{"connect", "claude-code"}); !strings.HasSuffix(out, "\n"+line+"\n") || !regexp.MustCompile(`adopted +again .*needs a sign-in`).MatchString(out) {
		t.Errorf("connect says\n%s", out)
	}
	runAtDesk(t, dir, []string{"server", "connect", "tracker", "--no-browser"})
	runAtDesk(t, dir, []string{"disconnect", "claude-code"})
	if out := runAtDesk(t, dir, []string{"connect", "claude-code"}); strings.Contains(out, "sign-in") {
		t.Errorf("the server is connected, and connect says\n%s", out)
	}
}

// longQuery matches what is random in the address of a sign-in.
var longQuery = regexp.MustCompile(`(https?://\S*\?)\S+`)

// runAtDesk runs a command in the folder, which is its user's home too. A sign-in is done by the provider's browser, and the address is pasted.
func runAtDesk(t *testing.T, dir string, words []string) string {
	t.Helper()
	cmd := rig.Switchboard(t, words...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=", "SWITCHBOARD_HOME=")
	if words[0] != "server" || words[1] != "connect" {
		out, err := cmd.CombinedOutput()
		if err != nil && words[0] != "doctor" {
			t.Errorf("%q: %v", words, err)
		}
		return string(out)
	}
	c := awaitAddress(t, cmd)
	fmt.Fprintln(c.in, provider.Consent(t, c.address, redirectOf(t, c.address)))
	said, code := c.end()
	if code != 0 {
		t.Errorf("%q: exit %d", words, code)
	}
	return said
}
