package budget

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Find returns the budget with that name, such as tenant/paid, or with that id if no other budget has it.
func Find(all []*switchboard.Budget, name string) (*switchboard.Budget, error) {
	var found []*switchboard.Budget
	names := make([]string, len(all))
	for i, b := range all {
		names[i] = b.Name()
		if names[i] == name {
			return b, nil
		}
		if b.ID == name {
			found = append(found, b)
		}
	}
	switch {
	case len(all) == 0:
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "the tenant has no budgets")
	case len(found) == 0:
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "there is no budget %.80q; the tenant has %s", name, strings.Join(names, ", "))
	case len(found) > 1:
		for i, b := range found {
			names[i] = b.Name()
		}
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "several budgets have the id %.80q; name one of %s", name, strings.Join(names[:len(found)], ", "))
	}
	return found[0], nil
}

// AccountAt returns the budget's account of that value, in the window that now is in. Its Max is no limit, and its Amount is 0.
func AccountAt(b *switchboard.Budget, of string, now time.Time) store.Account {
	w := WindowAt(b.Window, b.Location, now)
	return store.Account{Name: accountName(b, w, of), Max: store.MaxAmount, Ends: w.forgetAt(b.Per, now)}
}

// ParseAmount reads an amount of the budget, which may be negative: what Amount spells.
func ParseAmount(b *switchboard.Budget, text string) (int64, error) {
	digits, negative := strings.CutPrefix(text, "-")
	var n int64
	var err error
	if b.Calls {
		n, err = strconv.ParseInt(digits, 10, 64)
		if err != nil || n > store.MaxAmount || n < 0 {
			return 0, fmt.Errorf("%.40q is no number of calls", text)
		}
	} else {
		var m switchboard.Micros
		if m, err = switchboard.ParseMicros(digits); err != nil {
			return 0, fmt.Errorf("%.40q: %w", text, err)
		}
		n = int64(m)
	}
	if negative {
		n = -n
	}
	return n, nil
}
