package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestThirtyServersAreReadyWhileTenOthersHangExitOrFlood(t *testing.T) {
	var servers []string
	for i := range 30 {
		servers = append(servers, rig.FakeRow(fmt.Sprint("good-", i), fmt.Sprintf(rig.Tool, fmt.Sprint("tool_", i))))
	}
	var bad []string
	for mood, n := range map[string]int{"hang": 5, "exit": 3, "flood": 2} {
		for i := range n {
			id := fmt.Sprint(mood, "-", i)
			bad = append(bad, id)
			servers = append(servers, rig.FakeRow(id, "mood="+mood, fmt.Sprintf(rig.Tool, "never")))
		}
	}
	g := rig.Serve(t, rig.LayOut(t, strings.Replace(rig.Fakes(servers...), "start_deadline: 30s", "start_deadline: 2s", 1)))
	s := g.Open(t, "/mcp", true)
	rig.Eventually(t, "half of the good servers are listed", func() string { // forty programs take a while
		m, _ := s.Ask(t, "tools/list", "")
		if n := strings.Count(string(m.Result), `"name":"tool_`); n < 15 {
			return fmt.Sprint(n, " are")
		}
		return ""
	})
	rig.Eventually(t, "the tools of the good servers are listed, and no others", func() string {
		m, _ := s.Ask(t, "tools/list", "")
		if listed := string(m.Result); strings.Count(listed, `"name":"tool_`) == 30 && !strings.Contains(listed, `"name":"never"`) {
			return ""
		}
		return string(m.Raw) // on a busy machine some join after the deadline
	})
	if m, _ := s.Ask(t, "tools/call", `{"name":"tool_7","arguments":{}}`); m.Error != nil {
		t.Errorf("a good server beside the bad ones: %s", m.Raw)
	}
	st := g.Status()
	for _, server := range st.Servers {
		isBad := slices.Contains(bad, server.ID)
		if !isBad && (server.State != "ready" || server.LastFailure != nil) {
			t.Errorf("%s is %+v", server.ID, server)
		}
		if isBad && (server.State == "ready" || server.LastFailure == nil || server.LastFailure.Message == "") {
			t.Errorf("status does not say what is wrong with %s: %+v", server.ID, server)
		}
	}
	if len(st.Servers) != 40 {
		t.Errorf("status speaks of %d servers", len(st.Servers))
	}
}

func TestStatusTellsToolsServedFromToolsRefusedAndCountsFailedStarts(t *testing.T) {
	t.Parallel()
	bad := `{"name":"bad","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"destroy","resource":"fs"}]}}`
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("half", fmt.Sprintf(rig.Tool, "good"), bad), rig.FakeRow("none", "mood=exit"))))
	rig.ListNames(t, g.Open(t, "/mcp", true))
	rig.Eventually(t, "status says so", func() string {
		out, errs, code := rig.Command(t, g.Dir, "status", "--url", g.URL)
		for _, want := range []string{`half +healthy +[0-9]+s +1, 1 refused `, `none +quarantine +[0-9]+s +0 .*; [0-9]+ attempts failed`, `(?s)Wrong in what servers.*server "half", tool "bad"`} {
			if code != 1 || !regexp.MustCompile(want).MatchString(out) {
				return fmt.Sprintf("exit %d, no %s\n%s%s", code, want, out, errs)
			}
		}
		return ""
	})
}

func TestAChildThatDiesEndsItsCallAtOnceAndComesBack(t *testing.T) {
	marks := filepath.Join(t.TempDir(), "marks")
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("frail", "marks="+marks, fmt.Sprintf(rig.Tool, "work")), rig.FakeRow("other", fmt.Sprintf(rig.Tool, "rest")))))
	s := g.Open(t, "/mcp", false)
	began := time.Now()
	m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{"do":"die"}}`)
	if !strings.Contains(string(m.Raw), "SB-EXEC-004") {
		t.Errorf("the call of a child that died gave %s", m.Raw)
	}
	took := time.Since(began)
	if m, _ := s.Ask(t, "tools/call", `{"name":"rest","arguments":{}}`); m.Error != nil {
		t.Errorf("the other server: %s", m.Raw)
	}
	if got := rig.ListNames(t, s); !slices.Contains(got, "work") {
		t.Errorf("the list flapped: %q", got)
	}
	rig.Eventually(t, "the child comes back", func() string {
		m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{}}`)
		if strings.Contains(string(m.Raw), "SB-") {
			return string(m.Raw)
		}
		return ""
	})
	text, _ := os.ReadFile(marks)
	if n := strings.Count(string(text), "work"); n != 2 {
		t.Errorf("the server executed %d calls, want 2: the call that killed it must not be repeated", n)
	}
	rig.Eventually(t, "no child is a zombie", func() string {
		for _, pid := range rig.Children(g.Cmd.Process.Pid) {
			if !rig.Alive(pid) {
				return fmt.Sprintf("child %d", pid)
			}
		}
		return ""
	})
	if took > 5*time.Second {
		wait.Late(t, "it took %v to say that a child has died", took)
	}
}

func TestNoChildOutlivesSwitchboard(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			var servers []string
			for i := range 5 {
				servers = append(servers, rig.FakeRow(fmt.Sprint("s-", i), fmt.Sprintf(rig.Tool, fmt.Sprint("t", i))))
			}
			servers = append(servers, rig.FakeRow("deaf", "mood=hang", fmt.Sprintf(rig.Tool, "never")))
			// One has a child in a session of its own.
			servers = append(servers, `clan: {transport: stdio, command: [sh, -c, 'setsid sleep 987654 & exec "$0" "$@"', FAKE, '`+fmt.Sprintf(rig.Tool, "kin")+`']}`)
			g := rig.Serve(t, rig.LayOut(t, strings.Replace(rig.Fakes(servers...), "start_deadline: 30s", "start_deadline: 1s", 1)))
			s := g.Open(t, "/mcp", true)
			rig.Eventually(t, "the clan is there", func() string {
				m, _ := s.Ask(t, "tools/call", `{"name":"kin","arguments":{}}`)
				return rig.Code(m)
			})
			var pids []int
			rig.Eventually(t, "the child of a server's is there", func() string {
				pids = rig.Children(g.Cmd.Process.Pid)
				for _, pid := range pids {
					if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(line) == "sleep\x00987654\x00" {
						return ""
					}
				}
				return fmt.Sprint(pids)
			})
			if err := g.Cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			rig.Eventually(t, "all children are gone", func() string {
				for _, pid := range pids {
					if rig.Alive(pid) {
						return fmt.Sprint(pid, " lives")
					}
				}
				return ""
			})
		})
	}
}

func TestAClientHearsOfAChangedListAndOfNoOther(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one")), rig.FakeRow("b", fmt.Sprintf(rig.Tool, "two"))))
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/only-a.yaml"), "task_id: only-a\nrequired_capabilities:\n  - {tools: [\"a/*\"]}\n")
	g := rig.Serve(t, dir)
	all, onlyA := rig.Stdio(t, dir, false), g.Open(t, "/mcp/tasks/only-a", true)
	if got := rig.ListNames(t, all); !slices.Equal(got, []string{"one", "two"}) {
		t.Fatalf("listed %q", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "switchboard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	three := strings.Replace(strings.Replace(string(text), "  b:", "  c:", 1), `\"two\"`, `\"three\"`, 1)
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), three)
	all.AwaitListChanged(t)
	if got := rig.ListNames(t, all); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("after the reload it lists %q", got)
	}
	if got := rig.ListNames(t, onlyA); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the other task lists %q", got)
	}

	// A faulty file changes nothing, and is said.
	rig.Eventually(t, "the gateway has reloaded too", func() string {
		if st := g.Status(); len(st.Servers) != 2 || st.Servers[1].ID != "c" {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), strings.Replace(three, "transport:", "tranport:", 1))
	rig.Eventually(t, "the fault is said", func() string {
		if st := g.Status(); st.Refused == nil || !strings.Contains(st.Refused.Why, `did you mean "transport"`) || !strings.Contains(st.Refused.Why, "switchboard.yaml:3:") {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	if got := rig.ListNames(t, g.Open(t, "/mcp", true)); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("with a faulty file it lists %q", got)
	}
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), three)
	rig.Eventually(t, "the mended file is taken", func() string {
		if st := g.Status(); st.Refused != nil {
			return st.Refused.Why
		}
		return ""
	})
}

func TestAPolicyIsSeenToChangeHoweverDeepItStands(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))))
	packages := map[string]string{"policies": "package switchboard", "tenants/default/policies": "package switchboard.tenant"}
	for folder, head := range packages {
		rig.WriteFile(t, filepath.Join(dir, folder, "first.rego"), head+"\n"+rig.AllowAll)
	}
	g := rig.Serve(t, dir)
	loaded := g.Status().Loaded
	for folder, head := range packages {
		deep := filepath.Join(dir, folder, "new/in/it/deny.rego")
		for _, text := range []string{head + "\n", head + " # otherwise\n", ""} {
			rig.WriteFile(t, deep, text)
			if text == "" {
				if err := os.RemoveAll(filepath.Join(dir, folder, "new")); err != nil {
					t.Fatal(err)
				}
			}
			rig.Eventually(t, fmt.Sprintf("%s with %q", deep, text), func() string {
				st := g.Status()
				if st.Refused != nil || !st.Loaded.After(loaded) {
					return fmt.Sprintf("%+v", st)
				}
				loaded = st.Loaded
				return ""
			})
		}
	}
}

func TestCallsInFlightFinishWhileEverythingIsReloaded(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	rig.ListNames(t, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := g.Open(t, "/mcp", true)
				if m, _ := c.Ask(t, "tools/call", `{"name":"one","arguments":{"x":"y"}}`); !strings.Contains(string(m.Raw), `\"x\":\"y\"`) {
					t.Errorf("a call during a reload gave %s", m.Raw)
					return
				}
			}
		})
	}
	for i := range 20 {
		rig.WriteFile(t, filepath.Join(dir, fmt.Sprintf("tenants/default/tasks/t%d.yaml", i)), fmt.Sprintf("task_id: t%d\nrequired_capabilities:\n  - {tools: [\"a/*\"]}\n", i))
		if err := g.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, "the new task is there", func() string {
			m, _ := g.Open(t, fmt.Sprintf("/mcp/tasks/t%d", i), true).Ask(t, "tools/list", "")
			if m.Error != nil {
				return string(m.Raw)
			}
			return ""
		})
	}
	close(stop)
	wg.Wait()
}

// AZ-03: ids are each client's own.
func TestClientsWhoUseTheSameIdsGetTheirOwnAnswers(t *testing.T) {
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(
		rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one")), rig.FakeRow("b", fmt.Sprintf(rig.Tool, "two")), rig.FakeRow("c", fmt.Sprintf(rig.Tool, "three")))))
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			s := g.Open(t, "/mcp", i%2 == 0)
			for j := range 20 {
				name := []string{"one", "two", "three"}[(i+j)%3]
				mark := fmt.Sprintf("client-%d-call-%d", i, j)
				m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"mark":%q}}`, name, mark))
				if !strings.Contains(string(m.Result), `\"`+mark+`\"`) {
					t.Errorf("client %d got %s", i, m.Raw)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAServersNewToolReachesClientsOfBothEras(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era+" server", func(t *testing.T) {
			args := []string{fmt.Sprintf(rig.Tool, "one")}
			if era == "modern" {
				args = append([]string{"modern"}, args...)
			}
			g := rig.Serve(t, rig.LayOut(t, strings.Replace(rig.Fakes(rig.FakeRow("a", args...)), "allow: [by_name]", "allow: [by_name], trial: [a]", 1)))
			legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
			rig.ListNames(t, legacy)
			rig.ListNames(t, modern)
			heard := make(chan string, 2)
			rig.Listen(t, heard, "legacy", http.MethodGet, g.URL+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
			rig.Listen(t, heard, "modern", http.MethodPost, g.URL+"/mcp",
				`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
				http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
			bytes, _ := json.Marshal(fmt.Sprintf(rig.Tool, "two"))
			if m, _ := legacy.Ask(t, "tools/call", fmt.Sprintf(`{"name":"one","arguments":{"do":"grow","bytes":%s}}`, bytes)); m.Error != nil {
				t.Fatalf("grow: %s", m.Raw)
			}
			for range 2 {
				t.Logf("%s heard of it", wait.Receive(t, "a client hears of the change", heard))
			}
			for name, s := range map[string]rig.Session{"legacy": legacy, "modern": modern} {
				if got := rig.ListNames(t, s); !slices.Equal(got, []string{"one", "two"}) {
					t.Errorf("the %s client lists %q", name, got)
				}
			}
		})
	}
}

// An agent that a script starts again and again opens a session each time. The runs of the sessions that it has ended do not lock it out.
func TestAClientThatOpensMoreSessionsThanRunsMayBeOpenIsServed(t *testing.T) {
	const runsOfAPrincipal = 1000 // see docs/operate.md
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")))))
	for range runsOfAPrincipal + 1 {
		if err := g.Open(t, "/mcp", false).Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := rig.Call(t, g.Open(t, "/mcp", false), "work", `{}`); got != "" {
		t.Error(got)
	}
}
