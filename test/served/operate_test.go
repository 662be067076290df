package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestADisabledServerTakesNoNewCallsUntilItIsEnabled(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	marks, until := filepath.Join(t.TempDir(), "marks"), filepath.Join(t.TempDir(), "until")
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work")), rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest"))))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	rig.ListNames(t, s)
	under := make(chan rig.Message, 1)
	go func() {
		defer close(under)
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"do":"await","until":%q,"mark":"went on"}}`, until))
		under <- m
	}()
	rig.AwaitCalls(t, marks, 1)

	g.Do(0, `(?m)^a +healthy .*\n^b +healthy `, "server", "list")
	g.Do(0, `^a is disabled: it takes no new calls until it is enabled; calls that are under way \(1\) go on`, "server", "disable", "a", "--reason", "it is moved")
	g.Do(1, `(?m)^a +disabled .*operator: disabled by local: it is moved \([0-9]+s ago\)`, "status")
	if m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{}}`); !strings.Contains(string(m.Raw), "SB-ROUT-001") || strings.Contains(string(m.Raw), "moved") {
		t.Errorf("a call of a disabled server's: %s", m.Raw)
	}
	if m, _ := s.Ask(t, "tools/call", `{"name":"rest","arguments":{}}`); m.Result == nil {
		t.Errorf("another server: %s", m.Raw)
	}
	rig.WriteFile(t, until, "now")
	if m := wait.Receive(t, "the call under way", under); !strings.Contains(string(m.Raw), "went on") || m.Result == nil {
		t.Errorf("the call under way: %s", m.Raw)
	}

	// It stays so over a reload, also where its configuration changes.
	loaded := g.Status().Loaded
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/more.yaml"), "task_id: more\nrequired_capabilities:\n  - {tools: [\"a/*\"]}\n")
	g.Signal(t, syscall.SIGHUP)
	rig.Eventually(t, "it has reloaded", func() string {
		if st := g.Status(); !st.Loaded.After(loaded) {
			return fmt.Sprint(st.Loaded)
		}
		return ""
	})
	g.Do(0, `(?m)^a +disabled `, "server", "list")
	if !strings.Contains(g.Logged(), "msg=operator did=disable server=a by=local reason=\"it is moved\"") {
		t.Error("the log does not say who did it")
	}

	var done struct{ Server, State, Note string }
	if err := json.Unmarshal([]byte(g.Do(0, "", "server", "enable", "a", "--json")), &done); err != nil || done.Server != "a" || done.State != "healthy" || done.Note == "" {
		t.Errorf("%+v, %v", done, err)
	}
	if m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{}}`); m.Result == nil {
		t.Errorf("a call of the enabled server's: %s", m.Raw)
	}
	g.Do(0, `(?s)Tenants that may use it: default\n.*disabled, operator: disabled by local: it is moved\n.*  healthy\n\nWithout it\n  1 run of task all of tenant default would find no other server for work\n`, "server", "show", "a")
	g.Do(0, `^a is healthy: it gets a request without side effects now`, "server", "probe", "a")
	g.Do(1, `SB-DISC-001: there is no server "nosuch" here`, "server", "disable", "nosuch")
	g.Do(1, `SB-DISC-001: there is no server "nosuch" here`, "server", "show", "nosuch")
}

func TestARunLeavesADisabledServerForTheNextInRank(t *testing.T) {
	t.Parallel()
	p := newPair(t, fault.Legacy, "")
	g := rig.Serve(t, p.dir)
	s := g.Open(t, "/mcp", false)
	rig.ListNames(t, s)
	if got := p.served(t, s, fault.Stateful, "before"); got != "a" {
		t.Fatalf("served by %s", got)
	}
	g.Do(0, "disabled", "server", "disable", "a")
	if got := p.served(t, s, fault.Stateful, "after"); got != "b" { // it waits for that
		t.Errorf("then it is served by %s", got)
	}
	g.Do(0, `(?s)dropped +a/.* at health +it is not fit to serve now: disabled.*Servers that are not as they should be:\n  a: disabled for [0-9]+s; operator: disabled by local \([0-9]+s ago\)`, "explain")
}

func TestARestartedServerIsAnotherProcess(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")), rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest")))))
	s := g.Open(t, "/mcp", false)
	rig.ListNames(t, s)
	pids := func() map[string][]int {
		var all []struct {
			ID   string
			PIDs []int
		}
		if err := json.Unmarshal([]byte(g.Do(0, "", "server", "list", "--json")), &all); err != nil {
			t.Fatal(err)
		}
		m := map[string][]int{}
		for _, one := range all {
			m[one.ID] = one.PIDs
		}
		return m
	}
	was := pids()
	g.Do(0, `^a is \w+: its processes`, "server", "restart", "a")
	rig.Eventually(t, "it is another process", func() string {
		if now := pids(); len(now["a"]) == 0 || slices.ContainsFunc(now["a"], func(p int) bool { return slices.Contains(was["a"], p) }) || !slices.Equal(now["b"], was["b"]) {
			return fmt.Sprint(was, now)
		}
		return ""
	})
	if m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{}}`); m.Result == nil {
		t.Errorf("a call of the restarted server's: %s", m.Raw)
	}
}

// serveWithKey serves where somebody has a key.
func serveWithKey(t *testing.T) (g *rig.Gateway, key string) {
	t.Helper()
	key, rows := rig.NewKey(t, "alice")
	archive := rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")))
	return rig.Serve(t, rig.LayOut(t, strings.Replace(archive, "default_task: all\n", "default_task: all\nkeys:\n"+rows, 1))), key
}

// AZ-13: a key of an agent is unknown at the admin address, also in the place of an operator's.
func TestAZ13AnAgentsKeyDoesNothingAtTheAdminAddress(t *testing.T) {
	t.Parallel()
	g, key := serveWithKey(t)
	rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+key))
	for _, path := range []string{"/v1/servers/a/disable", "/v1/servers/a/enable", "/v1/servers/a/restart"} {
		if a := g.AskAdmin(t, key, http.MethodPost, path, "{}"); a.Status != http.StatusUnauthorized || !strings.Contains(a.Body, "SB-AUTH-001") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	g.Do(0, `(?m)^a +healthy `, "server", "list")
}

func TestMetricsCountWhatHappensAndRubbishAddsNoSeries(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")), rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest")))))
	legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
	for range 5 {
		legacy.Ask(t, "tools/call", `{"name":"work","arguments":{}}`)
		modern.Ask(t, "tools/call", `{"name":"rest","arguments":{}}`)
	}
	modern.Ask(t, "tools/call", `{"name":"rest","arguments":{"do":"error","bytes":"{\"code\":1,\"message\":\"no\"}"}}`)
	rubbish := func(n int) {
		legacy.Ask(t, "tools/call", fmt.Sprintf(`{"name":"no-%d","arguments":{"x":%d}}`, n, n))
	}
	rubbish(0)
	before, values := g.Metrics()
	for series, want := range map[string]float64{
		"switchboard_calls_total ok a default":           5,
		"switchboard_calls_total ok b default":           5,
		"switchboard_calls_total server_error b default": 1,
		"switchboard_server_calls_total ok b":            5,
		"switchboard_server_call_duration_seconds b":     6,
		"switchboard_refusals_total SB-CAP-001":          1,
		"switchboard_server_state a healthy":             1,
		"switchboard_server_state a disabled":            0,
		"switchboard_catalog_tools":                      2,
		"switchboard_sessions":                           1,
		"switchboard_server_connections a":               1,
	} {
		if values[series] != want {
			t.Errorf("%s is %v, want %v", series, values[series], want)
		}
	}
	for name, least := range map[string]int{"go_goroutines": 1, "process_open_fds": 1, "switchboard_build_info": 1} {
		if before[name] < least {
			t.Errorf("there is no %s", name)
		}
	}

	for n := range 1000 {
		rubbish(n)
	}
	after, values := g.Metrics()
	for name, n := range after {
		probes := name == "switchboard_server_probes_total" // come with time, and on a busy machine within this
		if strings.HasPrefix(name, "switchboard_") && n != before[name] && !probes {
			t.Errorf("%s had %d series, and has %d after 1,000 unknown tools", name, before[name], n)
		}
	}
	if n := values["switchboard_refusals_total SB-CAP-001"]; n != 1001 {
		t.Errorf("%v refusals", n)
	}

	g.Do(0, "disabled", "server", "disable", "a")
	rig.Eventually(t, "the metrics say that it is disabled", func() string {
		_, values := g.Metrics()
		state, changes := values["switchboard_server_state a disabled"], values["switchboard_server_state_changes_total operator server a disabled"]
		return rig.ReasonUnless(state == 1 && changes == 1, fmt.Sprint(state, changes))
	})
}

func TestMetricsOfATenantSayNothingOfOthersCalls(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	g, key := serveWithKey(t)
	rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+key))
	series, _ := g.Metrics("default")
	if series["switchboard_server_state"] == 0 || series["switchboard_server_calls_in_flight"]+series["switchboard_refusals_total"]+series["switchboard_runs"] != 0 {
		t.Errorf("of a tenant there are %v", series)
	}
}

func TestOperatorsSearchTheToolsOfAllServersAndOthersDoNot(t *testing.T) {
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")), rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest")))))
	g.Do(0, `(?m)^b +rest `, "search", "rest")
	g.Do(1, `none of 2 tools`, "search", "xyzzy")

	// The first key takes nothing from the operator.
	g, _ = serveWithKey(t)
	g.Do(0, `(?m)^a +work `, "search", "work")
	g.Do(0, `^a is disabled`, "server", "disable", "a")
}

// Law 8: whoever can reach the port can call tools there, but not do to servers what an operator does.
func TestAttack4OnlyWhoReadsTheDataFolderDoesSomethingToAServer(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))))
	g := rig.Serve(t, dir)
	row, err := g.Row()
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{"with a key that does not exist": "swo_" + strings.Repeat("A", 49), "with the token of the data folder": row.Token.Reveal()} {
		if a := g.AskAdmin(t, key, http.MethodPost, "/v1/servers/a/disable", "{}"); a.Status != http.StatusUnauthorized || !strings.Contains(a.Body, "SB-AUTH-001") {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	resp, err := http.Post(row.Admin+"/v1/servers/a/disable", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is not read
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %s", resp.Status)
	}
	elsewhere := t.TempDir()
	if out, errs, code := rig.Command(t, elsewhere, "server", "disable", "a", "--url", row.Admin); code == 0 || !strings.Contains(out+errs, "SB-AUTH-001") {
		t.Errorf("from another folder: exit %d, %s%s", code, out, errs)
	}
	g.Do(0, `(?m)^a +healthy`, "server", "list")
	if out, errs, code := rig.Command(t, elsewhere, "server", "disable", "a", "--url", row.Admin, "--data", filepath.Join(dir, ".switchboard")); code != 0 {
		t.Errorf("with the data folder: exit %d, %s%s", code, out, errs)
	}
	g.Do(0, `(?m)^a +disabled`, "server", "list")
	g.Do(0, `^a is healthy`, "server", "enable", "a")
}
