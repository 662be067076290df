package served_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/system"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A mortal is a server that is killed and started again.
type mortal struct {
	t      *testing.T
	on     fault.Transport
	ledger fault.Ledger
	addr   string
	cmd    *exec.Cmd // nil where Switchboard starts it
}

// start starts it over HTTP, and returns when it listens.
func (m *mortal) start() {
	m.t.Helper()
	m.cmd = exec.Command(rig.FakeProgram, "fault-backend", string(m.on), m.addr, string(m.ledger))
	m.cmd.Stderr = os.Stderr
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	_, err = rig.FirstLine(out)
	wait.Read(m.t, "its address", err)
}

// kill kills it with SIGKILL.
func (m *mortal) kill(g *rig.Gateway) {
	m.t.Helper()
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
		return
	}
	for _, pid := range rig.Children(g.Cmd.Process.Pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == "fault-server" {
			system.Kill(pid)
			return
		}
	}
	m.t.Fatal("there is no process")
}

// A tried call is one of many.
type tried struct {
	key          string
	began, ended time.Time
	outcome      string // "answer", or a code
}

// Of each transport the server is killed under load and started again. What is
// measured is said in the log: go test -v -run ABackendThatIsKilled ./test/served/
func TestABackendThatIsKilledUnderLoadIsFoundAgainAndNoClientLosesItsSession(t *testing.T) {
	rig.WatchRaces(t)
	t.Logf("%-12s %10s %14s %14s %8s %8s", "transport", "away", "back, 1st good", "all good", "failed", "answered")
	for _, on := range fault.Transports {
		t.Run(string(on), func(t *testing.T) { t.Log(outlive(t, on)) })
	}
}

// outlive returns a line of the table.
func outlive(t *testing.T, on fault.Transport) string {
	const clients = 8
	addr, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	m := &mortal{t: t, on: on, addr: addr, ledger: fault.Ledger(filepath.Join(t.TempDir(), "ledger"))}
	server := fmt.Sprintf("one: {transport: stdio, command: [%q, fault-server, one, %q], trust: operator, timeout: 10s}", rig.FakeProgram, m.ledger)
	if on != fault.Stdio {
		m.start()
		defer func() { _ = m.cmd.Process.Kill(); _ = m.cmd.Wait() }()
		server = fmt.Sprintf("one: {transport: http, url: %q, trust: operator, timeout: 10s}", "http://"+m.addr+"/mcp")
	}
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(server)))
	var sessions []*rig.HTTPSession
	for i := range clients {
		s := g.Open(t, "/mcp", i%2 == 1)
		rig.ListNames(t, s)
		sessions = append(sessions, s)
	}

	var mu sync.Mutex
	var all []tried
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c := tried{key: fmt.Sprintf("%d-%d", i, n), began: time.Now()}
				answer, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"key":%q}}`, fault.Stateful, c.key))
				c.ended = time.Now()
				if c.outcome = rig.Code(answer); c.outcome == "" {
					c.outcome = string(answer.Raw)
					var r struct{ Content []struct{ Text string } }
					if json.Unmarshal(answer.Result, &r) == nil && len(r.Content) == 1 && r.Content[0].Text == fault.Answer("one", fault.Stateful, c.key) {
						c.outcome = "answer"
					}
				}
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
				pause := time.NewTimer(5 * time.Millisecond)
				<-pause.C
			}
		})
	}
	// good returns when each client has had an answer to a call that it made after
	// the time, and when the first had.
	good := func(after time.Time) (first, last time.Time) {
		mu.Lock()
		defer mu.Unlock()
		by := map[string]time.Time{}
		for _, c := range all {
			who, _, _ := strings.Cut(c.key, "-")
			if c.outcome != "answer" || c.began.Before(after) {
				continue
			}
			if at, ok := by[who]; !ok || c.ended.Before(at) {
				by[who] = c.ended
			}
			if first.IsZero() || c.ended.Before(first) {
				first = c.ended
			}
		}
		if len(by) == clients {
			for _, at := range by {
				if at.After(last) {
					last = at
				}
			}
		}
		return first, last
	}
	served := func(what string, after time.Time) {
		t.Helper()
		rig.Eventually(t, what, func() string {
			if _, last := good(after); last.IsZero() {
				return fmt.Sprint(on, ": not every client is served")
			}
			return ""
		})
	}
	served("all are served", time.Now())
	killed := time.Now()
	m.kill(g)
	back := time.Now()
	if on != fault.Stdio {
		rig.Eventually(t, "it is missed", func() string {
			mu.Lock()
			defer mu.Unlock()
			if n := len(all); n > 0 && all[n-1].outcome == "answer" {
				return "it still answers"
			}
			return ""
		})
		m.start()
		back = time.Now()
	}
	served("all are served again", back)
	cancel()
	wg.Wait()

	counts := map[string]int{}
	for _, c := range all {
		counts[c.outcome]++
		executed, err := m.ledger.Executed(c.key)
		if err != nil {
			t.Fatal(err)
		}
		n := executed["one"]
		switch {
		case !strings.HasPrefix(c.outcome, "SB-") && c.outcome != "answer":
			t.Errorf("%s has neither its answer nor an error with a code: %.300s", c.key, c.outcome)
		case c.outcome == "answer" && n != 1 || n > 1:
			t.Errorf("%s was executed %d times: %s", c.key, n, c.outcome)
		}
	}
	for _, s := range sessions { // each is still the one that was opened at first
		if got := rig.ListNames(t, s); len(got) != len(fault.Tools) {
			t.Errorf("a session lists %q", got)
		}
	}
	first, last := good(back)
	failed := len(all) - counts["answer"]
	line := fmt.Sprintf("%-12s %10s %14s %14s %8d %8d", on, back.Sub(killed).Round(time.Millisecond), first.Sub(back).Round(time.Millisecond), last.Sub(back).Round(time.Millisecond), failed, counts["answer"])
	delete(counts, "answer")
	return line + fmt.Sprint("  ", counts)
}
