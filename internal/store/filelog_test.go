package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
)

func TestEntriesThatWereAppendedTogetherAreReadAndTrimmedOneByOne(t *testing.T) {
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
	if err := f.Trim(t.Context(), "l", n+1); err != nil {
		t.Fatal(err)
	}
	add(t, f, "l", "more")
	if got := read(t, f, 0, 9); got != fmt.Sprint(n+1, "=more") {
		t.Error(got)
	}
}

// testdata has files of each older version, as SQL, and what that version exported.
func TestAFileOfAnOlderVersionIsMigrated(t *testing.T) {
	for _, version := range []string{"version1", "version2", "version3"} {
		t.Run(version, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + version + ".sql")
			if err != nil {
				t.Fatal(err)
			}
			was, err := os.ReadFile("testdata/" + version + ".jsonl")
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
			hold(t, f, "h", account("a", 1, 1))
			wantSums(t, f, "a=0+1")
			if version == "version3" { // it has no logs
				return
			}
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
		})
	}
}

// An old file was put in the place of a newer one, beside the logs of that: these may be the only copy.
func TestAMigrationAndAnImportDeleteNoLogsOfAnotherFile(t *testing.T) {
	text, err := os.ReadFile("testdata/version2.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	f := openFile(t, path)
	add(t, f, "l", "precious")
	entries := func() (all string) {
		files, _ := filepath.Glob(filepath.Join(path+"-logs", "*", "*.log"))
		for _, file := range files {
			data, _ := os.ReadFile(file)
			all += string(data)
		}
		return all
	}
	precious := func() {
		t.Helper()
		if !strings.Contains(entries(), "precious") {
			t.Fatal("the entry is gone")
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	newer, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	execute(t, path, string(text))
	execute(t, path, `PRAGMA journal_mode = WAL`)
	refused(t, path, "has some; move that folder away")
	precious()
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	execute(t, path, `DELETE FROM log`)
	f = openFile(t, path)
	from := openFile(t, filepath.Join(t.TempDir(), "store.db"))
	add(t, from, "l", "one")
	all := export(t, from)
	if err := store.Import(t.Context(), f, strings.NewReader(all)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "move that folder away") {
		t.Errorf("an import: %v", err)
	}
	precious()
	// An import that was killed has left the same, and a note of it.
	if err := os.WriteFile(filepath.Join(path+"-logs", "~unfinished"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Import(t.Context(), f, strings.NewReader(all)); err != nil {
		t.Errorf("an import after one that was killed: %v", err)
	}
	if left, err := os.ReadDir(path + "-logs"); err != nil || len(left) != 1 || strings.Contains(entries(), "precious") {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if got := read(t, f, 0, 9); got != "1=one" {
		t.Error(got)
	}
}

// A row of entries that is not what was written: the file stays as it is, and the error says where.
func TestADamagedFileOfAnOlderVersionIsNotMigrated(t *testing.T) {
	text, err := os.ReadFile("testdata/version2.sql")
	if err != nil {
		t.Fatal(err)
	}
	for damage, want := range map[string]string{
		`UPDATE entry SET sum = sum + 1 WHERE id = (SELECT max(id) FROM entry)`: "the row of entries",
		`DELETE FROM entry WHERE id = (SELECT max(id) FROM entry)`:              "is not what was written",
		`UPDATE log SET last = last + 1`:                                        "the end of log",
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		execute(t, path, string(text))
		execute(t, path, damage)
		execute(t, path, `PRAGMA journal_mode = WAL`) // as it was
		refused(t, path, "it is damaged", want)
		if left, err := os.ReadDir(path + "-logs"); err == nil && len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
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

// A process was killed, or the disk was full, between the two steps of the first Append to a log.
func TestALogWithoutEntriesIsNotExported(t *testing.T) {
	f := openFile(t, filepath.Join(t.TempDir(), "store.db"))
	add(t, f, "l", "one")
	was := export(t, f)
	if err := f.CreateLog(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	all := export(t, f)
	if body(all) != body(was) {
		t.Errorf("it holds\n%s\nand held\n%s", all, was)
	}
	to := openFile(t, filepath.Join(t.TempDir(), "store.db"))
	if err := store.Import(t.Context(), to, strings.NewReader(all)); err != nil {
		t.Error(err)
	}
	if err := f.Check(t.Context()); err != nil {
		t.Error(err)
	}
	add(t, f, "empty", "one")
}

func TestALinkToAStoreIsTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	link := filepath.Join(t.TempDir(), "link.db")
	f := openFile(t, path)
	add(t, f, "l", "one")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	other := openFile(t, link)
	add(t, other, "l", "two")
	for _, f := range []*store.File{f, other} {
		if got := read(t, f, 0, 9); got != "1=one 2=two" {
			t.Error(got)
		}
	}
}
