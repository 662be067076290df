package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"time"
)

// fileAccounts are the accounts of a File and the holds in them.
type fileAccounts struct{ file *File }

// sweptHolds is how many expired holds one change settles, beside its own work.
const sweptHolds = 100

// A holdRow is a row of the table of holds.
type holdRow struct {
	id      int64
	expires int64
	amounts []HeldAmount // none: it is settled
}

const selectAccount = `SELECT settled, held, ends, sum FROM account WHERE grp = ? AND name = ?`

func (a accountState) checksum(k Key) int64 {
	return checksum([]byte(k.Group+"\x00"+k.Name), uint64(a.settled), uint64(a.held), uint64(a.ends)) //nolint:gosec // only for the sum
}

// checkedAccount returns the state if the sum is its checksum.
func checkedAccount(a accountState, k Key, sum int64) (accountState, error) {
	if sum != a.checksum(k) {
		return accountState{}, damagedError("the account %q of %q", k.Name, k.Group)
	}
	return a, nil
}

// account returns the state of an account; the zero state if there is none.
func (tx *fileTransaction) account(k Key) (a accountState, err error) {
	err = tx.query(func(rows *sql.Rows) error {
		var sum int64
		if err := rows.Scan(&a.settled, &a.held, &a.ends, &sum); err != nil {
			return err
		}
		a, err = checkedAccount(a, k, sum)
		return err
	}, selectAccount, k.Group, k.Name)
	return a, err
}

func (tx *fileTransaction) putAccount(k Key, a accountState) error {
	return tx.exec(`INSERT INTO account (grp, name, settled, held, ends, sum) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (grp, name) DO UPDATE SET settled = excluded.settled, held = excluded.held, ends = excluded.ends, sum = excluded.sum`,
		k.Group, k.Name, a.settled, a.held, a.ends, a.checksum(k))
}

func holdChecksum(k Key, expires int64, data []byte) int64 {
	key := crc32.Checksum([]byte(k.Group+"\x00"+k.Name), castagnoli)
	return checksum(data, uint64(key), uint64(expires)) //nolint:gosec // only for the sum
}

// scanHold reads the columns grp, name, id, expires, sum and data.
func scanHold(rows *sql.Rows) (k Key, h holdRow, err error) {
	var sum int64
	var data sql.RawBytes
	if err := rows.Scan(&k.Group, &k.Name, &h.id, &h.expires, &sum, &data); err != nil {
		return k, h, err
	}
	if sum == holdChecksum(k, h.expires, data) {
		if h.amounts, err = decodeAmounts(data); err == nil {
			return k, h, nil
		}
	}
	return k, h, damagedError("the hold %q of %q", k.Name, k.Group)
}

const selectHolds = `SELECT grp, name, id, expires, sum, data FROM hold`

// hold returns a hold; the zero holdRow if there is none.
func (tx *fileTransaction) hold(k Key) (h holdRow, err error) {
	err = tx.query(func(rows *sql.Rows) (err error) {
		_, h, err = scanHold(rows)
		return err
	}, selectHolds+` WHERE grp = ? AND name = ?`, k.Group, k.Name)
	return h, err
}

func (tx *fileTransaction) putHold(k Key, h holdRow) error {
	data := encodeAmounts(h.amounts)
	return tx.exec(`INSERT INTO hold (grp, name, expires, sum, data) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (grp, name) DO UPDATE SET expires = excluded.expires, sum = excluded.sum, data = excluded.data`,
		k.Group, k.Name, h.expires, holdChecksum(k, h.expires, data), data)
}

// settleHold takes away what a hold of the group holds, and settles the amounts. If an account is damaged, nothing is written.
func (tx *fileTransaction) settleHold(group string, held []HeldAmount, amounts []int64) error {
	was := make([]accountState, len(held))
	for i, h := range held {
		var err error
		if was[i], err = tx.account(Key{group, h.Account}); err != nil {
			return err
		}
	}
	for i, h := range held {
		if was[i] == (accountState{}) {
			continue
		}
		if err := tx.putAccount(Key{group, h.Account}, was[i].settle(h.Amount, amounts[i])); err != nil {
			return err
		}
	}
	return nil
}

// settledSums are the accounts of a group that settlements change, by name. Each is read and written once, because most settlements are in few
// accounts. The zero accountState is an account that does not exist.
type settledSums map[string]accountState

// settle takes away what a hold of the group holds, and settles the amounts.
func (s settledSums) settle(tx *fileTransaction, group string, held []HeldAmount, amounts []int64) error {
	for i, h := range held {
		a, known := s[h.Account]
		if !known {
			var err error
			if a, err = tx.account(Key{group, h.Account}); err != nil {
				return err
			}
		}
		if a != (accountState{}) {
			a = a.settle(h.Amount, amounts[i])
		}
		s[h.Account] = a
	}
	return nil
}

// settleExpired settles what expired holds have held, up to n of them. It passes over damaged rows, which must not stop the writes of others: Check
// and each use of them report these.
func (tx *fileTransaction) settleExpired(now int64, n int) error {
	// SQLite plans a query anew each time if it compares with a parameter. This one it plans once.
	first := int64(endsNever)
	if err := tx.query(func(rows *sql.Rows) error {
		if rows.Scan(&first) != nil { // the row is damaged
			first = now
		}
		return nil
	}, `SELECT expires FROM hold ORDER BY expires LIMIT 1`); err != nil || first > now {
		return err
	}
	type expired struct {
		group string
		holdRow
	}
	var all []expired
	if err := tx.query(func(rows *sql.Rows) error {
		k, h, err := scanHold(rows)
		if err == nil {
			all = append(all, expired{k.Group, h})
		}
		return unlessDamaged(err)
	}, selectHolds+` WHERE expires <= ? ORDER BY expires LIMIT ?`, now, n); err != nil {
		return err
	}
	for _, h := range all {
		if err := unlessDamaged(tx.endHold(h.group, h.holdRow)); err != nil {
			return err
		}
	}
	return nil
}

// unlessDamaged returns err, or nil if it says only that a row is damaged.
func unlessDamaged(err error) error {
	if errors.Is(err, errDamaged) {
		return nil
	}
	return err
}

// endHold settles what an expired hold has held, and forgets it.
func (tx *fileTransaction) endHold(group string, h holdRow) error {
	amounts := make([]int64, len(h.amounts))
	for i, a := range h.amounts {
		amounts[i] = a.Amount
	}
	if err := tx.settleHold(group, h.amounts, amounts); err != nil {
		return err
	}
	return tx.exec(`DELETE FROM hold WHERE id = ?`, h.id)
}

// Hold implements Store.
func (f *fileAccounts) Hold(ctx context.Context, group, id string, terms HoldTerms, accounts ...Account) (sums []AccountState, held bool, err error) {
	if err := cmp.Or(checkHold(group, id, terms, accounts), terms.checkJoined()); err != nil {
		return nil, false, err
	}
	accounts = slices.Clone(accounts) // the caller may return before it is done, and reuse them
	r := fileChange{durable: terms.Durable, expiring: 1 + len(accounts)}
	var with Change
	if terms.With != nil {
		with = terms.With.Change
		with.Writes, r.size = cloneWrites(with.Writes)
		r.durable = r.durable || with.Durable
		r.expiring += len(with.Writes)
	}
	var made struct { // the writer may set it after the caller has returned
		states  []accountState
		held    bool
		version Version
	}
	r.apply = func(tx *fileTransaction) error {
		now := time.Now()
		us := now.UnixMicro()
		if err := tx.settleExpired(us, sweptHolds); err != nil {
			return err
		}
		known, err := tx.hold(Key{group, id})
		if err == nil && known.id != 0 && known.expires <= us { // more than sweptHolds have expired
			err = tx.endHold(group, known)
			known = holdRow{}
		}
		states := make([]accountState, len(accounts))
		for i, a := range accounts {
			if err == nil {
				states[i], err = tx.account(Key{group, a.Name})
				states[i] = states[i].at(us)
			}
		}
		if err != nil {
			return err
		}
		made.states, made.held = states, known.id != 0
		if made.held {
			return nil
		}
		made.states, made.held, err = holdInAccounts(states, accounts, us)
		if err != nil || !made.held {
			return err
		}
		if terms.With != nil { // first, because it may conflict
			if made.version, err = tx.change(&with, now); err != nil {
				return err
			}
		}
		for i, a := range accounts {
			if err := tx.putAccount(Key{group, a.Name}, made.states[i]); err != nil {
				return err
			}
		}
		return tx.putHold(Key{group, id}, holdRow{expires: now.Add(terms.TTL).UnixMicro(), amounts: heldAmounts(accounts)})
	}
	if err := f.file.submit(ctx, &r); err != nil {
		return nil, false, err
	}
	if terms.With != nil {
		terms.With.Made = made.version
	}
	return namedStates(made.states, accounts), made.held, nil
}

// Settle implements Store.
func (f *fileAccounts) Settle(ctx context.Context, group string, settlements ...Settlement) ([]bool, error) {
	if err := checkSettle(group, settlements); err != nil {
		return nil, err
	}
	r := fileChange{expiring: len(settlements)}
	var settled []bool // the writer may set it after the caller has returned
	all := cloneSettlements(settlements)
	r.apply = func(tx *fileTransaction) error {
		now := time.Now().UnixMicro()
		if err := tx.settleExpired(now, sweptHolds); err != nil {
			return err
		}
		sums := settledSums{}
		done, holds := make([]bool, len(all)), make([]holdRow, len(all))
		for i, s := range all {
			h, err := tx.hold(Key{group, s.ID})
			if done[i] = len(h.amounts) > 0 && h.expires > now; done[i] && err == nil {
				err = s.check(h.amounts)
			}
			if err != nil {
				return err
			}
			holds[i] = h
		}
		for i, s := range all {
			if !done[i] {
				continue
			}
			if err := cmp.Or(
				sums.settle(tx, group, holds[i].amounts, s.Amounts),
				tx.putHold(Key{group, s.ID}, holdRow{expires: holds[i].expires})); err != nil {
				return err
			}
		}
		for name, a := range sums {
			if a == (accountState{}) {
				continue
			}
			if err := tx.putAccount(Key{group, name}, a); err != nil {
				return err
			}
		}
		settled = done
		return nil
	}
	if err := f.file.submit(ctx, &r); err != nil {
		return nil, err
	}
	return settled, nil
}

// Accounts implements Store.
func (f *fileAccounts) Accounts(ctx context.Context, group string, names ...string) (all []AccountState, err error) {
	if err := checkAccounts(group, names); err != nil {
		return nil, err
	}
	err = f.file.withReads(ctx, func(ctx context.Context) error {
		return f.file.reads.inTransaction(ctx, func(tx *sql.Tx) error {
			now := time.Now().UnixMicro()
			accounts, expired := map[string]accountState{}, [][]HeldAmount{}
			query, args := `SELECT name, settled, held, ends, sum FROM account WHERE grp = ? AND (held > 0 OR ends > ?)`, []any{group, now}
			if len(names) > 0 {
				query += ` AND name IN (?` + strings.Repeat(`, ?`, len(names)-1) + `)`
				for _, name := range names {
					args = append(args, name)
				}
			}
			rows, err := tx.QueryContext(ctx, query, args...)
			if err := scanAll(rows, err, func(rows *sql.Rows) error {
				var name string
				var a accountState
				var sum int64
				if err := rows.Scan(&name, &a.settled, &a.held, &a.ends, &sum); err != nil {
					return err
				}
				accounts[name], err = checkedAccount(a, Key{group, name}, sum)
				return err
			}); err != nil {
				return err
			}
			rows, err = tx.QueryContext(ctx, selectHolds+` WHERE expires <= ? AND +grp = ?`, now, group)
			if err := scanAll(rows, err, func(rows *sql.Rows) error {
				_, h, err := scanHold(rows)
				expired = append(expired, h.amounts)
				return err
			}); err != nil {
				return err
			}
			all = listAccounts(accounts, expired, now)
			return nil
		})
	})
	return all, err
}

// dumpAccounts calls see with all holds that have not expired at now, and then with all accounts: what expired holds have held is
// settled there. It calls see with an error for each damaged row, and for each account in which another amount is held than by its holds.
func dumpAccounts(query func(scan func(*sql.Rows) error, text string, args ...any) error, now int64, see func(Record, error) error) error {
	held, expired := map[Key]int64{}, map[Key]int64{}
	if err := query(func(rows *sql.Rows) error {
		k, h, err := scanHold(rows)
		for _, a := range h.amounts {
			held[Key{k.Group, a.Account}] += a.Amount
			if h.expires <= now {
				expired[Key{k.Group, a.Account}] += a.Amount
			}
		}
		if err == nil && h.expires <= now {
			return nil
		}
		return see(Record{Kind: KindHold, Group: k.Group, Name: k.Name, Hold: HoldState{time.UnixMicro(h.expires), h.amounts}}, err)
	}, selectHolds+` ORDER BY grp, name`); err != nil {
		return err
	}
	return query(func(rows *sql.Rows) error {
		var k Key
		var a accountState
		var sum int64
		if err := rows.Scan(&k.Group, &k.Name, &a.settled, &a.held, &a.ends, &sum); err != nil {
			return err
		}
		a, err := checkedAccount(a, k, sum)
		if err == nil && a.held != held[k] {
			err = damagedError("the account %q of %q, with %d held, and %d by its holds,", k.Name, k.Group, a.held, held[k])
		}
		if a = a.settle(expired[k], expired[k]); err == nil && a.isOver(now) {
			return nil
		}
		return see(Record{Kind: KindAccount, Group: k.Group, Name: k.Name, Account: a.named(k.Name)}, err)
	}, `SELECT grp, name, settled, held, ends, sum FROM account ORDER BY grp, name`)
}
