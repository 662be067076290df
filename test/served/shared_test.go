package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// replicate has n switchboards serve what is in dir, by one Redis.
func replicate(t *testing.T, dir string, n int) (all []*rig.Gateway, redis *redistest.Server) {
	t.Helper()
	redis = redistest.Start(t)
	for range n {
		own := t.TempDir()
		if err := os.CopyFS(own, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(own, "switchboard.yaml")
		rig.WriteFile(t, filepath.Join(own, "secret"), "what all replicas know")
		rig.WriteFile(t, file, fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", redis.URL())+rig.ReadFile(t, file))
		all = append(all, rig.Serve(t, own))
	}
	t.Cleanup(func() { rig.StopTogether(all) })
	return all, redis
}

// inState waits until server a is in the state for the gateway.
func awaitState(g *rig.Gateway, state string) {
	g.T.Helper()
	rig.Eventually(g.T, "a is in "+state, func() string {
		if now := fitnessOf(g.T, g); now.State != state {
			return fmt.Sprintf("%+v", now)
		}
		return ""
	})
}

func TestAServerThatOneReplicaHasFoundDeadIsNotTriedByAnother(t *testing.T) {
	t.Parallel()
	p := newPair(t, fault.Modern, ", trust: operator, health: {every: 1h}")
	all, _ := replicate(t, p.dir, 2)
	first, second := all[0].Open(t, "/mcp", true), all[1].Open(t, "/mcp", true)
	for i, s := range []rig.Session{first, second} {
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
		awaitState(g, "quarantine")
	}
	_, before := all[1].Metrics()
	m, _ := second.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"key":"told"}}`, fault.Deterministic))
	if !strings.Contains(string(m.Raw), fault.Answer("b", fault.Deterministic, "told")) || !strings.Contains(string(m.Raw), `"tried":[{"tool":"a/`+fault.Deterministic+`"}]`) {
		t.Errorf("the second replica answers %s", m.Raw)
	}
	_, after := all[1].Metrics()
	for _, outcome := range []string{"ok", "SB-EXEC-001", "SB-EXEC-002", "SB-EXEC-004", "SB-DISC-002"} {
		if id := "switchboard_server_calls_total " + outcome + " a"; before[id] != after[id] {
			t.Errorf("the second replica has called it: %s", outcome)
		}
	}
	p.a.Disarm()
	for _, g := range all {
		awaitState(g, "healthy")
	}
}

func TestAServerThatIsDisabledIsSoForAllReplicasAndAfterARestart(t *testing.T) {
	t.Parallel()
	p := newPair(t, fault.Modern, "")
	all, _ := replicate(t, p.dir, 2)
	all[0].Do(0, "^a is disabled: it takes no new calls until it is enabled, here and by all other replicas\n", "server", "disable", "a", "--reason", "it is moved")
	awaitState(all[1], "disabled")
	all[1].Do(1, `(?m)^a +disabled .*operator: disabled by local: it is moved`, "status")
	later := rig.Serve(t, all[0].Dir)
	awaitState(later, "disabled")
	later.Do(0, "takes calls again", "server", "enable", "a")
	for _, g := range append(all, later) {
		awaitState(g, "healthy")
	}

	// One process with a file beside it remembers as well.
	g := rig.Serve(t, p.dir)
	g.Do(0, "^a is disabled: it takes no new calls until it is enabled\n", "server", "disable", "a")
	_ = g.Cmd.Process.Signal(syscall.SIGKILL)
	_ = g.Cmd.Wait()
	g = rig.Serve(t, p.dir)
	awaitState(g, "disabled")
	g.Do(0, "takes calls again", "server", "enable", "a")
}

func TestWithoutItsStoreAReplicaServesWhatNeedsNoneAndSaysSo(t *testing.T) {
	t.Parallel()
	p := newPair(t, fault.Modern, "")
	all, redis := replicate(t, p.dir, 2)
	g := all[0]
	s := g.Open(t, "/mcp", true)
	if got := p.served(t, s, fault.Deterministic, "before"); got != "a" {
		t.Fatalf("served by %s", got)
	}
	rig.Eventually(t, "it tells of the other replica", func() string {
		out, _, _ := rig.Command(t, g.Dir, "status", "--url", g.URL)
		if !strings.Contains(out, "\nstore: redis, ") || !strings.Contains(out, "\nwith 1 other replica: ") {
			return out
		}
		return ""
	})
	const outlives = `outlives: machine; less where it is killed within a transaction, and later once more: its aof-load-truncated is yes`
	g.Do(0, outlives, "status")
	if out, _, code := rig.Command(t, g.Dir, "store", "check"); code != 0 || !strings.Contains(out, " is whole: ") || !strings.Contains(out, outlives) {
		t.Errorf("store check: %d %s", code, out)
	}
	keyed := fmt.Sprintf(`{"name":%q,"arguments":{"key":"keyed"},"_meta":{"io.switchboard/idempotency-key":"k"}}`, fault.Deterministic)
	redis.Kill()
	rig.Eventually(t, "/readyz says that the store is gone", func() string {
		if got := g.Readyz(); !strings.HasPrefix(got, `200 {"ready":true,"store":{"unavailable_since":"2`) {
			return got
		}
		return ""
	})
	if got := p.served(t, s, fault.Deterministic, "without"); got != "a" {
		t.Errorf("what needs no store: %s", got)
	}
	if m, _ := s.Ask(t, "tools/call", keyed); rig.Code(m) != "SB-ROUT-004" {
		t.Errorf("what needs it: %s", m.Raw)
	}
	g.Do(1, `The store has been unavailable for [0-9]+s; what needs it is refused with SB-ROUT-004: `, "status")
	g.Do(1, `SB-RCPT-001`, "server", "disable", "a")
	if got := fitnessOf(t, g).State; got != "healthy" {
		t.Errorf("what could not be kept was done: %s", got)
	}
	_, before := g.Metrics()
	if before["switchboard_store_available redis"] != 0 {
		t.Error("/metrics says that the store is available")
	}
	redis.Start()
	began := time.Now()
	rig.Eventually(t, "it has recovered", func() string {
		if got := g.Readyz(); got != `200 {"ready":true}` {
			return got
		}
		return ""
	})
	if m, _ := s.Ask(t, "tools/call", keyed); m.Result == nil {
		t.Errorf("what needs it, afterwards: %s", m.Raw)
	}
	_, after := g.Metrics()
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
