package budget

import (
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Left states the price of an attempt and the rest of the tightest budgets, for a person who decides about the call: "0.02 USD, and 3.10 USD are left". accounts has the accounts of
// the charge, see AttemptCharge.Accounts; a missing one is unused. It returns "" if nothing is charged.
func Left(c *AttemptCharge, accounts []store.AccountState, currency string) string {
	if c == nil {
		return ""
	}
	used := usedOf(accounts)
	var money, calls *ChargeLine
	room := func(l *ChargeLine) int64 { return max(0, l.Account.Max-used[l.Account.Name]) }
	for i := range c.Lines {
		l := &c.Lines[i]
		least := &money
		switch {
		case l.Budget.Calls:
			least = &calls
		case c.Price == 0:
			continue
		}
		if *least == nil || room(l) < room(*least) {
			*least = l
		}
	}
	var parts []string
	price := c.Price.String()
	if c.Reported {
		price = "up to " + price
	}
	currency = strings.TrimRight(" "+currency, " ")
	switch {
	case money != nil:
		parts = append(parts, price+currency+", and "+switchboard.Micros(room(money)).String()+currency+" are left"+tooLittle(money, room(money)))
	case c.Price > 0:
		parts = append(parts, price+currency+", which no budget limits")
	}
	if calls != nil {
		parts = append(parts, "1 of "+strconv.FormatInt(room(calls), 10)+" calls that are left"+tooLittle(calls, room(calls)))
	}
	return strings.Join(parts, "; ")
}

// Exceeds reports whether the attempt would exceed a budget. accounts are as for Left.
func Exceeds(c *AttemptCharge, accounts []store.AccountState) bool {
	used := usedOf(accounts)
	return slices.ContainsFunc(c.Lines, func(l ChargeLine) bool { return used[l.Account.Name]+l.Account.Amount > l.Account.Max })
}

// usedOf returns what is settled and held in accounts, by name.
func usedOf(accounts []store.AccountState) map[string]int64 {
	used := make(map[string]int64, len(accounts))
	for i := range accounts {
		used[accounts[i].Name] = accounts[i].Settled + accounts[i].Held
	}
	return used
}

// tooLittle says that the line has no room for the attempt.
func tooLittle(l *ChargeLine, room int64) string {
	if l.Account.Amount <= room {
		return ""
	}
	return ", which is too little: budget " + l.Budget.Name() + " would refuse the call"
}
