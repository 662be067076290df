package budget_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestABudgetCountsTheCallsThatItMatches(t *testing.T) {
	taxonomy, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"mail": "internet"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tool := &switchboard.Tool{
		ID: switchboard.ToolID{Server: "post", Name: "send"}, Class: "paid_api", Price: &switchboard.Price{Call: 1}, Contract: switchboard.Contract{Capability: "cap.send@1.2.0"},
		Capabilities: []switchboard.Capability{{Verb: "write", Resource: "mail"}}, Kept: []switchboard.Capability{{Verb: "read", Resource: "fs"}},
	}
	for name, tt := range map[string]struct {
		match switchboard.BudgetMatch
		want  bool
	}{
		"everything":                      {switchboard.BudgetMatch{}, true},
		"its server":                      {switchboard.BudgetMatch{Servers: []string{"x", "p*t"}}, true},
		"another server":                  {switchboard.BudgetMatch{Servers: []string{"pos"}}, false},
		"its name":                        {switchboard.BudgetMatch{Tools: []string{"post/send"}}, true},
		"its name as a pattern":           {switchboard.BudgetMatch{Tools: []string{"*/se*"}}, true},
		"the name of another server":      {switchboard.BudgetMatch{Tools: []string{"mail/send"}}, false},
		"its class":                       {switchboard.BudgetMatch{Classes: []string{"paid_api"}}, true},
		"another class":                   {switchboard.BudgetMatch{Classes: []string{"free_api"}}, false},
		"its verb":                        {switchboard.BudgetMatch{Verbs: []switchboard.Verb{"write"}}, true},
		"its resource":                    {switchboard.BudgetMatch{Resources: []switchboard.Resource{"mail"}}, true},
		"an ancestor of its resource":     {switchboard.BudgetMatch{Resources: []switchboard.Resource{"internet"}}, true},
		"another resource":                {switchboard.BudgetMatch{Resources: []switchboard.Resource{"slack"}}, false},
		"a weaker source":                 {switchboard.BudgetMatch{Verbs: []switchboard.Verb{"read"}, Resources: []switchboard.Resource{"fs"}}, true},
		"two capabilities, mixed":         {switchboard.BudgetMatch{Verbs: []switchboard.Verb{"read"}, Resources: []switchboard.Resource{"mail"}}, false},
		"the class that follows":          {switchboard.BudgetMatch{CostClasses: []switchboard.CostClass{"paid", "metered"}}, true},
		"another cost class":              {switchboard.BudgetMatch{CostClasses: []switchboard.CostClass{"paid"}}, false},
		"its named capability":            {switchboard.BudgetMatch{Capabilities: []string{"cap.other", "cap.send"}}, true},
		"another named capability":        {switchboard.BudgetMatch{Capabilities: []string{"cap.sendx"}}, false},
		"one key that fits, one that not": {switchboard.BudgetMatch{Servers: []string{"post"}, Classes: []string{"free_api"}}, false},
	} {
		if got := budget.Matches(&tt.match, tool, taxonomy); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestACallIsChargedToTheAccountsOfAllItsBudgets(t *testing.T) {
	tenant := tenantWith(
		&switchboard.Budget{ID: "all", Owner: switchboard.OwnerOperator, Limit: 100, Window: switchboard.WindowMonth},
		&switchboard.Budget{ID: "each", Owner: switchboard.OwnerRow, Per: switchboard.PerPrincipal, Limit: 50, Calls: true, Window: switchboard.WindowDay},
		&switchboard.Budget{ID: "others", Owner: switchboard.OwnerTenant, Match: switchboard.BudgetMatch{Servers: []string{"x"}}, Limit: 1, Window: switchboard.WindowDay},
		&switchboard.Budget{ID: "tools", Owner: switchboard.OwnerTenant, Per: switchboard.PerTool, Limit: 7, Window: switchboard.WindowHour},
	)
	tenant.Tasks = map[switchboard.TaskID]*switchboard.Task{
		"t":     {ID: "t", Budgets: []*switchboard.Budget{{ID: "run", Owner: "task/t", Per: switchboard.PerRun, Limit: 5, Window: switchboard.WindowForever}}},
		"other": {ID: "other", Budgets: []*switchboard.Budget{{ID: "run", Owner: "task/other", Limit: 0, Window: switchboard.WindowForever}}},
	}
	call := callOf(3)
	call.Tool.Budget = &switchboard.Budget{ID: "own", Owner: "tool/paid/x", Per: switchboard.PerTask, Limit: 9, Window: switchboard.WindowWeek}
	charge, err := bookOf(&tenant).ChargeFor(call, noon)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(charge.Group, " ", charge.Price, " ", charge.Reported)
	for _, l := range charge.Lines {
		ends := "never"
		if !l.Account.Ends.IsZero() {
			ends = l.Account.Ends.UTC().Format(time.DateTime)
		}
		got += fmt.Sprintf("\n%d of %d, until %s: %s", l.Account.Amount, l.Account.Max, ends, l.Account.Name)
	}
	const want = `budget/acme 0.000003 false
3 of 100, until 2026-12-03 00:00:00: operator/all money tenant month 2026-11 
1 of 50, until 2026-11-30 00:00:00: row/each calls principal 1d 2026-11-27 ci
3 of 7, until 2026-11-29 13:00:00: tenant/tools money tool 1h 2026-11-27T12Z paid/x
3 of 5, until 2027-02-25 12:00:00: task/t/run money run forever forever run-1
3 of 9, until 2026-12-02 00:00:00: tool/paid/x/own money task 7d 2026-11-23 t`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOnlyCallsOfToolsWithAPriceOrABudgetAreCharged(t *testing.T) {
	tenant := tenantWith()
	free := callOf(0)
	item := callOf(5)
	item.Tool = nil
	for name, call := range map[string]*switchboard.Call{"a call that costs nothing": free, "no call of a tool": item} {
		if charge, err := bookOf(&tenant).ChargeFor(call, noon); charge != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, charge, err)
		}
	}
	if charge, err := bookOf(&tenant).ChargeFor(callOf(5), noon); err != nil || charge == nil || charge.Price != 5 || len(charge.Lines) != 0 {
		t.Errorf("a price without a budget: %+v, %v", charge, err)
	}
	tenant = nil // it was removed while the call was on its way
	if charge, err := bookOf(&tenant).ChargeFor(callOf(5), noon); err != nil || charge == nil || charge.Price != 5 {
		t.Errorf("a tenant that was removed: %+v, %v", charge, err)
	}
}

func TestAFreeCallIsChargedOnlyToBudgetsThatCountCalls(t *testing.T) {
	money := &switchboard.Budget{ID: "money", Owner: switchboard.OwnerTenant, Limit: 9, Window: switchboard.WindowDay}
	calls := &switchboard.Budget{ID: "calls", Owner: switchboard.OwnerTenant, Limit: 9, Calls: true, Window: switchboard.WindowDay}
	tenant := tenantWith(money)
	if charge, err := bookOf(&tenant).ChargeFor(callOf(0), noon); charge != nil || err != nil {
		t.Errorf("a budget of money: %+v, %v", charge, err)
	}
	reported := callOf(0)
	reported.Tool.Price = &switchboard.Price{Most: 5, Reported: true}
	if charge, err := bookOf(&tenant).ChargeFor(reported, noon); err != nil || charge == nil || len(charge.Lines) != 1 || charge.Lines[0].Account.Amount != 5 {
		t.Errorf("a price that the server reports: %+v, %v", charge, err)
	}
	tenant = tenantWith(money, calls)
	if charge, err := bookOf(&tenant).ChargeFor(callOf(0), noon); err != nil || charge == nil || len(charge.Lines) != 1 || charge.Lines[0].Budget != calls {
		t.Errorf("a budget of money and one of calls: %+v, %v", charge, err)
	}
}

func TestACallThatTooManyBudgetsMatchIsRefused(t *testing.T) {
	tenant := tenantWith()
	for i := range switchboard.MaxBudgets {
		tenant.Budgets = append(tenant.Budgets, &switchboard.Budget{ID: fmt.Sprint("b", i), Owner: switchboard.OwnerTenant, Limit: 1, Window: switchboard.WindowDay})
	}
	if charge, err := bookOf(&tenant).ChargeFor(callOf(1), noon); err != nil || len(charge.Lines) != switchboard.MaxBudgets {
		t.Errorf("%d budgets: %+v, %v", switchboard.MaxBudgets, charge, err)
	}
	tenant.Budgets = append(slices.Clone(tenant.Budgets), &switchboard.Budget{ID: "more", Owner: switchboard.OwnerTenant, Limit: 1, Window: switchboard.WindowDay})
	_, err := bookOf(&tenant).ChargeFor(callOf(1), noon)
	if refusal, ok := errors.AsType[*switchboard.Error](err); !ok || refusal.Code != switchboard.CodeNotPriced || !refusal.Unsent {
		t.Errorf("%d budgets: %v", len(tenant.Budgets), err)
	}
}

func TestNamesOfAccountsAreShortEnoughForTheStore(t *testing.T) {
	row := &switchboard.Budget{ID: strings.Repeat("i", switchboard.MaxIDBytes), Owner: switchboard.BudgetOwner("tool/" + strings.Repeat("s", switchboard.MaxIDBytes) + "/" + strings.Repeat("t", 128)), Per: switchboard.PerPrincipal, Limit: 9, Window: switchboard.Window30Days}
	tenant := tenantWith(row)
	call, other := callOf(1), callOf(1)
	call.Principal.ID, other.Principal.ID = strings.Repeat("é", 2000), strings.Repeat("é", 2000)+"x"
	a, err := bookOf(&tenant).ChargeFor(call, noon)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bookOf(&tenant).ChargeFor(other, noon)
	if err != nil || a.Lines[0].Account.Name == b.Lines[0].Account.Name {
		t.Fatalf("two principals have one account: %v", err)
	}
	if held, err := hold(t.Context(), store.NewMemory(), "1", time.Hour, a); !held || err != nil {
		t.Errorf("%v, %v", held, err)
	}
}

// spentCall returns a call of the tool, some time before noon.
func spentCall(ago time.Duration, who string, cost switchboard.Micros) budget.SpentCall {
	return budget.SpentCall{When: noon.Add(-ago), Tool: callOf(cost).Tool, Principal: who, Task: "t", Run: "r", Held: cost, Settled: cost}
}

func TestAStatementSaysWhatIsLeftAndHowLongItLasts(t *testing.T) {
	s := budget.Statement{
		Tenant: "acme", Currency: "EUR",
		Budgets: []*switchboard.Budget{
			{ID: "each", Owner: switchboard.OwnerTenant, Per: switchboard.PerPrincipal, Limit: 10_000_000, Window: switchboard.WindowMonth},
			{ID: "n", Owner: switchboard.OwnerOperator, Limit: 8, Calls: true, Window: switchboard.WindowForever},
			{ID: "other", Owner: "task/other", Limit: 1, Window: switchboard.WindowDay},
		},
		Accounts: []store.AccountState{
			{Name: "tenant/each money principal month 2026-11 ann", Settled: 4_000_000, Held: 1_000_000},
			{Name: "tenant/each money principal month 2026-11 ben lee", Settled: 11_000_000},
			{Name: "tenant/each money principal month 2026-10 ann", Settled: 9_000_000},
			{Name: "tenant/each money tenant month 2026-11 ", Settled: 9_000_000},
			{Name: "tenant/gone money principal month 2026-11 ann", Settled: 1},
		},
	}
	calls := []budget.SpentCall{spentCall(time.Hour, "ann", 2_000_000), spentCall(48*time.Hour, "ann", 12_000_000), spentCall(8*24*time.Hour, "ann", 1), spentCall(time.Minute, "ben lee", 1)}
	for _, r := range s.Rows(noon) {
		if r.Pace.Since != noon || !r.Pace.DayUsedUp.IsZero() {
			t.Errorf("before the calls are known, the pace is %+v", r.Pace)
		}
	}
	s.Spending = budget.SumUp(s.Budgets, nil, calls, noon.Add(-time.Hour), noon)
	if r := s.Rows(noon)[0]; r.Pace.Since != noon.Add(-time.Hour) || r.Pace.Day != "2" || !r.Pace.DayUsedUp.Equal(noon.Add(4*time.Hour)) {
		t.Errorf("the pace of one hour is %+v", r.Pace)
	}
	s.Spending = budget.SumUp(s.Budgets, nil, calls, noon.Add(-7*24*time.Hour), noon)
	got := ""
	for _, r := range s.Rows(noon) {
		used := func(at time.Time) string {
			if at.IsZero() {
				return "never"
			}
			return at.Format(time.DateTime)
		}
		got += fmt.Sprintf("%s of %q: %s settled, %s held, %s left of %s %s, day %s %s, week %s %s\n", r.Budget, r.Of, r.Settled, r.Held, r.Left, r.Limit, r.Unit, r.Pace.Day, used(r.Pace.DayUsedUp), r.Pace.Week, used(r.Pace.WeekUsedUp))
	}
	const want = `operator/n of "": 0 settled, 0 held, 8 left of 8 calls, day 2 2026-12-01 12:00:00, week 3 2026-12-16 04:00:00
task/other/other of "": 0.00 settled, 0.00 held, 0.000001 left of 0.000001 EUR, day 0.00 never, week 0.00 never
tenant/each of "ann": 4.00 settled, 1.00 held, 5.00 left of 10.00 EUR, day 2.00 2026-11-30 00:00:00, week 14.00 2026-11-30 00:00:00
tenant/each of "ben lee": 11.00 settled, 0.00 held, 0.00 left of 10.00 EUR, day 0.000001 2026-11-27 12:00:00, week 0.000001 2026-11-27 12:00:00
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAForecastSaysWhichCallsABudgetWouldHaveRefused(t *testing.T) {
	calls := []budget.SpentCall{
		spentCall(50*time.Hour, "ann", 3), spentCall(49*time.Hour, "ann", 3), spentCall(48*time.Hour, "ann", 2), // the day before yesterday
		spentCall(3*time.Hour, "ben", 6), spentCall(2*time.Hour, "ann", 5), spentCall(time.Hour, "ann", 1),
	}
	for _, tt := range []struct {
		row     switchboard.Budget
		refused string
		spent   string
	}{
		{switchboard.Budget{Limit: 5, Window: switchboard.WindowDay, Owner: switchboard.OwnerTenant}, "ann 2, ben 1", "0.00002"},
		{switchboard.Budget{Limit: 5, Window: switchboard.WindowDay, Per: switchboard.PerPrincipal}, "ann 2, ben 1", "0.00002"},
		{switchboard.Budget{Limit: 6, Window: switchboard.WindowForever, Per: switchboard.PerPrincipal}, "ann 3", "0.00002"},
		{switchboard.Budget{Limit: 2, Calls: true, Window: switchboard.WindowDay}, "ann 2", "6"},
		{switchboard.Budget{Limit: 0, Calls: true, Window: switchboard.WindowDay, Match: switchboard.BudgetMatch{Servers: []string{"x"}}}, "", "0"},
		{switchboard.Budget{Limit: 0, Window: switchboard.WindowDay, Owner: "task/other"}, "", "0.00"},
		{switchboard.Budget{Limit: 0, Window: switchboard.WindowDay, Owner: "tool/paid/x"}, "ann 5, ben 1", "0.00002"},
	} {
		f := budget.Forecast(&tt.row, calls, nil)
		var got []string
		n := 0
		for _, r := range f.By {
			got = append(got, fmt.Sprint(r.Principal, " ", r.Refused))
			n += r.Refused
		}
		if strings.Join(got, ", ") != tt.refused || f.Refused != n || f.Spent != tt.spent || f.Calls != 6 || f.First.IsZero() != (n == 0) {
			t.Errorf("%+v: %s are refused; want %s: %+v", tt.row, got, tt.refused, f)
		}
	}
}

func BenchmarkACallThatNothingConcerns(b *testing.B) {
	tenant := tenantWith()
	book, call := bookOf(&tenant), callOf(0)
	call.Tool.Price = nil
	b.ReportAllocs()
	for b.Loop() {
		if charge, err := book.ChargeFor(call, noon); charge != nil || err != nil {
			b.Fatal(charge, err)
		}
	}
}

func BenchmarkACallWithTwoBudgets(b *testing.B) {
	tenant := tenantWith(
		&switchboard.Budget{ID: "a", Owner: switchboard.OwnerTenant, Limit: 100, Window: switchboard.WindowMonth, Location: time.UTC},
		&switchboard.Budget{ID: "b", Owner: switchboard.OwnerTenant, Limit: 100, Window: switchboard.WindowDay, Per: switchboard.PerPrincipal},
	)
	book, call := bookOf(&tenant), callOf(1)
	b.ReportAllocs()
	for b.Loop() {
		if charge, err := book.ChargeFor(call, noon); charge == nil || err != nil {
			b.Fatal(charge, err)
		}
	}
}

// The budget of a capability itself counts in all its versions, and no call of the same tool outside of the contract.
func TestTheBudgetOfACapabilityStandsInTheStatement(t *testing.T) {
	own := func() *switchboard.Budget {
		return &switchboard.Budget{ID: "own", Owner: "capability/cap.send", Limit: 5, Calls: true, Window: switchboard.WindowMonth}
	}
	id := switchboard.ToolID{Server: "post", Name: "send"}
	provides := func(version string) *switchboard.Tool {
		return &switchboard.Tool{ID: id, Budget: own(), Contract: switchboard.Contract{Capability: version}}
	}
	all := budget.All(&switchboard.Tenant{}, nil, map[string][]*switchboard.Tool{
		"cap.send@1.0.0": {provides("cap.send@1.0.0")}, "cap.send@1.2.0": {provides("cap.send@1.2.0"), provides("cap.send@1.2.0")}, "cap.read@1.0.0": {{ID: id}},
	})
	if len(all) != 1 || all[0].Name() != "capability/cap.send/own" {
		t.Fatalf("%+v", all)
	}
	var calls []budget.SpentCall
	for _, tool := range []*switchboard.Tool{provides("cap.send@1.0.0"), provides("cap.send@1.2.0"), {ID: id}, provides("cap.sender@1.0.0")} {
		calls = append(calls, budget.SpentCall{When: noon.Add(-time.Hour), Tool: tool})
	}
	s := budget.Statement{Budgets: all, Spending: budget.SumUp(all, nil, calls, noon.Add(-24*time.Hour), noon)}
	if rows := s.Rows(noon); len(rows) != 1 || rows[0].Pace.Day != "2" {
		t.Errorf("two calls under the capability: %+v", rows)
	}
}
