package served_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const tool = `{"name":"%s","inputSchema":{"type":"object"}}`

// fakes is a configuration of fake servers, one line each, and a task for all.
func fakes(servers ...string) string {
	return `
-- switchboard.yaml --
start_deadline: 30s
servers:
  ` + strings.Join(servers, "\n  ") + `
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"]}
`
}

func fakeServer(id string, args ...string) string {
	quoted, _ := json.Marshal(args)
	return fmt.Sprintf("%s: {transport: stdio, command: [FAKE, %s]}", id, strings.Trim(string(quoted), "[]"))
}

type status struct {
	Loaded  time.Time `json:"configuration_loaded"`
	Refused *struct {
		Why string `json:"why"`
	} `json:"configuration_refused"`
	Faulty []struct {
		Part, State string
		Faults      []string
	} `json:"configuration_faulty_parts"`
	Policies []struct{ Tenant, Digest, Loaded string } `json:"policies"`
	Servers  []struct {
		ID          string `json:"id"`
		State       string `json:"state"`
		LastFailure *struct {
			Stage, Message string
		} `json:"last_failure"`
	} `json:"servers"`
}

func (g *gateway) status() (st status) {
	g.t.Helper()
	out, errs, _ := command(g.t, g.dir, "status", "--json", "--url", g.url)
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		g.t.Fatalf("status: %v\n%s%s", err, out, errs)
	}
	return st
}

// children are the process ids of whom pid has started, and of theirs.
func children(pid int) (all []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if len(f) > 1 && f[1] == strconv.Itoa(pid) {
			all = append(append(all, child), children(child)...)
		}
	}
	return all
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func TestThirtyServersAreReadyWhileTenOthersHangExitOrFlood(t *testing.T) {
	var servers []string
	for i := range 30 {
		servers = append(servers, fakeServer(fmt.Sprint("good-", i), fmt.Sprintf(tool, fmt.Sprint("tool_", i))))
	}
	var bad []string
	for mood, n := range map[string]int{"hang": 5, "exit": 3, "flood": 2} {
		for i := range n {
			id := fmt.Sprint(mood, "-", i)
			bad = append(bad, id)
			servers = append(servers, fakeServer(id, "mood="+mood, fmt.Sprintf(tool, "never")))
		}
	}
	g := serve(t, layOut(t, strings.Replace(fakes(servers...), "start_deadline: 30s", "start_deadline: 2s", 1)))
	s := g.open(t, "/mcp", true)
	eventually(t, "half of the good servers are listed", func() string { // forty programs take a while
		m, _ := s.ask(t, "tools/list", "")
		if n := strings.Count(string(m.Result), `"name":"tool_`); n < 15 {
			return fmt.Sprint(n, " are")
		}
		return ""
	})
	eventually(t, "the tools of the good servers are listed, and no others", func() string {
		m, _ := s.ask(t, "tools/list", "")
		if listed := string(m.Result); strings.Count(listed, `"name":"tool_`) == 30 && !strings.Contains(listed, `"name":"never"`) {
			return ""
		}
		return string(m.raw) // on a busy machine some join after the deadline
	})
	if m, _ := s.ask(t, "tools/call", `{"name":"tool_7","arguments":{}}`); m.Error != nil {
		t.Errorf("a good server beside the bad ones: %s", m.raw)
	}
	st := g.status()
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
	g := serve(t, layOut(t, fakes(fakeServer("half", fmt.Sprintf(tool, "good"), bad), fakeServer("none", "mood=exit"))))
	names(t, g.open(t, "/mcp", true))
	eventually(t, "status says so", func() string {
		out, errs, code := command(t, g.dir, "status", "--url", g.url)
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
	g := serve(t, layOut(t, fakes(fakeServer("frail", "marks="+marks, fmt.Sprintf(tool, "work")), fakeServer("other", fmt.Sprintf(tool, "rest")))))
	s := g.open(t, "/mcp", false)
	began := time.Now()
	m, _ := s.ask(t, "tools/call", `{"name":"work","arguments":{"do":"die"}}`)
	if !strings.Contains(string(m.raw), "SB-EXEC-004") {
		t.Errorf("the call of a child that died gave %s", m.raw)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to say so", took)
	}
	if m, _ := s.ask(t, "tools/call", `{"name":"rest","arguments":{}}`); m.Error != nil {
		t.Errorf("the other server: %s", m.raw)
	}
	if got := names(t, s); !slices.Contains(got, "work") {
		t.Errorf("the list flapped: %q", got)
	}
	eventually(t, "the child comes back", func() string {
		m, _ := s.ask(t, "tools/call", `{"name":"work","arguments":{}}`)
		if strings.Contains(string(m.raw), "SB-") {
			return string(m.raw)
		}
		return ""
	})
	text, _ := os.ReadFile(marks)
	if n := strings.Count(string(text), "work"); n != 2 {
		t.Errorf("the server executed %d calls, want 2: the call that killed it must not be repeated", n)
	}
	eventually(t, "no child is a zombie", func() string {
		for _, pid := range children(g.cmd.Process.Pid) {
			if !alive(pid) {
				return fmt.Sprintf("child %d", pid)
			}
		}
		return ""
	})
}

func TestNoChildOutlivesSwitchboard(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			var servers []string
			for i := range 5 {
				servers = append(servers, fakeServer(fmt.Sprint("s-", i), fmt.Sprintf(tool, fmt.Sprint("t", i))))
			}
			servers = append(servers, fakeServer("deaf", "mood=hang", fmt.Sprintf(tool, "never")))
			// One has a child in a session of its own.
			servers = append(servers, `clan: {transport: stdio, command: [sh, -c, 'setsid sleep 987654 & exec "$0" "$@"', FAKE, '`+fmt.Sprintf(tool, "kin")+`']}`)
			g := serve(t, layOut(t, strings.Replace(fakes(servers...), "start_deadline: 30s", "start_deadline: 1s", 1)))
			s := g.open(t, "/mcp", true)
			eventually(t, "the clan is there", func() string {
				m, _ := s.ask(t, "tools/call", `{"name":"kin","arguments":{}}`)
				return codeOf(m)
			})
			var pids []int
			eventually(t, "the child of a server's is there", func() string {
				pids = children(g.cmd.Process.Pid)
				for _, pid := range pids {
					if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(line) == "sleep\x00987654\x00" {
						return ""
					}
				}
				return fmt.Sprint(pids)
			})
			if err := g.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			eventually(t, "all children are gone", func() string {
				for _, pid := range pids {
					if alive(pid) {
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
	dir := layOut(t, fakes(fakeServer("a", fmt.Sprintf(tool, "one")), fakeServer("b", fmt.Sprintf(tool, "two"))))
	write(t, filepath.Join(dir, "tenants/default/tasks/only-a.yaml"), "task_id: only-a\nrequired_capabilities:\n  - {tools: [\"a/*\"]}\n")
	g := serve(t, dir)
	all, onlyA := stdio(t, dir, false), g.open(t, "/mcp/tasks/only-a", true)
	if got := names(t, all); !slices.Equal(got, []string{"one", "two"}) {
		t.Fatalf("listed %q", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "switchboard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	three := strings.Replace(strings.Replace(string(text), "  b:", "  c:", 1), `\"two\"`, `\"three\"`, 1)
	write(t, filepath.Join(dir, "switchboard.yaml"), three)
	all.hears(t)
	if got := names(t, all); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("after the reload it lists %q", got)
	}
	if got := names(t, onlyA); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the other task lists %q", got)
	}

	// A faulty file changes nothing, and is said.
	eventually(t, "the gateway has reloaded too", func() string {
		if st := g.status(); len(st.Servers) != 2 || st.Servers[1].ID != "c" {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	write(t, filepath.Join(dir, "switchboard.yaml"), strings.Replace(three, "transport:", "tranport:", 1))
	eventually(t, "the fault is said", func() string {
		if st := g.status(); st.Refused == nil || !strings.Contains(st.Refused.Why, `did you mean "transport"`) || !strings.Contains(st.Refused.Why, "switchboard.yaml:3:") {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	if got := names(t, g.open(t, "/mcp", true)); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("with a faulty file it lists %q", got)
	}
	write(t, filepath.Join(dir, "switchboard.yaml"), three)
	eventually(t, "the mended file is taken", func() string {
		if st := g.status(); st.Refused != nil {
			return st.Refused.Why
		}
		return ""
	})
}

func TestAPolicyIsSeenToChangeHoweverDeepItStands(t *testing.T) {
	t.Parallel()
	dir := layOut(t, fakes(fakeServer("a", fmt.Sprintf(tool, "one"))))
	packages := map[string]string{"policies": "package switchboard", "tenants/default/policies": "package switchboard.tenant"}
	for folder, head := range packages {
		write(t, filepath.Join(dir, folder, "first.rego"), head+"\n"+allowAll)
	}
	g := serve(t, dir)
	loaded := g.status().Loaded
	for folder, head := range packages {
		deep := filepath.Join(dir, folder, "new/in/it/deny.rego")
		for _, text := range []string{head + "\n", head + " # otherwise\n", ""} {
			write(t, deep, text)
			if text == "" {
				if err := os.RemoveAll(filepath.Join(dir, folder, "new")); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, fmt.Sprintf("%s with %q", deep, text), func() string {
				st := g.status()
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
	dir := layOut(t, fakes(fakeServer("a", fmt.Sprintf(tool, "one"))))
	g := serve(t, dir)
	s := g.open(t, "/mcp", false)
	names(t, s)
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
				c := g.open(t, "/mcp", true)
				if m, _ := c.ask(t, "tools/call", `{"name":"one","arguments":{"x":"y"}}`); !strings.Contains(string(m.raw), `\"x\":\"y\"`) {
					t.Errorf("a call during a reload gave %s", m.raw)
					return
				}
			}
		})
	}
	for i := range 20 {
		write(t, filepath.Join(dir, fmt.Sprintf("tenants/default/tasks/t%d.yaml", i)), fmt.Sprintf("task_id: t%d\nrequired_capabilities:\n  - {tools: [\"a/*\"]}\n", i))
		if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new task is there", func() string {
			m, _ := g.open(t, fmt.Sprintf("/mcp/tasks/t%d", i), true).ask(t, "tools/list", "")
			if m.Error != nil {
				return string(m.raw)
			}
			return ""
		})
	}
	close(stop)
	wg.Wait()
}

// AZ-03: ids are each client's own.
func TestClientsWhoUseTheSameIdsGetTheirOwnAnswers(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	g := serve(t, layOut(t, fakes(
		fakeServer("a", fmt.Sprintf(tool, "one")), fakeServer("b", fmt.Sprintf(tool, "two")), fakeServer("c", fmt.Sprintf(tool, "three")))))
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			s := g.open(t, "/mcp", i%2 == 0)
			for j := range 20 {
				name := []string{"one", "two", "three"}[(i+j)%3]
				mark := fmt.Sprintf("client-%d-call-%d", i, j)
				m, _ := s.ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"mark":%q}}`, name, mark))
				if !strings.Contains(string(m.Result), `\"`+mark+`\"`) {
					t.Errorf("client %d got %s", i, m.raw)
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
			args := []string{fmt.Sprintf(tool, "one")}
			if era == "modern" {
				args = append([]string{"modern"}, args...)
			}
			g := serve(t, layOut(t, fakes(fakeServer("a", args...))))
			legacy, modern := g.open(t, "/mcp", false), g.open(t, "/mcp", true)
			names(t, legacy)
			names(t, modern)
			heard := make(chan string, 2)
			listen(t, heard, "legacy", http.MethodGet, g.url+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy.id}, "Mcp-Protocol-Version": {"2025-11-25"}})
			listen(t, heard, "modern", http.MethodPost, g.url+"/mcp",
				`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+withMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
				http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
			bytes, _ := json.Marshal(fmt.Sprintf(tool, "two"))
			if m, _ := legacy.ask(t, "tools/call", fmt.Sprintf(`{"name":"one","arguments":{"do":"grow","bytes":%s}}`, bytes)); m.Error != nil {
				t.Fatalf("grow: %s", m.raw)
			}
			for range 2 {
				t.Logf("%s heard of it", wait.Receive(t, "a client hears of the change", heard))
			}
			for name, s := range map[string]session{"legacy": legacy, "modern": modern} {
				if got := names(t, s); !slices.Equal(got, []string{"one", "two"}) {
					t.Errorf("the %s client lists %q", name, got)
				}
			}
		})
	}
}

// listen opens a stream, waits until it is open, and tells heard when the list
// has changed.
func listen(t *testing.T, heard chan<- string, who, method, url, body string, header http.Header) {
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
		t.Fatalf("%s stream: %v, %v", who, resp, err)
	}
	go func() {
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
				heard <- who
				return
			}
		}
	}()
}
