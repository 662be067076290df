package served_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// An office is two servers that provide the same capabilities by tools with other names and other arguments. Server one is
// preferred, and stands behind a proxy that fails on cue.
type office struct {
	dir   string
	one   *fault.HTTP
	fakes map[string]*rig.Fake // by server
}

// newOffice lays out the two servers with the contracts note.read (readonly), note.write (stateful) and note.send (external). row is
// more of the row of server one, and read more of the contract note.read.
func newOffice(t *testing.T, row, read string) *office {
	t.Helper()
	o := &office{fakes: map[string]*rig.Fake{}}
	urls := map[string]string{}
	for name, tools := range map[string][]string{
		"one": {tool("fetch", "path"), tool("put", "path", "text"), tool("post", "to", "text")},
		"two": {tool("cat", "file", "raw"), tool("save", "file", "data"), tool("send", "address", "body")},
	} {
		f := rig.NewFake(append(tools, "modern", "tape="+filepath.Join(t.TempDir(), "tape")))
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		o.fakes[name], urls[name] = f, s.URL
	}
	var err error
	if o.one, err = fault.NewHTTP(fault.Modern, urls["one"], nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.one.Close)
	contract := func(id, verb, more, tool string, arguments ...string) string {
		return fmt.Sprintf("id: %s\nversion: 1.0.0\nstatus: active\nverb: %s\nresource: fs\n%srequired_tools:\n  %s: {input_schema: %s}\n", id, verb, more, tool, schema(arguments...))
	}
	o.dir = rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
start_deadline: 30s
servers:
  one: {transport: http, url: %q%s}
  two: {transport: http, url: %q}
tenants:
  default: {servers: ["*"]}
-- capabilities/read.yaml --
%s-- capabilities/write.yaml --
%s-- capabilities/send.yaml --
%s-- overlays/one.yaml --
server: one
provides:
  - {capability: note.read@^1, tools: {read_note: fetch}}
  - {capability: note.write@^1, tools: {write_note: put}}
  - {capability: note.send@^1, tools: {send_note: post}}
-- overlays/two.yaml --
server: two
provides:
  - {capability: note.read@^1, tools: {read_note: {tool: cat, map: {path: file}, constants: {raw: "yes"}}}}
  - {capability: note.write@^1, tools: {write_note: {tool: save, map: {path: file, text: data}}}}
  - {capability: note.send@^1, tools: {send_note: {tool: send, map: {to: address, text: body}}}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
ranking: {adjust: [{server: one, by: 20}]}
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities: [{capability: note.read@^1}, {capability: note.write@^1}, {capability: note.send@^1}]
`, o.one.URL, row, urls["two"],
		contract("note.read", "read", "constraints: [readonly]\n"+read, "read_note", "path"),
		contract("note.write", "write", "stateful: true\n", "write_note", "path", "text"),
		contract("note.send", "notify", "side_effects: [writes-external]\n", "send_note", "to", "text")))
	publish(t, o.dir)
	return o
}

// schema returns the schema of an object with these texts, and nothing else.
func schema(arguments ...string) string {
	var properties []string
	for _, a := range arguments {
		properties = append(properties, fmt.Sprintf(`%q: {"type": "string"}`, a))
	}
	return fmt.Sprintf(`{"type": "object", "properties": {%s}, "required": ["%s"], "additionalProperties": false}`, strings.Join(properties, ", "), strings.Join(arguments, `", "`))
}

// tool returns the definition of a tool of a server with these arguments.
func tool(name string, arguments ...string) string {
	return fmt.Sprintf(`{"name": %q, "inputSchema": %s}`, name, schema(arguments...))
}

// received returns the calls that a server has got so far: the tool and the bytes of the arguments.
func (o *office) received(t *testing.T, server string) (calls []string) {
	t.Helper()
	for line := range strings.Lines(rig.ReadFile(t, o.fakes[server].Tape)) {
		var q struct {
			Method string
			Params struct {
				Name      string
				Arguments json.RawMessage
			}
		}
		text, err := strconv.Unquote(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			t.Fatal(err)
		}
		if q.Method == "tools/call" {
			calls = append(calls, q.Params.Name+" "+string(q.Params.Arguments))
		}
	}
	return calls
}

func TestACallWhoseServerDiesMovesUnderTheRulesOfItsContract(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	o := newOffice(t, ", timeout: 3s", "")
	g := rig.Serve(t, o.dir)
	sessions := map[bool]rig.Session{false: g.Open(t, "/mcp", false), true: g.Open(t, "/mcp", true)}
	n := 0
	for _, kind := range []fault.Kind{fault.ResetAfter, fault.ExitAfter, fault.Status502, fault.HangBefore} {
		for modern, s := range sessions {
			if kind == fault.HangBefore && modern {
				continue // one wait is enough
			}
			for _, tt := range []struct{ tool, args, one, two string }{
				{"read_note", `{"path":"%d \u0061"}`, `fetch {"path":"%d \u0061"}`, `cat {"file":"%d \u0061","raw":"yes"}`},
				{"write_note", `{"text":"x","path":"%d"}`, `put {"text":"x","path":"%d"}`, ""},
				{"send_note", `{"to":"%d","text":"x"}`, `post {"to":"%d","text":"x"}`, ""},
			} {
				if kind == fault.HangBefore && tt.tool == "send_note" {
					continue
				}
				n++
				// A success between the faults, so that the server is not quarantined.
				if got := rig.Call(t, s, tt.tool, fmt.Sprintf(tt.args, 0)); got != "" {
					t.Fatalf("%s without a fault: %s", tt.tool, got)
				}
				was := map[string]int{"one": len(o.received(t, "one")), "two": len(o.received(t, "two"))}
				fresh := func(server string) []string { return o.received(t, server)[was[server]:] }
				o.one.Arm(fault.Order{Kind: kind, Times: 1})
				m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tt.tool, fmt.Sprintf(tt.args, n)))
				o.one.Disarm()
				where := fmt.Sprintf("%s, %s, modern client %v", tt.tool, kind, modern)
				wantOne, wantTwo := []string{fmt.Sprintf(tt.one, n)}, []string(nil)
				if tt.two != "" {
					wantTwo = []string{fmt.Sprintf(tt.two, n)}
					if _, args, _ := strings.Cut(wantTwo[0], " "); m.Text() != args {
						t.Errorf("%s: the call did not move: %s", where, m.Raw)
					}
				} else if code := rig.Code(m); code != "SB-EXEC-004" {
					t.Errorf("%s: %s %s", where, code, m.Raw)
				}
				if got := fresh("one"); !slices.Equal(got, wantOne) {
					t.Errorf("%s: server one received %q, want %q", where, got, wantOne)
				}
				if got := fresh("two"); !slices.Equal(got, wantTwo) {
					t.Errorf("%s: server two received %q, want %q", where, got, wantTwo)
				}
			}
		}
	}
}
