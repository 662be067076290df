package store_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
)

func TestAStoreIsOpenedByItsURL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "50% of é?#.db")
	for where, kind := range map[string]string{"memory:": "memory", "file:" + path: "file"} {
		s, err := store.Open(t.Context(), where, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		closed(t, s)
		if st := s.Status(); st.Kind != kind || (kind == "file" && st.Where != path) {
			t.Errorf("%s is %+v", where, st)
		}
		write(t, s, "g", "n", "x")
	}
	if v := value(t, openFile(t, path), "g", "n"); string(v.Data) != "x" {
		t.Errorf("%s opened another file: %+v", path, v)
	}
	for _, where := range []string{"", "file:", "memory", "memory:x", "/var/lib/store.db", "postgres://me:hunter2@h/", "a://me:hunter2@%zz"} {
		_, err := store.Open(t.Context(), where, store.Options{})
		if !errors.Is(err, store.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", where, err)
		}
	}
}
