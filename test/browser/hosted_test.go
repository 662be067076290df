package browser_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	oauthprovider "github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var update = flag.Bool("update", false, "write what the person reads into testdata")

// A laptop is the machine of a person with Claude Code, and with a hosted server in its file. It keeps what the person reads.
type laptop struct {
	t      *testing.T
	home   string
	server *rig.Hosted
	admin  string // the admin address, if there is one
	read   strings.Builder
}

// newLaptop returns a laptop. Its xdg-open writes down which address it is told to open.
func newLaptop(t *testing.T) *laptop {
	t.Helper()
	findChromium(t)
	l := &laptop{t: t, home: t.TempDir(), server: rig.ServeHosted(t, oauthprovider.Options{Register: true})}
	rig.WriteFile(t, l.path(".claude.json"), fmt.Sprintf(`{"numStartups": 3, "mcpServers": {"tracker": {"type": "http", "url": %q}}}`, l.server.Resource))
	rig.WriteFile(t, l.path("bin/xdg-open"), "#!/bin/sh\nprintf '%s\\n' \"$1\" >\"$HOME/opened.new\" && mv \"$HOME/opened.new\" \"$HOME/opened\"\n")
	if err := os.Chmod(l.path("bin/xdg-open"), 0o700); err != nil {
		t.Fatal(err)
	}
	rig.EndShared(t, l.path(".config/switchboard")) // which the client starts
	return l
}

func (l *laptop) path(name string) string { return filepath.Join(l.home, name) }

func (l *laptop) environment() []string {
	return []string{"HOME=" + l.home, "TMPDIR=" + l.home, "PATH=" + l.path("bin") + string(filepath.ListSeparator) + os.Getenv("PATH")}
}

// note keeps what the person reads.
func (l *laptop) note(where, text string) {
	fmt.Fprintf(&l.read, "-- %s --\n%s\n", where, strings.TrimSpace(text))
}

var versionLine = regexp.MustCompile(`(?m)^Switchboard \S+$`) // at the end of each page of ours

// notePage keeps what the browser shows.
func (l *laptop) notePage(b *browser) {
	_, text, _ := strings.Cut(b.text(), "\n")
	l.note("the browser", versionLine.ReplaceAllString(blankEnds.ReplaceAllString(text, ""), "Switchboard VERSION"))
}

// A typed is a command that runs in the terminal of a laptop.
type typed struct {
	l     *laptop
	words []string
	in    io.WriteCloser
	ended chan error
	mu    sync.Mutex
	said  strings.Builder
}

// begin starts a command.
func (l *laptop) begin(words ...string) *typed {
	l.t.Helper()
	cmd := exec.Command(rig.Plain, words...)
	c := &typed{l: l, words: words, ended: make(chan error, 1)}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = l.home, l.environment(), c, c
	var err error
	if c.in, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() { c.ended <- cmd.Wait() }()
	return c
}

// Write takes what the command prints.
func (c *typed) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.Write(p)
}

func (c *typed) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.String()
}

// end waits for the end of the command, and returns what it has printed.
func (c *typed) end() (said string, err error) {
	c.l.t.Helper()
	err = wait.Receive(c.l.t, fmt.Sprintf("the end of %q", c.words), c.ended)
	c.l.note("$ switchboard "+strings.Join(c.words, " "), c.text())
	return c.text(), err
}

// succeed is end for a command that must succeed.
func (c *typed) succeed() string {
	c.l.t.Helper()
	said, err := c.end()
	if err != nil {
		c.l.t.Fatalf("%q: %v\n%s", c.words, err, said)
	}
	return said
}

// signIn signs the person in at oidc-provider. Its next page asks for consent.
func (l *laptop) signIn(b *browser) {
	l.t.Helper()
	b.await("Sign-in")
	l.notePage(b)
	b.do(chromedp.SendKeys(chromedp.CSS(`input[name="login"]`), "ann"), chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), "any"))
	b.press("Sign-in")
	b.await("Authorize")
	l.notePage(b)
}

// beginInBrowser starts the command that connects the server, and returns when the browser shows the page to which the command has sent it.
func (l *laptop) beginInBrowser(words []string) (*typed, *browser) {
	l.t.Helper()
	command, address := l.begin(words...), ""
	rig.Eventually(l.t, "the command opens the browser", func() string {
		address = strings.TrimSpace(rig.ReadFile(l.t, l.path("opened")))
		return rig.ReasonUnless(address != "", "it has not")
	})
	b := newBrowser(l.t)
	b.do(chromedp.Navigate(address))
	return command, b
}

// connectInBrowser connects the server with the command, up to the last page.
func (l *laptop) connectInBrowser(words []string) {
	l.t.Helper()
	command, b := l.beginInBrowser(words)
	l.signIn(b)
	b.press("Continue")
	b.await("Server tracker is connected")
	l.notePage(b)
	command.succeed()
}

// entry returns the command of the only server that the file of Claude Code has now.
func (l *laptop) entry() *exec.Cmd {
	l.t.Helper()
	var file struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		}
	}
	if err := json.Unmarshal([]byte(rig.ReadFile(l.t, l.path(".claude.json"))), &file); err != nil {
		l.t.Fatal(err)
	}
	entry, ok := file.MCPServers["switchboard"]
	if !ok || len(file.MCPServers) != 1 {
		l.t.Fatalf("the file of Claude Code has %v", file.MCPServers)
	}
	cmd := exec.Command(entry.Command, entry.Args...)
	cmd.Dir, cmd.Env, cmd.Stderr = l.home, l.environment(), l.t.Output()
	return cmd
}

// openEntry starts what the file of Claude Code says, with a client of the official SDK. The client tells changed of each change of the list.
func (l *laptop) openEntry(changed chan<- struct{}) *mcp.ClientSession {
	l.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	s, err := client.Connect(wait.Context(l.t), &mcp.CommandTransport{Command: l.entry()}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = s.Close() })
	return s
}

// toolsOf returns the names of the tools of a session.
func toolsOf(t *testing.T, s *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := s.ListTools(wait.Context(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// callWhoami returns the answer of the hosted server's tool whoami.
func callWhoami(t *testing.T, s *mcp.ClientSession) string {
	t.Helper()
	r, err := s.CallTool(wait.Context(t), &mcp.CallToolParams{Name: "whoami", Arguments: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Content[0].(*mcp.TextContent).Text
}

var signInCommand = regexp.MustCompile(`tracker needs a sign-in: run switchboard (.*)`)

// connectClient runs "connect claude-code", and returns the command that it tells the person to run.
func (l *laptop) connectClient() []string {
	l.t.Helper()
	said := l.begin("connect", "claude-code").succeed()
	next := signInCommand.FindStringSubmatch(said)
	if next == nil {
		l.t.Fatalf("connect names no command for the sign-in:\n%s", said)
	}
	return strings.Fields(next[1])
}

// checkRead compares what the person has read with a file in testdata.
func (l *laptop) checkRead(name string) {
	l.t.Helper()
	text := ticketLink.ReplaceAllString(l.read.String(), "https://sb.example.com/connect/TICKET")
	text = strings.NewReplacer(l.server.Resource, "https://tracker.example.com/mcp", l.server.Provider.Issuer, "https://id.example.com", l.home, "/home/ann", filepath.Dir(rig.Plain), "/usr/bin").Replace(text)
	text = randomQuery.ReplaceAllString(anyPort.ReplaceAllString(text, "127.0.0.1:PORT"), "$1…")
	if *update {
		rig.WriteFile(l.t, filepath.Join("testdata", name), text)
		return
	}
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		l.t.Fatal(err)
	}
	if text != string(want) {
		l.t.Errorf("the person reads something else than testdata/%s has (-update writes it):\n%s", name, text)
	}
}

var (
	ticketLink  = regexp.MustCompile(`https?://[^/\s]+/connect/[\w-]+`)
	blankEnds   = regexp.MustCompile(`(?m)[ \t]+$`)
	randomQuery = regexp.MustCompile(`(https?://\S*\?)\S+`)
	anyPort     = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// From "connect claude-code" with a hosted server in its file to the first tool call: what a person does and reads, in a real browser.
func TestAHostedServerOfClaudeCodeIsConnectedInABrowserAndCalled(t *testing.T) {
	t.Run("the command opens the browser", func(t *testing.T) {
		l := newLaptop(t)
		l.connectInBrowser(l.connectClient())
		s := l.openEntry(nil)
		if names := toolsOf(t, s); !slices.Contains(names, "whoami") {
			t.Fatalf("the client lists %q", names)
		}
		if got := callWhoami(t, s); got != "ann" {
			t.Errorf("whoami answers %q", got)
		}
		l.checkRead("hosted_browser.txt")
	})

	// The browser runs on another machine, so the address that the provider leads it to does not open there.
	t.Run("the address is pasted", func(t *testing.T) {
		l := newLaptop(t)
		command := l.begin(append(l.connectClient(), "--no-browser")...)
		address := command.address()
		b := newBrowser(t, "MAP "+hostOfRedirect(t, address)+" ~NOTFOUND")
		b.do(chromedp.Navigate(address))
		l.signIn(b)
		b.press("Continue")
		b.await("This site can")
		history, err := chromedp.Run(b.ctx, chromedp.NavigationEntries())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(command.in, history.Entries[history.CurrentIndex].URL)
		command.succeed()
		s := l.openEntry(nil)
		if got := callWhoami(t, s); got != "ann" {
			t.Errorf("whoami answers %q", got)
		}
		l.checkRead("hosted_pasted.txt")
	})

	t.Run("a client is open meanwhile", func(t *testing.T) {
		l := newLaptop(t)
		words := l.connectClient()
		changed := make(chan struct{}, 1)
		s := l.openEntry(changed)
		rig.Eventually(t, "the client is told what is missing", func() string {
			names := toolsOf(t, s)
			status, err := s.CallTool(wait.Context(t), &mcp.CallToolParams{Name: "switchboard_status"})
			if err != nil {
				return err.Error()
			}
			text, _ := json.Marshal(status.Content)
			return rig.ReasonUnless(slices.Equal(names, []string{"switchboard_status"}) && strings.Contains(string(text), "switchboard server connect tracker"), fmt.Sprintf("it has the tools %q, and its status is %s", names, text))
		})
		l.connectInBrowser(words)
		wait.Receive(t, "the client hears of the new tools", changed)
		rig.Eventually(t, "the client lists them", func() string {
			names := toolsOf(t, s)
			return rig.ReasonUnless(slices.Contains(names, "whoami"), fmt.Sprint(names))
		})
		if got := callWhoami(t, s); got != "ann" {
			t.Errorf("whoami answers %q", got)
		}
	})

	t.Run("the person does not agree", func(t *testing.T) {
		l := newLaptop(t)
		command, b := l.beginInBrowser(l.connectClient())
		l.signIn(b)
		b.do(chromedp.Click(chromedp.Search(`//a[contains(., "Cancel")]`)))
		b.await("Server tracker is not connected")
		l.notePage(b)
		if said, err := command.end(); err == nil {
			t.Errorf("the command succeeds, and says\n%s", said)
		}
		l.checkRead("hosted_refused.txt")
	})
}

// address waits for the address that a command without a browser prints, and returns it.
func (c *typed) address() (address string) {
	c.l.t.Helper()
	rig.Eventually(c.l.t, "the command prints the address", func() string {
		said := c.text()
		address = strings.TrimSpace(indented.FindString(said))
		return rig.ReasonUnless(strings.HasSuffix(said, "Paste that address here:\n"), "it says "+said)
	})
	return address
}

// indented matches the address that a command prints on a line of its own.
var indented = regexp.MustCompile(`(?m)^    http\S+$`)

// hostOfRedirect returns the host and port to which the provider leads the browser at the end of the sign-in.
func hostOfRedirect(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err == nil {
		u, err = url.Parse(u.Query().Get("redirect_uri"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
