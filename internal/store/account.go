package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// An Account names an account in a Hold, and says what to add there.
//
// An account begins with its first Hold. It has a sum of settled amounts, which stays, and a sum of held amounts, which
// are settled later. The two sums together are never more than the Max of the Hold that was granted last.
type Account struct {
	Name   string
	Max    int64 // up to MaxAmount
	Amount int64 // to hold; at least 0

	// Ends is when the account is forgotten; zero means never. Holds that are not settled by then keep it until they end. If
	// Holds give different ends, the latest one counts. A Hold that names an end in the past is invalid: so Ends should be
	// later than the last Hold by more than clocks differ.
	Ends time.Time
}

// HoldTerms are the terms of a hold: how long it lasts, whether it is durable, and which change is made with it.
type HoldTerms struct {
	TTL time.Duration

	// Durable says that the hold must survive the machine, and not only the process. See Change.
	Durable bool

	// With is made together with the hold: both, or neither. nil means that there is none. If the change conflicts, the error is
	// ErrConflict. A Redis refuses it as ErrInvalid, because it may keep two groups on two nodes.
	With *JoinedChange
}

// A JoinedChange is a change that is made together with a hold.
type JoinedChange struct {
	Change

	// Made is the new version of the values, which Hold sets. It stays 0 if the hold was refused or had been made before: the
	// change is not made then.
	Made Version
}

var errJoined = fmt.Errorf("%w: this store makes no change together with a hold", ErrInvalid)

// checkJoined says whether the change of the terms is valid.
func (t *HoldTerms) checkJoined() error {
	if t.With == nil {
		return nil
	}
	return t.With.check()
}

// An AccountState is the state of an account.
type AccountState struct {
	Name          string
	Settled, Held int64
	Ends          time.Time
}

// A Settlement ends a hold.
type Settlement struct {
	ID string

	// Amounts are what to settle in each account of the hold, in the order of the Hold: 0 up to what is held there. 0
	// releases what is held. If the hold has 0 there, the amount may be negative: it is taken from what is settled, down to 0.
	Amounts []int64
}

// A HeldAmount is what a hold holds in one account.
type HeldAmount struct {
	Account string
	Amount  int64
}

// A HoldState is the state of a hold.
type HoldState struct {
	Expires time.Time
	Amounts []HeldAmount // empty: it is settled, and its id is remembered
}

// An accountState is an AccountState as it is computed with. The zero value is an account that does not exist.
type accountState struct {
	settled, held int64
	ends          int64 // in microseconds, as in Redis; endsNever
}

// endsNever is the end of an account that is never forgotten.
const endsNever = math.MaxInt64

func newAccountState(s AccountState) accountState {
	return accountState{s.Settled, s.Held, endOf(s.Ends)}
}

// endOf returns the instant in microseconds, and endsNever for the zero Time.
func endOf(t time.Time) int64 {
	if t.IsZero() {
		return endsNever
	}
	return t.UnixMicro()
}

func (a accountState) named(name string) AccountState {
	s := AccountState{Name: name, Settled: a.settled, Held: a.held}
	if a.ends != endsNever && a != (accountState{}) {
		s.Ends = time.UnixMicro(a.ends)
	}
	return s
}

// isOver reports whether the account is forgotten at now.
func (a accountState) isOver(now int64) bool { return a.held == 0 && a.ends <= now }

// at returns the state at now: the zero state if the account is forgotten.
func (a accountState) at(now int64) accountState {
	if a.isOver(now) {
		return accountState{}
	}
	return a
}

// holdInAccounts holds the amounts at now, if all accounts have room. states are the accounts' states at now. If they have no
// room, next equals states.
func holdInAccounts(states []accountState, accounts []Account, now int64) (next []accountState, held bool, err error) {
	next, held = slices.Clone(states), true
	for i, a := range accounts {
		end := endOf(a.Ends)
		if end <= now {
			return nil, false, endedError(a.Name)
		}
		if next[i].settled+next[i].held > a.Max-a.Amount {
			held = false
		}
		next[i].held += a.Amount
		next[i].ends = max(next[i].ends, end)
	}
	if !held {
		return states, false, nil
	}
	return next, true, nil
}

func endedError(account string) error {
	return fmt.Errorf("%w: the account %q has ended", ErrInvalid, account)
}

// settle ends a hold of that amount.
func (a accountState) settle(held, settled int64) accountState {
	a.held = max(0, a.held-held)
	a.settled = max(0, a.settled+settled)
	return a
}

// check says whether the settlement fits the hold.
func (s *Settlement) check(amounts []HeldAmount) error {
	if len(s.Amounts) != len(amounts) {
		return fmt.Errorf("%w: %d amounts for the hold %q in %d accounts", ErrInvalid, len(s.Amounts), s.ID, len(amounts))
	}
	for i, h := range amounts {
		if n := s.Amounts[i]; n > h.Amount || n < 0 && h.Amount > 0 {
			return fmt.Errorf("%w: to settle %d of %d, which the hold %q has in the account %q", ErrInvalid, n, h.Amount, s.ID, h.Account)
		}
	}
	return nil
}

func checkHold(group, id string, terms HoldTerms, accounts []Account) error {
	err := errors.Join(checkName("a group", group), checkName("a hold", id), checkSize("the number of accounts", len(accounts), MaxAccounts))
	if len(accounts) == 0 {
		err = errors.Join(err, fmt.Errorf("%w: a hold without accounts", ErrInvalid))
	}
	if ttl := terms.TTL; ttl < time.Microsecond || ttl > maxPeriod {
		err = errors.Join(err, fmt.Errorf("%w: a hold for %s", ErrInvalid, ttl))
	}
	seen := map[string]bool{}
	for _, a := range accounts {
		err = errors.Join(err, checkName("an account", a.Name))
		if a.Max < 0 || a.Max > MaxAmount || a.Amount < 0 || a.Amount > MaxAmount {
			err = errors.Join(err, fmt.Errorf("%w: to hold %d of at most %d", ErrInvalid, a.Amount, a.Max))
		}
		if !a.Ends.IsZero() && (a.Ends.UnixMicro() <= 0 || a.Ends.UnixMicro() > maxInstant) {
			err = errors.Join(err, fmt.Errorf("%w: an account that ends at %s", ErrInvalid, a.Ends))
		}
		if seen[a.Name] {
			err = errors.Join(err, fmt.Errorf("%w: two accounts of one name", ErrInvalid))
		}
		seen[a.Name] = true
	}
	return err
}

func checkAccounts(group string, names []string) error {
	err := errors.Join(checkName("a group", group), checkSize("the number of accounts", len(names), MaxEntries))
	for _, name := range names {
		err = errors.Join(err, checkName("an account", name))
	}
	return err
}

// maxInstant is the last end of an account in microseconds, in the year 2112. A Lua number holds it exactly.
const maxInstant = 1 << 52

func checkSettle(group string, all []Settlement) error {
	err := errors.Join(checkName("a group", group), checkSize("the number of settlements", len(all), MaxSettlements))
	seen := map[string]bool{}
	for _, s := range all {
		err = errors.Join(err, checkName("a hold", s.ID), checkSize("the number of amounts", len(s.Amounts), MaxAccounts))
		for _, n := range s.Amounts {
			if n < -MaxAmount || n > MaxAmount {
				err = errors.Join(err, fmt.Errorf("%w: to settle %d", ErrInvalid, n))
			}
		}
		if seen[s.ID] {
			err = errors.Join(err, fmt.Errorf("%w: two settlements of one hold", ErrInvalid))
		}
		seen[s.ID] = true
	}
	return err
}

// heldAmounts returns what the accounts hold.
func heldAmounts(accounts []Account) []HeldAmount {
	all := make([]HeldAmount, len(accounts))
	for i, a := range accounts {
		all[i] = HeldAmount{a.Name, a.Amount}
	}
	return all
}

// encodeAmounts encodes amounts as account.lua reads them: each is the amount, the length of the name, and the name.
func encodeAmounts(amounts []HeldAmount) []byte {
	out := []byte{}
	for _, a := range amounts {
		out = binary.BigEndian.AppendUint64(out, uint64(a.Amount)) //nolint:gosec // amounts are not negative
		out = binary.BigEndian.AppendUint32(out, uint32(len(a.Account)))
		out = append(out, a.Account...)
	}
	return out
}

// decodeAmounts decodes what encodeAmounts returns.
func decodeAmounts(data []byte) (all []HeldAmount, err error) {
	const head = 12
	for len(data) > 0 {
		if len(data) < head || uint64(len(data)-head) < uint64(binary.BigEndian.Uint32(data[8:])) {
			return nil, errors.New("the amounts of a hold are cut off")
		}
		amount, end := binary.BigEndian.Uint64(data), head+int(binary.BigEndian.Uint32(data[8:]))
		if amount > MaxAmount {
			return nil, errors.New("an amount of a hold is too large")
		}
		all = append(all, HeldAmount{string(data[head:end]), int64(amount)})
		data = data[end:]
	}
	return all, nil
}

// namedStates returns the states of the accounts of a Hold.
func namedStates(states []accountState, accounts []Account) []AccountState {
	all := make([]AccountState, len(accounts))
	for i, a := range accounts {
		all[i] = states[i].named(a.Name)
	}
	return all
}

// listAccounts returns the accounts of a group at now, sorted. expired are holds that have expired, and still count as held.
func listAccounts(accounts map[string]accountState, expired [][]HeldAmount, now int64) []AccountState {
	for _, amounts := range expired {
		for _, h := range amounts {
			if a, ok := accounts[h.Account]; ok {
				n := min(a.held, h.Amount) // less than that if it was settled meanwhile
				accounts[h.Account] = a.settle(n, n)
			}
		}
	}
	var all []AccountState
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if a := accounts[name]; !a.isOver(now) {
			all = append(all, a.named(name))
		}
	}
	return all
}

func (h *HoldState) check() error {
	err := checkSize("the number of accounts", len(h.Amounts), MaxAccounts)
	for _, a := range h.Amounts {
		err = errors.Join(err, checkName("an account", a.Account))
		if a.Amount < 0 || a.Amount > MaxAmount {
			err = errors.Join(err, fmt.Errorf("%w: a hold of %d", ErrInvalid, a.Amount))
		}
	}
	return err
}

func (s *AccountState) check() error {
	err := checkName("an account", s.Name)
	if s.Settled < 0 || s.Settled > MaxAmount || s.Held < 0 || s.Held > MaxAmount {
		err = errors.Join(err, fmt.Errorf("%w: an account with %d settled and %d held", ErrInvalid, s.Settled, s.Held))
	}
	return err
}

// balanceAccounts makes accounts agree with the holds before them: each account has held what its holds hold. Holds can expire
// between export and import, and an export of Redis is not of one instant. What no hold holds any more counts as settled.
func balanceAccounts(records iter.Seq2[Record, error], now time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		type total struct {
			held int64
			ends time.Time
		}
		totals := map[Key]total{}
		for r, err := range records {
			switch {
			case err != nil:
			case r.Kind == KindHold && !now.Before(r.Hold.Expires):
				continue
			case r.Kind == KindHold:
				for _, h := range r.Hold.Amounts {
					t := totals[Key{r.Group, h.Account}]
					t.held += h.Amount
					if t.ends.Before(r.Hold.Expires) {
						t.ends = r.Hold.Expires
					}
					totals[Key{r.Group, h.Account}] = t
				}
			case r.Kind == KindAccount:
				k := Key{r.Group, r.Name}
				t := totals[k]
				delete(totals, k)
				if r.Account.Settled += max(0, r.Account.Held-t.held); r.Account.Settled > MaxAmount {
					r.Account.Settled = MaxAmount
				}
				if r.Account.Held = t.held; newAccountState(r.Account).isOver(now.UnixMicro()) {
					continue
				}
			}
			if !yield(r, err) {
				return
			}
		}
		keys := slices.SortedFunc(maps.Keys(totals), func(a, b Key) int {
			return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name))
		})
		for _, k := range keys { // an account that ended while Redis was read
			t := totals[k]
			if !yield(Record{Kind: KindAccount, Group: k.Group, Name: k.Name, Account: AccountState{Name: k.Name, Held: t.held, Ends: t.ends}}, nil) {
				return
			}
		}
	}
}

// cloneSettlements copies what a caller may reuse.
func cloneSettlements(all []Settlement) []Settlement {
	all = slices.Clone(all)
	for i := range all {
		all[i].Amounts = slices.Clone(all[i].Amounts)
	}
	return all
}
