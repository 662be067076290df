package served_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// replicate has n switchboards serve what is in dir, by one Redis.
func replicate(t *testing.T, dir string, n int) (all []*gateway, redis *redistest.Server) {
	t.Helper()
	redis = redistest.Start(t)
	for range n {
		own := t.TempDir()
		if err := os.CopyFS(own, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(own, "switchboard.yaml")
		write(t, filepath.Join(own, "secret"), "what all replicas know")
		write(t, file, fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", redis.URL())+fileOf(t, file))
		all = append(all, serve(t, own))
	}
	t.Cleanup(func() { stopTogether(all) })
	return all, redis
}

// inState waits until server a is in the state for the gateway.
func (g *gateway) inState(state string) {
	g.t.Helper()
	eventually(g.t, "a is in "+state, func() string {
		if now := g.health(g.t); now.State != state {
			return fmt.Sprintf("%+v", now)
		}
		return ""
	})
}

func TestAServerThatOneReplicaHasFoundDeadIsNotTriedByAnother(t *testing.T) {
	t.Parallel()
	p := newPair(t, fault.Modern, ", trust: operator, health: {every: 1h}")
	all, _ := replicate(t, p.dir, 2)
	first, second := all[0].open(t, "/mcp", true), all[1].open(t, "/mcp", true)
	for i, s := range []session{first, second} {
		if got := p.served(t, s, fault.Deterministic, fmt.Sprint("before-", i)); got != "a" {
			t.Fatalf("served by %s", got)
		}
	}
	for _, method := range []string{"", "ping", "tools/list", "server/discover"} {
		p.a.Arm(fault.Order{Kind: fault.Status503, Method: method})
	}
	for i := range 5 {
		if got := p.served(t, first, fault.Deterministic, fmt.Sprint("trips-", i)); got != "b" {
			t.Fatalf("call %d: %s", i, got)
		}
	}
	for _, g := range all {
		g.inState("quarantine")
	}
	_, before := all[1].metrics()
	m, _ := second.ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"key":"told"}}`, fault.Deterministic))
	if !strings.Contains(string(m.raw), fault.Answer("b", fault.Deterministic, "told")) || !strings.Contains(string(m.raw), `"tried":[{"tool":"a/`+fault.Deterministic+`"}]`) {
		t.Errorf("the second replica answers %s", m.raw)
	}
	_, after := all[1].metrics()
	for _, outcome := range []string{"ok", "SB-EXEC-001", "SB-EXEC-002", "SB-EXEC-004", "SB-DISC-002"} {
		if id := "switchboard_server_calls_total " + outcome + " a"; before[id] != after[id] {
			t.Errorf("the second replica has called it: %s", outcome)
		}
	}
	p.a.Disarm()
	for _, g := range all {
		g.inState("healthy")
	}
}

func TestAServerThatIsDisabledIsSoForAllReplicasAndAfterARestart(t *testing.T) {
	t.Parallel()
	p := newPair(t, fault.Modern, "")
	all, _ := replicate(t, p.dir, 2)
	all[0].do(0, "^a is disabled: it takes no new calls until it is enabled, here and by all other replicas\n", "server", "disable", "a", "--reason", "it is moved")
	all[1].inState("disabled")
	all[1].do(1, `(?m)^a +disabled .*operator: disabled by local: it is moved`, "status")
	later := serve(t, all[0].dir)
	later.inState("disabled")
	later.do(0, "takes calls again", "server", "enable", "a")
	for _, g := range append(all, later) {
		g.inState("healthy")
	}

	// One process with a file beside it remembers as well.
	g := serve(t, p.dir)
	g.do(0, "^a is disabled: it takes no new calls until it is enabled\n", "server", "disable", "a")
	_ = g.cmd.Process.Signal(syscall.SIGKILL)
	_ = g.cmd.Wait()
	g = serve(t, p.dir)
	g.inState("disabled")
	g.do(0, "takes calls again", "server", "enable", "a")
}

// readyz is what /readyz says.
func (g *gateway) readyz() string {
	g.t.Helper()
	resp, err := http.Get(g.url + "/readyz")
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(text))
}

func TestWithoutItsStoreAReplicaServesWhatNeedsNoneAndSaysSo(t *testing.T) {
	t.Parallel()
	p := newPair(t, fault.Modern, "")
	all, redis := replicate(t, p.dir, 2)
	g := all[0]
	s := g.open(t, "/mcp", true)
	if got := p.served(t, s, fault.Deterministic, "before"); got != "a" {
		t.Fatalf("served by %s", got)
	}
	eventually(t, "it tells of the other replica", func() string {
		out, _, _ := command(t, g.dir, "status", "--url", g.url)
		if !strings.Contains(out, "\nstore: redis, ") || !strings.Contains(out, "\nwith 1 other replica: ") {
			return out
		}
		return ""
	})
	const outlives = `outlives: machine; less where it is killed within a transaction, and later once more: its aof-load-truncated is yes`
	g.do(0, outlives, "status")
	if out, _, code := command(t, g.dir, "store", "check"); code != 0 || !strings.Contains(out, " is whole: ") || !strings.Contains(out, outlives) {
		t.Errorf("store check: %d %s", code, out)
	}
	keyed := fmt.Sprintf(`{"name":%q,"arguments":{"key":"keyed"},"_meta":{"io.switchboard/idempotency-key":"k"}}`, fault.Deterministic)
	redis.Kill()
	eventually(t, "/readyz says that the store is gone", func() string {
		if got := g.readyz(); !strings.HasPrefix(got, `200 {"ready":true,"store":{"unavailable_since":"2`) {
			return got
		}
		return ""
	})
	if got := p.served(t, s, fault.Deterministic, "without"); got != "a" {
		t.Errorf("what needs no store: %s", got)
	}
	if m, _ := s.ask(t, "tools/call", keyed); codeOf(m) != "SB-ROUT-004" {
		t.Errorf("what needs it: %s", m.raw)
	}
	g.do(1, `The store has been unavailable for [0-9]+s; what needs it is refused with SB-ROUT-004: `, "status")
	g.do(1, `SB-RCPT-001`, "server", "disable", "a")
	if got := g.health(t).State; got != "healthy" {
		t.Errorf("what could not be kept was done: %s", got)
	}
	_, before := g.metrics()
	if before["switchboard_store_available redis"] != 0 {
		t.Error("/metrics says that the store is available")
	}
	redis.Start()
	began := time.Now()
	eventually(t, "it has recovered", func() string {
		if got := g.readyz(); got != `200 {"ready":true}` {
			return got
		}
		return ""
	})
	if m, _ := s.ask(t, "tools/call", keyed); m.Result == nil {
		t.Errorf("what needs it, afterwards: %s", m.raw)
	}
	_, after := g.metrics()
	asked := 0.0
	for id, n := range after {
		if strings.HasPrefix(id, "switchboard_store_operations_total ") {
			asked += n - before[id]
		}
	}
	if most := 100 * (1 + time.Since(began).Seconds()); asked > most {
		t.Errorf("the store was asked %g times in the first %s", asked, time.Since(began))
	}
	t.Logf("recovered after %s, with %g operations", time.Since(began), asked)
}
