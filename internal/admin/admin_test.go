package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

var loaded = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// twoTenants returns the Reader of a Switchboard without connections, with the tenants acme and umbrella. Each has one server.
func twoTenants(t *testing.T) (*Reader, *Actions) {
	t.Helper()
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":                 {Data: []byte("servers: {a: {transport: stdio, command: [a]}, u: {transport: stdio, command: [u]}}\ntenants: {acme: {servers: [a]}, umbrella: {servers: [u]}}\n")},
		"policies/p.rego":                  {Data: []byte("package switchboard\nallowed_tools contains c.id if some c in input.candidate_tools\n")},
		"tenants/acme/tenant.yaml":         {Data: []byte("tenant: acme\ndefault_task: work\n")},
		"tenants/acme/tasks/work.yaml":     {Data: []byte("task_id: work\nrequired_capabilities: [{verb: read, resource: fs}]\n")},
		"tenants/umbrella/tenant.yaml":     {Data: []byte("tenant: umbrella\ndefault_task: work\n")},
		"tenants/umbrella/tasks/work.yaml": {Data: []byte("task_id: work\nrequired_capabilities: [{verb: read, resource: fs}]\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	operator, err := policy.Compile(policy.Operator, c.Policies)
	if err != nil {
		t.Fatal(err)
	}
	policies, engine := map[switchboard.TenantID]*policy.Policy{}, policy.NewEngine(time.Minute, 0)
	for id, tenant := range c.Tenants {
		if policies[id], err = engine.NewPolicy(tenant, operator, nil); err != nil {
			t.Fatal(err)
		}
	}
	const tool = `{"name":"open","description":"Opens a file.","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"read","resource":"fs"}]}}`
	st := bind.NewState(bind.Input{
		Config: c, Operator: c.Policies, Policies: policies, Local: "acme", StatusTool: &switchboard.Tool{},
		Offers: []switchboard.Offer{{Server: "a", Tools: [][]byte{[]byte(tool)}}},
	}, nil)
	log, memory := slog.New(slog.DiscardHandler), store.NewMemory()
	ledger, err := receipt.OpenLedger(t.Context(), receipt.LedgerOptions{Store: memory, Lease: time.Second, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	monitor := health.New(health.Options{Log: log, Store: memory, Probe: func(context.Context, *switchboard.Server) error { return nil }})
	t.Cleanup(monitor.Close)
	fleet := upstream.New(upstream.Options{Log: log})
	binder := bind.New(bind.Options{
		State: func() *bind.State { return st }, Unfit: monitor.Unfit, Log: log,
		Record: func(*bind.Tenant, *decide.Decision, error) func() bind.Record {
			return func() bind.Record { return bind.Record{} }
		},
	}, nil)
	since := map[switchboard.TenantID]time.Time{"acme": loaded, "umbrella": loaded}
	r := NewReader(ReaderOptions{
		Configuration: func() Configuration {
			return Configuration{State: st, Loaded: loaded, PolicySince: since, Refused: &RefusedReload{When: loaded, Since: loaded, Why: "a fault in a file of umbrella"}}
		},
		Binder: binder, Runs: run.New(binder, surface.New(surface.Input{}), memory), Meter: run.NewMeter(func([]byte) int { return 0 }),
		Fleet: fleet, Health: monitor, Store: memory, Cluster: &cluster.Cluster{}, Ledger: ledger, Recorder: replay.NewRecorder(nil, nil, ledger.Digests()),
		ProcessFacts: ProcessFacts{Addresses: func() (agents, officers net.Addr) { return nil, nil }}, Ready: make(chan struct{}), Stopping: t.Context(),
		Atoms: redAtom{},
		Notices: func() []notice.Backlog {
			return []notice.Backlog{{Recipient: "fails", Fault: "it answers 500"}, {Recipient: "idle"}, {Recipient: "waits", Notices: 2}}
		},
	})
	return r, NewActions(ActionsOptions{Fleet: fleet, Health: monitor, Ledger: ledger, Cluster: &cluster.Cluster{}, Store: memory, Stopping: t.Context(), Log: log})
}

// redAtom knows one atom, which is red.
type redAtom struct{ AtomReporter }

func (redAtom) Report(time.Time) []atom.Summary {
	return []atom.Summary{{ID: "key.token", State: capability.Red, Reason: "the file is empty"}}
}

var operator = switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}

func TestOnlyTheOperatorSeesOtherTenantsAndFaults(t *testing.T) {
	r, _ := twoTenants(t)
	for _, tt := range []struct {
		name     string
		status   StatusReport
		policies []switchboard.TenantID
		why      string
		notices  []string
	}{
		{"the operator", r.Status(""), []switchboard.TenantID{"acme", "umbrella"}, "a fault in a file of umbrella", []string{"fails", "waits"}},
		{"a viewer of acme", r.TenantStatus("acme", false), []switchboard.TenantID{"acme"}, "", nil},
		{"the operator, of acme", r.TenantStatus("acme", true), []switchboard.TenantID{"acme"}, "", nil},
	} {
		var policies []switchboard.TenantID
		for _, p := range tt.status.Policies {
			policies = append(policies, p.Tenant)
			if !p.Loaded.Equal(loaded) || p.Digest == "" {
				t.Errorf("%s: the policy of %s is %+v", tt.name, p.Tenant, p)
			}
		}
		var notices []string
		for _, b := range tt.status.Notices {
			notices = append(notices, b.Recipient)
		}
		if seen := len(tt.status.Atoms) > 0; seen != (tt.name == "the operator") {
			t.Errorf("%s sees the atoms %+v", tt.name, tt.status.Atoms)
		}
		if !slices.Equal(notices, tt.notices) {
			t.Errorf("%s sees the notices for %q, want %q", tt.name, notices, tt.notices)
		}
		if !slices.Equal(policies, tt.policies) || tt.status.Refused.Why != tt.why {
			t.Errorf("%s sees the policies of %q and the fault %q, want %q and %q", tt.name, policies, tt.status.Refused.Why, tt.policies, tt.why)
		}
	}
	if found := r.Search("open a file"); found.Of != 1 || len(found.Tools) != 1 {
		t.Errorf("the operator's search finds %+v", found)
	}
}

func TestExplainShowsTheToolsOfTheDecision(t *testing.T) {
	r, _ := twoTenants(t)
	x, err := r.Explain(t.Context(), operator, ExplainQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if x.Task != "work" || len(x.Requirements) != 1 || len(x.Requirements[0].Selected) != 1 || x.Requirements[0].Selected[0].Tool != "a/open" {
		t.Errorf("%+v", x)
	}
	other := operator
	other.Tenant = "umbrella"
	if x, err = r.Explain(t.Context(), other, ExplainQuery{Task: "work"}); err == nil && x.Refused == nil {
		t.Errorf("umbrella has no tool, and its task may start: %+v", x)
	}
	if tools, silent := r.Offered("umbrella"); len(tools) != 0 || !slices.Equal(silent, []switchboard.ServerID{"u"}) {
		t.Errorf("umbrella has the tools %v, and %q are silent", tools, silent)
	}
}

func TestReadinessHoldsNothingAboutTenants(t *testing.T) {
	r, _ := twoTenants(t)
	ready, text := r.Readiness()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	if members["configuration_refused"] == nil || ready {
		t.Errorf("before the first offers, and with a refused reload: %v, %s", ready, text)
	}
	for name := range members {
		if !slices.Contains([]string{"ready", "configuration_refused", "configuration_faulty_parts", "store"}, name) {
			t.Errorf("/readyz has the member %s", name)
		}
	}
}

func TestAnActionOnAnUnknownServerIsRefused(t *testing.T) {
	_, actions := twoTenants(t)
	if _, err := actions.Operate(switchboard.Officer{ID: "ops", Operator: true}, "nosuch", "disable", ""); codeOf(err) != switchboard.CodeServerUnknown {
		t.Errorf("%v", err)
	}
}

func codeOf(err error) switchboard.Code {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Code
	}
	return ""
}
