package served_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// publish writes the lock of all versions in capabilities/.
func publish(t *testing.T, dir string) {
	t.Helper()
	r, err := config.ReadRegistry(filepath.Join(dir, "switchboard.yaml"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, lock := filepath.Join(dir, "capabilities", capability.LockFile), []byte(nil)
	for _, id := range r.IDs() {
		for _, v := range r.Versions(id) {
			if lock, err = capability.AddToLock(file, lock, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(file, lock, 0o600); err != nil {
		t.Fatal(err)
	}
}

// readers are two servers that read files by other names and with other arguments, and a task that requires the
// capability. row is the operator's row of the tenant.
func readers(t *testing.T, modern bool, prefer, row string) (dir string, one, two *httptest.Server) {
	t.Helper()
	start := func(tools ...string) *httptest.Server {
		if modern {
			tools = append(tools, "modern")
		}
		s := httptest.NewServer(fakeserver.New(tools))
		t.Cleanup(s.Close)
		return s
	}
	one = start(`{"name":"read_text_file","description":"One reads.","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer"}},"required":["path"]}}`,
		`{"name":"list_directory","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}`)
	two = start(`{"name":"cat","description":"Two reads.","inputSchema":{"type":"object","properties":{"file":{"type":"string"},"lines":{"type":"integer"},"raw":{"type":"boolean"}},"required":["file","raw"],"additionalProperties":false}}`,
		`{"name":"ls","inputSchema":{"type":"object","properties":{"dir":{"type":"string"}},"required":["dir"],"additionalProperties":false}}`)
	dir = rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
start_deadline: 30s
servers:
  one: {transport: http, url: %q}
  two: {transport: http, url: %q}
tenants:
  default: {servers: ["*"]%s}
-- capabilities/read.yaml --
id: io.fs.read
version: 1.2.0
status: active
verb: read
resource: fs
constraints: [readonly]
required_permissions: ["fs:read"]
required_tools:
  read_file:
    description: Reads a file.
    input_schema: {type: object, properties: {path: {type: string, maxLength: 40}, head: {type: integer, minimum: 1}}, required: [path], additionalProperties: false}
  list_dir:
    description: Lists a folder.
    input_schema: {type: object, properties: {path: {type: string}}, required: [path], additionalProperties: false}
-- overlays/one.yaml --
server: one
provides:
  - {capability: io.fs.read@^1, tools: {read_file: read_text_file, list_dir: list_directory}}
-- overlays/two.yaml --
server: two
provides:
  - capability: io.fs.read@^1.2
    tools:
      read_file: {tool: cat, map: {path: file, head: lines}, constants: {raw: true}}
      list_dir: {tool: ls, map: {path: dir}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: read
ranking: {prefer: [{verb: read, resource: fs, servers: [%s]}]}
-- tenants/default/tasks/read.yaml --
task_id: read
required_capabilities: [{capability: io.fs.read@^1}]
`, one.URL, two.URL, row, prefer))
	publish(t, dir)
	return dir, one, two
}

const mayRead = `, permissions: ["fs:read"]`

func TestAContractsToolsAreTheSameFromAnyServer(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern servers ", modern), func(t *testing.T) {
			lists := map[string]string{}
			for _, prefer := range []string{"one", "two"} {
				dir, one, two := readers(t, modern, prefer, mayRead)
				g := rig.Serve(t, dir)
				received := map[string]string{"one": `{"head":3,"path":"a.txt"}`, "two": `{"file":"a.txt","lines":3,"raw":true}`}
				other := map[string]string{"one": "two", "two": "one"}[prefer]
				sessions := []rig.Session{g.Open(t, "/mcp", false), g.Open(t, "/mcp", true), rig.Stdio(t, dir, false), rig.Stdio(t, dir, true)}
				for i, s := range sessions {
					list, _ := s.Ask(t, "tools/list", `{}`)
					if i < 2 {
						key := fmt.Sprint("session ", i)
						if before, ok := lists[key]; ok && before != string(list.Raw) {
							t.Errorf("%s: from %s the list is\n%s, and from the other server it was\n%s", key, prefer, list.Raw, before)
						}
						lists[key] = string(list.Raw)
					}
					rig.Eventually(t, prefer+" serves", func() string { // the other one does until it is ready
						got, want := readFile(t, s, `{"path":"a.txt","head":3}`), received[prefer]
						if got != want && got != received[other] {
							t.Errorf("%s received %s, want %s", prefer, got, want)
						}
						return rig.ReasonUnless(got == want, got)
					})
					for what, args := range map[string]string{
						"an unknown argument": `{"path":"a","lines":1}`, "a missing one": `{"head":1}`, "another type": `{"path":"a","head":"1"}`,
						"a number that is too small": `{"path":"a","head":0}`, "a text that is too long": `{"path":"` + strings.Repeat("a", 41) + `"}`,
					} {
						m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":`+args+`}`)
						if code := rig.Code(m); code != "SB-CAP-003" {
							t.Errorf("CO-04: %s: %s %s", what, code, m.Raw)
						}
					}
				}
				map[string]*httptest.Server{"one": one, "two": two}[prefer].Close()
				for i, s := range sessions[:2] {
					if got, want := readFile(t, s, `{"path":"a.txt","head":3}`), received[other]; got != want {
						t.Errorf("after the move %s received %s, want %s", other, got, want)
					}
					if m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":{"path":"a","lines":1}}`); rig.Code(m) != "SB-CAP-003" {
						t.Errorf("CO-04: an unknown argument after the move: %s", m.Raw)
					}
					list, _ := s.Ask(t, "tools/list", `{}`)
					if key := fmt.Sprint("session ", i); !sameList(string(list.Raw), lists[key]) {
						t.Errorf("%s: after the move the list is\n%s, and before it was\n%s", key, list.Raw, lists[key])
					}
				}
			}
		})
	}
}

// sameList compares two answers without the ids of their requests.
func sameList(a, b string) bool {
	result := func(s string) string { return s[strings.Index(s, `"tools"`):] }
	return result(a) == result(b)
}

func TestCO08WithoutThePermissionACapabilityDoesNotExist(t *testing.T) {
	t.Parallel()
	dir, _, _ := readers(t, true, "one", "")
	// A task may name only what some file describes. No server provides io.fs.none.
	file := filepath.Join(dir, "capabilities", "read.yaml")
	none := strings.NewReplacer("io.fs.read", "io.fs.none", "required_permissions: [\"fs:read\"]\n", "").Replace(rig.ReadFile(t, file))
	rig.WriteFile(t, filepath.Join(dir, "capabilities", "none.yaml"), none)
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/none.yaml"), "task_id: none\nrequired_capabilities: [{capability: io.fs.none@^1}]\n")
	publish(t, dir)
	g := rig.Serve(t, dir)
	variable := regexp.MustCompile(`"receipt":"[^"]*"|n\d+/20[^"]*|sha256:[0-9a-f]{64}`)
	answers := func(task, name string) (all []string) {
		s := g.Open(t, "/mcp/tasks/"+task, true)
		for _, ask := range [][2]string{{"tools/list", `{}`}, {"tools/call", `{"name":"read_file","arguments":{"path":"a"}}`}, {"tools/call", `{"name":"none","arguments":{}}`}} {
			m, _ := s.Ask(t, ask[0], ask[1])
			all = append(all, string(m.Raw))
		}
		out, errs, code := rig.Command(t, dir, "explain", task, "--url", g.URL)
		all = append(all, fmt.Sprint(code, out, errs))
		for i, text := range all {
			text = variable.ReplaceAllString(text, "RECEIPT")
			all[i] = strings.ReplaceAll(strings.ReplaceAll(text, name, "NAME"), task, "TASK")
		}
		return all
	}
	denied, unknown := answers("read", "io.fs.read"), answers("none", "io.fs.none")
	for i := range denied {
		if denied[i] != unknown[i] || strings.Contains(denied[i], "permission") {
			t.Errorf("without the permission:\n%s\nunknown:\n%s", denied[i], unknown[i])
		}
	}
	if !strings.Contains(denied[0], "SB-CAP-") {
		t.Errorf("the task is not refused: %s", denied[0])
	}
}

func TestCO07AServerThatLacksAToolOfTheContractProvidesNothing(t *testing.T) {
	t.Parallel()
	dir, _, _ := readers(t, true, "two", mayRead)
	overlay := filepath.Join(dir, "overlays", "two.yaml")
	text, err := os.ReadFile(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, []byte(strings.Replace(string(text), "{tool: ls, map: {path: dir}}", "dir", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	g := rig.Serve(t, dir)
	if got, want := readFile(t, g.Open(t, "/mcp", true), `{"path":"a"}`), `{"path":"a"}`; got != want {
		t.Errorf("received %s, want %s: from server one", got, want)
	}
	out, _, _ := rig.Command(t, dir, "status", "--url", g.URL)
	if !strings.Contains(out, `server "two" does not provide io.fs.read@1.2.0: list_dir: the server has no tool "dir"`) {
		t.Errorf("status does not say why:\n%s", out)
	}
}

// readFile calls the contract's tool, and returns the arguments that the server received.
func readFile(t *testing.T, s rig.Session, arguments string) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":`+arguments+`}`)
	return m.Text()
}

// addAtom adds an atom to the folder: one that is well while a file is there, and the capability depends on it.
func addAtom(t *testing.T, dir, atom string) {
	t.Helper()
	read := filepath.Join(dir, "capabilities", "read.yaml")
	text, err := os.ReadFile(read)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		read: string(text) + "requires: {resources: [key.token]}\n",
		filepath.Join(dir, "capabilities", "atoms.yaml"): "key.token: " + atom + "\n",
		filepath.Join(dir, "token"):                      "secret\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "capabilities", capability.LockFile)); err != nil {
		t.Fatal(err)
	}
	publish(t, dir)
}

func TestCO05ACallWaitsForAProbeAndIsRefusedWhileAnAtomIsRed(t *testing.T) {
	t.Parallel()
	dir, _, _ := readers(t, true, "one", mayRead)
	addAtom(t, dir, `{kind: key, fresh_for: 1s, probe: {file: token}}`)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	const args, received = `{"path":"a"}`, `{"path":"a"}`
	if got := readFile(t, s, args); got != received {
		t.Fatalf("the first call waits for the probe, and got %s", got)
	}
	list, _ := s.Ask(t, "tools/list", `{}`)
	if err := os.Remove(filepath.Join(dir, "token")); err != nil {
		t.Fatal(err)
	}
	refused := func() rig.Message {
		m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":`+args+`}`)
		return m
	}
	var m rig.Message
	wait.Until(t, "a call is refused", func() bool { m = refused(); return rig.Code(m) == "SB-CAP-007" })
	if strings.Contains(string(m.Raw), "key.token") {
		t.Errorf("the answer names the atom: %s", m.Raw)
	}
	if m, _ = s.Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{"capability":"io.fs.read@1.2.0"}}`); !strings.Contains(string(list.Raw), `"switchboard_status"`) || !strings.Contains(m.Text(), `"blocking":["key.token: red"]`) {
		t.Errorf("the agent cannot ask what is wrong: %s\n%s", m.Raw, list.Raw)
	}
	again, _ := s.Ask(t, "tools/list", `{}`)
	if !sameList(string(list.Raw), string(again.Raw)) {
		t.Errorf("the list flaps: %s", again.Raw)
	}
	rig.Eventually(t, "explain says why a new run would lack the capability", func() string {
		out, _, _ := rig.Command(t, dir, "explain", "--url", g.URL)
		if strings.Contains(out, "key.token: red") {
			return ""
		}
		return out
	})
}
