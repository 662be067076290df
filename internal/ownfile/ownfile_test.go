package ownfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

func TestEverythingThatIsMadeIsForItsOwnerOnly(t *testing.T) {
	above := filepath.Join(t.TempDir(), "above")
	folder := filepath.Join(above, "folder")
	for range 2 { // the second time, they are there
		if err := ownfile.MakeFolders(folder); err != nil {
			t.Fatal(err)
		}
	}
	if err := ownfile.MakeFolder(folder); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the folder was made a second time: %v", err)
	}
	file, err := ownfile.Open(filepath.Join(folder, "file"), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // a test
	if _, err := ownfile.Open(file.Name(), os.O_RDWR|os.O_CREATE|os.O_EXCL); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the file was made a second time: %v", err)
	}
	temporary, err := ownfile.CreateTemp(folder, "a-*.new")
	if err != nil {
		t.Fatal(err)
	}
	defer temporary.Close() //nolint:errcheck // a test
	if ok, err := filepath.Match("a-?*.new", filepath.Base(temporary.Name())); !ok || err != nil {
		t.Errorf("the temporary file is %s", temporary.Name())
	}
	for _, path := range []string{above, folder, file.Name(), temporary.Name()} {
		info, err := os.Stat(path)
		if err == nil {
			err = ownfile.Check(path, path, info)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := ownfile.MakeFolders(filepath.Join(file.Name(), "below")); err == nil {
		t.Error("a folder was made below a file")
	}
	if err := errors.Join(os.Rename(temporary.Name(), file.Name()), ownfile.SyncFolder(folder)); err != nil {
		t.Errorf("an open file is not replaced by another one: %v", err)
	}
}

func TestAFileThatIsOpenedForAppendingGrowsAtItsEnd(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"one ", "two"} {
		f, err := ownfile.Open(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(name); string(text) != "one two" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func TestOneOpenFileHasTheLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := ownfile.Open(name, os.O_RDWR|os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	check := func(what string, got bool, err error, want bool) {
		t.Helper()
		if got != want || err != nil {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	first, second := open(), open()
	defer second.Close() //nolint:errcheck // a test
	if err := ownfile.Lock(first); err != nil {
		t.Fatal(err)
	}
	got, err := ownfile.TryLock(second)
	check("the lock is taken twice", got, err, false)
	got, err = ownfile.TryLockShared(second)
	check("the lock is shared while it is taken", got, err, false)
	if _, err := second.WriteString("text"); err != nil {
		t.Errorf("a lock keeps another open file from writing: %v", err)
	}
	if err := ownfile.Unlock(first); err != nil {
		t.Fatal(err)
	}
	got, err = ownfile.TryLockShared(second)
	check("after Unlock, nobody gets it", got, err, true)
	got, err = ownfile.TryLockShared(first)
	check("it is not shared", got, err, true)
	if err := ownfile.Unlock(second); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	got, err = ownfile.TryLock(second)
	check("a closed file keeps its lock", got, err, true)
}
