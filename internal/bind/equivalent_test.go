package bind

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// threeServers returns a state with the trusted servers a, b and c. Each has one of the given
// tools.
func threeServers(t *testing.T, rego string, tools ...string) *State {
	t.Helper()
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":             {Data: []byte("servers: {a: {transport: stdio, command: [a], trust: operator}, b: {transport: stdio, command: [b], trust: operator}, c: {transport: stdio, command: [c], trust: operator}}\npolicies: {veto: task}\ntenants: {acme: {servers: [a, b, c], allow: [by_name]}}\n")},
		"tenants/acme/tenant.yaml":     {Data: []byte("tenant: acme\ndefault_task: work\nranking: {adjust: [{server: a, by: 20}, {server: c, by: 10}]}\n")},
		"tenants/acme/tasks/work.yaml": {Data: []byte("task_id: work\nrequired_capabilities:\n  - {verb: search, resource: internet}\n  - {verb: read, resource: internet}\n")},
		"policies/p.rego":              {Data: []byte(rego)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	in := inputOf(t, c, time.Minute)
	for i, id := range []switchboard.ServerID{"a", "b", "c"} {
		in.Offers = append(in.Offers, switchboard.Offer{Server: id, Tools: [][]byte{[]byte(tools[i])}})
	}
	return NewState(in, nil)
}

// When a call moves to another tool, policy judges it for every requirement that this tool could
// serve.
func TestNames13AVetoForTheWholeTaskCountsWhereACallMoves(t *testing.T) {
	tool := func(name string, verbs ...string) string {
		caps := ""
		for i, v := range verbs {
			caps += []string{"", ","}[min(i, 1)] + fmt.Sprintf(`{"verb":%q,"resource":"internet"}`, v)
		}
		return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"x-summit-capabilities":[%s]}}`, name, caps)
	}
	s := threeServers(t, "package switchboard\nallowed_tools contains c.id if some c in input.candidate_tools\ndeny[c.id] contains \"no\" if {\n"+
		"\tinput.phase == \"call\"\n\tsome c in input.candidate_tools\n\tinput.requirement.verb == \"read\"\n\tc.server == \"b\"\n}\n",
		tool("search", "search"), tool("search", "search", "read"), tool("reader", "read"))
	p, err := s.CurrentPrincipal(switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.DecideConfigured(t.Context(), p, "work", decide.Observed{}, time.Now())
	if err != nil || d.Err() != nil {
		t.Fatal(err, d.Err())
	}
	own, moves := s.Tenants["acme"], 0
	for _, sel := range own.withEquivalents(d) {
		for _, e := range sel.Equivalents {
			moves++
			call := &switchboard.Call{Principal: p, Task: "work", Server: e.Tool.ID.Server, Method: "tools/call", Tool: e.Tool, Judgments: e.Judgments, Params: []byte(`{"name":"x","arguments":{}}`)}
			if r := own.Rules.JudgeCall(t.Context(), call, time.Now()); (r.Err != nil) != (e.Tool.ID.Server == "b") {
				t.Errorf("a call of %s that moves to %s: %v", sel.Tool.ID, e.Tool.ID, r.Err)
			}
		}
	}
	if moves == 0 {
		t.Error("no tool has an equivalent")
	}
}
