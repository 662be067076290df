package served_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// Servers that start when a file of their name is there: with it.
const gated = `
-- switchboard.yaml --
servers:
  files: {transport: stdio, command: [sh, -c, "while ! test -s files; do sleep 0.02; done; test $(cat files) = well && exec \"$@\"", sh, FAKE, '{"name":"read_file","inputSchema":{"type":"object"}}']}
  web: {transport: stdio, command: [sh, -c, "while ! test -s web; do sleep 0.02; done; test $(cat web) = well && exec \"$@\"", sh, FAKE, '{"name":"fetch","inputSchema":{"type":"object"}}']}
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- overlays/files.yaml --
server: files
tools:
  read_file: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities:
  - {verb: read, resource: fs}
-- tenants/default/tasks/loose.yaml --
task_id: loose
required_capabilities:
  - {tools: ["*/*"]}
`

// begin lets a gated server start, or fail.
func begin(t *testing.T, dir, server, how string) { rig.WriteFile(t, filepath.Join(dir, server), how) }

// end has a gated server wait when it starts the next time.
func end(t *testing.T, dir, server string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, server)); err != nil {
		t.Fatal(err)
	}
}

// starts are the ways in which a client can meet a Switchboard that is starting.
var starts = map[string]func(t *testing.T, dir, task string) rig.Session{
	"HTTP legacy": func(t *testing.T, dir, task string) rig.Session {
		return rig.ServeAtOnce(t, dir).OpenAtOnce(t, "/mcp/tasks/"+task, false)
	},
	"HTTP modern": func(t *testing.T, dir, task string) rig.Session {
		return rig.ServeAtOnce(t, dir).OpenAtOnce(t, "/mcp/tasks/"+task, true)
	},
	"stdio legacy": func(t *testing.T, dir, task string) rig.Session {
		return rig.StdioAtOnce(t, dir, false, "--task", task)
	},
	"stdio modern": func(t *testing.T, dir, task string) rig.Session { return rig.StdioAtOnce(t, dir, true, "--task", task) },
}

func TestFirstMinutes2AClientIsWelcomeWhileServersStart(t *testing.T) {
	t.Parallel()
	for name, open := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := rig.LayOut(t, gated)
			s := open(t, dir, "work") // no server is there
			m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{}}`)
			if text := string(m.Result); !strings.Contains(text, "files, web") {
				t.Errorf("the status does not name the servers that are starting: %s", m.Raw)
			}
			begin(t, dir, "web", "well") // which does not meet the requirement
			begin(t, dir, "files", "well")
			if m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":{}}`); m.Error != nil {
				t.Errorf("a call does not wait for its server: %s", m.Raw)
			}
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"read_file"}) {
				t.Errorf("it lists %q", got)
			}
		})
	}
}

func TestFirstMinutes2AFirstListWaitsForServersThatStart(t *testing.T) {
	t.Parallel()
	for name, open := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := rig.LayOut(t, gated)
			s := open(t, dir, "work")
			begin(t, dir, "files", "well") // it takes a while to start
			begin(t, dir, "web", "well")
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"read_file"}) {
				t.Errorf("a client that lists once has %q", got)
			}
		})
	}
}

func TestFirstMinutes2AServerThatFailsIsNamedAndItsToolsComeWhenItAnswers(t *testing.T) {
	t.Parallel()
	for name, open := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := rig.LayOut(t, gated)
			s := open(t, dir, "work")
			begin(t, dir, "web", "well")
			begin(t, dir, "files", "ill")
			for _, tool := range []string{"read_file", "fetch"} {
				rig.Eventually(t, "a call of "+tool+" says that the requirement is unmet, and that files has not answered", func() string {
					m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool))
					return rig.ReasonUnless(rig.Code(m) == "SB-CAP-004" && strings.Contains(string(m.Error.Data), "may have it: files"), string(m.Raw))
				})
			}
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"switchboard_status"}) {
				t.Errorf("it lists %q", got)
			}
			begin(t, dir, "files", "well")
			rig.Eventually(t, "the server meets the requirement when it answers", func() string {
				if m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":{}}`); m.Error != nil {
					return string(m.Raw)
				}
				return ""
			})
		})
	}
}

func TestAClientIsWelcomeWhileItsOnlyServerIsAwayAndHearsWhenItIsThere(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern %t", modern), func(t *testing.T) {
			t.Parallel()
			addr, err := scratch.Addr()
			if err != nil {
				t.Fatal(err)
			}
			s := rig.Stdio(t, rig.LayOut(t, rig.Fakes(fmt.Sprintf("notes: {transport: http, url: %q}", "http://"+addr+"/mcp"))), modern)
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"switchboard_status"}) {
				t.Errorf("it lists %q", got)
			}
			rig.Eventually(t, "the status names the server that is away", func() string {
				m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{}}`)
				return rig.ReasonUnless(strings.Contains(string(m.Result), "may have it: notes"), string(m.Raw))
			})
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			notes := &httptest.Server{Listener: l, Config: &http.Server{Handler: fakeserver.New([]string{fmt.Sprintf(rig.Tool, "note")})}}
			notes.Start()
			t.Cleanup(notes.Close)
			if !modern { // a modern client would have to listen
				s.AwaitListChanged(t)
			}
			rig.Eventually(t, "the tool is listed", func() string {
				got := rig.ListNames(t, s)
				return rig.ReasonUnless(slices.Equal(got, []string{"note"}), fmt.Sprint(got))
			})
			if m, _ := s.Ask(t, "tools/call", `{"name":"note","arguments":{}}`); m.Error != nil {
				t.Errorf("the call: %s", m.Raw)
			}
		})
	}
}

func TestAServerOverHTTPThatIsSlowToAnswerItsFirstRequestServesItsClients(t *testing.T) {
	t.Parallel()
	fake := fakeserver.New([]string{"modern", fmt.Sprintf(rig.Tool, "note")})
	var asked atomic.Bool
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.CompareAndSwap(false, true) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // longer than Switchboard waits for it
			return
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)
	s := rig.Stdio(t, rig.LayOut(t, rig.Fakes(fmt.Sprintf("notes: {transport: http, url: %q}", slow.URL+"/mcp"))), false)
	rig.Eventually(t, "the tool is listed", func() string {
		got := rig.ListNames(t, s)
		return rig.ReasonUnless(slices.Equal(got, []string{"note"}), fmt.Sprint(got))
	})
	if m, _ := s.Ask(t, "tools/call", `{"name":"note","arguments":{}}`); m.Error != nil {
		t.Errorf("the call: %s", m.Raw)
	}
}

func TestFirstMinutes2FromTheSecondStartOnTheListIsWholeAtOnce(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, gated)
	begin(t, dir, "web", "well")
	begin(t, dir, "files", "well")
	var want []string
	t.Run("the first start", func(t *testing.T) {
		if want = rig.ListNames(t, rig.StdioAtOnce(t, dir, false, "--task", "loose")); len(want) != 2 {
			t.Fatalf("it lists %q", want)
		}
	})
	end(t, dir, "web")
	end(t, dir, "files")
	for name, open := range starts {
		t.Run(name, func(t *testing.T) {
			s := open(t, dir, "loose")
			if got := rig.ListNames(t, s); !slices.Equal(got, want) {
				t.Errorf("before any server answers it lists %q, want %q", got, want)
			}
			begin(t, dir, "files", "well")
			if m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":{}}`); m.Error != nil {
				t.Errorf("a call does not wait for its server: %s", m.Raw)
			}
			end(t, dir, "files")
		})
	}
	t.Run("another configuration", func(t *testing.T) {
		file := filepath.Join(dir, "switchboard.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rig.WriteFile(t, file, strings.Replace(string(text), `"name":"read_file"`, `"name":"read_text"`, 1))
		s := rig.StdioAtOnce(t, dir, false, "--task", "loose")
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"fetch"}) {
			t.Errorf("it lists %q, and one of them is of another configuration", got)
		}
	})
}

func TestFirstMinutes2TheImplicitTaskListsWhatIsThereAndTellsOfTheRest(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, gated)
	begin(t, dir, "files", "well")
	s := rig.StdioAtOnce(t, dir, false, "--task", "loose")
	if got := rig.ListNames(t, s); !slices.Equal(got, []string{"read_file"}) { // after 8 s
		t.Errorf("it lists %q", got)
	}
	begin(t, dir, "web", "well")
	s.AwaitListChanged(t)
	if got := rig.ListNames(t, s); !slices.Equal(got, []string{"read_file", "fetch"}) && !slices.Equal(got, []string{"fetch", "read_file"}) {
		t.Errorf("it lists %q", got)
	}
}
