package served_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A pair is two servers with the same tools: a, which is preferred and stands
// behind a fault proxy, and b.
type pair struct {
	dir    string
	ledger fault.Ledger
	a      *fault.HTTP
}

// newPair lays out a configuration with the two servers, and more rows for each.
// Its one task wants a capability that all their tools have.
func newPair(t *testing.T, tr fault.Transport, rows string) *pair {
	t.Helper()
	p := &pair{ledger: fault.Ledger(filepath.Join(t.TempDir(), "ledger"))}
	urls := map[string]string{}
	for _, name := range []string{"a", "b"} {
		h := fault.NewHandler(tr, name, p.ledger)
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		urls[name] = server.URL
		if name == "a" {
			var err error
			if p.a, err = fault.NewHTTP(tr, server.URL, h.Restart); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.a.Close)
			urls[name] = p.a.URL
		}
	}
	label := ""
	for _, tool := range fault.Tools {
		constraint := ""
		if tool == fault.Deterministic {
			constraint = ", constraints: [readonly]"
		}
		label += fmt.Sprintf("  %s: {capabilities: [{verb: execute, resource: fs%s}]}\n", tool, constraint)
	}
	p.dir = rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
start_deadline: 30s
servers:
  a: {transport: http, url: %q%s}
  b: {transport: http, url: %q%s}
tenants:
  default: {servers: ["*"]}
-- overlays/a.yaml --
server: a
tools:
%s-- overlays/b.yaml --
server: b
tools:
%s-- tenants/default/tenant.yaml --
tenant: default
default_task: work
ranking: {prefer: [{verb: execute, resource: fs, servers: [a, b]}]}
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities:
  - {verb: execute, resource: fs}
`, urls["a"], rows, urls["b"], rows, label, label))
	return p
}

// served names the server that answers a call of the tool, or the code with which
// it is refused.
func (p *pair) served(t *testing.T, s rig.Session, tool, key string) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"key":%q}}`, tool, key))
	for _, name := range []string{"a", "b"} {
		if strings.Contains(string(m.Raw), fault.Answer(name, tool[strings.LastIndex(tool, "_")+1:], key)) {
			return name
		}
	}
	return rig.Code(m)
}

// fitness is how a server fares, as status says it.
type fitness struct {
	State string
	Cause struct{ Stage, Message string } `json:"last_failure"`
}

// fitnessOf returns the health of server a.
func fitnessOf(t *testing.T, g *rig.Gateway) fitness {
	t.Helper()
	var st struct {
		Servers []struct {
			ID     string
			Health fitness
		}
	}
	out, errs, _ := rig.Command(t, g.Dir, "status", "--json", "--url", g.URL)
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		t.Fatalf("status: %v\n%s%s", err, out, errs)
	}
	for _, s := range st.Servers {
		if s.ID == "a" {
			return s.Health
		}
	}
	t.Fatalf("no server a in %s", out)
	return fitness{}
}

// Nothing says that the two servers' tools do the same, so no call moves: the
// run does, and says so.
func TestARunLeavesAServerThatIsGoneForTheNextInRank(t *testing.T) {
	t.Parallel()
	for _, tr := range []fault.Transport{fault.Legacy, fault.Modern, fault.SSE} {
		t.Run(string(tr), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, tr, ", health: {every: 1s}")
			g := rig.Serve(t, p.dir)
			pipe, modern := rig.Stdio(t, p.dir, false), g.Open(t, "/mcp", true)
			for _, s := range []rig.Session{pipe, modern} {
				if got := p.served(t, s, fault.Stateful, "first"); got != "a" {
					t.Fatalf("%s serves at first", got)
				}
			}
			p.a.Arm(fault.Order{Kind: fault.Refuse})
			p.a.Arm(fault.Order{Kind: fault.ResetBefore, Method: "ping"})
			p.a.Arm(fault.Order{Kind: fault.ResetBefore, Method: "tools/list"})
			p.a.Arm(fault.Order{Kind: fault.ResetBefore})
			// What was shown goes on being called, and each call ends.
			for i := range 3 {
				if got := p.served(t, modern, fault.Stateful, fmt.Sprint("lost-", i)); !strings.HasPrefix(got, "SB-") && got != "b" {
					t.Errorf("a call of the dead server gave %s", got)
				}
			}
			for name, s := range map[string]rig.Session{"stdio": pipe, "modern": modern} {
				i := 0
				rig.Eventually(t, name+" is served by the next server, under the same name", func() string {
					i++
					if got := p.served(t, s, fault.Stateful, fmt.Sprintf("second-%s-%d", name, i)); got != "b" {
						return got
					}
					return ""
				})
			}
			rig.Eventually(t, "status says what is wrong with the dead server", func() string {
				if st := fitnessOf(t, g); st.State != "quarantine" || st.Cause.Stage == "" || st.Cause.Message == "" {
					return fmt.Sprintf("%+v", st)
				}
				return ""
			})

			// It comes back: who has left it stays, who comes anew finds it.
			p.a.Disarm()
			rig.Eventually(t, "it is healthy again", func() string {
				if st := fitnessOf(t, g); st.State != "healthy" {
					return fmt.Sprintf("%+v", st)
				}
				return ""
			})
			if got := p.served(t, modern, fault.Stateful, "third"); got != "b" {
				t.Errorf("%s serves those who had left", got)
			}
			if got := p.served(t, g.Open(t, "/mcp", false), fault.Stateful, "fourth"); got != "a" {
				t.Errorf("%s serves a new session", got)
			}
			for i := range 3 {
				if by, err := p.ledger.Executed(fmt.Sprint("lost-", i)); err != nil || len(by) > 1 || by["a"] > 0 {
					t.Errorf("call %d was executed by %v, %v", i, by, err)
				}
			}
		})
	}
}

func TestAServerIsProbedAsItIsConfigured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rows string
		fault      fault.Order
		called     bool   // the tool that is named
		fails      bool   // the server, for the fault
		said       string // by status, of the configuration
	}{
		{"by a ping", `health: {every: 1s, timeout: 1s}`, fault.Order{Kind: fault.HangBefore, Method: "ping"}, false, true, ""},
		{"by a path, which it does not have", `health: {every: 1s, path: /healthz}`, fault.Order{}, false, true, ""},
		{"by a tool that only reads", `health: {every: 1s, timeout: 1s, call: {tool: deterministic, arguments: {key: probe}}}`, fault.Order{Kind: fault.HangBefore, Key: "probe"}, true, true, ""},
		{"by a tool that is harmless, but does something", `trust: operator, health: {every: 1s, call: {tool: idempotent, arguments: {key: probe}}}`, fault.Order{Kind: fault.HangBefore, Key: "probe"}, false, false, "only a tool that changes nothing"},
		{"by a tool that changes something", `trust: operator, health: {every: 1s, call: {tool: stateful, arguments: {key: probe}}}`, fault.Order{Kind: fault.HangBefore, Key: "probe"}, false, false, "only a tool that changes nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, fault.Legacy, ", "+tt.rows)
			g := rig.Serve(t, p.dir)
			s := g.Open(t, "/mcp", true)
			if got := p.served(t, s, fault.Stateful, "first"); !strings.HasPrefix(tt.name, "by a path") && got != "a" {
				t.Fatalf("%s serves", got)
			}
			if tt.called {
				rig.Eventually(t, "the tool is called", func() string {
					if by, err := p.ledger.Executed("probe"); by["a"] == 0 || err != nil {
						return fmt.Sprint(by, err)
					}
					return ""
				})
			}
			if tt.fault.Kind != "" {
				p.a.Arm(tt.fault)
			}
			if tt.fails {
				rig.Eventually(t, "the probes find it out", func() string {
					if st := fitnessOf(t, g); st.State != "quarantine" || st.Cause.Stage != "probe" {
						return fmt.Sprintf("%+v", st)
					}
					return ""
				})
			}
			out, _, _ := rig.Command(t, p.dir, "status", "--url", g.URL)
			if strings.Contains(out, "health: ") != (tt.said != "") || !strings.Contains(out, tt.said) {
				t.Errorf("status says\n%s", out)
			}
			if by, _ := p.ledger.Executed("probe"); !tt.called && len(by) > 0 {
				t.Errorf("the tool was called: %v", by)
			}
		})
	}
}

// The same tools on two servers for which the operator vouches are equivalents.
func TestACallOfADeadServerIsServedByTheEquivalentThatSaysSo(t *testing.T) {
	t.Parallel()
	for _, tr := range []fault.Transport{fault.Legacy, fault.Modern, fault.SSE} {
		t.Run(string(tr), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, tr, ", trust: operator")
			g := rig.Serve(t, p.dir)
			for _, modern := range []bool{false, true} {
				var s rig.Session
				rig.Eventually(t, "a new session is bound to a", func() string { // the trouble of the round before can be told late
					s = g.Open(t, "/mcp", modern)
					if by := p.served(t, s, fault.Stateful, fmt.Sprint("first-", modern)); by != "a" {
						return "bound to " + by
					}
					if state := fitnessOf(t, g).State; state != "healthy" {
						return "a is " + state
					}
					return ""
				})
				before := rig.ListNames(t, s)
				p.a.Arm(fault.Order{Kind: fault.Refuse})
				call := func(key string) rig.Message {
					m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"stateful","arguments":{"key":%q}}`, key))
					return m
				}
				for i := range 3 {
					key := fmt.Sprint("moved-", modern, i)
					m := call(key)
					if i == 0 && rig.Code(m) == "SB-EXEC-004" { // it was sent before the machine told of the closed connection. Only the first call may meet that.
						if by, err := p.ledger.Executed(key); err != nil || len(by) > 0 {
							t.Errorf("the call that broke off was executed by %v, %v", by, err)
						}
						key += "-again"
						m = call(key)
					}
					var meta struct {
						Moved struct {
							ServedBy string `json:"served_by"`
							Tried    []struct {
								Tool, Code string
								Sent       bool
							}
						} `json:"io.switchboard/moved"`
					}
					var r struct {
						Meta json.RawMessage `json:"_meta"`
					}
					if err := json.Unmarshal(m.Result, &r); err != nil || json.Unmarshal(r.Meta, &meta) != nil {
						t.Fatalf("the result is %s", m.Raw)
					}
					if !strings.Contains(string(m.Raw), fault.Answer("b", fault.Stateful, key)) || meta.Moved.ServedBy != "b/stateful" || len(meta.Moved.Tried) != 1 || meta.Moved.Tried[0].Tool != "a/stateful" || meta.Moved.Tried[0].Sent {
						t.Errorf("call %d gave %s", i, m.Raw)
					}
					if by, err := p.ledger.Executed(key); err != nil || by["a"] != 0 || by["b"] != 1 {
						t.Errorf("call %d was executed by %v, %v", i, by, err)
					}
				}
				if again := rig.ListNames(t, s); !slices.Equal(before, again) {
					t.Errorf("the list was %q and is %q", before, again)
				}
				p.a.Disarm()
				rig.Eventually(t, "it serves again", func() string {
					if got := p.served(t, s, fault.Stateful, fmt.Sprint("back-", modern)); got != "a" {
						return got
					}
					return ""
				})
			}
			if out, _, _ := rig.Command(t, p.dir, "status", "--url", g.URL); !strings.Contains(out, "calls served by others") {
				t.Errorf("status says nothing of moved calls:\n%s", out)
			}
			rig.Eventually(t, "the moves are recorded", func() string {
				out, errs, _ := rig.Command(t, p.dir, "receipts", "list", "--json")
				if !strings.Contains(out, `"served_by":"b/stateful"`) || !strings.Contains(out, `"tries":[{`) {
					return out + errs
				}
				return ""
			})
			checkIntents(t, receipts(t, p.dir))
			if out, errs, code := rig.Command(t, p.dir, "policy", "diff", "--against", "."); code != 0 {
				t.Errorf("records of moves disturb policy diff (exit %d):\n%s%s", code, out, errs)
			}
		})
	}
}

// PO-09: a fallback that policy vetoes is not used, whether it is vetoed when it is
// chosen or for the arguments of the call.
func TestPO09_AVetoedEquivalentTakesNoCall(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	for name, veto := range map[string]string{
		"always":            `c.server == "b"`,
		"for its arguments": `c.server == "b"; startswith(input.call.arguments.key, "no-")`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, fault.Modern, ", trust: operator")
			rig.WriteFile(t, filepath.Join(p.dir, "tenants/default/policies/p.rego"), `package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "not there" if {
	some c in input.candidate_tools
	`+veto+`
}
`)
			g := rig.Serve(t, p.dir)
			for _, modern := range []bool{false, true} {
				s := g.Open(t, "/mcp", modern)
				if got := p.served(t, s, fault.Deterministic, "first"); got != "a" {
					t.Fatalf("%s serves at first", got)
				}
				p.a.Arm(fault.Order{Kind: fault.Refuse})
				key := fmt.Sprint("no-", modern)
				if got := p.served(t, s, fault.Deterministic, key); !strings.HasPrefix(got, "SB-") {
					t.Errorf("%s serves a call that policy denies it", got)
				}
				if by, err := p.ledger.Executed(key); err != nil || len(by) > 0 {
					t.Errorf("it was executed by %v, %v", by, err)
				}
				if got := p.served(t, s, fault.Deterministic, fmt.Sprint("yes-", modern)); name != "always" && got != "b" {
					t.Errorf("%s serves a call that policy has nothing against", got)
				}
				p.a.Disarm()
				rig.Eventually(t, "it serves again", func() string {
					if got := p.served(t, s, fault.Deterministic, "back"); got != "a" {
						return got
					}
					return ""
				})
			}
		})
	}
}
