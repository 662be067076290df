package npm_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// Servers of the official SDK that speak both eras. All but prompt start late; of those,
// proxied has a program before it that reads its first message at once, as docker does.
const bothEras = `
-- switchboard.yaml --
servers:
  prompt: {transport: stdio, command: [node, "%[1]s", both], health: {every: 1s}}
  late-3: {transport: stdio, command: [sh, -c, "sleep 3; exec node %[1]s both"], health: {every: 1s}}
  late-10: {transport: stdio, command: [sh, -c, "sleep 10; exec node %[1]s both"], health: {every: 1s}}
  late-30: {transport: stdio, command: [sh, -c, "sleep 30; exec node %[1]s both"], health: {every: 1s}}
  proxied: {transport: stdio, command: [sh, -c, "cat | (sleep 3; exec node %[1]s both)"], health: {every: 1s}}
  http-3: {transport: http, url: "http://%[2]s/mcp", health: {every: 1s}}
  http-10: {transport: http, url: "http://%[3]s/mcp", health: {every: 1s}}
tenants: {example: {servers: ["*"], allow: [by_name], token_budget: 20000}}
-- tenants/example/tenant.yaml --
tenant: example
default_task: all
-- tenants/example/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"], optional: true}
`

func TestFirstMinutes1AServerOfBothErasThatStartsLateStaysUp(t *testing.T) {
	t.Parallel() // it waits for servers that sleep
	npmlock.Need(t, "npm servers that start late")
	script, err := filepath.Abs("modern-server.mjs")
	if err != nil {
		t.Fatal(err)
	}
	dir := layOut(t, fmt.Appendf(nil, bothEras, script, listenLate(t, script, 3), listenLate(t, script, 10)))
	g := serve(t, dir)
	eras := map[string]string{
		"prompt": "modern", "late-3": "modern", "late-10": "modern", "late-30": "modern",
		"proxied": "legacy", "http-3": "modern", "http-10": "modern",
	}
	isWell := func(restarts int, probes float64) error {
		for id, s := range g.servers(t) {
			switch {
			case s.Health.State != "healthy":
				return fmt.Errorf("%s is %s: %s", id, s.Health.State, s.Health.Cause.Message)
			case s.Restarts > restarts:
				t.Fatalf("%s was restarted %d times", id, s.Restarts)
			case g.probes(t, id) < probes:
				return fmt.Errorf("%s was probed %v times", id, g.probes(t, id))
			}
		}
		return nil
	}
	wait.For(t, patience, "all servers are up, and were idle past three probes", func() error { return isWell(1, 4) })
	for _, c := range []client{clients[0], clients[2]} {
		ask := c.open(t, g, "all")
		for id, era := range eras {
			a := ask(call(id+"__lookup_term", `{"term":"dmarc"}`))
			if a.err != nil || !strings.Contains(string(a.result), "receivers") {
				t.Errorf("%s: %s: %s %s", c.name, id, a.result, a.err)
			}
			if got := g.servers(t)[id].Era; got != era { // a machine that delays an answer by two seconds makes a server legacy
				wait.Late(t, "%s is served as %s, want %s", id, got, era)
			}
		}
	}
	for id := range eras {
		if id != "late-30" {
			command(t, g.program, "server", "restart", id, "--url", g.url, "--config", filepath.Join(g.dir, "switchboard.yaml"))
		}
	}
	wait.For(t, patience, "all servers are up again", func() error { return isWell(2, 8) })
}

// A serverState is what the status says of a server.
type serverState struct {
	ID       string
	Era      string
	Restarts int
	Dropped  int
	Health   struct {
		State string
		Cause struct{ Message string } `json:"last_failure"`
	}
}

// servers is what the status says of the servers.
func (g gateway) servers(t *testing.T) map[string]serverState {
	t.Helper()
	out, errs, code := command(t, g.program, "status", "--json", "--url", g.url, "--config", filepath.Join(g.dir, "switchboard.yaml"))
	var status struct{ Servers []serverState }
	if err := json.Unmarshal([]byte(out), &status); err != nil || code > 1 { // 1 says that a server is not well
		t.Fatalf("status: %v, exit %d\n%s%s", err, code, out, errs)
	}
	servers := map[string]serverState{}
	for _, s := range status.Servers {
		servers[s.ID] = s
	}
	return servers
}

// probes is how often a server has answered a probe as it should.
func (g gateway) probes(t *testing.T, id string) (n float64) {
	t.Helper()
	text, errs, code := command(t, g.program, "metrics", "--url", g.url, "--config", filepath.Join(g.dir, "switchboard.yaml"))
	if code != 0 {
		t.Fatalf("metrics: exit %d, %s", code, errs)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "switchboard_server_probes_total") && strings.Contains(line, `server="`+id+`"`) && strings.Contains(line, `result="ok"`) {
			_, _ = fmt.Sscan(line[strings.LastIndex(line, " "):], &n)
		}
	}
	return n
}

// listenLate starts the glossary over HTTP so many seconds late, and returns its address.
func listenLate(t *testing.T, script string, seconds int) string {
	t.Helper()
	addr, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("sh", "-c", fmt.Sprintf("sleep %d; exec node %s both %s", seconds, script, port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return addr
}
