package bind

import (
	"testing"

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
