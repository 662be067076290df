// Package served_test proves Switchboard on the served path: the real binary, a
// real client on a real transport in front, real server processes behind.
package served_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// binary is the switchboard that is tested, and plain the one that starts what is not
// tested: the sample servers, and the guards of servers. fakeProgram is this test binary.
// Only binary has the race detector, with which programs take five times as long to start.
var binary, plain, fakeProgram string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fake" {
		newFake(os.Args[2:]).stdio()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "fault-program" {
		os.Exit(fault.Program(os.Args[2:]))
	}
	if len(os.Args) > 3 && os.Args[1] == "fault-server" {
		if err := fault.ServeStdio(os.Args[2], fault.Ledger(os.Args[3])); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	if len(os.Args) > 4 && os.Args[1] == "fault-backend" {
		fmt.Fprintln(os.Stderr, backend(os.Args[2:]))
		return
	}
	os.Exit(runTests(m))
}

// Tests run beside each other, but for those that measure time, set the
// environment or load the whole machine: these come first, one by one.
const atOnce = 6 // they wait more than they compute

func runTests(m *testing.M) int {
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 400 // one for each call that a test makes at once
	// How late a disk is that many write to is not what is tested here. Others may enter the
	// folder, as they may /tmp.
	if memory := scratch.Dir(); memory != "" {
		defer func() { _ = os.RemoveAll(memory) }()
		if err := errors.Join(os.Chmod(memory, 0o711), os.Setenv("TMPDIR", memory)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	var err [3]error
	binary, err[0] = programs.Switchboard()
	plain, err[1] = programs.Plain()
	fakeProgram, err[2] = programs.Build("served-fakes", "../../test/served", "-c")
	if err := errors.Join(err[:]...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return programs.Run(m)
}

// patience is how long one exchange may take on a busy machine.
const patience = 2 * wait.Bound

// layOut writes the files of a txtar archive into a folder of their own. BIN
// stands for the plain switchboard, and FAKE for the start of a fake server's
// command line.
func layOut(t *testing.T, archive string) string {
	t.Helper()
	archive = strings.NewReplacer("BIN", fmt.Sprintf("%q", plain), "FAKE", fmt.Sprintf("%q, fake", fakeProgram)).Replace(archive)
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		write(t, filepath.Join(dir, f.Name), string(f.Data))
	}
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tested returns the command of the switchboard that is tested. It runs its guards by its
// own name, which is that of the plain.
func tested(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Args[0] = plain
	return cmd
}

// A gateway is a switchboard that serves over HTTP.
type gateway struct {
	t   *testing.T
	cmd *exec.Cmd
	url string // without a path
	dir string

	mu      sync.Mutex
	log     bytes.Buffer
	scanned int            // of log, in bytes
	endings map[string]int // of reloads, as far as scanned
}

// Write takes the log.
func (g *gateway) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.Write(p)
}

func (g *gateway) logged() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

// serve starts a switchboard on the files in dir, and stops it after the test. It returns
// when the servers have answered: what a test sees does not change by their start.
func serve(t *testing.T, dir string, more ...string) *gateway {
	t.Helper()
	g := serveAtOnce(t, dir, more...)
	g.settle()
	return g
}

// settle waits for the servers, as long as most tests let them take.
func (g *gateway) settle() {
	for over := time.Now().Add(wait.Bound); time.Now().Before(over); {
		resp, err := http.Get(g.url + "/readyz")
		if err != nil {
			return
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if !bytes.Contains(text, []byte(`"ready":false`)) {
			return
		}
		<-time.After(2 * time.Millisecond)
	}
}

// serveAtOnce is serve, though the servers may be starting.
func serveAtOnce(t *testing.T, dir string, more ...string) *gateway {
	t.Helper()
	return serveBy(t, dir, tested(append([]string{"-v", "serve", "--listen", "127.0.0.1:0"}, more...)...))
}

// serveBy is serveAtOnce with a command of the test's own.
func serveBy(t *testing.T, dir string, cmd *exec.Cmd) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: dir, cmd: cmd}
	g.cmd.Dir = dir
	g.cmd.Stderr = g
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(patience, func() { _ = g.cmd.Process.Kill() })
		_ = g.cmd.Wait()
		timer.Stop()
		if t.Failed() {
			t.Logf("the log:\n%s", g.logged())
		}
		if strings.Contains(g.logged(), "DATA RACE") || strings.Contains(g.logged(), "panic") {
			t.Errorf("the log tells of a race or a panic:\n%s", g.logged())
		}
	})
	line, err := firstLine(out)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, g.logged())
	}
	wait.Read(t, "the address", err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	g.url = strings.TrimSuffix(strings.TrimSpace(line), "/mcp")
	return g
}

// firstLine returns the first line of a program, if it comes in time.
func firstLine(out io.Reader) (string, error) {
	if pipe, is := out.(*os.File); is {
		_ = pipe.SetReadDeadline(time.Now().Add(patience))
		defer func() { _ = pipe.SetReadDeadline(time.Time{}) }()
	}
	return bufio.NewReader(out).ReadString('\n')
}

// A message is one JSON-RPC answer, as bytes.
type message struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	raw []byte
}

// A session is a client of one era on one transport.
type session interface {
	// ask sends a request with these params, which have no _meta, and returns
	// the answer and what was said before it.
	ask(t *testing.T, method, params string) (answer message, said []string)
	// send sends bytes as they are, as a message.
	send(t *testing.T, body string) message
}

// httpSession is a client over Streamable HTTP.
type httpSession struct {
	url    string
	modern bool
	header http.Header
	id     string // of a legacy session
}

// open opens a client of g at path, once its servers have answered: what the client sees
// does not change by their start.
func (g *gateway) open(t *testing.T, path string, modern bool, header ...string) *httpSession {
	t.Helper()
	g.settle()
	return g.openAtOnce(t, path, modern, header...)
}

// openAtOnce opens a client of g at path, though its servers may be starting.
func (g *gateway) openAtOnce(t *testing.T, path string, modern bool, header ...string) *httpSession {
	t.Helper()
	s := &httpSession{url: g.url + path, modern: modern, header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		s.header.Add(header[i], header[i+1])
	}
	if !modern {
		m, resp := s.post(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, nil)
		if m.Error != nil {
			t.Fatalf("initialize: %s", m.raw)
		}
		s.id = resp.Header.Get("Mcp-Session-Id")
		s.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	}
	return s
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// withMeta adds what a modern request carries to its params, which may have a _meta
// that is not empty.
func withMeta(params string) string {
	if params == "" || params == "{}" {
		return "{" + modernMeta + "}"
	}
	if strings.Contains(params, `"_meta":{`) {
		return strings.Replace(params, `"_meta":{`, strings.TrimSuffix(modernMeta, "}")+",", 1)
	}
	return "{" + modernMeta + "," + strings.TrimPrefix(params, "{")
}

func (s *httpSession) ask(t *testing.T, method, params string) (message, []string) {
	t.Helper()
	body, extra := s.request(method, params)
	m, resp := s.post(t, body, extra)
	return m, resp.said
}

// request returns what ask posts.
func (s *httpSession) request(method, params string) (body string, extra http.Header) {
	if params == "" {
		params = "{}"
	}
	extra = http.Header{}
	if s.modern {
		params = withMeta(params)
		extra.Set("Mcp-Protocol-Version", "2026-07-28")
		extra.Set("Mcp-Method", method)
		var p struct {
			Name string `json:"name"`
			URI  string `json:"uri"`
		}
		if json.Unmarshal([]byte(params), &p) == nil && p.Name+p.URI != "" {
			extra.Set("Mcp-Name", wire.EncodeHeader(cmp.Or(p.Name, p.URI)))
		}
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params), extra
}

func (s *httpSession) send(t *testing.T, body string) message {
	t.Helper()
	m, _ := s.post(t, body, nil)
	return m
}

// A response is what came back over HTTP, but for the answer.
type response struct {
	*http.Response
	said []string
}

func (s *httpSession) post(t *testing.T, body string, extra http.Header) (message, response) {
	t.Helper()
	m, r, err := s.exchange(body, extra)
	wait.Read(t, fmt.Sprintf("%.200s", body), err)
	return m, r
}

// exchange is post without a test.
func (s *httpSession) exchange(body string, extra http.Header) (message, response, error) {
	nothing := response{Response: &http.Response{Header: http.Header{}}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return message{}, nothing, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if s.id != "" {
		req.Header.Set("Mcp-Session-Id", s.id)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	for _, h := range []http.Header{s.header, extra} {
		maps.Copy(req.Header, h)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return message{}, nothing, err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return message{}, nothing, err
	}
	r := response{Response: resp}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.Lines(string(all)) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
				r.said = append(r.said, data)
			}
		}
		if n := len(r.said); n > 0 {
			all, r.said = []byte(r.said[n-1]), r.said[:n-1]
		}
	}
	return parse(all), r, nil
}

func parse(raw []byte) message {
	m := message{raw: raw}
	_ = json.Unmarshal(raw, &m) // what is no JSON has neither result nor error
	return m
}

// stdioSession is a client that has started "switchboard stdio" itself.
type stdioSession struct {
	cmd    *exec.Cmd
	modern bool
	in     io.WriteCloser
	out    *bufio.Reader
	pipe   *os.File // what out reads
	next   int
}

// stdio starts a switchboard for one client over stdio. It returns when the servers have
// answered, or after a first list has waited for them.
func stdio(t *testing.T, dir string, modern bool, args ...string) *stdioSession {
	t.Helper()
	s := stdioAtOnce(t, dir, modern, args...)
	s.ask(t, "tools/list", "")
	return s
}

// stdioAtOnce is stdio, though the servers may be starting.
func stdioAtOnce(t *testing.T, dir string, modern bool, args ...string) *stdioSession {
	t.Helper()
	s := &stdioSession{modern: modern, cmd: tested(append([]string{"stdio"}, args...)...)}
	var log bytes.Buffer
	s.cmd.Dir, s.cmd.Stderr = dir, &log
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out, s.pipe = bufio.NewReader(out), out.(*os.File)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.in.Close()
		timer := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
		err := s.cmd.Wait()
		if !timer.Stop() {
			wait.Late(t, "switchboard stdio did not end:\n%s", &log)
		}
		if err != nil {
			t.Errorf("switchboard stdio ended with %v:\n%s", err, &log)
		}
	})
	if !modern {
		if m, _ := s.ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); m.Error != nil {
			t.Fatalf("initialize: %s", m.raw)
		}
		fmt.Fprintln(s.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return s
}

func (s *stdioSession) ask(t *testing.T, method, params string) (message, []string) {
	t.Helper()
	if params == "" {
		params = "{}"
	}
	if s.modern {
		params = withMeta(params)
	}
	s.next++
	return s.exchange(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, s.next, method, params))
}

func (s *stdioSession) send(t *testing.T, body string) message {
	t.Helper()
	m, _ := s.exchange(t, body)
	return m
}

func (s *stdioSession) exchange(t *testing.T, body string) (message, []string) {
	t.Helper()
	fmt.Fprintln(s.in, body)
	var said []string
	for {
		line, err := s.line()
		wait.Read(t, fmt.Sprintf("%.200s", body), err)
		line = bytes.TrimSuffix(line, []byte("\n"))
		if m := parse(line); m.Result != nil || m.Error != nil {
			return m, said
		}
		said = append(said, string(line))
	}
}

// line returns the next line that it says, if it says one in time.
func (s *stdioSession) line() ([]byte, error) {
	_ = s.pipe.SetReadDeadline(time.Now().Add(patience))
	defer func() { _ = s.pipe.SetReadDeadline(time.Time{}) }()
	return s.out.ReadBytes('\n')
}

// hears waits until it is told that its list of tools has changed.
func (s *stdioSession) hears(t *testing.T) {
	t.Helper()
	for {
		line, err := s.line()
		wait.Read(t, "that the list has changed", err)
		if bytes.Contains(line, []byte("notifications/tools/list_changed")) {
			return
		}
	}
}

// names lists what a session sees, but for the tool of ours that all keyless clients see.
func names(t *testing.T, s session) []string {
	t.Helper()
	m, _ := s.ask(t, "tools/list", "")
	var list struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Errorf("tools/list: %v: %s", err, m.raw)
	}
	got := []string{}
	for _, tool := range list.Tools {
		if tool.Name != "switchboard_read" {
			got = append(got, tool.Name)
		}
	}
	return got
}

// eventually waits until f gives "". The test is late, with what f gave last, if that takes
// longer than wait.Bound.
func eventually(t *testing.T, what string, f func() string) {
	t.Helper()
	wait.For(t, wait.Bound, what, func() error {
		why := f()
		if why == "" {
			return nil
		}
		<-time.After(20 * time.Millisecond) // f may start a program
		return errors.New(why)
	})
}

// command runs switchboard with args in dir. cmd/switchboard tests each of its commands with
// the race detector, for which they would take five times the time to start.
func command(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, plain, args...)
	var out, errs strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if wait.Overdue(ctx, err) {
		wait.Late(t, "switchboard %q did not end; it says:\n%s%s", args, &out, &errs)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
