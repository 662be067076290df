package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// An office is two servers that provide the same capabilities by tools with other names and other arguments. Server one is
// preferred, and stands behind a proxy that fails on cue.
type office struct {
	dir   string
	one   *fault.HTTP
	fakes map[string]*fakeserver.Server // by server
}

// newOffice lays out the two servers with the contracts note.read (readonly), note.write (stateful) and note.send (external). row is
// more of the row of server one, and read more of the contract note.read.
func newOffice(t *testing.T, row, read string) *office {
	t.Helper()
	o := &office{fakes: map[string]*fakeserver.Server{}}
	urls := map[string]string{}
	for name, tools := range map[string][]string{
		"one": {tool("fetch", "path"), tool("put", "path", "text"), tool("post", "rcpt", "text")},
		"two": {tool("cat", "file", "raw"), tool("save", "file", "data"), tool("send", "address", "body")},
	} {
		f := fakeserver.New(append(tools, "modern", "tape="+filepath.Join(t.TempDir(), "tape")))
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
  - {capability: note.send@^1, tools: {send_note: {tool: post, map: {to: rcpt}}}}
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
				{"send_note", `{"to":"%d","text":"x"}`, `post {"rcpt":"%d","text":"x"}`, ""},
			} {
				if kind == fault.HangBefore && tt.tool == "send_note" {
					continue
				}
				var m rig.Message
				var was map[string]int
				fresh := func(server string) []string { return o.received(t, server)[was[server]:] }
				// A server that has just failed may be passed over: then nothing is sent to it, and the call is no example.
				rig.Eventually(t, "server one gets the call", func() string {
					// A success between the faults, so that the server is not quarantined, and a connection that is not cut.
					rig.Eventually(t, "server one serves", func() string {
						m, _ := s.Ask(t, "tools/call", `{"name":"read_note","arguments":{"path":"0"}}`)
						return rig.ReasonUnless(m.Text() == `{"path":"0"}`, string(m.Raw))
					})
					n++
					was = map[string]int{"one": len(o.received(t, "one")), "two": len(o.received(t, "two"))}
					o.one.Arm(fault.Order{Kind: kind, Times: 1})
					m, _ = s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tt.tool, fmt.Sprintf(tt.args, n)))
					o.one.Disarm()
					return rig.ReasonUnless(len(fresh("one")) > 0, string(m.Raw))
				})
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

func TestAKeyOfACallThatMovedGivesItsResultAgain(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	o := newOffice(t, "", "")
	g := rig.Serve(t, o.dir)
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		key := fmt.Sprint("modern ", modern)
		o.one.Arm(fault.Order{Kind: fault.ResetAfter, Times: 1})
		want := repeated{text: fmt.Sprintf(`{"file":%q,"raw":"yes"}`, key)}
		if got := once(t, s, key, "read_note", fmt.Sprintf(`{"path":%q}`, key)); got != want {
			t.Fatalf("%s: the call did not move: %+v", key, got)
		}
		one, two := len(o.received(t, "one")), len(o.received(t, "two"))
		want.given = true
		if got := once(t, s, key, "read_note", fmt.Sprintf(`{ "path" : %q }`, key)); got != want {
			t.Errorf("%s: the call with its key again: %+v", key, got)
		}
		for args, code := range map[string]string{`{"path":"other"}`: "SB-CAP-006", fmt.Sprintf(`{"file":%q,"raw":"yes"}`, key): "SB-CAP-003", `{}`: "SB-CAP-003"} {
			if got := once(t, s, key, "read_note", args); got.code != code {
				t.Errorf("%s: with %s: %+v, want %s", key, args, got, code)
			}
		}
		if got := once(t, s, key, "write_note", fmt.Sprintf(`{"path":%q,"text":"x"}`, key)); got.code != "SB-CAP-006" {
			t.Errorf("%s: another tool: %+v", key, got)
		}
		o.one.Arm(fault.Order{Kind: fault.ResetAfter, Times: 1})
		for range 2 { // the second time by its key
			if got := once(t, s, key+" write", "write_note", `{"path":"a","text":"x"}`); got.code != "SB-EXEC-004" {
				t.Errorf("%s: a write whose server died: %+v", key, got)
			}
		}
		if a, b := len(o.received(t, "one"))-one, len(o.received(t, "two"))-two; a != 1 || b != 0 {
			t.Errorf("%s: the servers received %d and %d calls after the first, want the one write", key, a, b)
		}
	}
}

// A person decides about a call of a contract's tool. The request and the receipts name the version that the client means.
func TestACallOfAContractThatWaitsForAPersonIsResumedAndRecorded(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "", "")
	key, hash := identity.Mint(identity.PersonPrefix)
	main := filepath.Join(o.dir, "switchboard.yaml")
	row := fmt.Sprintf(`servers: ["*"], approvers: [{key: owner, hash: %q}]`, hash)
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), `servers: ["*"]`, row, 1)+"approvals: {wait: 1s}\n")
	rig.WriteFile(t, filepath.Join(o.dir, boundaries), "- {id: ask_first, severity: hard, id_matches: 'note\\.send', decision: require_approval, who: [owner]}\n")
	g := rig.Serve(t, o.dir)
	for i, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"send_note","arguments":{ "text" : "\u0061%d", "to":"ann" }}`, i))
		found := requestID.FindStringSubmatch(string(m.Raw))
		if rig.Code(m) != "SB-APPR-001" || found == nil {
			t.Fatalf("the call does not wait: %s", m.Raw)
		}
		var request struct{ Tool, Capability, Text string }
		if err := json.Unmarshal([]byte(g.AskAdmin(t, key, "GET", "/v1/approvals/"+found[1], "").Body), &request); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"one call of one/post", "provides     note.send@1.0.0", "policy:ask_first (capabilities/boundaries.yaml:1)", `"rcpt": "ann"`, fmt.Sprintf(`"text": "a%d"`, i)} {
			if !strings.Contains(request.Text, want) {
				t.Errorf("the request lacks %s:\n%s", want, request.Text)
			}
		}
		if request.Tool != "one/post" || request.Capability != "note.send@1.0.0" {
			t.Errorf("the request is %+v", request)
		}
		if len(o.received(t, "one")) != i {
			t.Error("the call was made before the yes")
		}
		if a := g.AskAdmin(t, key, "POST", "/v1/approvals/"+found[1]+"/approve", `{"note":"yes"}`); a.Status != http.StatusOK {
			t.Fatalf("approve: %d %s", a.Status, a.Body)
		}
		for range 2 { // the second time, the yes is used
			_, m = resume(t, s, found[1])
		}
		want := fmt.Sprintf(`post {"text":"\u0061%d","rcpt":"ann"}`, i)
		if got := o.received(t, "one"); len(got) != i+1 || got[i] != want {
			t.Errorf("server one received %q, want once %s; the last answer is %s", got, want, m.Raw)
		}
	}
	if got := o.received(t, "two"); len(got) > 0 {
		t.Errorf("server two received %q", got)
	}
	rig.Eventually(t, "both calls have receipts", func() string { // the end of a call is recorded after its answer
		out, errs, _ := rig.Command(t, o.dir, "receipts", "list", "--kind", "call", "--json")
		made := 0
		for line := range strings.Lines(out) {
			var row struct {
				Entry struct {
					Receipt struct{ Server, Tool, Capability, Outcome string }
				}
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%v: %s%s", err, line, errs)
			}
			r := &row.Entry.Receipt
			if r.Tool == "post" && (r.Server != "one" || r.Capability != "note.send@1.0.0") {
				t.Fatalf("a receipt does not name the version: %s", line)
			}
			if r.Tool == "post" && r.Outcome == "ok" {
				made++
			}
		}
		return rig.ReasonUnless(made == 2, fmt.Sprintf("%d have:\n%s", made, out))
	})
	if out, errs, code := rig.Command(t, o.dir, "receipts", "replay"); code != 0 || !strings.Contains(out, "the same to the byte") {
		t.Errorf("replay exits %d:\n%s%s", code, out, errs)
	}
}
