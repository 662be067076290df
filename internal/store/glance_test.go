package store_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// A glance must not change a file that another version of the program serves from.
func TestAGlanceReadsAStoreAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	s, err := store.OpenFile(path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("text")}}}); err != nil {
		t.Fatal(err)
	}
	glance := func() {
		t.Helper()
		g, err := store.OpenFile(path, store.FileOptions{Glance: true})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := g.Value(t.Context(), store.Key{Group: "g", Name: "n"}); string(v.Data) != "text" || err != nil {
			t.Errorf("%q %v", v.Data, err)
		}
		if _, err := g.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("other")}}}); err == nil {
			t.Error("a glance has written")
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	glance() // while it is open
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	glance()

	execute(t, path, `PRAGMA user_version = 1`)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := store.OpenFile(path, store.FileOptions{Glance: true}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a file of an older version: %v, %v", g, err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
	absent := filepath.Join(dir, "absent", "store.db")
	if g, err := store.OpenFile(absent, store.FileOptions{Glance: true}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("no file: %v, %v", g, err)
	}
	if _, err := os.Stat(filepath.Dir(absent)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a glance has made a folder: %v", err)
	}
}
