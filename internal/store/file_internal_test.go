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

// together has the writer find all the requests waiting, and returns their answers.
func together(t *testing.T, f *File, all ...*request) []error {
	t.Helper()
	ready, release := make(chan struct{}), make(chan struct{})
	first := &request{ctx: t.Context(), done: make(chan error, 1), do: func(*transaction) error {
		close(ready)
		<-release
		return nil
	}}
	f.asked <- first
	<-ready
	for _, r := range all {
		if r.done = make(chan error, 1); r.ctx == nil {
			r.ctx = t.Context()
		}
		f.asked <- r
	}
	close(release)
	if err := <-first.done; err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(all))
	for i, r := range all {
		if r.left.Load() && r.ctx.Err() != nil {
			continue // nobody answers
		}
		errs[i] = <-r.done
	}
	return errs
}

func puts(name string) *request {
	return &request{do: func(tx *transaction) error {
		return tx.put(Key{"g", name}, Value{Data: []byte("x"), Version: 7})
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

func TestAChangeThatFailsDoesNotSpoilTheOthersOfItsBatch(t *testing.T) {
	f := openInternal(t)
	half := &request{do: func(tx *transaction) error {
		return errors.Join(puts("half").do(tx), tx.exec(`INSERT INTO nowhere VALUES (1)`))
	}}
	conflict := &request{do: func(*transaction) error { return ErrConflict }}
	errs := together(t, f, puts("before"), half, conflict, puts("after"))
	if errs[0] != nil || errs[3] != nil {
		t.Errorf("the others: %v, %v", errs[0], errs[3])
	}
	if !errors.Is(errs[1], ErrUnavailable) || !strings.Contains(errs[1].Error(), f.path) || !errors.Is(errs[2], ErrConflict) {
		t.Errorf("the ones that fail: %v, %v", errs[1], errs[2])
	}
	if !has(t, f, "before") || !has(t, f, "after") || has(t, f, "half") {
		t.Error("what was kept is not what was acknowledged")
	}
	if fault := f.Status().Fault; fault != "" {
		t.Errorf("the last one went well, and it says: %s", fault)
	}
}

func TestWhatWaitsIsWrittenInOneTransaction(t *testing.T) {
	f := openInternal(t)
	var seen []any
	in := func(name string) *request {
		r := puts(name)
		do := r.do
		r.do = func(tx *transaction) error {
			seen = append(seen, has(t, f, "0")) // what others see
			return do(tx)
		}
		return r
	}
	together(t, f, in("0"), in("1"), in("2"))
	if fmt.Sprint(seen) != "[false false false]" || !has(t, f, "2") {
		t.Errorf("others saw the first change when the others were made: %v", seen)
	}
}

func TestWhatNobodyWaitsForAnyMoreIsNotWritten(t *testing.T) {
	f := openInternal(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	left := puts("left")
	left.ctx = gone
	left.left.Store(true)
	together(t, f, left, puts("stayed"))
	if has(t, f, "left") || !has(t, f, "stayed") {
		t.Error("what nobody waited for was written, or what somebody waited for was not")
	}
}

func TestABatchIsBounded(t *testing.T) {
	f := openInternal(t)
	seen := map[bool]int{} // by whether the first was to be seen already
	large := func() *request {
		return &request{size: maxBatchBytes/2 + 1, do: func(tx *transaction) error {
			seen[has(t, f, "first")]++
			return puts("first").do(tx)
		}}
	}
	together(t, f, large(), large(), large())
	if seen[false] != 1 || seen[true] != 2 {
		t.Errorf("three large ones: %v", seen)
	}
	alone := puts("alone")
	alone.once = true
	do := alone.do
	alone.do = func(tx *transaction) error {
		if !has(t, f, "before") {
			t.Error("it is not alone")
		}
		return do(tx)
	}
	together(t, f, puts("before"), alone)
}

func TestOnlyWhatIsDurableWaitsForTheDisk(t *testing.T) {
	f := openInternal(t)
	for _, durable := range []bool{true, false, true, false} {
		var level int
		r := &request{durable: durable, do: func(tx *transaction) error {
			return tx.query(func(rows *sql.Rows) error { return rows.Scan(&level) }, `PRAGMA synchronous`)
		}}
		together(t, f, puts("before"), r, puts("behind"))
		if want := map[bool]int{true: 2, false: 1}[durable]; level != want { // FULL, NORMAL
			t.Errorf("durable %v: synchronous is %d, want %d", durable, level, want)
		}
	}
}

func TestWhatHasExpiredIsLetGoOf(t *testing.T) {
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
	apply("kept", time.Hour)
	for range sweepAfter {
		apply("again", 0)
	}
	for _, table := range []string{"value WHERE grp != ''", "meter"} { // no group is the store's own mark
		var n int
		if err := f.reads.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 2 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
	if !has(t, f, "kept") || !has(t, f, "again") {
		t.Error("what has not expired is gone")
	}
}

func TestTheWALStaysBounded(t *testing.T) {
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
		longest = max(longest, size(f.path+"-wal"))
	}
	if longest > maxWAL/2 {
		t.Errorf("the WAL became %d bytes long", longest)
	}
}

// BenchmarkFileLook is what each commit pays to know that the file is the one that was opened.
func BenchmarkFileLook(b *testing.B) {
	f, err := OpenFile(filepath.Join(b.TempDir(), "store.db"), FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // nothing is lost
	w := &writer{File: f}
	for b.Loop() {
		if err := w.checkFiles(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestNames15ADiskThatHangsIsSaidToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openInternal(t)
		hung := make(chan struct{})
		hook := request{ctx: t.Context(), done: make(chan error, 1), do: func(tx *transaction) error {
			return tx.conn.Raw(func(c any) error {
				c.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 {
					<-hung
					return 0
				})
				return nil
			})
		}}
		f.asked <- &hook
		<-time.After(hangs / 2)
		if st := f.Status(); st.Fault != "" {
			t.Errorf("after a second: %+v", st)
		}
		<-time.After(hangs)
		if st := f.Status(); !strings.Contains(st.Fault, "the disk has not ended a write") {
			t.Errorf("after three seconds: %+v", st)
		}
		if _, err := f.Value(t.Context(), Key{"g", "n"}); err != nil {
			t.Errorf("what only reads: %v", err)
		}
		close(hung)
		if err := <-hook.done; err != nil {
			t.Error(err)
		}
		if st := f.Status(); st.Fault != "" {
			t.Errorf("once it goes on: %+v", st)
		}
		_ = f.Close()
	})
}
