package served_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

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
	return strings.Replace(rig.Fakes(servers...), "start_deadline", "grace: 1m\nstart_deadline", 1)
}

func TestOnSIGTERMTwoHundredCallsAndFiftyStreamsComeToTheirEnds(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	const calls, streams = 200, 50
	folder := t.TempDir()
	marks, until := filepath.Join(folder, "marks"), filepath.Join(folder, "until")
	behind := httptest.NewServer(fakeserver.New([]string{"modern", "marks=" + marks, fmt.Sprintf(rig.Tool, "far")}))
	defer behind.Close()
	g := rig.Serve(t, rig.LayOut(t, patientFakes(
		rig.FakeRow("near", "marks="+marks, fmt.Sprintf(rig.Tool, "near")),
		fmt.Sprintf("far: {transport: http, url: %s/mcp}", behind.URL))))
	children := rig.Children(g.Cmd.Process.Pid)

	var legacy []*rig.HTTPSession
	for range streams / 2 {
		legacy = append(legacy, g.Open(t, "/mcp", false))
	}
	var work sync.WaitGroup
	for i := range calls {
		s := legacy[i%len(legacy)]
		if i%2 == 0 {
			s = g.Open(t, "/mcp", true)
		}
		name := []string{"near", "far"}[i/2%2]
		work.Go(func() {
			params := fmt.Sprintf(`"params":{"name":%q,"arguments":{"do":"await","until":%q,"mark":"mark-%d."}}`, name, until, i)
			header := http.Header{}
			if s.Modern {
				params = `"params":` + rig.WithMeta(params[len(`"params":`):])
				header = http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {name}}
			}
			m, _ := s.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call",%s}`, i, params), header)
			if !strings.Contains(string(m.Raw), fmt.Sprintf(`mark-%d.`, i)) || m.Result == nil || strings.Contains(string(m.Raw), "isError") {
				t.Errorf("call %d was answered with %s", i, m.Raw)
			}
		})
	}
	var told []<-chan string
	for i := range streams {
		if i%2 == 0 {
			told = append(told, follow(t, http.MethodGet, g.URL+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy[i/2].ID}, "Mcp-Protocol-Version": {"2025-11-25"}}))
		} else {
			told = append(told, follow(t, http.MethodPost, g.URL+"/mcp",
				`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
				http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}))
		}
	}
	rig.AwaitCalls(t, marks, calls)

	began := time.Now()
	g.Signal(t, syscall.SIGTERM)
	rig.Eventually(t, "it is no longer ready", func() string {
		resp, err := http.Get(g.URL + "/readyz")
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
	if resp, err := http.Get(g.URL + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %v, %v", resp, err)
	}
	m, resp := legacy[0].Post(t, `{"jsonrpc":"2.0","id":999,"method":"tools/call","params":{"name":"near","arguments":{}}}`, nil)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(m.Raw), "SB-ROUT-003") {
		t.Errorf("a call after the signal: %v %s", resp.Status, m.Raw)
	}
	for i, said := range told {
		want := []string{"retry: 1000\n", `"resultType":"complete"`}[i%2]
		if got := wait.Receive(t, fmt.Sprintf("the end of stream %d", i), said); !strings.Contains(got, want) {
			t.Errorf("stream %d was told %q", i, got)
		}
	}
	if g.Cmd.ProcessState != nil {
		t.Fatal("it has not waited for its calls")
	}
	rig.WriteFile(t, until, "now")
	work.Wait()
	t.Logf("stopped %v after the last answer", g.AwaitEnd(t))
	if text, _ := os.ReadFile(marks); strings.Count(string(text), "\n") != calls {
		t.Errorf("the servers executed %d calls", strings.Count(string(text), "\n"))
	}
	for _, pid := range children {
		if rig.Alive(pid) {
			t.Errorf("child %d lives", pid)
		}
	}
}

func TestOnSIGTERMOverStdioCallsInFlightComeToTheirEnds(t *testing.T) {
	t.Parallel()
	const calls = 100
	folder := t.TempDir()
	marks, until := filepath.Join(folder, "marks"), filepath.Join(folder, "until")
	s := rig.Stdio(t, rig.LayOut(t, patientFakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work")))), false)
	for i := range calls {
		fmt.Fprintf(s.In, `{"jsonrpc":"2.0","id":"call-%d","method":"tools/call","params":{"name":"work","arguments":{"do":"await","until":%q,"mark":"mark-%d."}}}`+"\n", i, until, i)
	}
	rig.AwaitCalls(t, marks, calls)
	children := rig.Children(s.Cmd.Process.Pid)
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "it refuses new requests", func() string {
		if m := s.Send(t, `{"jsonrpc":"2.0","id":"new","method":"ping"}`); !strings.Contains(string(m.Raw), "SB-ROUT-003") {
			return string(m.Raw)
		}
		return ""
	})
	rig.WriteFile(t, until, "now")
	answered := map[string]bool{}
	for {
		text, err := s.ReadLine()
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
	rig.Eventually(t, "no child is left", func() string {
		for _, pid := range children {
			if rig.Alive(pid) {
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
			dir := rig.LayOut(t, strings.Replace(rig.Fakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work"))), "start_deadline", "grace: 5m\nstart_deadline", 1))
			g := rig.Serve(t, dir)
			over := rig.Stdio(t, dir, false)
			near := g.Open(t, "/mcp", false)
			var work sync.WaitGroup
			work.Go(func() {
				if m, _ := near.Ask(t, "tools/call", `{"name":"work","arguments":{"do":"wait"}}`); !strings.Contains(string(m.Result), "SB-EXEC-004") {
					t.Errorf("the client over HTTP was told %s", m.Raw)
				}
			})
			fmt.Fprintln(over.In, `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"work","arguments":{"do":"wait"}}}`)
			rig.AwaitCalls(t, marks, 2)

			g.Signal(t, syscall.SIGTERM)
			_ = over.Cmd.Process.Signal(syscall.SIGTERM)
			rig.Eventually(t, "it waits for its call", func() string {
				if !strings.Contains(g.Logged(), "msg=stopping calls_in_flight=1") {
					return g.Logged()
				}
				return ""
			})
			rig.Eventually(t, "it refuses requests over stdio", func() string {
				if m := over.Send(t, `{"jsonrpc":"2.0","id":"new","method":"ping"}`); !strings.Contains(string(m.Raw), "SB-ROUT-003") {
					return string(m.Raw)
				}
				return ""
			})

			began := time.Now()
			g.Signal(t, second)
			_ = over.Cmd.Process.Signal(second)
			if line, err := over.Out.ReadString('\n'); !strings.Contains(line, `"id":"call"`) || !strings.Contains(line, "SB-EXEC-004") {
				t.Errorf("the client over stdio was told %s, %v", line, err)
			}
			work.Wait()
			g.AwaitEnd(t)
			if took := time.Since(began); took > rig.Patience { // of the grace of 5m
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestItStopsWithinTheGraceThoughServersAndCallsDoNot(t *testing.T) {
	rig.WatchRaces(t)
	marks := filepath.Join(t.TempDir(), "marks")
	archive := rig.Fakes(
		rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work")),
		// One that neither reads on nor ends when it is told to.
		`deaf: {transport: stdio, command: [sh, -c, 'trap "" TERM INT HUP; "$0" "$@"; while :; do sleep 1; done', FAKE, '`+fmt.Sprintf(rig.Tool, "deaf")+`']}`)
	dir := rig.LayOut(t, strings.Replace(archive, "start_deadline", "grace: 2s\nstart_deadline", 1))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	rig.ListNames(t, s)
	var work sync.WaitGroup
	work.Go(func() {
		if m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{"do":"wait"}}`); !strings.Contains(string(m.Result), "SB-EXEC-004") {
			t.Errorf("the client was told %s", m.Raw)
		}
	})
	rig.AwaitCalls(t, marks, 1)
	g.Signal(t, syscall.SIGTERM)
	took := g.AwaitEnd(t)
	work.Wait()
	t.Logf("stopped after %v", took)
	if took > 8*time.Second { // more than the grace only where the machine is busy; of itself it would take 10s
		t.Errorf("it took %v; the grace is 2s", took)
	}
	list, _, _ := rig.Command(t, dir, "receipts", "list")
	for what, bad := range map[string]bool{
		"the log misses records of the stop:\n" + g.Logged(): strings.Contains(g.Logged(), "receipts are lost") || strings.Contains(g.Logged(), "not written") || strings.Contains(g.Logged(), "cannot be written") || strings.Contains(g.Logged(), "not settled"),
		"the stop has no receipt:\n" + list:                  !strings.Contains(list, " stop "),
	} {
		if bad {
			t.Error(what)
		}
	}
}

func TestOnStopAClientIsToldOfACallThatDidNotEnd(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	dir := rig.LayOut(t, strings.Replace(rig.Fakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work"))), "start_deadline", "grace: 2s\nstart_deadline", 1))
	g := rig.Serve(t, dir)
	over := rig.Stdio(t, dir, false)
	clients := map[string]rig.Session{"legacy": g.Open(t, "/mcp", false), "modern": g.Open(t, "/mcp", true), "stdio": over}
	var wg sync.WaitGroup
	for name, s := range clients {
		wg.Go(func() {
			m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{"do":"wait"}}`)
			if !strings.Contains(string(m.Result), "SB-EXEC-004") || !strings.Contains(string(m.Result), "Switchboard was stopped") {
				t.Errorf("the %s client was told %q", name, m.Raw)
			}
		})
	}
	rig.Eventually(t, "all calls have arrived", func() string {
		text, _ := os.ReadFile(marks)
		if n := strings.Count(string(text), "work"); n != 3 {
			return fmt.Sprint(n, " have")
		}
		return ""
	})
	for _, p := range []*os.Process{g.Cmd.Process, over.Cmd.Process} {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	for _, want := range []string{"msg=stopping calls_in_flight=2", `msg="calls cut" calls=2`} {
		rig.Eventually(t, "the log says so", func() string {
			if !strings.Contains(g.Logged(), want) {
				return "no " + want
			}
			return ""
		})
	}
}

// A command reaches the process that serves over a connection of its own.
func TestOnStopACallOfACommandFinishesOrItsOutcomeIsUnknown(t *testing.T) {
	for _, tt := range []struct {
		name, grace string
		do          string
		signal      syscall.Signal
		code        int
		out, err    string
	}{
		{"it finishes", "1m", "await", syscall.SIGTERM, 0, "mark-1.", ""},
		{"it is cut at the end of its time", "2s", "wait", syscall.SIGTERM, 1, "SB-EXEC-004", ""},
		{"Switchboard is killed", "1m", "wait", syscall.SIGKILL, 4, "", "the connection broke before the answer: EOF. A call may have been made"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			marks, until := filepath.Join(folder, "marks"), filepath.Join(folder, "until")
			dir := rig.LayOut(t, strings.Replace(rig.Fakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work"))), "start_deadline", "grace: "+tt.grace+"\nstart_deadline", 1))
			g := rig.Serve(t, dir)
			var work sync.WaitGroup
			work.Go(func() {
				out, errs, code := rig.Command(t, dir, "call", "work", fmt.Sprintf(`{"do":%q,"until":%q,"mark":"mark-1."}`, tt.do, until))
				if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.err) || strings.Contains(errs, "nothing answers") {
					t.Errorf("exit %d\n%s%s", code, out, errs)
				}
			})
			rig.AwaitCalls(t, marks, 1)
			g.Signal(t, tt.signal)
			if tt.do == "await" {
				rig.Eventually(t, "it waits for its call", func() string {
					if !strings.Contains(g.Logged(), "msg=stopping calls_in_flight=1") {
						return g.Logged()
					}
					return ""
				})
				rig.WriteFile(t, until, "now")
			}
			work.Wait()
			_ = g.Cmd.Wait()
		})
	}
}

func TestStreamsDoNotKeepItFromStopping(t *testing.T) {
	g := rig.Serve(t, rig.LayOut(t, strings.Replace(rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))), "start_deadline", "grace: 5m\nstart_deadline", 1)))
	legacy, heard := g.Open(t, "/mcp", false), make(chan string, 2)
	rig.Listen(t, heard, "legacy", http.MethodGet, g.URL+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
	rig.Listen(t, heard, "modern", http.MethodPost, g.URL+"/mcp",
		`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
		http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
	began := time.Now()
	if err := g.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = g.Cmd.Wait()
	if took := time.Since(began); took > rig.Patience {
		t.Errorf("with two streams open it took %v to stop; calls get 5m", took)
	}
}

// Browsers open connections before they need them.
func TestAConnectionThatNobodyHasUsedDelaysNoStop(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")))))
	for _, at := range []string{g.URL, g.AdminURL()} {
		c, err := (&net.Dialer{Timeout: rig.Patience}).DialContext(t.Context(), "tcp", strings.TrimPrefix(at, "http://"))
		wait.Read(t, at, err)
		defer func() { _ = c.Close() }()
	}
	if err := g.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if took := g.AwaitEnd(t); took >= 4*time.Second {
		wait.Late(t, "it stopped after %s", took)
	}
}
