package served_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// grows fails unless a series of the gateway's metrics is one more once do is done, and
// only then.
func counts(g *rig.Gateway, series string, do func()) {
	g.T.Helper()
	_, values := g.Metrics()
	before := values[series]
	do()
	rig.Eventually(g.T, series+" is counted", func() string {
		if _, values = g.Metrics(); values[series] < before+1 {
			return fmt.Sprint(values[series])
		}
		return ""
	})
	if values[series] != before+1 {
		g.T.Errorf("%s was %g, and is %g", series, before, values[series])
	}
}

// refusedOnce waits until the gateway was told once more that somebody was first, and
// waits for that one: it has looked what that one is at, and looks again.
func refusesOnce(g *rig.Gateway, do func()) {
	g.T.Helper()
	const refused, looked = "switchboard_store_operations_total apply conflict", "switchboard_store_operations_total value ok"
	_, values := g.Metrics()
	before, enough := values[refused], 0.0
	do()
	rig.Eventually(g.T, "it waits for the other one", func() string {
		_, values := g.Metrics()
		switch {
		case values[refused] == before:
			return "not yet"
		case enough == 0:
			enough = values[looked] + 4 // a look is three at most
		}
		if values[looked] < enough {
			return fmt.Sprint("it has looked at ", values[looked], " of ", enough)
		}
		return ""
	})
}

func TestMetricsCountWhatReplicasShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	marks := filepath.Join(dir, "marks")
	c := rig.ServeReplicas(t, fmt.Sprintf(`
-- switchboard.yaml --
cache: {ttl: 10m}
servers:
  %s
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- overlays/a.yaml --
server: a
tools:
  get: {deterministic: true}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["a/*"]}
`, rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "get"), fmt.Sprintf(rig.Tool, "work"))))
	one, two, three := c.All[0], c.All[1], c.All[2]
	call := func(s rig.Session, params string, want string) {
		t.Helper()
		if m, _ := s.Ask(t, "tools/call", params); rig.Code(m) != want {
			t.Errorf("%s: %s", params, m.Raw)
		}
	}
	first, second, third := one.Open(t, "/mcp", true), two.Open(t, "/mcp", true), three.Open(t, "/mcp", true)
	executed := 0
	// both makes the same call at one replica and, while it is under way, at another.
	both := func(params string) {
		t.Helper()
		executed++
		until := filepath.Join(dir, fmt.Sprint("until ", executed))
		params = fmt.Sprintf(params, until)
		done := make(chan rig.Message, 2)
		ask := func(s rig.Session) {
			var m rig.Message
			defer func() { done <- m }()
			m, _ = s.Ask(t, "tools/call", params)
		}
		go ask(first)
		rig.AwaitCalls(t, marks, executed)
		refusesOnce(two, func() {
			go ask(second)
		})
		rig.WriteFile(t, until, "")
		for range 2 {
			if m := <-done; rig.Code(m) != "" || m.Result == nil {
				t.Errorf("%s", m.Raw)
			}
		}
	}
	keyed := func(key, arguments string) string {
		return fmt.Sprintf(`{"_meta":{"io.switchboard/idempotency-key":%q},"name":"work","arguments":%s}`, key, arguments)
	}

	executed++
	counts(one, "switchboard_cacheable_calls_total miss", func() { call(first, `{"name":"get","arguments":{"a":1}}`, "") })
	counts(two, "switchboard_cacheable_calls_total hit", func() { call(second, `{"name":"get","arguments":{"a":1}}`, "") })
	counts(two, "switchboard_cacheable_calls_total shared", func() { both(`{"name":"get","arguments":{"do":"await","until":%q}}`) })

	executed++
	counts(one, "switchboard_idempotent_calls_total first", func() { call(first, keyed("k", `{"a":1}`), "") })
	counts(two, "switchboard_idempotent_calls_total replayed", func() { call(second, keyed("k", `{"a":1}`), "") })
	counts(three, "switchboard_idempotent_calls_total conflict", func() { call(third, keyed("k", `{"a":2}`), "SB-CAP-006") })
	counts(two, "switchboard_idempotent_calls_total waited", func() { both(keyed("k2", `{"do":"await","until":%q}`)) })

	legacy := one.Open(t, "/mcp", false)
	rig.ListNames(t, legacy)
	counts(two, "switchboard_hops_total answered", func() { rig.ListNames(t, legacy.At(two)) })
	c.End(one, syscall.SIGKILL)
	counts(two, "switchboard_hops_total gone", func() {
		counts(two, "switchboard_sessions_taken_over_total", func() {
			counts(two, "switchboard_runs_restored_total", func() { rig.ListNames(t, legacy.At(two)) })
		})
	})

	_, values := three.Metrics()
	appended := values["switchboard_store_operation_duration_seconds append"]
	call(third, `{"name":"work","arguments":{}}`, "")
	if _, values = three.Metrics(); values["switchboard_store_operation_duration_seconds append"] <= appended {
		t.Error("a call that may change something waits for no commit")
	}
	c.Redis.Kill()
	call(third, `{"name":"nosuch","arguments":{}}`, "SB-CAP-001")
	waiting := func(want bool) func() string {
		return func() string {
			if _, values := three.Metrics(); (values["switchboard_receipts_waiting"] > 0) != want {
				return fmt.Sprint(values["switchboard_receipts_waiting"])
			}
			return ""
		}
	}
	rig.Eventually(t, "its receipt could not be written", func() string {
		if log := three.Logged(); !strings.Contains(log, "receipts cannot be written") {
			return log
		}
		return ""
	})
	if why := waiting(true)(); why != "" {
		t.Errorf("it waits to be, and of those that wait there are %s", why)
	}
	c.Redis.Start()
	rig.Eventually(t, "no receipt waits", waiting(false))
	if _, values := three.Metrics(); values["switchboard_records_lost_total"] != 0 {
		t.Errorf("%g are lost", values["switchboard_records_lost_total"])
	}
}
