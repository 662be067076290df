package commit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A Notifier tells people about budgets that are nearly used up.
type Notifier interface {
	// BudgetWarning keeps a warning, durably if it returns nil. It is called once in each window, over all replicas, for each percentage that a
	// budget names; more often if a process is killed meanwhile, or if two pass the percentage at once.
	BudgetWarning(ctx context.Context, w *BudgetWarning) error
}

// A BudgetWarning says that an account has passed a percentage of its limit.
type BudgetWarning struct {
	Tenant  switchboard.TenantID `json:"tenant"`
	Budget  string               `json:"budget"`  // its name, which is unique in the tenant
	Account string               `json:"account"` // of the store
	Percent int                  `json:"percent"`
	Used    string               `json:"used"` // an amount, or a number of calls
	Limit   string               `json:"limit"`
	Unit    string               `json:"unit,omitempty"` // calls, or the currency
	Until   time.Time            `json:"until,omitzero"` // the end of the window; zero: it does not end
}

// A warning is a BudgetWarning that another replica may have sent.
type warning struct {
	BudgetWarning
	ends time.Time // when the account is forgotten; zero: never
}

// groupWarned is the group of the store with the warnings that were sent.
const groupWarned = "budgets-warned"

// watch returns what is left in accounts that have passed the lowest percentage of their budget, and queues the warnings of those that the attempt has made
// pass one. sums are the accounts with the attempt.
func (k *Committer) watch(a *chargedAttempt, sums []store.AccountState) (notes []switchboard.BudgetNote) {
	for i := range a.charge.Lines {
		l := &a.charge.Lines[i]
		used := sums[i].Settled + sums[i].Held
		for n, percent := range l.Budget.Warn {
			if !isPast(used, percent, l.Account.Max) {
				break
			}
			if n == 0 {
				notes = append(notes, k.noteOf(l, used))
			}
			// A process that was killed may have made the account pass it, and not have warned: so the first attempt here that finds it passed warns too, if there is
			// no mark.
			if !isPast(used-l.Account.Amount, percent, l.Account.Max) || k.warned.isNew(a.Principal.Tenant, l.Account.Name, percent) {
				k.later.warn(warning{BudgetWarning{
					Tenant: a.Principal.Tenant, Budget: l.Budget.Name(), Account: l.Account.Name, Percent: percent,
					Used: amountOf(l.Budget, used), Limit: amountOf(l.Budget, l.Account.Max), Unit: k.unitOf(l.Budget), Until: l.Window.End,
				}, l.Account.Ends})
			}
		}
	}
	return notes
}

const (
	maxWarned = 10_000      // what a warnedSet remembers
	warnAgain = time.Minute // after a warning that could not be kept
)

// A warnedSet remembers which accounts this process has found past a percentage. The zero value is ready.
type warnedSet struct {
	mu  sync.Mutex
	has map[string]passedMark // by tenant and account
}

// A passedMark is the highest percentage that an account was found past.
type passedMark struct {
	percent int
	failed  time.Time // when its warning could not be kept; zero if it could
}

// isNew reports whether the percentage is new for the account, or its warning is due again, and notes it.
func (w *warnedSet) isNew(tenant switchboard.TenantID, account string, percent int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := string(tenant) + " " + account
	if was := w.has[key]; was.percent >= percent && (was.failed.IsZero() || time.Since(was.failed) < warnAgain) {
		return false
	}
	if w.has == nil || len(w.has) >= maxWarned {
		w.has = map[string]passedMark{}
	}
	w.has[key] = passedMark{percent: percent}
	return true
}

// fail notes that a warning could not be kept.
func (w *warnedSet) fail(tenant switchboard.TenantID, account string, percent int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has != nil {
		w.has[string(tenant)+" "+account] = passedMark{percent, time.Now()}
	}
}

// isPast reports whether used is at least that percentage of the limit.
func isPast(used int64, percent int, limit int64) bool {
	whole, rest := limit/100, limit%100 // the product of a limit and a percentage can be too large
	return used >= whole*int64(percent)+(rest*int64(percent)+99)/100
}

// noteOf says what is left in the account of a line.
func (k *Committer) noteOf(l *budget.ChargeLine, used int64) switchboard.BudgetNote {
	return switchboard.BudgetNote{
		Budget: l.Budget.ID, Left: amountOf(l.Budget, max(0, l.Account.Max-used)), Limit: amountOf(l.Budget, l.Account.Max), Unit: k.unitOf(l.Budget), Until: l.Window.End,
	}
}

// amountOf spells an amount of the budget.
func amountOf(b *switchboard.Budget, n int64) string {
	if b.Calls {
		return strconv.FormatInt(n, 10)
	}
	return switchboard.Micros(n).String()
}

func (k *Committer) unitOf(b *switchboard.Budget) string {
	if b.Calls {
		return "calls"
	}
	return k.o.Currency()
}

// The values of groupWarned. A claim expires soon: whoever is killed before the warning is kept leaves it to others.
const (
	warningClaimed = "0"
	warningSent    = "1"
)

// sendWarning sends a warning, unless a replica has sent it in this window, or is just sending it.
func (k *Committer) sendWarning(w warning) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	name := fmt.Sprintf("%s %d %s", w.Tenant, w.Percent, w.Account)
	mark := func(was store.Version, data string, ttl time.Duration) error {
		write := store.Write{Name: name, Was: was, Data: []byte(data), TTL: ttl}
		if data == "" {
			write.Data = nil
		}
		_, err := k.o.Store.Apply(ctx, store.Change{Group: groupWarned, Writes: []store.Write{write}})
		return err
	}
	sent, err := k.o.Store.Value(ctx, store.Key{Group: groupWarned, Name: name})
	switch {
	case err != nil: // a second warning is better than none
	case string(sent.Data) == warningSent:
		return
	case sent.Data != nil || errors.Is(mark(0, warningClaimed, warnAgain), store.ErrConflict):
		k.warned.fail(w.Tenant, w.Account, w.Percent) // a later call looks whether it was sent
		return
	}
	k.o.Log.Warn("a budget is nearly used up", "tenant", w.Tenant, "budget", w.Budget, "percent", w.Percent, "used", w.Used, "limit", w.Limit, "unit", w.Unit, "until", w.Until)
	if k.o.Notifier != nil {
		if err := k.o.Notifier.BudgetWarning(ctx, &w.BudgetWarning); err != nil {
			k.o.Log.Warn("people are not told of a budget that is nearly used up; a call a minute later tries it again", "tenant", w.Tenant, "budget", w.Budget, "err", err)
			k.warned.fail(w.Tenant, w.Account, w.Percent)
			_ = mark(store.Any, "", 0) // else the claim expires
			return
		}
	}
	// The mark comes last: who is killed before it is told again.
	ttl := time.Duration(0)
	if !w.ends.IsZero() {
		ttl = max(time.Until(w.ends), time.Minute)
	}
	if err := mark(store.Any, warningSent, ttl); err != nil {
		k.o.Log.Warn("a warning of a budget may be sent twice", "tenant", w.Tenant, "budget", w.Budget, "err", err)
	}
}

// overBudget returns the refusal of an attempt that does not fit into its budgets. Of several that lack room, it names the one whose window ends last.
func (k *Committer) overBudget(a *chargedAttempt, sums []store.AccountState) error {
	var worst *budget.ChargeLine
	var used int64
	for i := range a.charge.Lines {
		l := &a.charge.Lines[i]
		now := sums[i].Settled + sums[i].Held
		if now <= l.Account.Max-l.Account.Amount {
			continue
		}
		if end := l.Window.End; worst == nil || end.IsZero() || !worst.Window.End.IsZero() && end.After(worst.Window.End) {
			worst, used = l, now
		}
	}
	if worst == nil { // the counter alone is used up
		return switchboard.Unavailable("the call was not made, because its price could not be held", errors.New("the count of holds is used up"))
	}
	note := k.noteOf(worst, used)
	e := &switchboard.Error{
		Code: switchboard.CodeBudgetExceeded, Unsent: true,
		Cause: fmt.Errorf("budget %s, account %q: %s of %s are used", worst.Budget.Name(), worst.Account.Name, amountOf(worst.Budget, used), note.Limit),
		Data:  []switchboard.DataMember{{Name: "error_code", JSON: []byte(`"BUDGET_EXCEEDED"`)}, textMember("budget", note.Budget), textMember("left", note.Left)},
	}
	unit := ""
	if note.Unit != "" {
		unit = " " + note.Unit
		e.Data = append(e.Data, textMember("unit", note.Unit))
	}
	e.Text = fmt.Sprintf("the call was not made: it costs %s%s, and the budget %q has %s%s left", amountOf(worst.Budget, worst.Account.Amount), unit, note.Budget, note.Left, unit)
	if worst.Budget.Calls {
		e.Text = fmt.Sprintf("the call was not made: the budget %q has no call left", note.Budget)
	}
	if note.Until.IsZero() {
		e.Hint = "it has no later window: use another tool, or ask the person whom you work for"
		return e
	}
	until := note.Until.UTC().Format(time.RFC3339)
	e.Text += " until " + until
	e.Hint = "use another tool, or call again after that time"
	e.Data = append(e.Data, textMember("until", until))
	e.RetryAfter = max(time.Until(note.Until), time.Second)
	return e
}

// textMember returns a member with a text.
func textMember(name, text string) switchboard.DataMember {
	return switchboard.DataMember{Name: name, JSON: wire.AppendString(nil, text)}
}
