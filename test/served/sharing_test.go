package served_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// grows fails unless a series of the gateway's metrics is one more once do is done, and
// only then.
func (g *gateway) grows(series string, do func()) {
	g.t.Helper()
	_, values := g.metrics()
	before := values[series]
	do()
	eventually(g.t, series+" is counted", func() string {
		if _, values = g.metrics(); values[series] < before+1 {
			return fmt.Sprint(values[series])
		}
		return ""
	})
	if values[series] != before+1 {
		g.t.Errorf("%s was %g, and is %g", series, before, values[series])
	}
}

// at is the same client, which now asks another replica.
func (s *httpSession) at(g *gateway) *httpSession {
	moved := *s
	moved.url = g.url + "/mcp"
	return &moved
}

// refusedOnce waits until the gateway was told once more that somebody was first, and
// waits for that one: it has looked what that one is at, and looks again.
func (g *gateway) refusedOnce(do func()) {
	g.t.Helper()
	const refused, looked = "switchboard_store_operations_total apply conflict", "switchboard_store_operations_total value ok"
	_, values := g.metrics()
	before, enough := values[refused], 0.0
	do()
	eventually(g.t, "it waits for the other one", func() string {
		_, values := g.metrics()
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
	c := found(t, fmt.Sprintf(`
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
`, fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "get"), fmt.Sprintf(tool, "work"))))
	one, two, three := c.replicas[0], c.replicas[1], c.replicas[2]
	call := func(s session, params string, want string) {
		t.Helper()
		if m, _ := s.ask(t, "tools/call", params); codeOf(m) != want {
			t.Errorf("%s: %s", params, m.raw)
		}
	}
	first, second, third := one.open(t, "/mcp", true), two.open(t, "/mcp", true), three.open(t, "/mcp", true)
	executed := 0
	// both makes the same call at one replica and, while it is under way, at another.
	both := func(params string) {
		t.Helper()
		executed++
		until := filepath.Join(dir, fmt.Sprint("until ", executed))
		params = fmt.Sprintf(params, until)
		done := make(chan message, 2)
		ask := func(s session) {
			var m message
			defer func() { done <- m }()
			m, _ = s.ask(t, "tools/call", params)
		}
		go ask(first)
		arrived(t, marks, executed)
		two.refusedOnce(func() {
			go ask(second)
		})
		write(t, until, "")
		for range 2 {
			if m := <-done; codeOf(m) != "" || m.Result == nil {
				t.Errorf("%s", m.raw)
			}
		}
	}
	keyed := func(key, arguments string) string {
		return fmt.Sprintf(`{"_meta":{"io.switchboard/idempotency-key":%q},"name":"work","arguments":%s}`, key, arguments)
	}

	executed++
	one.grows("switchboard_cacheable_calls_total miss", func() { call(first, `{"name":"get","arguments":{"a":1}}`, "") })
	two.grows("switchboard_cacheable_calls_total hit", func() { call(second, `{"name":"get","arguments":{"a":1}}`, "") })
	two.grows("switchboard_cacheable_calls_total shared", func() { both(`{"name":"get","arguments":{"do":"await","until":%q}}`) })

	executed++
	one.grows("switchboard_idempotent_calls_total first", func() { call(first, keyed("k", `{"a":1}`), "") })
	two.grows("switchboard_idempotent_calls_total replayed", func() { call(second, keyed("k", `{"a":1}`), "") })
	three.grows("switchboard_idempotent_calls_total conflict", func() { call(third, keyed("k", `{"a":2}`), "SB-CAP-006") })
	two.grows("switchboard_idempotent_calls_total waited", func() { both(keyed("k2", `{"do":"await","until":%q}`)) })

	legacy := one.open(t, "/mcp", false)
	names(t, legacy)
	two.grows("switchboard_hops_total answered", func() { names(t, legacy.at(two)) })
	c.end(one, syscall.SIGKILL)
	two.grows("switchboard_hops_total gone", func() {
		two.grows("switchboard_sessions_taken_over_total", func() {
			two.grows("switchboard_runs_restored_total", func() { names(t, legacy.at(two)) })
		})
	})

	_, values := three.metrics()
	appended := values["switchboard_store_operation_duration_seconds append"]
	call(third, `{"name":"work","arguments":{}}`, "")
	if _, values = three.metrics(); values["switchboard_store_operation_duration_seconds append"] <= appended {
		t.Error("a call that may change something waits for no commit")
	}
	c.redis.Kill()
	call(third, `{"name":"nosuch","arguments":{}}`, "SB-CAP-001")
	waiting := func(want bool) func() string {
		return func() string {
			if _, values := three.metrics(); (values["switchboard_receipts_waiting"] > 0) != want {
				return fmt.Sprint(values["switchboard_receipts_waiting"])
			}
			return ""
		}
	}
	eventually(t, "its receipt could not be written", func() string {
		if log := three.logged(); !strings.Contains(log, "receipts cannot be written") {
			return log
		}
		return ""
	})
	if why := waiting(true)(); why != "" {
		t.Errorf("it waits to be, and of those that wait there are %s", why)
	}
	c.redis.Start()
	eventually(t, "no receipt waits", waiting(false))
	if _, values := three.metrics(); values["switchboard_records_lost_total"] != 0 {
		t.Errorf("%g are lost", values["switchboard_records_lost_total"])
	}
}
