package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/sqlite"

	"github.com/summit-switchboard/switchboard/internal/store/segment"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func openInternal(t *testing.T) *File {
	t.Helper()
	f, err := OpenFile(filepath.Join(t.TempDir(), "store.db"), FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// together submits all changes so that the writer finds them in one batch, and returns their results.
func together(t *testing.T, f *File, all ...*fileChange) []error {
	t.Helper()
	ready, release := make(chan struct{}), make(chan struct{})
	first := &fileChange{ctx: t.Context(), result: make(chan error, 1), apply: func(*fileTransaction) error {
		close(ready)
		<-release
		return nil
	}}
	f.changes <- first
	<-ready
	for _, r := range all {
		if r.result = make(chan error, 1); r.ctx == nil {
			r.ctx = t.Context()
		}
		f.changes <- r
	}
	close(release)
	if err := <-first.result; err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(all))
	for i, r := range all {
		if r.decided.Load() && r.ctx.Err() != nil {
			continue // its caller gave up
		}
		errs[i] = <-r.result
	}
	return errs
}

func puts(name string) *fileChange {
	return &fileChange{apply: func(tx *fileTransaction) error {
		return tx.putValue(Key{"g", name}, Value{Data: []byte("x"), Version: 7})
	}}
}

func has(t *testing.T, f *File, name string) bool {
	t.Helper()
	v, err := f.Value(t.Context(), Key{"g", name})
	if err != nil {
		t.Fatal(err)
	}
	return v.Version != 0
}

func TestAFailedChangeDoesNotFailItsBatch(t *testing.T) {
	f := openInternal(t)
	half := &fileChange{apply: func(tx *fileTransaction) error {
		return errors.Join(puts("half").apply(tx), tx.exec(`INSERT INTO nowhere VALUES (1)`))
	}}
	conflict := &fileChange{apply: func(*fileTransaction) error { return ErrConflict }}
	errs := together(t, f, puts("before"), half, conflict, puts("after"))
	if errs[0] != nil || errs[3] != nil {
		t.Errorf("the good changes: %v, %v", errs[0], errs[3])
	}
	if !errors.Is(errs[1], ErrUnavailable) || !strings.Contains(errs[1].Error(), f.path) || !errors.Is(errs[2], ErrConflict) {
		t.Errorf("the bad changes: %v, %v", errs[1], errs[2])
	}
	if !has(t, f, "before") || !has(t, f, "after") || has(t, f, "half") {
		t.Error("the stored values are not the acknowledged ones")
	}
	if fault := f.Status().Fault; fault != "" {
		t.Errorf("the last change succeeded, and Status says: %s", fault)
	}
}

func TestWaitingChangesShareATransaction(t *testing.T) {
	f := openInternal(t)
	var seen []any
	in := func(name string) *fileChange {
		r := puts(name)
		do := r.apply
		r.apply = func(tx *fileTransaction) error {
			seen = append(seen, has(t, f, "0")) // what another connection sees
			return do(tx)
		}
		return r
	}
	together(t, f, in("0"), in("1"), in("2"))
	if fmt.Sprint(seen) != "[false false false]" || !has(t, f, "2") {
		t.Errorf("another connection saw the first change before the batch was committed: %v", seen)
	}
}

func TestACancelledChangeIsNotWritten(t *testing.T) {
	f := openInternal(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	left := puts("left")
	left.ctx = gone
	left.decided.Store(true)
	together(t, f, left, puts("stayed"))
	if has(t, f, "left") || !has(t, f, "stayed") {
		t.Error("a cancelled change was written, or another one was not")
	}
}

func TestABatchIsLimited(t *testing.T) {
	f := openInternal(t)
	seen := map[bool]int{} // by whether the first change was visible
	large := func() *fileChange {
		return &fileChange{size: maxBatchBytes/2 + 1, apply: func(tx *fileTransaction) error {
			seen[has(t, f, "first")]++
			return puts("first").apply(tx)
		}}
	}
	together(t, f, large(), large(), large())
	if seen[false] != 1 || seen[true] != 2 {
		t.Errorf("three large changes: %v", seen)
	}
	alone := puts("alone")
	alone.exclusive = true
	do := alone.apply
	alone.apply = func(tx *fileTransaction) error {
		if !has(t, f, "before") {
			t.Error("the exclusive change is not alone in its transaction")
		}
		return do(tx)
	}
	together(t, f, puts("before"), alone)
}

func TestOnlyDurableChangesWaitForTheDisk(t *testing.T) {
	f := openInternal(t)
	for _, durable := range []bool{true, false, true, false} {
		var level int
		r := &fileChange{durable: durable, apply: func(tx *fileTransaction) error {
			return tx.query(func(rows *sql.Rows) error { return rows.Scan(&level) }, `PRAGMA synchronous`)
		}}
		together(t, f, puts("before"), r, puts("behind"))
		if want := map[bool]int{true: 2, false: 1}[durable]; level != want { // FULL, NORMAL
			t.Errorf("durable %v: synchronous is %d, want %d", durable, level, want)
		}
	}
}

func TestExpiredRowsAreDeleted(t *testing.T) {
	f := openInternal(t)
	apply := func(name string, ttl time.Duration) {
		t.Helper()
		if _, err := f.Apply(t.Context(), Change{Group: "g", Writes: []Write{{Name: name, Was: Any, Data: []byte("x"), TTL: ttl}}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Take(t.Context(), "g", Want{Now: 1}, Limit{Name: name, Every: max(ttl, time.Microsecond), Burst: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		apply(fmt.Sprint(i), time.Microsecond)
	}
	end := time.Now().Add(time.Second)
	holdUntil := func(id string, ttl time.Duration) {
		t.Helper()
		if _, held, err := f.Hold(t.Context(), "g", id, HoldTerms{TTL: ttl}, Account{Name: id, Max: 1, Amount: 1, Ends: end}); err != nil || !held {
			if time.Now().After(end) {
				wait.Late(t, "an account has ended before its hold")
			}
			t.Fatalf("Hold = %v, %v", held, err)
		}
	}
	for i := range 50 {
		holdUntil(fmt.Sprint(i), time.Microsecond)
	}
	holdUntil("kept", time.Hour)
	<-time.After(time.Until(end))
	apply("kept", time.Hour)
	for range sweepInterval {
		apply("again", 0)
	}
	for _, table := range []string{"value WHERE grp != ''", "meter"} { // the empty group holds the mark
		var n int
		if err := f.reads.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 2 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
	if !has(t, f, "kept") || !has(t, f, "again") {
		t.Error("a value that has not expired is gone")
	}
	for table, want := range map[string]int{"hold": 1, "account": 1} {
		var n int
		if err := f.reads.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil || n != want {
			t.Errorf("%d rows of %s are left, want %d: %v", n, table, want, err)
		}
	}
	if settled, err := f.Settle(t.Context(), "g", Settlement{ID: "kept", Amounts: []int64{1}}); err != nil || !settled[0] {
		t.Errorf("Settle of a hold in an account that has ended = %v, %v", settled, err)
	}
	if err := f.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheWALStaysShort(t *testing.T) {
	f := openInternal(t)
	entries := make([][]byte, 512)
	for i := range entries {
		entries[i] = make([]byte, 8<<10)
	}
	longest := int64(0)
	for i := range 30 { // 120 MiB
		if err := f.Append(t.Context(), "l", uint64(i*len(entries)), entries...); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, fileSize(f.path+"-wal"))
	}
	if longest > maxWAL/2 {
		t.Errorf("the WAL became %d bytes long", longest)
	}
}

// BenchmarkFileLook measures the check at each commit that the file is the one that was opened.
func BenchmarkFileLook(b *testing.B) {
	f, err := OpenFile(filepath.Join(b.TempDir(), "store.db"), FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the file is in a temporary folder
	for b.Loop() {
		if err := f.checkFiles(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestNames15ADiskThatHangsIsSaidToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openInternal(t)
		hung := make(chan struct{})
		hook := fileChange{ctx: t.Context(), result: make(chan error, 1), apply: func(tx *fileTransaction) error {
			return tx.conn.Raw(func(c any) error {
				c.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 {
					<-hung
					return 0
				})
				return nil
			})
		}}
		f.changes <- &hook
		<-time.After(hangAfter / 2)
		if st := f.Status(); st.Fault != "" {
			t.Errorf("after a second: %+v", st)
		}
		<-time.After(hangAfter)
		if st := f.Status(); !strings.Contains(st.Fault, "the disk has not ended a write") {
			t.Errorf("after three seconds: %+v", st)
		}
		if _, err := f.Value(t.Context(), Key{"g", "n"}); err != nil {
			t.Errorf("a read while the disk hangs: %v", err)
		}
		close(hung)
		if err := <-hook.result; err != nil {
			t.Error(err)
		}
		if st := f.Status(); st.Fault != "" {
			t.Errorf("after the write has ended: %+v", st)
		}
		_ = f.Close()
	})
}

// CreateLog makes a log without entries.
func (f *File) CreateLog(ctx context.Context, name string) error { return f.logs.create(ctx, name) }

func TestEntriesThatAreTrimmedWhileTheyAreReadAreLeftOut(t *testing.T) {
	tries := 0
	all, err := collectEntries(9, func(see func(segment.Entry) bool) error {
		if tries++; tries == 1 {
			see(segment.Entry{Seq: 1})
			return fmt.Errorf("%w: entry 2", segment.ErrTrimmed)
		}
		see(segment.Entry{Seq: 7})
		return nil
	})
	if err != nil || len(all) != 1 || all[0].Seq != 7 {
		t.Errorf("%v, %v", all, err)
	}
}

// A damaged hold or account that has expired does not stop the writes of others.
func TestADamagedExpiredHoldStopsNoOtherWrite(t *testing.T) {
	for name, damage := range map[string]string{
		"the hold":            `UPDATE hold SET sum = sum + 1 WHERE name = 'broken'`,
		"one of its accounts": `UPDATE account SET sum = sum + 1 WHERE name = 'second'`,
	} {
		t.Run(name, func(t *testing.T) {
			f := openInternal(t)
			hold := func(id string, ttl time.Duration, accounts ...string) error {
				var all []Account
				for _, a := range accounts {
					all = append(all, Account{Name: a, Max: 9, Amount: 1})
				}
				_, held, err := f.Hold(t.Context(), "g", id, HoldTerms{TTL: ttl}, all...)
				if err == nil && !held {
					err = errors.New("not held")
				}
				return err
			}
			if err := errors.Join(hold("broken", time.Hour, "first", "second"), hold("whole", time.Hour, "third")); err != nil {
				t.Fatal(err)
			}
			const past = 1
			expire := func(tx *fileTransaction) error {
				for _, id := range []string{"broken", "whole"} {
					var data []byte
					if err := tx.query(func(rows *sql.Rows) error { return rows.Scan(&data) }, `SELECT data FROM hold WHERE name = ?`, id); err != nil {
						return err
					}
					if err := tx.exec(`UPDATE hold SET expires = ?, sum = ? WHERE name = ?`, past, holdChecksum(Key{"g", id}, past, data), id); err != nil {
						return err
					}
				}
				return tx.exec(damage)
			}
			if errs := together(t, f, &fileChange{apply: expire}); errs[0] != nil {
				t.Fatal(errs[0])
			}
			for i := range 3 * sweepInterval {
				if _, err := f.Apply(t.Context(), Change{Group: "other", Writes: []Write{{Name: fmt.Sprint(i), Was: Any, Data: []byte("x"), TTL: time.Microsecond}}}); err != nil {
					t.Fatalf("write %d: %v", i, err)
				}
			}
			if err := hold("next", time.Hour, "third"); err != nil {
				t.Errorf("Hold in an account of the same group = %v", err)
			}
			var left, held int
			if err := errors.Join(f.reads.QueryRow(`SELECT count(*) FROM hold WHERE name != 'next'`).Scan(&left), f.reads.QueryRow(`SELECT held FROM account WHERE name = 'first'`).Scan(&held)); err != nil || left != 1 || held != 1 {
				t.Errorf("%d expired holds are left, and %d is held in the account beside the damaged one: %v", left, held, err)
			}
			if err := f.Check(t.Context()); err == nil {
				t.Error("Check finds nothing")
			}
		})
	}
}
