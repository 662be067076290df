package npm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// An op is one thing that a client is asked to do: to list, or to call a tool.
type op struct {
	Op   string          `json:"op"` // list or call
	Name string          `json:"name,omitempty"`
	Args json.RawMessage `json:"arguments,omitempty"`
}

func call(name, args string) op { return op{"call", name, json.RawMessage(args)} }

var list = op{Op: "list"}

// A client is one that we did not write.
type client struct {
	name   string
	modern bool

	// raw says that answers are as they came over the wire. The Inspector
	// prints them anew, without resultType, and is a process for each op.
	raw bool

	// starts says that each op starts a switchboard, and that seven servers.
	// So few ops are done, and one task in each era.
	starts bool

	// open begins a conversation about a task, which ends with the test: each op
	// is done when it is asked for.
	open func(t *testing.T, g gateway, task string) func(op) answer
}

// do lets the client do ops for a task, one after the other.
func (c client) do(t *testing.T, g gateway, task string, ops []op) []answer {
	t.Helper()
	ask := c.open(t, g, task)
	answers := make([]answer, len(ops))
	for i, o := range ops {
		answers[i] = ask(o)
	}
	return answers
}

// clients are all that Switchboard is driven with.
var clients = []client{
	{name: "TypeScript SDK over HTTP", raw: true, open: typescriptHTTP},
	{name: "TypeScript SDK over stdio", raw: true, open: typescriptStdio},
	{name: "mcp-go over HTTP", raw: true, modern: true, open: mcpgoHTTP},
	{name: "mcp-go over stdio", raw: true, modern: true, open: mcpgoStdio},
	{name: "Inspector over HTTP", open: inspectorHTTP("legacy")},
	{name: "Inspector over HTTP, modern", modern: true, open: inspectorHTTP("modern")},
	{name: "Inspector over stdio", starts: true, open: inspectorStdio("legacy")},
	{name: "Inspector over stdio, modern", starts: true, modern: true, open: inspectorStdio("modern")},
}

// A gateway is a configuration, and a switchboard that serves it over HTTP.
type gateway struct {
	program, dir string
	url          string // without a path
}

// stdio is the command line of a switchboard over stdio.
func (g gateway) stdio(task string) []string {
	return []string{g.program, "stdio", "--config", filepath.Join(g.dir, "switchboard.yaml"), "--tenant", "example", "--task", task}
}

func (g gateway) path(task string) string { return g.url + "/mcp/tasks/" + task }

// locked is a buffer for two.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts a switchboard for the tenant example, and stops it after the test. It returns
// when the servers have answered.
func serve(t *testing.T, dir string) gateway {
	t.Helper()
	g := serveAtOnce(t, dir, "--tenant", "example")
	g.settle()
	return g
}

// serveAtOnce starts a switchboard, and stops it after the test. It returns when the
// switchboard has its address. The servers may still be starting.
func serveAtOnce(t *testing.T, dir string, more ...string) gateway {
	t.Helper()
	g := gateway{program: switchboard(t), dir: dir}
	cmd := exec.Command(g.program, append([]string{"serve", "--config", filepath.Join(dir, "switchboard.yaml"), "--listen", "127.0.0.1:0"}, more...)...)
	cmd.Dir = dir // npx would take what is installed in this package's folder
	log := &locked{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		dog := watch(patience, cmd)
		defer dog.check(t)
		err := cmd.Wait()
		dog.Stop()
		if err != nil && !dog.bit.Load() {
			t.Errorf("switchboard serve ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the log:\n%s", log)
		}
	})
	dog := watch(patience, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	dog.Stop()
	if err != nil {
		dog.check(t)
		t.Fatalf("no address: %v\n%s", err, log)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	g.url = strings.TrimSuffix(strings.TrimSpace(line), "/mcp")
	return g
}

// settle waits for the servers, as long as start_deadline says: what a test sees does not
// change by their start.
func (g gateway) settle() {
	for over := time.Now().Add(patience); time.Now().Before(over) && g.waits(); {
		<-time.After(20 * time.Millisecond)
	}
}

// waits reports whether Switchboard says that servers have not answered yet.
func (g gateway) waits() bool {
	resp, err := http.Get(g.url + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	text, _ := io.ReadAll(resp.Body)
	return bytes.Contains(text, []byte(`"ready":false`))
}

// A watchdog kills a program that takes too long.
type watchdog struct {
	*time.Timer
	bit atomic.Bool // it has killed
}

func watch(bound time.Duration, cmd *exec.Cmd) *watchdog {
	dog := &watchdog{}
	dog.Timer = time.AfterFunc(bound, func() {
		dog.bit.Store(true)
		_ = cmd.Process.Kill()
	})
	return dog
}

// check ends the test as late if the program was killed.
func (dog *watchdog) check(t *testing.T) {
	t.Helper()
	if dog.bit.Load() {
		wait.Late(t, "the program took too long, and was killed")
	}
}

// command runs a program to its end.
func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	// What a client keeps for its user it keeps away from the real one's.
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	err := cmd.Run()
	if wait.Overdue(ctx, err) {
		wait.Late(t, "%s: not after %s:\n%s\n%s", args, 2*patience, &out, &errs)
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func typescriptHTTP(t *testing.T, g gateway, task string) func(op) answer {
	t.Helper()
	return typescript(t, "--url", g.path(task))
}

func typescriptStdio(t *testing.T, g gateway, task string) func(op) answer {
	t.Helper()
	return typescript(t, append([]string{"--"}, g.stdio(task)...)...)
}

// typescript starts legacy-client.mjs. What the SDK made of each answer is
// compared with the bytes here.
func typescript(t *testing.T, args ...string) func(op) answer {
	t.Helper()
	cmd := exec.Command("node", append([]string{"legacy-client.mjs"}, args...)...)
	log := &locked{}
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dog := watch(5*patience, cmd)
	t.Cleanup(func() {
		_ = in.Close()
		err := cmd.Wait()
		dog.Stop()
		dog.check(t)
		if err != nil {
			t.Errorf("legacy-client.mjs ended with %v\n%s", err, log)
		}
	})
	lines := bufio.NewReader(out)
	hello, err := lines.ReadString('\n')
	if err != nil {
		dog.check(t)
	}
	if err != nil || !strings.HasPrefix(hello, `{"protocol":"`+legacy+`"`) {
		t.Fatalf("it began with %q, %v\n%s", hello, err, log)
	}
	return func(o op) answer {
		t.Helper()
		if err := json.NewEncoder(in).Encode(o); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			dog.check(t)
		}
		var did struct {
			Result, Error json.RawMessage
			Raw           string
		}
		if err := errors.Join(err, json.Unmarshal(line, &did)); err != nil {
			t.Fatalf("%s %q: %v\n%s", o.Op, o.Name, err, log)
		}
		_, a, ok := parse([]byte(did.Raw))
		if !ok || (did.Error == nil) != (a.err == nil) || did.Result != nil && !sameJSON(t, did.Result, a.result) {
			t.Errorf("%s %q: the SDK made result %.300s error %s of %.300s", o.Op, o.Name, did.Result, did.Error, did.Raw)
		}
		return a
	}
}

// tapped is an HTTP client's transport that keeps what came back.
type tapped struct{ seen *locked }

func (tap tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost {
		_, _ = tap.seen.Write([]byte("\n"))
		body := resp.Body
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(body, tap.seen), body}
	}
	return resp, err
}

// last finds the last answer in what was seen, which is lines of JSON or of
// event streams.
func last(seen string) (a answer, ok bool) {
	for line := range strings.Lines(seen) {
		if _, found, is := parse([]byte(strings.TrimPrefix(line, "data: "))); is {
			a, ok = found, true
		}
	}
	return a, ok
}

func mcpgoHTTP(t *testing.T, g gateway, task string) func(op) answer {
	t.Helper()
	seen := &locked{}
	c, err := mcpgo.NewStreamableHttpClient(g.path(task), transport.WithHTTPBasicClient(&http.Client{Transport: tapped{seen}}))
	if err != nil {
		t.Fatal(err)
	}
	return mcpgoOpen(t, c, seen)
}

func mcpgoStdio(t *testing.T, g gateway, task string) func(op) answer {
	t.Helper()
	args, log := g.stdio(task), &locked{}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dog := watch(5*patience, cmd)
	t.Cleanup(func() {
		_ = in.Close()
		err := cmd.Wait()
		dog.Stop()
		dog.check(t)
		if err != nil {
			t.Errorf("switchboard stdio ended with %v\n%s", err, log)
		}
	})
	seen := &locked{}
	c := mcpgo.NewClient(transport.NewIO(io.TeeReader(out, seen), in, io.NopCloser(strings.NewReader(""))))
	return mcpgoOpen(t, c, seen)
}

// mcpgoOpen connects mcp-go's client in the modern era. What it says of each
// answer is compared with the bytes here.
func mcpgoOpen(t *testing.T, c *mcpgo.Client, seen *locked) func(op) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	wait.Answered(t, ctx, "start", c.Start(ctx))
	t.Cleanup(func() { _ = c.Close() })
	_, err := c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: modern, ClientInfo: mcp.Implementation{Name: "test", Version: "1"},
	}})
	wait.Answered(t, ctx, "initialize", err)
	if c.ProtocolVersion() != modern {
		t.Fatalf("mcp-go speaks %s", c.ProtocolVersion())
	}
	return func(o op) answer {
		t.Helper()
		before := len(seen.String())
		var err error
		if o.Op == "list" {
			_, err = c.ListTools(ctx, mcp.ListToolsRequest{})
		} else {
			_, err = c.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{Name: o.Name, RawArguments: o.Args, Arguments: o.Args}})
		}
		if wait.Overdue(ctx, err) {
			wait.Late(t, "%s %q: %v", o.Op, o.Name, err)
		}
		a, ok := last(seen.String()[before:])
		if !ok || (err == nil) != (a.err == nil) {
			t.Errorf("%s %q: mcp-go says %v of %.300s", o.Op, o.Name, err, seen.String()[before:])
		}
		return a
	}
}

func inspectorHTTP(era string) func(*testing.T, gateway, string) func(op) answer {
	return func(t *testing.T, g gateway, task string) func(op) answer {
		t.Helper()
		return inspector(t, "--server-url", g.path(task), "--transport", "http", "--protocol-era", era)
	}
}

func inspectorStdio(era string) func(*testing.T, gateway, string) func(op) answer {
	return func(t *testing.T, g gateway, task string) func(op) answer {
		t.Helper()
		args := g.stdio(task)
		entry, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"switchboard": map[string]any{"command": args[0], "args": args[1:]}}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "mcp.json")
		if err := os.WriteFile(file, entry, 0o600); err != nil {
			t.Fatal(err)
		}
		return inspector(t, "--config", file, "--server", "switchboard", "--protocol-era", era)
	}
}

// inspector runs the Inspector's command line once for each op. It looks a tool
// up in the list before it calls it, so an unknown one is its own error.
func inspector(t *testing.T, args ...string) func(op) answer {
	return func(o op) answer {
		t.Helper()
		line := append([]string{"node", "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli"}, args...)
		line = append(line, "--connect-timeout", fmt.Sprint(patience.Milliseconds()), "--format", "json", "-q", "--method")
		if o.Op == "list" {
			line = append(line, "tools/list")
		} else {
			line = append(line, "tools/call", "--tool-name", o.Name, "--tool-args-json", string(o.Args))
		}
		out, errs, code := command(t, line...)
		var printed struct {
			Result json.RawMessage
		}
		if code == 0 || json.Unmarshal([]byte(out), &printed) == nil {
			if err := json.Unmarshal([]byte(out), &printed); err != nil {
				t.Errorf("%s %q: the Inspector printed %.300s %s", o.Op, o.Name, out, errs)
			}
			return answer{result: printed.Result}
		}
		var failed struct{ Error json.RawMessage }
		_, envelope, _ := strings.Cut(errs, `{"error"`)
		if err := json.Unmarshal([]byte(`{"error"`+envelope), &failed); err != nil {
			t.Errorf("%s %q: the Inspector ended with %d: %.300s %s", o.Op, o.Name, code, out, errs)
		}
		return answer{err: failed.Error}
	}
}
