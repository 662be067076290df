package budget_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// bookOf returns a Book in which every tenant is the one that t points to.
func bookOf(t **switchboard.Tenant) *budget.Book {
	return budget.NewBook(func(switchboard.TenantID) (*switchboard.Tenant, *switchboard.Taxonomy) { return *t, nil })
}

// tenantWith returns a tenant with these budgets.
func tenantWith(all ...*switchboard.Budget) *switchboard.Tenant {
	return &switchboard.Tenant{ID: "acme", Budgets: all}
}

// callOf returns a call of a tool with this price, by ci.
func callOf(price switchboard.Micros) *switchboard.Call {
	return &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "ci"}, Task: "t", Run: "run-1", Server: "paid", Method: "tools/call", Params: []byte(`{"name":"x"}`),
		Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "paid", Name: "x"}, Price: &switchboard.Price{Call: price}},
	}
}

// hold holds what the charge says, as package commit does.
func hold(ctx context.Context, s store.Store, id string, ttl time.Duration, c *budget.AttemptCharge) (held bool, err error) {
	accounts := make([]store.Account, len(c.Lines))
	for i, l := range c.Lines {
		accounts[i] = l.Account
	}
	_, held, err = s.Hold(ctx, c.Group, id, store.HoldTerms{TTL: ttl}, accounts...)
	return held, err
}

func settle(t *testing.T, s store.Store, id string, amounts ...int64) {
	t.Helper()
	if _, err := s.Settle(t.Context(), budget.Group("acme"), store.Settlement{ID: id, Amounts: amounts}); err != nil {
		t.Fatal(err)
	}
}

// A spentModel is what a budget means, in a few lines: for each window, what is spent and what is held.
type spentModel struct {
	spent map[string]int64
	held  map[string]modelHold // by hold
}

type modelHold struct {
	day     string
	amount  int64
	expires time.Time
}

func (m *spentModel) hold(id, day string, amount, limit int64, expires time.Time) bool {
	sum := m.spent[day] + amount
	for _, h := range m.held {
		if h.day == day {
			sum += h.amount
		}
	}
	if sum <= limit {
		m.held[id] = modelHold{day, amount, expires}
	}
	return sum <= limit
}

func (m *spentModel) settle(id string, amount int64) { // amount 0 releases
	m.spent[m.held[id].day] += amount
	delete(m.held, id)
}

func (m *spentModel) expire(now time.Time) {
	for id, h := range m.held {
		if !now.Before(h.expires) {
			m.settle(id, h.amount)
		}
	}
}

// A step is one thing that happens to a budget. n is a price, an amount, a limit, or which one.
type step struct {
	what string
	n    int
}

func TestNoSequenceOverspendsAWindow(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	if err := flag.Set("rapid.checks", "1000"); err != nil { // a plan takes less than a millisecond
		t.Fatal(err)
	}
	steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
		what := rapid.SampledFrom([]string{"hold", "hold", "hold", "settle", "settle", "release", "limit", "zone", "time passes", "time passes", "clock"}).Draw(r, "what")
		return step{what, rapid.IntRange(0, 20).Draw(r, "n")}
	}), 1, 60)
	rapid.Check(t, func(r *rapid.T) {
		plan, fault := steps.Draw(r, "steps"), ""
		synctest.Test(t, func(t *testing.T) { fault = follow(t, plan) })
		if fault != "" {
			r.Error(fault)
		}
	})
}

// follow does the steps with a store and with the model, and says where they differ.
func follow(t *testing.T, plan []step) string {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"}
	row := switchboard.Budget{ID: "b", Owner: switchboard.OwnerTenant, Limit: 12, Window: switchboard.WindowDay, Location: time.UTC}
	tenant := tenantWith(&row)
	m := spentModel{map[string]int64{}, map[string]modelHold{}}
	most, back := row.Limit, time.Duration(0)
	for i, do := range plan {
		held := slices.Sorted(maps.Keys(m.held))
		now := time.Now().Add(-back)
		switch {
		case do.what == "hold":
			charge, err := bookOf(&tenant).ChargeFor(callOf(switchboard.Micros(do.n)), now)
			if do.n == 0 && charge == nil && err == nil {
				break // it is free
			}
			if err != nil || charge == nil || len(charge.Lines) != 1 {
				return fmt.Sprint(charge, err)
			}
			ttl := []time.Duration{time.Minute, 3 * time.Hour}[do.n%2]
			got, err := hold(t.Context(), s, fmt.Sprint(i), ttl, charge)
			if want := m.hold(fmt.Sprint(i), now.In(row.Location).Format(time.DateOnly), int64(do.n), row.Limit, time.Now().Add(ttl)); err != nil || got != want {
				return fmt.Sprintf("step %d: hold %d of %d at %v: %v, %v; want %v", i, do.n, row.Limit, now, got, err, want)
			}
		case do.what == "settle" && len(held) > 0, do.what == "release" && len(held) > 0:
			id, amount := held[do.n%len(held)], int64(0)
			if do.what == "settle" {
				amount = min(m.held[id].amount, int64(do.n))
			}
			settle(t, s, id, amount)
			m.settle(id, amount)
		case do.what == "limit":
			row.Limit = int64(do.n)
			most = max(most, row.Limit)
		case do.what == "zone":
			row.Location = zone(t, zones[do.n%len(zones)])
		case do.what == "time passes": // what has expired is swept
			time.Sleep([]time.Duration{time.Millisecond, time.Minute, time.Hour, 7 * time.Hour}[do.n%4])
			m.expire(time.Now())
		case do.what == "clock":
			back = time.Hour - back // an hour back, and forth again
		}
		states, err := s.Accounts(t.Context(), budget.Group("acme"))
		if err != nil {
			return err.Error()
		}
		for _, a := range states {
			if a.Settled < 0 || a.Held < 0 || a.Settled+a.Held > most {
				return fmt.Sprintf("step %d: the limit was at most %d, and there is %+v", i, most, a)
			}
		}
	}
	return ""
}

func TestAsManyCallsAreChargedAsTheBudgetHasRoomFor(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	tenant := tenantWith(
		&switchboard.Budget{ID: "money", Owner: switchboard.OwnerTenant, Limit: 500, Window: switchboard.WindowMonth},
		&switchboard.Budget{ID: "calls", Owner: switchboard.OwnerTenant, Limit: 700, Calls: true, Window: switchboard.WindowMonth},
	)
	book := bookOf(&tenant)
	at := time.Now() // one instant, so that no window ends meanwhile
	var granted atomic.Int64
	var all sync.WaitGroup
	for caller := range 64 {
		all.Go(func() {
			for i := range 20 {
				charge, err := book.ChargeFor(callOf(1), at)
				if err != nil {
					t.Error(err)
					return
				}
				held, err := hold(t.Context(), s, fmt.Sprint(caller, " ", i), time.Hour, charge)
				if err != nil {
					t.Error(err)
				}
				if held {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if granted.Load() != 500 {
		t.Errorf("%d of 1280 calls were granted, want 500", granted.Load())
	}
	states, err := s.Accounts(t.Context(), budget.Group("acme"))
	if err != nil || len(states) != 2 || states[0].Held != 500 || states[1].Held != 500 {
		t.Errorf("%+v, %v: the calls that money had no room for are counted", states, err)
	}
}

// What a server says about prices in its own definition, or in a result, changes nothing: the price is the operator's.
func TestBU05AToolCannotStateItsOwnPrice(t *testing.T) {
	tenant := tenantWith(&switchboard.Budget{ID: "b", Owner: switchboard.OwnerTenant, Limit: 1000, Window: switchboard.WindowDay})
	for _, said := range []string{`-1`, `"NaN"`, `1e30`, `{"amount":"-5"}`, `99999999999999999999999`} {
		call := callOf(7)
		call.Tool.Definition = []byte(`{"name":"x","price":` + said + `,"annotations":{"cost":` + said + `},"_meta":{"io.switchboard/cost":` + said + `,"price":{"call":` + said + `}}}`)
		charge, err := bookOf(&tenant).ChargeFor(call, time.Now())
		if err != nil || charge.Price != 7 || charge.Lines[0].Account.Amount != 7 || charge.Reported {
			t.Errorf("%s: %+v, %v", said, charge, err)
		}
	}
}

func TestBU07ABoundaryIsNeverTwoWindows(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, kind := range switchboard.BudgetWindows {
		synctest.Test(t, func(t *testing.T) {
			s := store.NewMemory()
			defer func() { _ = s.Close() }()
			tenant := tenantWith(&switchboard.Budget{ID: "b", Owner: switchboard.OwnerTenant, Limit: 10, Window: kind, Location: berlin})
			n := 0
			spend := func(at time.Time) (room bool) {
				charge, err := bookOf(&tenant).ChargeFor(callOf(10), at)
				if err != nil {
					t.Fatal(err)
				}
				n++
				room, err = hold(t.Context(), s, fmt.Sprint(n), time.Hour, charge)
				if err != nil {
					t.Fatal(err)
				}
				return room
			}
			end := budget.WindowAt(kind, berlin, time.Now()).End
			if kind == switchboard.WindowForever {
				end = time.Now().Add(24 * time.Hour)
			}
			time.Sleep(time.Until(end.Add(-time.Millisecond)))
			if !spend(time.Now()) || spend(time.Now()) {
				t.Errorf("%s: the first window has another limit", kind)
			}
			time.Sleep(time.Millisecond)
			if got, want := spend(time.Now()), kind != switchboard.WindowForever; got != want {
				t.Errorf("%s: after the end, there is room: %v", kind, got)
			}
			if spend(time.Now()) || spend(time.Now().Add(-time.Hour)) || spend(time.Now().Add(-time.Millisecond)) {
				t.Errorf("%s: a clock that goes back finds a limit twice", kind)
			}
			time.Sleep(24 * time.Hour) // also long after the end: another replica's clock may be late
			if kind != switchboard.WindowHour && kind != switchboard.WindowDay && spend(end.Add(-time.Millisecond)) {
				t.Errorf("%s: the old window is forgotten", kind)
			}
		})
	}
}

func TestBU09ALateSettlementGoesToItsOwnWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		tenant := tenantWith(&switchboard.Budget{ID: "b", Owner: switchboard.OwnerTenant, Limit: 10, Window: switchboard.WindowHour})
		charge, err := bookOf(&tenant).ChargeFor(callOf(10), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		first := charge.Lines[0]
		if held, err := hold(t.Context(), s, "1", 2*time.Hour, charge); !held || err != nil {
			t.Fatal(held, err)
		}
		time.Sleep(time.Until(first.Window.End))
		charge, err = bookOf(&tenant).ChargeFor(callOf(10), time.Now())
		if err != nil || charge.Lines[0].Account.Name == first.Account.Name {
			t.Fatal(charge, err)
		}
		if held, err := hold(t.Context(), s, "2", 2*time.Hour, charge); !held || err != nil {
			t.Error("the hold of the last window takes room in the next one:", held, err)
		}
		settle(t, s, "1", 4)
		states, err := s.Accounts(t.Context(), charge.Group)
		if err != nil || len(states) != 2 {
			t.Fatal(states, err)
		}
		for _, a := range states {
			if want := (a.Name == first.Account.Name); want && (a.Settled != 4 || a.Held != 0) || !want && (a.Settled != 0 || a.Held != 10) {
				t.Errorf("%+v", a)
			}
		}
	})
}

func TestBU10ALoweredLimitLeavesNothingNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		row := switchboard.Budget{ID: "b", Owner: switchboard.OwnerTenant, Limit: 10, Window: switchboard.WindowDay}
		tenant := tenantWith(&row)
		n := 0
		spend := func() bool {
			charge, err := bookOf(&tenant).ChargeFor(callOf(4), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			n++
			held, err := hold(t.Context(), s, fmt.Sprint(n), time.Hour, charge)
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		if got := []bool{spend(), spend(), spend()}; !slices.Equal(got, []bool{true, true, false}) {
			t.Errorf("of three calls of 4, those that fit into 10 are %v, not the first two", got)
		}
		row.Limit = 3
		if spend() {
			t.Error("a call fits into a limit that was lowered below what is held")
		}
		settle(t, s, "1", 4)
		settle(t, s, "2", 0)
		if spend() {
			t.Error("a call of 4 fits into a limit of 3")
		}
		states, err := s.Accounts(t.Context(), budget.Group("acme"))
		if err != nil || len(states) != 1 || states[0].Settled != 4 || states[0].Held != 0 {
			t.Errorf("%+v, %v", states, err)
		}
		rows := (&budget.Statement{Tenant: "acme", Budgets: tenant.Budgets, Accounts: states}).Rows(time.Now())
		if len(rows) != 1 || rows[0].Left != "0.00" || rows[0].Settled != "0.000004" {
			t.Errorf("%+v", rows)
		}
		row.Limit = 8
		if !spend() {
			t.Error("no call fits into a limit that was raised again")
		}
	})
}
