package store

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed lua/account.lua
var accountText string

//go:embed lua/hold.lua
var holdText string

//go:embed lua/settle.lua
var settleText string

//go:embed lua/accounts.lua
var accountsText string

var (
	holdScript     = newScript(accountText + holdText)
	settleScript   = newScript(accountText + settleText)
	accountsScript = newScript(accountsText)
)

// ledger returns the keys of the group's accounts, its holds, and their ends.
func (k redisKeys) ledger(group string) []string {
	return []string{k.item(group, accountKind), k.item(group, holdKind), k.item(group, endKind)}
}

// formatEnd returns an end as account.lua reads it.
func formatEnd(end int64) string {
	if end == endsNever {
		return "inf"
	}
	return strconv.FormatInt(end, 10)
}

func parseEnd(text string) (int64, error) {
	if text == "inf" {
		return endsNever, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// encodeAccount returns an account as account.lua writes it.
func encodeAccount(a accountState) string {
	return fmt.Sprintf("%d %d %s", a.settled, a.held, formatEnd(a.ends))
}

func decodeAccount(text string) (a accountState, err error) {
	part := strings.Split(text, " ")
	if len(part) != 3 {
		return a, fmt.Errorf("%q is no account", text)
	}
	var errs [3]error
	a.settled, errs[0] = strconv.ParseInt(part[0], 10, 64)
	a.held, errs[1] = strconv.ParseInt(part[1], 10, 64)
	a.ends, errs[2] = parseEnd(part[2])
	return a, errors.Join(errs[:]...)
}

// The bytes of a hold before its amounts: when it expires, and whether it is settled.
const (
	holdHead    = 9
	holdActive  = 'h'
	holdSettled = 's'
)

// encodeHold returns a hold as account.lua writes it.
func encodeHold(h HoldState) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(h.Expires.UnixMicro())) //nolint:gosec // an instant after 1970
	if len(h.Amounts) == 0 {
		return append(out, holdSettled)
	}
	return append(append(out, holdActive), encodeAmounts(h.Amounts)...)
}

func decodeHold(data string) (h HoldState, err error) {
	if len(data) < holdHead || data[holdHead-1] != holdActive && data[holdHead-1] != holdSettled {
		return h, errors.New("the key holds something that is not a hold")
	}
	us := binary.BigEndian.Uint64([]byte(data))
	h.Expires = time.UnixMicro(int64(min(us, math.MaxInt64)))
	if data[holdHead-1] == holdActive {
		h.Amounts, err = decodeAmounts([]byte(data[holdHead:]))
	}
	return h, err
}

// Hold implements Store.
func (r *Redis) Hold(ctx context.Context, group, id string, terms HoldTerms, accounts ...Account) (sums []AccountState, held bool, err error) {
	if err := checkHold(group, id, terms, accounts); err != nil {
		return nil, false, err
	}
	if terms.With != nil {
		return nil, false, errJoined
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return nil, false, err
	}
	defer u.endCall()
	args := []any{id, terms.TTL.Microseconds(), encodeAmounts(heldAmounts(accounts))}
	for _, a := range accounts {
		args = append(args, a.Name, a.Max, a.Amount, formatEnd(endOf(a.Ends)))
	}
	answer, err := u.runRepeatable(holdScript, r.keys.ledger(group), args...)
	if err != nil {
		return nil, false, u.wrapError(err)
	}
	if len(answer) == 1 {
		if i, _ := answer[0].(int64); i < 0 && int(-i) <= len(accounts) {
			return nil, false, endedError(accounts[-i-1].Name)
		}
	}
	malformed := u.wrapError(fmt.Errorf("the answer of the script for holds is malformed: %v", answer))
	if len(answer) != 1+3*len(accounts) {
		return nil, false, malformed
	}
	states := make([]accountState, len(accounts))
	for i := range accounts {
		part := answer[1+3*i:]
		s := &states[i]
		s.settled, _ = part[0].(int64)
		s.held, _ = part[1].(int64)
		if s.ends, err = parseEnd(answerText(part[2])); err != nil {
			return nil, false, malformed
		}
	}
	return namedStates(states, accounts), answer[0] == int64(1), nil
}

// Settle implements Store.
func (r *Redis) Settle(ctx context.Context, group string, settlements ...Settlement) ([]bool, error) {
	if err := checkSettle(group, settlements); err != nil {
		return nil, err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.endCall()
	if len(settlements) == 0 {
		return []bool{}, nil
	}
	args := []any{newVersion().bytes()}
	for _, s := range settlements {
		args = append(args, s.ID, len(s.Amounts))
		for _, n := range s.Amounts {
			args = append(args, n)
		}
	}
	answer, err := u.runRepeatable(settleScript, r.keys.ledger(group), args...)
	if err != nil {
		return nil, u.wrapError(err)
	}
	if len(answer) == 1 {
		if i, _ := answer[0].(int64); i < 0 && int(-i) <= len(settlements) {
			s := settlements[-i-1]
			return nil, fmt.Errorf("%w: to settle %d of the hold %q, which has other amounts", ErrInvalid, s.Amounts, s.ID)
		}
	}
	if len(answer) != len(settlements) {
		return nil, u.wrapError(fmt.Errorf("the answer of the script for settlements is malformed: %v", answer))
	}
	settled := make([]bool, len(settlements))
	for i := range settled {
		settled[i] = answer[i] == int64(1)
	}
	return settled, nil
}

// Accounts implements Store. More than MaxEntries accounts are not read at one instant.
func (r *Redis) Accounts(ctx context.Context, group string, names ...string) ([]AccountState, error) {
	if err := checkAccounts(group, names); err != nil {
		return nil, err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.endCall()
	keys := r.keys.ledger(group)
	args := []any{MaxEntries, MaxEntries}
	for _, name := range names {
		args = append(args, name)
	}
	answer, err := u.runRepeatable(accountsScript, keys, args...)
	if err != nil {
		return nil, u.wrapError(err)
	}
	if len(answer) != 3 {
		return nil, u.wrapError(errors.New("the answer of the script for accounts is malformed"))
	}
	pairs, _ := answer[0].([]any)
	if answer[0] == nil {
		if pairs, err = u.scanHash(keys[0]); err != nil {
			return nil, u.wrapError(err)
		}
	}
	accounts := map[string]accountState{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if accounts[answerText(pairs[i])], err = decodeAccount(answerText(pairs[i+1])); err != nil {
			return nil, u.wrapError(err)
		}
	}
	var expired [][]HeldAmount
	late, _ := answer[1].([]any)
	for _, data := range late {
		h, err := decodeHold(answerText(data))
		if err != nil {
			return nil, u.wrapError(err)
		}
		expired = append(expired, h.Amounts)
	}
	return listAccounts(accounts, expired, int64(answerNumber(answer[2]))), nil
}

// scanHash returns the fields of a hash and their values by turns, also of one that is too large for one answer. A field may be
// there twice.
func (u *redisCall) scanHash(key string) (all []any, err error) {
	for cursor := "0"; ; {
		answer, err := u.sendRead(key, "hscan", key, cursor, "count", scanBatch)
		if err != nil {
			return nil, err
		}
		page, _ := answer.([]any)
		if len(page) != 2 {
			return nil, errors.New("the answer to hscan is malformed")
		}
		some, _ := page[1].([]any)
		all = append(all, some...)
		if cursor = answerText(page[0]); cursor == "0" {
			return all, nil
		}
		u.extendTimeout()
	}
}

// dumpHashes calls see with all holds, and then with all accounts, as far as they have not ended by our clock.
func dumpHashes(ctx context.Context, r *Redis, see func(Record) error) error {
	now := time.Now()
	for _, kind := range []string{holdKind, accountKind} {
		seen := map[string]bool{}
		if err := r.scanKeys(ctx, kind, func(keys []string) error {
			for _, key := range keys {
				if seen[key] {
					continue
				}
				seen[key] = true
				records, err := readHash(ctx, r, key, kind)
				for _, rec := range records {
					over := kind == holdKind && !now.Before(rec.Hold.Expires) || kind == accountKind && newAccountState(rec.Account).isOver(now.UnixMicro())
					if err == nil && !over {
						err = see(rec)
					}
				}
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// readHash returns the holds or the accounts of a group, sorted by name.
func readHash(ctx context.Context, r *Redis, key, kind string) ([]Record, error) {
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.endCall()
	pairs, err := u.scanHash(key)
	if err != nil {
		return nil, u.wrapError(err)
	}
	group := strings.TrimSuffix(strings.TrimPrefix(key, string(r.keys)+":{"), "}"+kind)
	all := map[string]Record{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, data := answerText(pairs[i]), answerText(pairs[i+1])
		rec := Record{Group: keyUnescaper.Replace(group), Name: name}
		if kind == holdKind {
			rec.Kind = KindHold
			rec.Hold, err = decodeHold(data)
		} else {
			var a accountState
			a, err = decodeAccount(data)
			rec.Kind, rec.Account = KindAccount, a.named(name)
		}
		if err != nil {
			return nil, u.wrapError(fmt.Errorf("%s: %w", key, err))
		}
		all[name] = rec
	}
	records := make([]Record, 0, len(all))
	for _, rec := range all {
		records = append(records, rec)
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}
