package store_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/system"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// refused opens the file: that must fail with an error that contains the words, and must not change the file.
func refused(t *testing.T, path string, words ...string) {
	t.Helper()
	before, _ := os.ReadFile(path)
	f, err := store.OpenFile(path, store.FileOptions{})
	if err == nil {
		_ = f.Close()
		t.Errorf("%s was opened", path)
		return
	}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	for _, w := range append(words, path) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not contain %q: %v", w, err)
		}
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Errorf("the refused file was changed")
	}
}

// execute runs SQL on the file, as another program could.
func execute(t *testing.T, path, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFilesOfOtherProgramsAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	text := path("text")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, text, "it is no store")

	for _, text := range []string{"", "S"} {
		empty := path("empty" + text)
		if err := os.WriteFile(empty, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, empty, "it is empty", "delete it")
	}

	other := path("other.db")
	execute(t, other, `CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)`)
	refused(t, other, "another program", "name another file")

	newer := path("newer.db")
	if err := openFile(t, newer).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, newer, `PRAGMA user_version = 99`)
	refused(t, newer, "version 99", "knows up to 4", "use the version that wrote it")

	refused(t, dir, "a folder")

	gone := path("gone.db")
	if err := os.WriteFile(gone+"-wal", []byte("something"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, gone, "it is gone", "put it back")
	if _, err := os.Stat(gone); err == nil {
		t.Error("a new file was made in place of the missing one")
	}
	left, err := filepath.Glob(path("*.new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOnlyTheOwnerMayReadTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	f := openFile(t, filepath.Join(dir, "store.db"))
	write(t, f, "g", "n", "secret")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
}

// contents fills the store. look checks the content: different content without an error fails the test. said
// reports whether there was an error.
func contents(t *testing.T, path string) (look func(t *testing.T, f *store.File) (said bool)) {
	t.Helper()
	f := openFile(t, path)
	l := store.Limit{Name: "l", Every: time.Hour, Burst: 1}
	var logs [3][]string
	for i := range 40 {
		write(t, f, fmt.Sprint("g", i%4), fmt.Sprint("n", i), fmt.Sprint(i, strings.Repeat("v", i*20)))
		logs[i%3] = append(logs[i%3], fmt.Sprint(i, strings.Repeat("e", i*150)))
		if _, _, err := f.Take(t.Context(), fmt.Sprint("g", i), store.Want{Now: 1}, l); err != nil {
			t.Fatal(err)
		}
		holdFor(t, f, fmt.Sprint("g", i%4), fmt.Sprint("h", i), time.Hour, account(fmt.Sprint("a", i%8), 1000, int64(i)))
	}
	for i, entries := range logs { // some in a row of their own, and some in a shared row
		add(t, f, fmt.Sprint("l", i), entries[0])
		add(t, f, fmt.Sprint("l", i), entries[1:]...)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, f *store.File) (said bool) {
		wrong := func(err error, ok bool, format string, args ...any) {
			switch {
			case err != nil:
				said = true
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), f.Status().Where) {
					t.Errorf("the error does not say what it is of: %v", err)
				}
			case !ok:
				t.Errorf("%s, without an error", fmt.Sprintf(format, args...))
			}
		}
		for i := range 40 {
			v, err := f.Value(t.Context(), store.Key{Group: fmt.Sprint("g", i%4), Name: fmt.Sprint("n", i)})
			wrong(err, string(v.Data) == fmt.Sprint(i, strings.Repeat("v", i*20)), "value %d is %.20q", i, v.Data)
			_, wait, err := f.Take(t.Context(), fmt.Sprint("g", i), store.Want{Now: 1}, l)
			wrong(err, wait > 0, "limit %d is whole", i)
			_, held, err := f.Hold(t.Context(), fmt.Sprint("g", i%4), fmt.Sprint("h", i), store.HoldTerms{TTL: time.Hour}, account(fmt.Sprint("a", i%8), 0, 1))
			wrong(err, held, "hold %d is gone", i)
		}
		for i := range 4 {
			all, err := f.List(t.Context(), fmt.Sprint("g", i))
			wrong(err, len(all) == 10, "group %d has %d values", i, len(all))
			accounts, err := f.Accounts(t.Context(), fmt.Sprint("g", i))
			wrong(err, sumText(accounts) == fmt.Sprintf("a%d=0+%d a%d=0+%d", i, 80+5*i, i+4, 100+5*i), "group %d has the accounts %v", i, accounts)
		}
		for log := range 3 {
			entries, err := f.Read(t.Context(), fmt.Sprint("l", log), 0, 100)
			wrong(err, len(entries) == 13+(3-log)/3, "log %d has %d entries", log, len(entries))
			for n, e := range entries {
				i := n*3 + log
				wrong(nil, int(e.Seq) == n+1 && string(e.Data) == fmt.Sprint(i, strings.Repeat("e", i*150)), "entry %d of log %d is %.20q", n+1, log, e.Data)
			}
		}
		return said
	}
}

// harm opens a copy of the store at path, with other data in the file of that name, and looks: either the copy
// is refused, or reading reports the damage, or the content is intact. data nil means that the file is gone.
func harm(t *testing.T, path, name string, data []byte, look func(*testing.T, *store.File) bool) (said bool) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	harmed := filepath.Join(dir, name)
	err := os.Remove(harmed)
	if data != nil {
		err = os.WriteFile(harmed, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, filepath.Base(path))
	f, err := store.OpenFile(path, store.FileOptions{})
	if err != nil {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), path) {
			t.Errorf("the error does not say what it is of: %v", err)
		}
		return true
	}
	defer func() { _ = f.Close() }()
	checked := f.Check(t.Context())
	said = look(t, f)
	if said && checked == nil {
		t.Error("the check found nothing")
	}
	return said || checked != nil
}

// parts returns the files of the store at path, by name.
func parts(t *testing.T, path string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	dir := filepath.Dir(path)
	if err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		all[name], err = os.ReadFile(file)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestATruncatedFileIsReported(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	path := filepath.Join(t.TempDir(), "store.db")
	look := contents(t, path)
	all := parts(t, path)
	if len(all) != 1+3*2 { // the file, and two files of each log
		t.Fatalf("the store has %d files: %v", len(all), slices.Collect(maps.Keys(all)))
	}
	for name, data := range all {
		content := len(bytes.TrimRight(data, "\x00")) // a segment ends with zeros
		for i := range 20 {
			n := i * content / 20
			if !harm(t, path, name, data[:n], look) {
				t.Errorf("%s is cut off at %d of %d bytes, without an error", name, n, content)
			}
		}
		if name != "store.db" && !harm(t, path, name, nil, look) {
			t.Errorf("%s is gone, without an error", name)
		}
		if harm(t, path, name, data, look) {
			t.Error("the undamaged store is reported as damaged")
		}
	}
}

func TestAFlippedBitIsReported(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	path := filepath.Join(t.TempDir(), "store.db")
	look := contents(t, path)
	said := 0
	const flips = 30
	luck := rand.New(rand.NewPCG(law.Seed(t), 0))
	all := parts(t, path)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		data := all[name]
		for range flips {
			at, bit := luck.IntN(len(data)), byte(1)<<luck.IntN(8)
			if name == "store.db" && (at >= 24 && at < 28 || at >= 92 && at < 100) {
				continue // counters of the header that only SQLite's caches use
			}
			data[at] ^= bit
			if harm(t, path, name, data, look) {
				said++
			}
			if t.Failed() {
				t.Fatalf("bit %08b of byte %d of %s", bit, at, name)
			}
			data[at] ^= bit
		}
	}
	if said < 3*flips { // at least those in the files state
		t.Errorf("%d flipped bits were reported", said)
	}
	t.Logf("%d flips were noticed; the others changed nothing that is kept", said)
}

// The file says that there are logs, and the folder with them is gone.
func TestLogsWithoutTheirFolderAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	look := contents(t, path)
	if err := os.RemoveAll(path + "-logs"); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	if !look(t, f) || f.Check(t.Context()) == nil {
		t.Error("no log can be read, without an error")
	}
	if err := f.Append(t.Context(), "l0", 14, []byte("x")); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "put the folder back") {
		t.Errorf("Append to a log that is gone: %v", err)
	}
}

// What an interrupted Append to a new log has left is in the way of no new log, and no damage.
func TestALogThatWasHalfMadeIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openFile(t, path)
	add(t, f, "other", "x")
	if err := f.CreateLog(t.Context(), "l"); err != nil {
		t.Fatal(err)
	}
	execute(t, path, `DELETE FROM log WHERE name = 'l'`) // as if it had not been committed
	for _, name := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(path+"-logs", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(path+"-logs", "a", "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Check(t.Context()); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"l", "a", "b"} {
			add(t, f, name, "one", "two")
		}
		if got := read(t, f, 0, 1); !strings.HasPrefix(got, "1=one") {
			t.Error(got)
		}
	}
	if all, err := os.ReadDir(path + "-logs"); err != nil || len(all) != 4 {
		t.Errorf("%d folders of 4 logs: %v, %v", len(all), all, err)
	}
}

// A folder with entries of a log that the file does not know is named, and is not overwritten.
func TestAFolderOfNoLogIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openFile(t, path)
	add(t, f, "l", "old")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, path, `DELETE FROM log`)
	f = openFile(t, path)
	add(t, f, "l", "one", "two")
	if got := read(t, f, 0, 9); got != "1=one 2=two" {
		t.Error(got)
	}
	folder := filepath.Join(path+"-logs", "l")
	if err := f.Check(t.Context()); err == nil || !strings.Contains(err.Error(), folder+" belongs to no log") {
		t.Errorf("Check = %v", err)
	}
}

// Found by flipping each bit of a file's first page: SQLite accepts all of these changes.
func TestADamagedHeaderOrSchemaIsFoundByTheCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	look := contents(t, path)
	data := parts(t, path)["store.db"]
	const version = 18 // offset of the format's write version
	name := bytes.Index(data, []byte("id    INTEGER PRIMARY KEY"))
	if name < 0 || data[version] != 2 {
		t.Fatalf("the file has an unexpected layout: a name at %d, version %d", name, data[version])
	}
	for _, at := range []int{version, name, name + 1} {
		for _, bit := range []byte{1, 8, 16, 128} {
			data[at] ^= bit
			if !harm(t, path, "store.db", data, look) {
				t.Errorf("bit %08b of byte %d is flipped, without an error", bit, at)
			}
			data[at] ^= bit
		}
	}
}

// abandoned returns the files that a killed process leaves behind, and the last acknowledged entry of log 0.
func abandoned(t *testing.T) (files map[string][]byte, last uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	cmd := child(t, "load", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		_, _ = fmt.Sscanf(lines.Text(), "append 0 %d", &last)
		if n == 60 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	files = parts(t, path)
	for _, end := range []string{"", "-wal", "-shm"} {
		if len(files["store.db"+end]) == 0 {
			t.Fatalf("there is no %s", path+end)
		}
	}
	return files, last
}

func TestADamagedWALIsReported(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	files, last := abandoned(t)
	wal := files["store.db-wal"]
	laid := func(wal []byte) string {
		dir := t.TempDir()
		for name, data := range files {
			if name == "store.db-wal" {
				data = wal
			}
			file := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(dir, "store.db")
	}
	said := 0
	harm := func(what string, wal []byte) {
		path := laid(wal)
		f, err := store.OpenFile(path, store.FileOptions{})
		if err == nil { // the damage hit no acknowledged entry
			if got := span(t, f, "0"); got.First != 1 || got.Last < last {
				t.Errorf("%s: Span = %v, and %d entries were acknowledged", what, got, last)
			}
			checkLog(t, f, "0", 0)
			_ = f.Close()
			return
		}
		said++
		for _, words := range []string{path, "it is damaged", "newest pages", "to continue without them, delete"} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: the error does not contain %q: %v", what, words, err)
			}
		}
	}
	if harm("not harmed", wal); said > 0 {
		t.Error("an undamaged file was refused")
	}
	luck := rand.New(rand.NewPCG(law.Seed(t), 0))
	for i := range 20 {
		harm(fmt.Sprintf("cut off at %d twentieths", i), wal[:i*len(wal)/20])
		harmed := bytes.Clone(wal)
		at := 32 + luck.IntN(len(wal)-32)
		harmed[at] ^= 1 << luck.IntN(8)
		harm(fmt.Sprintf("bit of byte %d flipped", at), harmed)
	}
	if said < 20 {
		t.Errorf("%d of 40 damaged files were reported", said)
	}
	path := laid(wal[:len(wal)/2])
	if err := os.Remove(path + "-shm"); err != nil {
		t.Fatal(err)
	}
	checkLog(t, openFile(t, path), "0", 0) // the rest is intact
}

// withoutSpace fills the file up to a size limit of this process, and prints one line about any error.
func withoutSpace(path string) {
	ctx := context.Background()
	fail := func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
		os.Exit(1)
	}
	f, err := store.OpenFile(path, store.FileOptions{})
	if err != nil {
		fail("%v", err)
	}
	restore, err := system.LimitFileSize(1 << 20)
	if err != nil {
		fail("%v", err)
	}
	last := uint64(0)
	entry := []byte(strings.Repeat("x", 10_000))
	for err = error(nil); err == nil && last < 1000; {
		if err = f.Append(ctx, "l", last, entry); err == nil {
			last++
		}
	}
	st := f.Status()
	switch {
	case !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), path):
		fail("the error does not say what is wrong: %v", err)
	case st.Fault == "" || st.Since.IsZero():
		fail("the status says nothing: %+v", st)
	}
	if span, err := f.Span(ctx, "l"); err != nil || span.Last != last {
		fail("Span = %v, %v; %d were acknowledged", span, err, last)
	}
	if entries, err := f.Read(ctx, "l", 0, 10_000); err != nil || len(entries) != int(last) {
		fail("%d entries are read, %v; %d were acknowledged", len(entries), err, last)
	}
	if err := restore(); err != nil {
		fail("%v", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	begun := time.Now()
	for range tick.C {
		if f.Status().Fault == "" {
			break
		}
		if time.Since(begun) > 2*wait.Bound {
			fail("there is space again, and it still says: %s", f.Status().Fault)
		}
	}
	if err := f.Append(ctx, "l", last, entry); err != nil {
		fail("there is space again: %v", err)
	}
	if err := errors.Join(f.Check(ctx), f.Close()); err != nil {
		fail("%v", err)
	}
	fmt.Println("ok", last)
}

func TestAFullDiskLosesNothingAndTheStoreRecovers(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	path := filepath.Join(t.TempDir(), "store.db")
	out, err := child(t, "limited", path).Output()
	if err != nil || !strings.HasPrefix(string(out), "ok ") {
		t.Fatalf("%s%v", out, err)
	}
	var last uint64
	if _, err := fmt.Sscanf(string(out), "ok %d", &last); err != nil {
		t.Fatal(err)
	}
	if got := span(t, openFile(t, path), "l"); got != (store.Span{First: 1, Last: last + 1}) || last < 10 {
		t.Errorf("Span = %v; %d entries were acknowledged", got, last+1)
	}
}

// asAnother opens the file as a user who may not write to its folder.
func asAnother(path string) {
	if os.Getuid() == 0 {
		if err := system.SetUser(65534); err != nil {
			fmt.Println(err)
			return
		}
	}
	f, err := store.OpenFile(path, store.FileOptions{})
	if err == nil {
		_, err = f.Apply(context.Background(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Data: []byte("x")}}})
	}
	fmt.Println(err)
}

func TestAReadOnlyFolderIsReported(t *testing.T) {
	dir, err := os.MkdirTemp("", "store") //nolint:usetesting // the parent of t.TempDir is not readable for other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700); _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "store.db")
	f := openFile(t, path)
	write(t, f, "g", "n", "x")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0o444), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, filepath.Join(dir, "new.db")} {
		out, err := child(t, "stranger", file).Output()
		if err != nil || !strings.Contains(string(out), store.ErrUnavailable.Error()) || !strings.Contains(string(out), file) || !strings.Contains(string(out), "writ") {
			t.Errorf("%s: %s%v", file, out, err)
		}
	}
}
