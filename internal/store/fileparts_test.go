package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
)

func TestTheCopyOfAStoreHoldsTheSameAndLeavesTheStoreAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := store.OpenFile(path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "g", "n", "x")
	if err := s.Append(t.Context(), "log", 0, []byte("entry")); err != nil {
		t.Fatal(err)
	}
	if pid := store.FileUser(path); runtime.GOOS != "windows" && pid != os.Getpid() {
		t.Errorf("process %d has the store open, want this one", pid)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if pid := store.FileUser(path); pid != 0 {
		t.Errorf("process %d has the store open, and it is closed", pid)
	}
	before, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := store.CopyFile(path, t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	c := openFile(t, copied)
	if v := value(t, c, "g", "n"); string(v.Data) != "x" {
		t.Errorf("the copy holds %q", v.Data)
	}
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	after, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(after) != len(before) {
		t.Errorf("beside the store are %v, and were %v: %v", after, before, err)
	}
	if _, err := store.CopyFile(path, t.TempDir(), 100); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a store of more than 100 bytes is copied: %v", err)
	}
	if _, err := store.CopyFile(filepath.Join(t.TempDir(), "none.db"), t.TempDir(), 100); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store that is not there: %v", err)
	}
}
