package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// rows counts the rows of entries of all logs of a file.
func rows(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRow(`SELECT count(*) FROM entry`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEntriesThatShareARowAreReadAndTrimmedOneByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openFile(t, path)
	const n = 940
	all := make([]string, n) // entry i+1
	for i := range all {
		switch {
		case i == 300:
			all[i] = strings.Repeat("large", 20_000)
		case i%7 > 0: // the others are empty
			all[i] = fmt.Sprint(i+1, strings.Repeat(".", i%100*5))
		}
	}
	add(t, f, "before", "x")
	add(t, f, "l", all...)
	add(t, f, "after", "x")
	if got := rows(t, path); got != 2+17 { // up to entry 173, 300, 301, 473, 624, 775, 930; and each of the last 10
		t.Errorf("%d entries are in %d rows", n, got-2)
	}
	look := func(first int) {
		for _, after := range []int{0, first - 1, first, 172, 173, 174, 299, 300, 301, n - 2, n - 1} {
			for _, limit := range []int{1, 3, 200, store.MaxEntries} {
				got, err := f.Read(t.Context(), "l", uint64(after), limit)
				if err != nil {
					t.Fatal(err)
				}
				begin := max(after+1, first)
				if want := min(limit, n+1-begin); len(got) != want {
					t.Fatalf("from %d: after %d and at most %d there are %d entries, want %d", first, after, limit, len(got), want)
				}
				for i, e := range got {
					if int(e.Seq) != begin+i || string(e.Data) != all[begin+i-1] {
						t.Fatalf("from %d: after %d, entry %d is %d, %.20q", first, after, begin+i, e.Seq, e.Data)
					}
				}
			}
		}
		if err := f.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look(1)
	for _, first := range []int{2, 3, 172, 173, 174, 175, 300, 301, 302, 303, 700, n} {
		if err := f.Trim(t.Context(), "l", uint64(first)); err != nil {
			t.Fatal(err)
		}
		look(first)
		if got := export(t, f); strings.Count(got, `{"kind":"entry"`) != 2+n+1-first {
			t.Errorf("from %d: %d entries are exported", first, strings.Count(got, `{"kind":"entry"`))
		}
	}
	if got := rows(t, path); got != 2+1 {
		t.Errorf("one entry is in %d rows", got-2)
	}
	if err := f.Trim(t.Context(), "l", n+1); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, path); got != 2 {
		t.Errorf("no entry is in %d rows", got-2)
	}
	add(t, f, "l", "more")
	if got := read(t, f, 0, 9); got != fmt.Sprint(n+1, "=more") {
		t.Error(got)
	}
}

func TestDamagedSizesAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openFile(t, path)
	add(t, f, "l", strings.Repeat("a", 10_000), strings.Repeat("b", 10_001), strings.Repeat("c", 10_002))
	execute(t, path, `UPDATE entry SET sizes = X'914E904E924E'`) // the first two are exchanged
	if got, err := f.Read(t.Context(), "l", 0, 9); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Read = %v, %v", got, err)
	}
	if err := f.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Check = %v", err)
	}
}

func TestAFileOfAnOlderVersionIsMigrated(t *testing.T) {
	text, err := os.ReadFile("testdata/version1.sql")
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile("testdata/version1.jsonl") // an export by that version
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	execute(t, path, string(text))
	for range 2 { // the second time it has been migrated
		f := openFile(t, path)
		if got := export(t, f); body(got) != body(string(was)) {
			t.Errorf("it holds\n%s\nand held\n%s", got, was)
		}
		if err := f.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f := openFile(t, path)
	add(t, f, "trimmed", "6", "7")
	entries, err := f.Read(t.Context(), "trimmed", 0, 9)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&got, "%d=%s ", e.Seq, e.Data)
	}
	if got.String() != "4=entry 4 5=entry 5 6=6 7=7 " {
		t.Error(got.String())
	}
}

func TestAVacuumedFileIsIntact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openFile(t, path)
	filled(t, f)
	was := export(t, f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, path, `VACUUM`)
	f = openFile(t, path)
	if err := f.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if got := export(t, f); body(got) != body(was) {
		t.Errorf("it holds\n%s\nand held\n%s", got, was)
	}
}
