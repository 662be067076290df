package served_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// stopped waits for the gateway's end and says how long it took from now on.
func (g *gateway) stopped(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	return time.Since(began)
}

// signal sends the gateway a signal.
func (g *gateway) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// arrived waits until n calls have been executed that leave marks.
func arrived(t *testing.T, marks string, n int) {
	t.Helper()
	eventually(t, "all calls have arrived", func() string {
		text, _ := os.ReadFile(marks)
		if got := strings.Count(string(text), "\n"); got != n {
			return fmt.Sprint(got, " have")
		}
		return ""
	})
}

// follow opens a stream and returns what it says until it ends, which it has to
// do properly.
func follow(t *testing.T, method, url, body string, header http.Header) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a stream: %v, %v", resp, err)
	}
	said := make(chan string, 1)
	go func() {
		defer func() { _ = resp.Body.Close() }()
		lines, all := bufio.NewScanner(resp.Body), ""
		for lines.Scan() {
			all += lines.Text() + "\n"
		}
		if err := lines.Err(); err != nil {
			all = err.Error()
		}
		said <- all
	}()
	return said
}

// patientFakes are fakes whose calls get the time that they need on a busy machine.
func patientFakes(servers ...string) string {
	return strings.Replace(fakes(servers...), "start_deadline", "grace: 1m\nstart_deadline", 1)
}

func TestOnSIGTERMTwoHundredCallsAndFiftyStreamsComeToTheirEnds(t *testing.T) {
	t.Parallel()
	const calls, streams = 200, 50
	folder := t.TempDir()
	marks, until := filepath.Join(folder, "marks"), filepath.Join(folder, "until")
	behind := httptest.NewServer(newFake([]string{"modern", "marks=" + marks, fmt.Sprintf(tool, "far")}))
	defer behind.Close()
	g := serve(t, layOut(t, patientFakes(
		fakeServer("near", "marks="+marks, fmt.Sprintf(tool, "near")),
		fmt.Sprintf("far: {transport: http, url: %s/mcp}", behind.URL))))
	children := children(g.cmd.Process.Pid)

	var legacy []*httpSession
	for range streams / 2 {
		legacy = append(legacy, g.open(t, "/mcp", false))
	}
	var work sync.WaitGroup
	for i := range calls {
		s := legacy[i%len(legacy)]
		if i%2 == 0 {
			s = g.open(t, "/mcp", true)
		}
		name := []string{"near", "far"}[i/2%2]
		work.Go(func() {
			params := fmt.Sprintf(`"params":{"name":%q,"arguments":{"do":"await","until":%q,"mark":"mark-%d."}}`, name, until, i)
			header := http.Header{}
			if s.modern {
				params = `"params":` + withMeta(params[len(`"params":`):])
				header = http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {name}}
			}
			m, _ := s.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call",%s}`, i, params), header)
			if !strings.Contains(string(m.raw), fmt.Sprintf(`mark-%d.`, i)) || m.Result == nil || strings.Contains(string(m.raw), "isError") {
				t.Errorf("call %d was answered with %s", i, m.raw)
			}
		})
	}
	var told []<-chan string
	for i := range streams {
		if i%2 == 0 {
			told = append(told, follow(t, http.MethodGet, g.url+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy[i/2].id}, "Mcp-Protocol-Version": {"2025-11-25"}}))
		} else {
			told = append(told, follow(t, http.MethodPost, g.url+"/mcp",
				`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+withMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
				http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}))
		}
	}
	arrived(t, marks, calls)

	began := time.Now()
	g.signal(t, syscall.SIGTERM)
	eventually(t, "it is no longer ready", func() string {
		resp, err := http.Get(g.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			return resp.Status
		}
		return ""
	})
	t.Logf("not ready %v after the signal", time.Since(began))
	if resp, err := http.Get(g.url + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %v, %v", resp, err)
	}
	m, resp := legacy[0].post(t, `{"jsonrpc":"2.0","id":999,"method":"tools/call","params":{"name":"near","arguments":{}}}`, nil)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(m.raw), "SB-ROUT-003") {
		t.Errorf("a call after the signal: %v %s", resp.Status, m.raw)
	}
	for i, said := range told {
		want := []string{"retry: 1000\n", `"resultType":"complete"`}[i%2]
		if got := wait.Receive(t, fmt.Sprintf("the end of stream %d", i), said); !strings.Contains(got, want) {
			t.Errorf("stream %d was told %q", i, got)
		}
	}
	if g.cmd.ProcessState != nil {
		t.Fatal("it has not waited for its calls")
	}
	write(t, until, "now")
	work.Wait()
	t.Logf("stopped %v after the last answer", g.stopped(t))
	if text, _ := os.ReadFile(marks); strings.Count(string(text), "\n") != calls {
		t.Errorf("the servers executed %d calls", strings.Count(string(text), "\n"))
	}
	for _, pid := range children {
		if alive(pid) {
			t.Errorf("child %d lives", pid)
		}
	}
}

func TestOnSIGTERMOverStdioCallsInFlightComeToTheirEnds(t *testing.T) {
	t.Parallel()
	const calls = 100
	folder := t.TempDir()
	marks, until := filepath.Join(folder, "marks"), filepath.Join(folder, "until")
	s := stdio(t, layOut(t, patientFakes(fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "work")))), false)
	for i := range calls {
		fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":"call-%d","method":"tools/call","params":{"name":"work","arguments":{"do":"await","until":%q,"mark":"mark-%d."}}}`+"\n", i, until, i)
	}
	arrived(t, marks, calls)
	children := children(s.cmd.Process.Pid)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it refuses new requests", func() string {
		if m := s.send(t, `{"jsonrpc":"2.0","id":"new","method":"ping"}`); !strings.Contains(string(m.raw), "SB-ROUT-003") {
			return string(m.raw)
		}
		return ""
	})
	write(t, until, "now")
	answered := map[string]bool{}
	for {
		text, err := s.line()
		if wait.TimedOut(err) {
			wait.Late(t, "only %d calls were answered", len(answered))
		}
		if err != nil {
			break
		}
		line := string(text)
		for i := range calls {
			if strings.Contains(line, fmt.Sprintf(`"id":"call-%d"`, i)) && strings.Contains(line, fmt.Sprintf(`mark-%d.`, i)) {
				answered[line] = true
			}
		}
	}
	if len(answered) != calls {
		t.Errorf("%d calls were answered", len(answered))
	}
	eventually(t, "no child is left", func() string {
		for _, pid := range children {
			if alive(pid) {
				return fmt.Sprint(pid)
			}
		}
		return ""
	})
}

func TestASecondSignalHurries(t *testing.T) {
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			marks := filepath.Join(t.TempDir(), "marks")
			dir := layOut(t, strings.Replace(fakes(fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "work"))), "start_deadline", "grace: 5m\nstart_deadline", 1))
			g := serve(t, dir)
			over := stdio(t, dir, false)
			near := g.open(t, "/mcp", false)
			var work sync.WaitGroup
			work.Go(func() {
				if m, _ := near.ask(t, "tools/call", `{"name":"work","arguments":{"do":"wait"}}`); !strings.Contains(string(m.Result), "SB-EXEC-004") {
					t.Errorf("the client over HTTP was told %s", m.raw)
				}
			})
			fmt.Fprintln(over.in, `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"work","arguments":{"do":"wait"}}}`)
			arrived(t, marks, 2)

			g.signal(t, syscall.SIGTERM)
			_ = over.cmd.Process.Signal(syscall.SIGTERM)
			eventually(t, "it waits for its call", func() string {
				if !strings.Contains(g.logged(), "msg=stopping calls_in_flight=1") {
					return g.logged()
				}
				return ""
			})
			eventually(t, "it refuses requests over stdio", func() string {
				if m := over.send(t, `{"jsonrpc":"2.0","id":"new","method":"ping"}`); !strings.Contains(string(m.raw), "SB-ROUT-003") {
					return string(m.raw)
				}
				return ""
			})

			began := time.Now()
			g.signal(t, second)
			_ = over.cmd.Process.Signal(second)
			if line, err := over.out.ReadString('\n'); !strings.Contains(line, `"id":"call"`) || !strings.Contains(line, "SB-EXEC-004") {
				t.Errorf("the client over stdio was told %s, %v", line, err)
			}
			work.Wait()
			g.stopped(t)
			if took := time.Since(began); took > patience { // of the grace of 5m
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestItStopsWithinTheGraceThoughServersAndCallsDoNot(t *testing.T) {
	marks := filepath.Join(t.TempDir(), "marks")
	archive := fakes(
		fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "work")),
		// One that neither reads on nor ends when it is told to.
		`deaf: {transport: stdio, command: [sh, -c, 'trap "" TERM INT HUP; "$0" "$@"; while :; do sleep 1; done', FAKE, '`+fmt.Sprintf(tool, "deaf")+`']}`)
	g := serve(t, layOut(t, strings.Replace(archive, "start_deadline", "grace: 2s\nstart_deadline", 1)))
	s := g.open(t, "/mcp", true)
	names(t, s)
	var work sync.WaitGroup
	work.Go(func() {
		if m, _ := s.ask(t, "tools/call", `{"name":"work","arguments":{"do":"wait"}}`); !strings.Contains(string(m.Result), "SB-EXEC-004") {
			t.Errorf("the client was told %s", m.raw)
		}
	})
	arrived(t, marks, 1)
	g.signal(t, syscall.SIGTERM)
	took := g.stopped(t)
	work.Wait()
	t.Logf("stopped after %v", took)
	if took > 8*time.Second { // more than the grace only where the machine is busy; of itself it would take 10s
		t.Errorf("it took %v; the grace is 2s", took)
	}
}

func TestOnStopAClientIsToldOfACallThatDidNotEnd(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	dir := layOut(t, strings.Replace(fakes(fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "work"))), "start_deadline", "grace: 2s\nstart_deadline", 1))
	g := serve(t, dir)
	over := stdio(t, dir, false)
	clients := map[string]session{"legacy": g.open(t, "/mcp", false), "modern": g.open(t, "/mcp", true), "stdio": over}
	var wg sync.WaitGroup
	for name, s := range clients {
		wg.Go(func() {
			m, _ := s.ask(t, "tools/call", `{"name":"work","arguments":{"do":"wait"}}`)
			if !strings.Contains(string(m.Result), "SB-EXEC-004") || !strings.Contains(string(m.Result), "Switchboard was stopped") {
				t.Errorf("the %s client was told %q", name, m.raw)
			}
		})
	}
	eventually(t, "all calls have arrived", func() string {
		text, _ := os.ReadFile(marks)
		if n := strings.Count(string(text), "work"); n != 3 {
			return fmt.Sprint(n, " have")
		}
		return ""
	})
	for _, p := range []*os.Process{g.cmd.Process, over.cmd.Process} {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	for _, want := range []string{"msg=stopping calls_in_flight=2", `msg="calls cut" calls=2`} {
		eventually(t, "the log says so", func() string {
			if !strings.Contains(g.logged(), want) {
				return "no " + want
			}
			return ""
		})
	}
}

func TestStreamsDoNotKeepItFromStopping(t *testing.T) {
	g := serve(t, layOut(t, strings.Replace(fakes(fakeServer("a", fmt.Sprintf(tool, "one"))), "start_deadline", "grace: 5m\nstart_deadline", 1)))
	legacy, heard := g.open(t, "/mcp", false), make(chan string, 2)
	listen(t, heard, "legacy", http.MethodGet, g.url+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy.id}, "Mcp-Protocol-Version": {"2025-11-25"}})
	listen(t, heard, "modern", http.MethodPost, g.url+"/mcp",
		`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+withMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
		http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
	began := time.Now()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait()
	if took := time.Since(began); took > patience {
		t.Errorf("with two streams open it took %v to stop; calls get 5m", took)
	}
}
