package bind

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// bindWithin binds a task of two tools within a token budget. rule is one of the operator's policy; whole means that there is only a list of servers.
func bindWithin(t *testing.T, budget int, rule string, whole bool) (*surface.Surface, error) {
	t.Helper()
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":          {Data: []byte("servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [\"*\"], allow: [by_name]}}\n")},
		"policies/p.rego":           {Data: []byte("package switchboard\nallowed_tools contains c.id if some c in input.candidate_tools\n" + rule + "\n")},
		"tenants/acme/tenant.yaml":  {Data: []byte("tenant: acme\ndefault_task: t\n")},
		"tenants/acme/tasks/t.yaml": {Data: []byte("task_id: t\nrequired_capabilities: [{tools: [\"a/*\"]}]\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Implied = whole
	c.Tenants["acme"].Tasks["t"].TokenBudget = budget
	in := inputOf(t, c, 0)
	in.Offers = []switchboard.Offer{{Server: "a", Tools: [][]byte{
		[]byte(`{"name":"send","description":"` + strings.Repeat("Sends a mail to people. ", 40) + `","inputSchema":{"type":"object"}}`),
		[]byte(`{"name":"look","description":"` + strings.Repeat("Looks for mails of people. ", 40) + `","inputSchema":{"type":"object"}}`),
	}}}
	w := &world{current: in, state: NewState(in, nil)}
	return w.Bind(t.Context(), localUser, "t", run.Before{})
}

// Our own tool that resumes calls is listed as soon as a tool may need an approval, and it is charged like everything that is listed: a task that fits to
// the token without it does not start, and the refusal names it; a plain list of servers folds into its stub.
func TestTheToolThatResumesCallsIsChargedLikeAllThatIsListed(t *testing.T) {
	const asks = `obligations["a/send"] contains {"type": "require_approval"}`
	within := func(budget int, rule string, whole bool) (total, resume int, err error) {
		s, err := bindWithin(t, budget, rule, whole)
		if err != nil {
			return 0, 0, err
		}
		total = s.InstructionTokens()
		for e, n := range s.Charged() {
			total += n
			if e.Name == approval.ResumeTool {
				resume = n
			}
		}
		return total, resume, nil
	}
	free, none, err := within(100_000, "", false)
	if err != nil || none != 0 {
		t.Fatalf("nothing asks, and the tool costs %d: %v", none, err)
	}
	all, resume, err := within(100_000, asks, false)
	if err != nil || resume == 0 || resume > 120 || all != free+resume {
		t.Fatalf("the list costs %d, and with the tool %d, of which it costs %d: %v", free, all, resume, err)
	}
	s, err := bindWithin(t, 100_000, asks, false)
	if err != nil {
		t.Fatal(err)
	}
	tools := all - s.InstructionTokens() // instructions give way to tools
	if _, _, err := within(tools, asks, false); err != nil {
		t.Errorf("what fits to the token: %v", err)
	}
	if _, _, err := within(tools-resume, "", false); err != nil {
		t.Errorf("what fits to the token while nothing asks: %v", err)
	}
	_, _, err = within(tools-1, asks, false)
	if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Code != switchboard.CodeOverBudget || !strings.Contains(own.Text, approval.ResumeTool) {
		t.Errorf("a token less: %v", err)
	}
	if folded, err := bindWithin(t, all-1, asks, true); err != nil || !shows(folded, "tools_helper") || !shows(folded, approval.ResumeTool) {
		t.Errorf("a token less, of a plain list of servers: %v", err)
	}
	if whole, err := bindWithin(t, all, asks, true); err != nil || shows(whole, "tools_helper") {
		t.Errorf("a plain list of servers that fits: %v", err)
	}
}

// shows reports whether the surface charges a tool of the name.
func shows(s *surface.Surface, name string) bool {
	for e := range s.Charged() {
		if e.Name == name {
			return true
		}
	}
	return false
}
