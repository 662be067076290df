package bind

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAServerIsBudgetedIfABudgetOfEachTenantCountsAllItsCalls(t *testing.T) {
	tenant := func(servers []switchboard.ServerID, budgets ...switchboard.BudgetMatch) *switchboard.Tenant {
		one := &switchboard.Tenant{Servers: servers}
		for _, m := range budgets {
			one.Budgets = append(one.Budgets, &switchboard.Budget{Match: m})
		}
		return one
	}
	pay, other := []switchboard.ServerID{"pay"}, []switchboard.ServerID{"other"}
	all := switchboard.BudgetMatch{}
	for _, c := range []struct {
		says    string
		tenants []*switchboard.Tenant
		want    bool
	}{
		{"no tenant has it", []*switchboard.Tenant{tenant(other, all)}, false},
		{"its tenant has no budget", []*switchboard.Tenant{tenant(pay)}, false},
		{"its tenant has a budget for everything", []*switchboard.Tenant{tenant(pay, all)}, true},
		{"one of its tenants has none", []*switchboard.Tenant{tenant(pay, all), tenant(pay)}, false},
		{"a tenant without it has none", []*switchboard.Tenant{tenant(pay, all), tenant(other)}, true},
		{"the budget is for its class", []*switchboard.Tenant{tenant(pay, switchboard.BudgetMatch{Classes: []string{"bank"}})}, true},
		{"the budget is for another class", []*switchboard.Tenant{tenant(pay, switchboard.BudgetMatch{Classes: []string{"free"}})}, false},
		{"the budget is for servers like it", []*switchboard.Tenant{tenant(pay, switchboard.BudgetMatch{Servers: []string{"p*"}})}, true},
		{"the budget is for other servers", []*switchboard.Tenant{tenant(pay, switchboard.BudgetMatch{Servers: []string{"other"}})}, false},
		{"the budget is for some of its tools", []*switchboard.Tenant{tenant(pay, switchboard.BudgetMatch{Tools: []string{"pay/refund"}})}, false},
		{"the budget is for a verb", []*switchboard.Tenant{tenant(pay, switchboard.BudgetMatch{Verbs: []switchboard.Verb{switchboard.Write}})}, false},
		{"one of two budgets is for everything", []*switchboard.Tenant{tenant(pay, switchboard.BudgetMatch{Tools: []string{"pay/refund"}}, all)}, true},
	} {
		tenants := map[switchboard.TenantID]*switchboard.Tenant{}
		for i, one := range c.tenants {
			tenants[switchboard.TenantID(rune('a'+i))] = one
		}
		if got := isBudgeted(&switchboard.Server{ID: "pay", Class: "bank"}, tenants); got != c.want {
			t.Errorf("%s: it is %v", c.says, got)
		}
	}
}

func TestAStateWithTheOffersOfTheOneBeforeHasTheCatalogThatItWouldMake(t *testing.T) {
	files := fstest.MapFS{
		"switchboard.yaml":             {Data: []byte("servers: {pay: {transport: stdio, command: [pay], trust: operator}}\ntenants: {acme: {servers: [pay]}, umbrella: {servers: [pay]}}\n")},
		"tenants/acme/tenant.yaml":     {Data: []byte("tenant: acme\ndefault_task: work\nkeys: [{id: ci, hash: \"sha256:" + strings.Repeat("01", 32) + "\"}]\n")},
		"tenants/acme/tasks/work.yaml": {Data: []byte("task_id: work\nrequired_capabilities: [{verb: write, resource: slack}]\n")},
		"tenants/umbrella/tenant.yaml": {Data: []byte("tenant: umbrella\nbudgets: [{id: all, limit: {calls: 5}, window: 1d}]\n")},
	}
	was, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: files})
	if err != nil {
		t.Fatal(err)
	}
	offers := []switchboard.Offer{{Server: "pay", Tools: [][]byte{[]byte(`{"name":"refund","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true},"_meta":{"x-summit-capabilities":[{"verb":"write","resource":"slack"}]}}`)}}}
	in := inputOf(t, was, 0)
	in.Offers = offers
	before := NewState(in, nil)
	for _, tt := range []struct {
		says, added string
		same        bool
	}{
		{"a ranking", "ranking: {prefer: [{verb: write, resource: slack, servers: [pay]}]}\n", true},
		{"a budget for everything, so that all tenants have one", "budgets: [{id: all, limit: {calls: 5}, window: 1d}]\n", false},
		{"fewer servers", "servers: []\n", false},
	} {
		name := "tenants/acme/tenant.yaml"
		c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: files, Previous: was, Unchanged: true, Replace: map[string][]byte{name: append(files[name].Data, tt.added...)}})
		if err != nil || c.Err() != nil || !c.SharesOperator(was) {
			t.Fatal(tt.says, err, c)
		}
		in := inputOf(t, c, 0)
		in.Offers = offers
		want := NewState(in, before)
		in.Offers, in.SameOffers = nil, true
		got := NewState(in, before)
		a, _ := got.Catalog.Tool(switchboard.ToolID{Server: "pay", Name: "refund"})
		b, _ := want.Catalog.Tool(switchboard.ToolID{Server: "pay", Name: "refund"})
		if a == nil || b == nil || got.Catalog.Digest() != want.Catalog.Digest() || a.Contract.Risk != b.Contract.Risk || len(got.Offers) != 1 || len(got.Servers) != 1 {
			t.Errorf("%s: the tool is\n%+v\nand should be\n%+v", tt.says, a, b)
		}
		if same := got.Catalog == before.Catalog; same != tt.same {
			t.Errorf("%s: the catalog is the same: %t", tt.says, same)
		}
	}
}
