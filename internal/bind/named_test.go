package bind

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An agent can ask why a capability that its task names is not there. The list of any other task stays as it is.
func TestOnlyATaskThatNamesACapabilityListsTheStatusTool(t *testing.T) {
	t.Parallel()
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":              {Data: []byte("servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a]}}\n")},
		"capabilities/look.yaml":        {Data: []byte("{id: io.look, version: 1.0.0, status: testing, verb: read, resource: fs, required_tools: {look: {}}}\n")},
		"tenants/acme/tenant.yaml":      {Data: []byte("tenant: acme\n")},
		"tenants/acme/tasks/plain.yaml": {Data: []byte("task_id: plain\nrequired_capabilities: [{verb: read, resource: fs}]\n")},
		"tenants/acme/tasks/named.yaml": {Data: []byte("task_id: named\nrequired_capabilities: [{verb: read, resource: fs}]\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	activate(c)
	named := c.Tenants["acme"].Tasks["named"] // a file may name only what is published
	named.Requirements = append(named.Requirements, switchboard.Requirement{Capability: "io.look", Verb: "read", Resource: "fs", Optional: true})
	in := inputOf(t, c, 0)
	in.StatusTool = &switchboard.Tool{ID: switchboard.ToolID{Name: "switchboard_status"}}
	in.Offers = []switchboard.Offer{{Server: "a", Tools: [][]byte{[]byte(`{"name":"open","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"read","resource":"fs"}]}}`)}}}
	s := NewState(in, nil)
	for id, want := range map[switchboard.TaskID]bool{"plain": false, "named": true} {
		shown, err := s.bindTask(t.Context(), localUser, id, run.Before{}, decide.Observed{}, nil, nil, func(*Tenant, *decide.Decision, error) func() Record {
			return func() Record { return Record{} }
		})
		if err != nil {
			t.Fatal(err)
		}
		list := string(shown.List(switchboard.Tools, true))
		if got := strings.Contains(list, `"switchboard_status"`); got != want || !strings.Contains(list, `"open"`) {
			t.Errorf("task %s: the list has the status tool: %v: %s", id, got, list)
		}
	}
}
