// Package conformance_test runs the official MCP conformance suite, of npm, on
// Switchboard: its server scenarios against a switchboard in front of the Go
// SDK's conformance server, and its client scenarios against a switchboard
// behind the Go SDK's conformance client. What passes without a switchboard in
// between must pass with it.
//
// testdata/expected-failures.txt names what does not, and why.
package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// patience is how long anything may take on a busy machine.
const patience = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "client" && os.Args[1] != "desk" {
		os.Exit(programs.Run(m))
	}
	var err error
	if os.Args[1] == "desk" {
		err = askDesk(os.Args[2], os.Args[3])
	} else {
		err = runClient(os.Args[2], os.Args[3], os.Args[4])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The programs of the SDK, of the version in go.mod.
var (
	sdkServer = sync.OnceValues(func() (string, error) { return programs.Build("everything-server", sdk+"everything-server") })
	sdkClient = sync.OnceValues(func() (string, error) { return programs.Build("everything-client", sdk+"everything-client") })
)

const sdk = "github.com/modelcontextprotocol/go-sdk/conformance/"

// built ends the test where a program could not be built.
func built(t *testing.T, program func() (string, error)) string {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// suite runs the conformance suite, which writes its results below a new
// folder. That checks fail is no failure here.
func suite(t *testing.T, args ...string) results {
	t.Helper()
	got, err := read(runSuite(t, args...))
	if err != nil || len(got) == 0 {
		t.Fatalf("conformance %s left %d results, %v", args, len(got), err)
	}
	return got
}

// runSuite runs the conformance suite, and returns the folder with its results.
func runSuite(t *testing.T, args ...string) (dir string) {
	t.Helper()
	npmlock.Need(t, "the official conformance suite")
	// The suite needs Node.js 22. The lock has it for the common platforms.
	node := "node"
	if own, _ := filepath.Glob("node_modules/node-*/bin/node"); len(own) > 0 {
		node = own[0]
	}
	dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, slices.Concat([]string{"node_modules/@modelcontextprotocol/conformance/dist/index.js"}, args, []string{"-o", dir})...)
	out, err := cmd.CombinedOutput()
	if wait.Overdue(ctx, err) {
		wait.Late(t, "conformance %s: not after %s:\n%s", args, 4*patience, out)
	}
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("conformance %s: %v\n%s", args, err, out)
	}
	return dir
}

// speech takes what a program says.
type speech struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *speech) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *speech) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a program. It is stopped by stop, or after the test.
func start(t *testing.T, cmd *exec.Cmd, said *speech) (stop func(), err error) {
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), said)
		}
		if s := said.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic") {
			t.Errorf("%s had a race or a panic:\n%s", filepath.Base(cmd.Path), s)
		}
	})
	t.Cleanup(stop)
	return stop, nil
}

// serve starts a switchboard in front of one server, and returns its address and
// what stops it.
func serve(t *testing.T, program, behind string) (front string, stop func(), err error) {
	dir := t.TempDir()
	file := fmt.Sprintf("servers:\n  fixture: {transport: http, url: %q}\n", behind)
	if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte(file), 0o600); err != nil {
		return "", nil, err
	}
	return serveIn(t, program, dir)
}

// serveIn is serve of the configuration in the folder.
func serveIn(t *testing.T, program, dir string) (front string, stop func(), err error) {
	cmd := exec.Command(program, "-v", "serve", "--listen", "127.0.0.1:0")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	said := &speech{}
	if stop, err = start(t, cmd, said); err != nil {
		return "", nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, fmt.Errorf("no address: %w\n%s", err, said)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	front = strings.TrimSpace(line)
	_, err = listTools(front) // a client that is done at once would end before the server has been asked
	return front, stop, err
}

// listTools returns what a switchboard answers to tools/list. It waits for its server, but not for one that
// takes long.
func listTools(front string) (string, error) {
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
		`","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequest(http.MethodPost, front, strings.NewReader(list))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": modern, "Mcp-Method": "tools/list",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return string(answer), err
}

// fixture starts the SDK's conformance server in an era, anew for each run,
// since scenarios change what it offers.
func fixture(t *testing.T, era string) string {
	t.Helper()
	addr, err := scratch.Addr() // it cannot choose one itself
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, exec.Command(built(t, sdkServer), "-http="+addr, fmt.Sprintf("-stateless=%t", era == modern)), &speech{}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, patience, "the SDK's server serves", func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return "http://" + addr + "/"
}

// modernOnly is a server in front of one that also takes what is legacy, and
// refuses that.
func modernOnly(t *testing.T, behind string) string {
	t.Helper()
	target, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.FlushInterval = -1
	guard := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") == modern {
			whole(pass).ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":[%q]}}}`, modern)
	}))
	t.Cleanup(func() {
		guard.CloseClientConnections()
		guard.Close()
	})
	return guard.URL
}

// whole has h see a request only when it has been read to its end. A ReverseProxy
// that is answered before then cuts the answer off (golang/go#40747).
func whole(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	})
}
