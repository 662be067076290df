// Package budget computes what calls cost, and which budgets a call is charged to.
//
// It decides the price of a call, which budgets match it, and to which account of each of them it counts. It holds and
// settles nothing: package commit does, with the store. A Budget's account is one of its windows, for one value of its
// Per. So a new window is a new account: nothing is reset, and a clock that goes back finds the old account.
package budget

import (
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget/price"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An AttemptCharge is what one attempt is charged.
type AttemptCharge struct {
	// Price is what is held. A budget that counts calls holds 1 instead.
	Price switchboard.Micros

	// Reported says that the server states in its result what is settled, 0 to Price.
	Reported bool

	// Group is the store's group of all accounts of the tenant.
	Group string

	Lines []ChargeLine // at most switchboard.MaxBudgets
}

// Accounts returns the names of the accounts that the attempt is charged to.
func (c *AttemptCharge) Accounts() []string {
	names := make([]string, len(c.Lines))
	for i := range c.Lines {
		names[i] = c.Lines[i].Account.Name
	}
	return names
}

// A ChargeLine is one account that an attempt is charged to.
type ChargeLine struct {
	Budget  *switchboard.Budget
	Account store.Account // Amount is the price, or 1 for a budget that counts calls
	Window  Window
}

// PriceOf returns what a call of the tool costs with these params; see price.Of.
func PriceOf(t *switchboard.Tool, params []byte) (switchboard.Micros, error) {
	return price.Of(t, params)
}

// Group returns the store's group of the accounts of a tenant.
func Group(id switchboard.TenantID) string { return "budget/" + string(id) }

// A Book knows the budgets of the configuration in force. Use NewBook. It is safe for concurrent use.
type Book struct {
	current func(switchboard.TenantID) (*switchboard.Tenant, *switchboard.Taxonomy)
}

// NewBook returns a Book. It asks current for the tenant's configuration at each call, so that a reload takes effect at
// once. The tenant may be nil.
func NewBook(current func(switchboard.TenantID) (*switchboard.Tenant, *switchboard.Taxonomy)) *Book {
	return &Book{current}
}

// ChargeFor returns what an attempt is charged at now. It returns nil if the call is free and no budget counts it. An
// error is a *switchboard.Error with the code SB-COST-002, and says that nothing was sent.
func (b *Book) ChargeFor(c *switchboard.Call, now time.Time) (*AttemptCharge, error) {
	if c.Tool == nil {
		return nil, nil // budgets are about tools
	}
	cost, err := price.Of(c.Tool, c.Params)
	if err != nil {
		return nil, err
	}
	tenant, taxonomy := b.current(c.Principal.Tenant)
	matching, err := matchingBudgets(tenant, taxonomy, c)
	if err != nil {
		return nil, err
	}
	var lines []ChargeLine
	for _, m := range matching {
		if m.Calls || cost > 0 { // an account of money has nothing to say about a free call, even if it is used up
			lines = append(lines, lineOf(m, c, cost, now))
		}
	}
	if cost == 0 && len(lines) == 0 {
		return nil, nil
	}
	charge := &AttemptCharge{Price: cost, Group: Group(c.Principal.Tenant), Lines: lines}
	if c.Tool.Price != nil {
		charge.Reported = c.Tool.Price.Reported
	}
	return charge, nil
}

func lineOf(b *switchboard.Budget, c *switchboard.Call, cost switchboard.Micros, now time.Time) ChargeLine {
	w := WindowAt(b.Window, b.Location, now)
	amount := int64(cost)
	if b.Calls {
		amount = 1
	}
	return ChargeLine{b, store.Account{Name: accountName(b, w, accountValue(b, c)), Max: b.Limit, Amount: amount, Ends: w.forgetAt(b.Per, now)}, w}
}
