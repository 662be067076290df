package served_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// connecting is a "switchboard server connect" that waits for the person.
type connecting struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	address string // where the person's browser goes
	said    chan string
}

// beginConnect starts the command, and returns when it has printed the address.
func beginConnect(t *testing.T, dir string, args ...string) *connecting {
	t.Helper()
	c := &connecting{cmd: rig.Switchboard(append([]string{"server", "connect", "--no-browser"}, args...)...), said: make(chan string, 1)}
	c.cmd.Dir = dir
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	c.cmd.Stderr = c.cmd.Stdout
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	c.in = in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	lines := bufio.NewReader(out)
	var all strings.Builder
	for c.address == "" {
		line, err := lines.ReadString('\n')
		all.WriteString(line)
		if err != nil {
			t.Fatalf("server connect ended: %v\n%s", err, &all)
		}
		if s := strings.TrimSpace(line); strings.HasPrefix(s, "http") {
			c.address = s
		}
	}
	go func() {
		rest, _ := io.ReadAll(lines)
		c.said <- all.String() + string(rest)
	}()
	return c
}

// end waits for the end of the command, and returns what it has printed.
func (c *connecting) end() (said string, code int) {
	said = <-c.said
	_ = c.cmd.Wait()
	return said, c.cmd.ProcessState.ExitCode()
}

// redirectOf returns where the provider sends the browser back to.
func redirectOf(t *testing.T, address string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req.URL.Query().Get("redirect_uri")
}

// stateOf returns what a condition of a server is, as "server list" prints it.
func stateOf(t *testing.T, dir, id string) string {
	t.Helper()
	out, errs, _ := rig.Command(t, dir, "server", "list")
	_, row, _ := strings.Cut(out, "\n"+id+" ")
	return row + errs
}

func TestHosted1AServerThatDemandsASignInIsConnectedOnceAtADesk(t *testing.T) {
	t.Parallel()
	h := rig.ServeHosted(t, provider.Options{Register: true})
	dir := rig.LayOut(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  tracker: {transport: http, url: %q}\n", h.Resource))
	g := rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "the server needs a connection", func() string {
		if s := stateOf(t, dir, "tracker"); !strings.Contains(s, "needs_connection") || !strings.Contains(s, "switchboard server connect tracker") {
			return s
		}
		return ""
	})
	for _, way := range []string{"the browser comes back", "the address is pasted"} {
		c := beginConnect(t, dir, "tracker")
		back := provider.Consent(t, c.address, redirectOf(t, c.address))
		if way == "the address is pasted" {
			fmt.Fprintf(c.in, "hello\n%s\n", back)
		} else {
			for _, guess := range []string{"?code=x&state=y", "", "?state=" + back.Query().Get("state") + "&state=y"} { // of somebody else on this machine
				resp, err := http.Get(strings.Split(back.String(), "?")[0] + guess)
				if err != nil || resp.StatusCode != http.StatusNotFound {
					t.Fatalf("a guess was answered with %v %v", resp, err)
				}
			}
			resp, err := http.Get(back.String())
			if err != nil {
				t.Fatal(err)
			}
			page, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "tracker is connected") {
				t.Errorf("%s: the browser shows %s %s", way, resp.Status, page)
			}
		}
		if said, code := c.end(); code != 0 || !strings.Contains(said, "tracker is connected") || !strings.Contains(said, h.Provider.Issuer) || !strings.Contains(said, "files:read") {
			t.Fatalf("%s: exit %d: %s", way, code, said)
		}
		rig.Eventually(t, "the server is healthy", func() string {
			if s := stateOf(t, dir, "tracker"); !strings.Contains(s, "healthy") {
				return s
			}
			return ""
		})
		for _, modern := range []bool{false, true} {
			if got := askWho(t, g.Open(t, "/mcp", modern)); got != "ann" {
				t.Errorf("%s: modern %v: whoami answers %q", way, modern, got)
			}
		}
		out, errs, code := rig.Command(t, dir, "server", "disconnect", "tracker")
		if code != 0 || !strings.Contains(out, "its tokens are revoked") {
			t.Errorf("%s: exit %d: %s%s", way, code, out, errs)
		}
		rig.Eventually(t, "it needs a connection again", func() string {
			if s := stateOf(t, dir, "tracker"); !strings.Contains(s, "needs_connection") {
				return s
			}
			return ""
		})
	}
	if strings.Contains(g.Logged(), "quarantine") {
		t.Errorf("the server was quarantined:\n%s", g.Logged())
	}
}

// askWho returns what the tool whoami answers.
func askWho(t *testing.T, s rig.Session) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
	return m.Text()
}

// ofEachPerson is a configuration with two keys of a tenant, each with its own connection at the server, and the operator's key.
func ofEachPerson(t *testing.T, h *rig.Hosted) (files string, keys map[string]string, operator string) {
	t.Helper()
	ann, annRow := rig.NewKey(t, "ann")
	bob, bobRow := rig.NewKey(t, "bob")
	operator, operatorRow := rig.NewKey(t, "ops", "--person")
	files = fmt.Sprintf(`-- switchboard.yaml --
servers:
  tracker: {transport: http, url: %q, credential: {user: {scopes: [files:read, offline_access]}}}
operators: [%s]
tenants:
  acme: {servers: ["*"], tasks: true}
-- tenants/acme/tenant.yaml --
keys:
  - %s
  - %s
`, h.Resource, operatorRow, annRow, bobRow)
	return files, map[string]string{"ann": ann, "bob": bob}, operator
}
