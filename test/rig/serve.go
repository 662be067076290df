package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A Status is the part of the output of switchboard status --json that tests read.
type Status struct {
	Loaded  time.Time `json:"configuration_loaded"`
	Refused *struct {
		Why string `json:"why"`
	} `json:"configuration_refused"`
	Faulty []struct {
		Part, State string
		Faults      []string
	} `json:"configuration_faulty_parts"`
	Policies []struct{ Tenant, Digest, Loaded string } `json:"policies"`
	Servers  []struct {
		ID          string `json:"id"`
		State       string `json:"state"`
		LastFailure *struct {
			Stage, Message string
		} `json:"last_failure"`
	} `json:"servers"`
}

// Status runs switchboard status.
func (g *Gateway) Status() (st Status) {
	g.T.Helper()
	out, errs, _ := Command(g.T, g.Dir, "status", "--json", "--url", g.URL)
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		g.T.Fatalf("status: %v\n%s%s", err, out, errs)
	}
	return st
}

// Do runs a command for the gateway. The test fails unless the exit code is code and the output matches want.
func (g *Gateway) Do(code int, want string, args ...string) string {
	g.T.Helper()
	out, errs, got := Command(g.T, g.Dir, append(args, "--url", g.URL)...)
	if got != code || !regexp.MustCompile(want).MatchString(out+errs) {
		g.T.Fatalf("%q exits %d and says:\n%s%s", args, got, out, errs)
	}
	return out
}

// Metrics reads the metrics of the tenant, or all for "". It returns the number of series of each metric, and the values by name and labels.
func (g *Gateway) Metrics(tenant ...string) (series map[string]int, values map[string]float64) {
	g.T.Helper()
	path := "/metrics"
	if len(tenant) > 0 {
		path += "?tenant=" + tenant[0]
	}
	answer := g.AskAdmin(g.T, "", http.MethodGet, path, "")
	if answer.Status != http.StatusOK {
		g.T.Fatalf("/metrics: %d %s", answer.Status, answer.Body)
	}
	text := []byte(answer.Body)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		g.T.Fatalf("%v:\n%s", err, text)
	}
	series, values = map[string]int{}, map[string]float64{}
	for name, f := range families {
		series[name] = len(f.Metric)
		for _, m := range f.Metric {
			words := []string{name}
			for _, l := range m.Label {
				words = append(words, l.GetValue())
			}
			values[strings.Join(words, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return series, values
}

// The log lines at the end of a reload.
const (
	Reloaded      = "msg=reloaded"
	ReloadedSame  = `msg="read again; nothing has changed"`
	ReloadRefused = `msg="reload refused`
)

// Reloads counts the reloads that ended in one of these ways.
func (g *Gateway) Reloads(ways ...string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fresh := g.log.Bytes()[g.scanned:]
	fresh = fresh[:bytes.LastIndexByte(fresh, '\n')+1]
	g.scanned += len(fresh)
	if g.endings == nil {
		g.endings = map[string]int{}
	}
	for _, way := range []string{Reloaded, ReloadedSame, ReloadRefused} {
		g.endings[way] += bytes.Count(fresh, []byte(way))
	}
	for _, way := range ways {
		n += g.endings[way]
	}
	return n
}

// SendHangUp sends SIGHUP.
func (g *Gateway) SendHangUp(t *testing.T) {
	t.Helper()
	if err := g.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// AwaitReload waits for another reload that ends in one of these ways.
func (g *Gateway) AwaitReload(t *testing.T, before int, ways ...string) {
	t.Helper()
	Eventually(t, "the reload is over", func() string {
		if g.Reloads(ways...) == before {
			return "it is not"
		}
		return ""
	})
}

// Reload makes g read its files, and returns when every earlier change of a file is in force or refused. It sends two signals, because the reading for
// the second one begins after the first has arrived.
func (g *Gateway) Reload(t *testing.T) {
	t.Helper()
	for range 2 {
		before := g.Reloads(Reloaded, ReloadedSame, ReloadRefused)
		g.SendHangUp(t)
		g.AwaitReload(t, before, Reloaded, ReloadedSame, ReloadRefused)
	}
}

// Ready requests /readyz.
func (g *Gateway) Ready(t *testing.T) (status int, body string) {
	t.Helper()
	h := Tenants{Gateway: g}
	return h.GetStatus(t, "", "/readyz")
}

// StopTogether sends SIGTERM to all replicas. Each waits some seconds for load balancers, unless a second signal comes: the cleanup of each sends it.
func StopTogether(replicas []*Gateway) {
	for _, g := range replicas {
		_ = g.Cmd.Process.Signal(syscall.SIGTERM)
	}
}

// watched has the names of the tests that have called WatchRaces.
var watched sync.Map

// WatchRaces makes each Switchboard of the test t one with the race detector, where the run has it. A test of many callers at once, of replicas, of kills or of
// changes under load calls it first. The other tests do without: with the race detector a start takes five times as long, and each call three times.
func WatchRaces(t *testing.T) {
	t.Helper()
	watched.Store(topName(t), nil)
}

// topName returns the name of the test of which t is a part.
func topName(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// Switchboard returns a command of the switchboard for t. Its name is Plain, so that it starts guards without the race detector.
func Switchboard(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if _, ok := watched.Load(topName(t)); !ok {
		return exec.Command(Plain, args...)
	}
	program, err := programs.Watched()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Args[0] = Plain
	return cmd
}

// A Gateway is a switchboard that serves over HTTP.
type Gateway struct {
	T   *testing.T
	Cmd *exec.Cmd
	URL string // without a path
	Dir string

	mu      sync.Mutex
	row     serving.Neighbor // once it is known
	log     bytes.Buffer
	scanned int            // of log, in bytes
	endings map[string]int // of reloads, in the scanned part
}

// Write appends to the log.
func (g *Gateway) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.Write(p)
}

// Logged returns the log so far.
func (g *Gateway) Logged() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

// Serve starts a switchboard on the files in dir, and stops it after the test. It returns when the servers have answered, so that their start does not
// change the lists during the test.
func Serve(t *testing.T, dir string, more ...string) *Gateway {
	t.Helper()
	g := ServeAtOnce(t, dir, more...)
	g.AwaitServers()
	return g
}

// AwaitServers waits until the servers have answered, wait.Bound at most.
func (g *Gateway) AwaitServers() {
	for began := time.Now(); time.Since(began) < wait.Bound; <-time.After(wait.Pause(time.Since(began), 0)) {
		resp, err := http.Get(g.URL + "/readyz")
		if err != nil {
			return
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if !bytes.Contains(text, []byte(`"ready":false`)) {
			return
		}
	}
}

// ServeAtOnce is Serve without the wait for the servers.
func ServeAtOnce(t *testing.T, dir string, more ...string) *Gateway {
	t.Helper()
	return ServeBy(t, dir, Switchboard(t, append([]string{"-v", "serve", "--listen", "127.0.0.1:0"}, more...)...))
}

// ServeBy is ServeAtOnce with the given command.
func ServeBy(t *testing.T, dir string, cmd *exec.Cmd) *Gateway {
	t.Helper()
	g := &Gateway{T: t, Dir: dir, Cmd: cmd}
	g.Cmd.Dir = dir
	g.Cmd.Stderr = g
	out, err := g.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.Cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(Patience, func() { _ = g.Cmd.Process.Kill() })
		_ = g.Cmd.Wait()
		timer.Stop()
		if t.Failed() {
			t.Logf("the log:\n%s", g.Logged())
		}
		if strings.Contains(g.Logged(), "DATA RACE") || strings.Contains(g.Logged(), "panic") {
			t.Errorf("the log tells of a race or a panic:\n%s", g.Logged())
		}
	})
	line, err := FirstLine(out)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, g.Logged())
	}
	wait.Read(t, "the address", err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	g.URL = strings.TrimSuffix(strings.TrimSpace(line), "/mcp")
	if slices.Contains(cmd.Args, "--data") {
		folders.Store(g.URL, dataOf(cmd, dir))
	} else {
		folders.Delete(g.URL) // of a gateway that had the port before
	}
	_, _ = g.Row() // it stays known, whatever becomes of the folder
	return g
}

// FirstLine returns the first line of a program's output. It fails after Patience.
func FirstLine(out io.Reader) (string, error) {
	if pipe, is := out.(*os.File); is {
		_ = pipe.SetReadDeadline(time.Now().Add(Patience))
		defer func() { _ = pipe.SetReadDeadline(time.Time{}) }()
	}
	return bufio.NewReader(out).ReadString('\n')
}

// Open opens a client of g at path, after AwaitServers. header has names and values in turn.
func (g *Gateway) Open(t *testing.T, path string, modern bool, header ...string) *HTTPSession {
	t.Helper()
	g.AwaitServers()
	return g.OpenAtOnce(t, path, modern, header...)
}

// OpenAtOnce is Open without the wait for the servers.
func (g *Gateway) OpenAtOnce(t *testing.T, path string, modern bool, header ...string) *HTTPSession {
	t.Helper()
	s := &HTTPSession{URL: g.URL + path, Modern: modern, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		s.Header.Add(header[i], header[i+1])
	}
	if !modern {
		m, resp := s.Post(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, nil)
		if m.Error != nil {
			SayStoreIsLate(t, m)
			t.Fatalf("initialize: %s", m.Raw)
		}
		s.ID = resp.Header.Get("Mcp-Session-Id")
		s.Post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	}
	return s
}

// Readyz returns the status and the body of /readyz.
func (g *Gateway) Readyz() string {
	g.T.Helper()
	resp, err := http.Get(g.URL + "/readyz")
	if err != nil {
		g.T.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.T.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(text))
}

// AwaitEnd waits for the gateway's end, and returns the time that it waited.
func (g *Gateway) AwaitEnd(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if err := g.Cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	return time.Since(began)
}

// Signal sends the gateway a signal.
func (g *Gateway) Signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := g.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
