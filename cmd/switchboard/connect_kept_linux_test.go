package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// slowServer is quick when it is started for the first time. Each later start waits until the test writes a line into the pipe.
const slowServer = `#!/bin/sh
if [ -e "$STARTED_DIR/$1" ]; then read -r line < "$STARTED_DIR/pipe"; fi
: > "$STARTED_DIR/$1"
exec "%s" sample "$2"
`

// slowServers are servers whose settings connect writes in other ways than the client: a secret as a file, a variable as a reference, an empty value not at
// all, and a relative path as an absolute one.
const slowServers = `{"mcpServers": {
  "Plain": {"command": "HOME/slow", "args": ["plain", "notifier"], "env": {"STARTED_DIR": "HOME/started"}},
  "settings": {"command": "HOME/slow", "args": ["settings", "atlas-search", "${KEPT_REGION:-us}"],
    "env": {"STARTED_DIR": "HOME/started", "CLOUD_TOKEN": "geheim-1234", "REGION": "${KEPT_REGION}", "ZONE": "${KEPT_ZONE:-a}", "EMPTY": ""}}
}}`

// notKept begins the note of connect that it cannot write what the servers offer.
const notKept = "  note: what the servers offer was not kept, so the first session shows each server's tools when the server has answered: "

// slowTools are a tool of each server.
var slowTools = []string{"list_channels", "search_web"}

// newSlowDesk returns a desk whose servers answer no second start before release is called.
func newSlowDesk(t *testing.T) (d *claudeDesk, release func()) {
	t.Helper()
	d = newClaudeDesk(t, buildProgram(t))
	t.Setenv("KEPT_REGION", "eu")
	d.write("slow", fmt.Sprintf(slowServer, d.program), 0o700)
	d.write(".claude.json", strings.ReplaceAll(slowServers, "HOME", d.home), 0o600)
	d.write("started/README", "what has been started before", 0o600)
	if err := syscall.Mkfifo(d.path("started/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(d.path("started/pipe"), os.O_RDWR, 0) // for both: so neither side waits to open it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
	return d, func() {
		if _, err := pipe.WriteString(strings.Repeat("\n", 100)); err != nil { // however often they are started
			t.Error(err)
		}
	}
}

func (d *claudeDesk) write(name, text string, mode os.FileMode) {
	d.t.Helper()
	if err := os.MkdirAll(d.path(name+"/.."), 0o700); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(d.path(name), []byte(text), mode); err != nil {
		d.t.Fatal(err)
	}
}

// connect runs "switchboard connect claude-code" as a process, which starts the servers, and returns its output.
func (d *claudeDesk) connect(words ...string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), d.program, append([]string{"connect", "claude-code"}, words...)...) //nolint:gosec // a test's
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("connect: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "it has not answered after") {
		wait.Late(d.t, "a server has not answered connect in time")
	}
	return string(out)
}

// session starts what connect has written into the client's file, as the client does.
func (d *claudeDesk) session(words ...string) *mcp.ClientSession {
	d.t.Helper()
	var file struct {
		MCPServers map[string]struct{ Args []string }
	}
	if err := json.Unmarshal([]byte(d.read(".claude.json")), &file); err != nil {
		d.t.Fatal(err)
	}
	args := file.MCPServers["switchboard"].Args
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "HOME", d.home)
	}
	cmd := exec.CommandContext(context.Background(), d.program, append(args, words...)...) //nolint:gosec // a test's
	cmd.Stderr = d.t.Output()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(d.t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return session
}

// toolsOf lists the tools once.
func toolsOf(t *testing.T, s *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// A client that lists once, at the start, gets all tools in the first session after connect, although the servers take as long as they like to answer
// again. A call waits for its server.
func TestTheFirstListAfterConnectIsCompleteWhileTheServersAreStarting(t *testing.T) {
	shared := []string{"--linger", "0s"} // in the process that clients share
	for _, c := range []struct {
		store  string
		served bool // another process serves the folder all the time
		words  []string
	}{
		{"file", false, []string{"--alone"}},
		{"file", false, shared},
		{"file", true, []string{"--alone"}},
		{"redis", false, []string{"--alone"}},
	} {
		t.Run(fmt.Sprint(c.store, " served=", c.served, " ", c.words[0]), func(t *testing.T) {
			d, release := newSlowDesk(t)
			if c.served {
				d.write("sb/switchboard.yaml", "listen: 127.0.0.1:0\nservers: {}\n", 0o600)
				serveOnce(t, d)
			}
			if c.store == "redis" {
				d.write("sb/secret", "what all replicas know", 0o600)
				d.write("sb/switchboard.yaml", fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\"}\nservers: {}\n", redistest.Start(t).URL()), 0o600)
			}
			if out := d.connect(); strings.Contains(out, notKept) {
				t.Fatalf("connect says\n%s", out)
			}
			s := d.session(c.words...)
			names := toolsOf(t, s)
			for _, tool := range slowTools {
				if !slices.Contains(names, tool) {
					t.Errorf("the first list has no %s: %q", tool, names)
				}
			}
			called := make(chan error, 1)
			go func() {
				result, err := s.CallTool(context.WithoutCancel(t.Context()), &mcp.CallToolParams{Name: "list_channels"})
				if err == nil && result.IsError {
					err = fmt.Errorf("it is refused: %+v", result.Content[0])
				}
				called <- err
			}()
			release()
			if err := wait.Receive(t, "the answer to the call", called); err != nil {
				t.Errorf("the call: %v", err)
			}
			rows, err := serving.Rows(d.path("sb/.switchboard"))
			if err != nil {
				t.Error(err)
			}
			_ = s.Close()
			if c.served {
				return
			}
			wait.UntilNil(t, "the process that clients share has ended", func() error {
				for _, row := range rows { // it takes its row away before it has written everything
					if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", row.PID)); err == nil {
						return errors.New("it runs")
					}
				}
				return nil
			})
		})
	}
}

// A dry run writes nothing, a store in memory keeps nothing, and a store that cannot be opened costs a note.
func TestConnectDoesNotNeedAStoreForWhatTheServersOffer(t *testing.T) {
	d, _ := newSlowDesk(t)
	d.connect("--dry-run")
	if _, err := os.Lstat(d.path("sb")); !os.IsNotExist(err) {
		t.Errorf("a dry run makes the folder of the configuration: %v", err)
	}

	d, _ = newSlowDesk(t)
	d.write("sb/switchboard.yaml", "store: \"memory:\"\nservers: {}\n", 0o600)
	if out := d.connect(); strings.Contains(out, notKept) {
		t.Errorf("with a store in memory, connect says\n%s", out)
	}
	if _, err := os.Lstat(d.path("sb/.switchboard/store.db")); !os.IsNotExist(err) {
		t.Errorf("with a store in memory, there is a file: %v", err)
	}

	d, _ = newSlowDesk(t)
	d.write("sb/.switchboard/store.db/x", "", 0o600) // nobody can open this store
	out := d.connect()
	if strings.Count(out, notKept) != 1 {
		t.Errorf("connect says\n%s", out)
	}
	if file := d.read(".claude.json"); !strings.Contains(file, `"switchboard"`) {
		t.Errorf("the client's file is\n%s", file)
	}
}
