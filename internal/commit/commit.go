// Package commit takes the last step before an attempt is sent. It holds the price in all budgets of the call, uses
// the person's yes, and writes the intent: all of it, or nothing. After the attempt it settles what was held.
//
// Other packages decide what a call costs, which budgets count it, and whether a person has to approve it.
//
// On a file, hold and use are one transaction. They are made durable by the intent that follows, so that a call waits for the disk once. The
// intent names what was held and used, and Recover does it again if the file has lost it. See recover.go.
package commit

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Approvals keeps what people have approved. Its errors are *switchboard.Error.
type Approvals interface {
	// Use marks the approval in c.Yes as used by the attempt that is named by intent, if it can be used now and no other attempt has
	// used it. On a file the mark need not be durable if receipt.Effect(c): the intent that follows is. If write is not nil, Use makes the change of the store
	// with it, unless the yes is a standing one, and returns an error of write that is a *switchboard.Error.
	Use(ctx context.Context, c *switchboard.Call, intent string, write func(context.Context, store.Change) (store.Version, error)) error

	// GiveBack makes the approval in c.Yes usable again. The attempt that used it was provably not sent, or only asked for more input.
	GiveBack(ctx context.Context, c *switchboard.Call) error

	// Replay marks an approval as used, when an intent says so and the store may have lost it. It changes nothing if the store
	// has the mark or does not know the request.
	Replay(ctx context.Context, tenant switchboard.TenantID, request, intent string) error
}

// Charges says what an attempt is charged; nil if no price and no budget concerns it. See budget.Book.
type Charges interface {
	ChargeFor(c *switchboard.Call, now time.Time) (*budget.AttemptCharge, error)
}

// Intents writes intents. A *receipt.Ledger does.
type Intents interface {
	Durable() bool // whether there are receipts
	Node() string
	WriteIntent(ctx context.Context, c *switchboard.Call, terms receipt.IntentTerms) (id string, err error)
}

// A Store keeps accounts. See store.Store.
type Store interface {
	receipt.ChainReader
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Hold(ctx context.Context, group, id string, terms store.HoldTerms, accounts ...store.Account) (sums []store.AccountState, held bool, err error)
	Settle(ctx context.Context, group string, settlements ...store.Settlement) ([]bool, error)
	Status() store.Status
}

// Options are the options of a Committer.
type Options struct {
	Store     Store
	Charges   Charges
	Intents   Intents
	Approvals Approvals // nil refuses each call that needs one
	Notifier  Notifier  // nil means that only the log output has warnings
	Currency  func() string
	Spent     func(c *switchboard.Call, amount switchboard.Micros) // told what each attempt has cost; nil means that nothing is told
	Log       *slog.Logger
}

// A Committer takes the last step before an attempt is sent. Use New, and Close it when no call is in flight. It is safe for
// concurrent use.
type Committer struct {
	o     Options
	file  bool // the store can lose a hold that an intent names
	later background
	marks marks

	warned     warnedSet
	costWarned atomic.Int64 // when warnCost has written to the log, in Unix seconds
}

// New returns a Committer.
func New(o Options) *Committer {
	if o.Currency == nil {
		o.Currency = func() string { return "" }
	}
	k := &Committer{o: o, file: o.Store.Status().Kind == "file"}
	k.later.start(k)
	return k
}

// holdTTL is how long a hold lasts that is never settled, beside the timeout of its tool. Its amounts then count as settled.
const holdTTL = 10 * time.Minute

// undoTimeout is the time limit of a GiveBack.
const undoTimeout = 5 * time.Second

// A chargedAttempt is an attempt on its way, with a price or an approval.
type chargedAttempt struct {
	*switchboard.Call
	id     string // names it in the store and in its intent
	charge *budget.AttemptCharge
	held   []store.Account // what the store holds
	number int64           // of the hold; see receipt.IntentHold
	ttl    time.Duration
	notes  []switchboard.BudgetNote
}

// Commit returns a Caller that makes an attempt only after its price is held, its approval is used, and its intent is durable. If one of
// these fails, the others are undone, and the attempt is refused. It belongs around nothing that refuses: what it has committed
// is not undone, unless the attempt was provably not sent or only asked for more input.
func (k *Committer) Commit(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		charge, err := k.o.Charges.ChargeFor(c, time.Now())
		if err != nil {
			return switchboard.Result{}, err
		}
		effect := k.o.Intents.Durable() && receipt.Effect(c)
		switch {
		case charge != nil || c.Yes != nil:
			return k.commit(ctx, &chargedAttempt{Call: c, charge: charge}, effect, next)
		case effect:
			if _, err := k.o.Intents.WriteIntent(ctx, c, receipt.IntentTerms{}); err != nil {
				return switchboard.Result{}, err
			}
		}
		return next.Call(ctx, c)
	})
}

// commit makes an attempt that has a price or an approval.
func (k *Committer) commit(ctx context.Context, a *chargedAttempt, effect bool, next switchboard.Caller) (result switchboard.Result, err error) {
	a.id = rand.Text()
	if k.file && effect {
		if err := k.marks.ensure(ctx, k); err != nil {
			return switchboard.Result{}, err
		}
	}
	if err := k.holdAndUse(ctx, a, effect); err != nil {
		k.release(a)
		return switchboard.Result{}, err
	}
	if effect {
		terms := receipt.IntentTerms{Hold: a.intentHold()}
		if a.charge != nil {
			terms.Price.Held = a.charge.Price
		}
		if _, err := k.o.Intents.WriteIntent(ctx, a.Call, terms); err != nil {
			k.undo(ctx, a)
			return switchboard.Result{}, err
		}
	}
	returned := false
	defer func() {
		if !returned { // next has panicked, perhaps after the server had the call
			k.settle(a, a.price())
		}
	}()
	result, err = next.Call(ctx, a.Call)
	returned = true
	switch {
	case isUnsent(err) || err == nil && asksForInput(&result):
		k.undo(ctx, a)
		return result, err
	case err != nil:
		k.settle(a, a.price())
	default:
		k.settle(a, k.costOf(a, &result))
	}
	if err == nil {
		result.Budgets = a.notes
	}
	return result, err
}

// isUnsent reports whether err proves that the attempt did not reach its server.
func isUnsent(err error) bool {
	own, ok := errors.AsType[*switchboard.Error](err)
	return ok && own.Unsent
}

// holdAndUse holds the price of the attempt and uses its approval. A file does both in one transaction. After an error, what is left in
// a.held has to be released.
func (k *Committer) holdAndUse(ctx context.Context, a *chargedAttempt, effect bool) error {
	priced := a.charge != nil && len(a.charge.Lines) > 0
	switch {
	case k.file && priced && a.Yes != nil && a.Yes.Standing == "":
		return k.use(ctx, a, func(ctx context.Context, c store.Change) (store.Version, error) {
			with := store.JoinedChange{Change: c}
			if err := k.hold(ctx, a, effect, &with); err != nil {
				return 0, err
			}
			if with.Made == 0 { // another attempt has the same id
				return 0, store.ErrConflict
			}
			return with.Made, nil
		})
	case priced:
		if err := k.hold(ctx, a, effect, nil); err != nil {
			return err
		}
	}
	if a.Yes == nil {
		return nil
	}
	return k.use(ctx, a, nil)
}

// hold holds the price in all budgets of the attempt, and makes the change with it. The error is a *switchboard.Error, or store.ErrConflict if the
// change conflicts.
func (k *Committer) hold(ctx context.Context, a *chargedAttempt, effect bool, with *store.JoinedChange) error {
	accounts := make([]store.Account, 0, len(a.charge.Lines)+1)
	for _, l := range a.charge.Lines {
		accounts = append(accounts, l.Account)
	}
	numbered := k.file && effect
	if numbered {
		accounts = append(accounts, counterOf(1))
	}
	a.ttl = holdTTL
	if a.Tool != nil {
		a.ttl += a.Tool.Contract.Timeout
	}
	sums, held, err := k.o.Store.Hold(ctx, a.charge.Group, a.id, store.HoldTerms{TTL: a.ttl, Durable: !effect, With: with}, accounts...)
	switch {
	case with != nil && errors.Is(err, store.ErrConflict):
		return err
	case err != nil:
		a.held = accounts // it may have been made
		return switchboard.Unavailable("the call was not made, because its price could not be held", err)
	case !held:
		return k.overBudget(a, sums)
	}
	a.held = accounts
	if numbered {
		last := sums[len(sums)-1]
		a.number = last.Settled + last.Held
	}
	a.notes = k.watch(a, sums)
	return nil
}

// use uses the approval of the attempt.
func (k *Committer) use(ctx context.Context, a *chargedAttempt, write func(context.Context, store.Change) (store.Version, error)) error {
	if k.o.Approvals == nil {
		return &switchboard.Error{Code: switchboard.CodeApprovalPending, Text: "the call was not made, because nothing here keeps approvals", Unsent: true}
	}
	if err := k.o.Approvals.Use(ctx, a.Call, a.id, write); err != nil {
		if own, ok := errors.AsType[*switchboard.Error](err); ok && !own.Unsent {
			unsent := *own
			unsent.Unsent = true
			return &unsent
		}
		return err
	}
	a.Trail.Used(a.Yes)
	return nil
}

// undo gives back the approval of an attempt that was not made, and releases what is held for it.
func (k *Committer) undo(ctx context.Context, a *chargedAttempt) {
	k.release(a)
	if a.Yes == nil {
		return
	}
	a.Trail.GaveBack(a.Yes)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := k.o.Approvals.GiveBack(ctx, a.Call); err != nil {
		k.o.Log.Warn("a call was not made, and its approval could not be given back: a person has to approve the call again",
			"tenant", a.Principal.Tenant, "request", a.Yes.Request, "err", err)
	}
}

// intentHold returns what the intent of the attempt says about what is held.
func (a *chargedAttempt) intentHold() receipt.IntentHold {
	if len(a.held) == 0 && a.Yes == nil {
		return receipt.IntentHold{}
	}
	h := receipt.IntentHold{ID: a.id}
	if len(a.held) == 0 {
		return h
	}
	h.Group, h.TTL, h.Number = a.charge.Group, a.ttl.Microseconds(), a.number
	for _, account := range a.held {
		if account.Name != counter {
			h.Accounts = append(h.Accounts, receipt.HeldAccount{Name: account.Name, Amount: account.Amount, Ends: account.Ends})
		}
	}
	return h
}

// price returns the price of the attempt.
func (a *chargedAttempt) price() switchboard.Micros {
	if a.charge == nil {
		return 0
	}
	return a.charge.Price
}

// release releases what is held for an attempt that costs nothing.
func (k *Committer) release(a *chargedAttempt) {
	if len(a.held) > 0 {
		k.later.settle(a.charge.Group, store.Settlement{ID: a.id, Amounts: a.amounts(0, 0)})
	}
}

// settle settles what an attempt has cost.
func (k *Committer) settle(a *chargedAttempt, cost switchboard.Micros) {
	if a.charge == nil {
		return
	}
	a.Trail.Charged(a.charge.Price, cost)
	if k.o.Spent != nil {
		k.o.Spent(a.Call, cost)
	}
	if len(a.held) > 0 {
		k.later.settle(a.charge.Group, store.Settlement{ID: a.id, Amounts: a.amounts(int64(cost), 1)})
	}
}

// amounts returns what to settle in each account: the cost, or a number of calls.
func (a *chargedAttempt) amounts(cost, calls int64) []int64 {
	all := make([]int64, len(a.held))
	for i := range a.held {
		switch {
		case i == len(a.charge.Lines): // the counter, which counts holds that are released too
			all[i] = 1
		case a.charge.Lines[i].Budget.Calls:
			all[i] = calls
		default:
			all[i] = cost
		}
	}
	return all
}
