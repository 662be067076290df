package watch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

func TestOnlyFilesThatALoadReadCauseAReload(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"tenants", "tenants/new", "policies", "logs", "tenants/.data"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := NewFiles(slog.New(slog.DiscardHandler))
	seen := map[string]seenFile{}
	for _, name := range []string{
		"switchboard.yaml",
		"taxonomy.yaml", // it is not there yet
		"tenants", "secrets/key", "policies",
		"gone/tenant/key", // its folder is not there yet
	} {
		seen[filepath.Join(dir, name)] = seenFile{}
	}
	f.read.Store(&ReadFiles{files: f, seen: seen})
	for name, want := range map[string]bool{
		"switchboard.yaml":     true,
		"taxonomy.yaml":        true,
		"secrets/key":          true,
		"secrets":              true,
		"gone/tenant":          true,
		"gone":                 true,
		"go":                   false,
		"gone/other":           false,
		"tenants/new":          true, // a folder
		"tenants/x.yaml":       true,
		"policies/new.rego":    true,
		"policies/new.txt":     false,
		"..data":               true, // a container replaces it to swap the volume
		"tenants/..data":       true,
		"switchboard.log":      false,
		"tenants/.data":        false, // our own data may be in one
		"switchboard.yaml.swp": false,
		"tenants/x.yaml~":      false,
		"logs/other.yaml":      false,
	} {
		if got := f.concerns(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if !f.concerns(dir) || !f.concerns(filepath.Dir(dir)) {
		t.Error("changes of the folder itself, or of the folder above it, are ignored")
	}
}

func TestFilesAreUnchangedUntilOneIsWrittenMadeOrRemoved(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// age lets everything be as old as files mostly are.
	age := func() {
		t.Helper()
		old := time.Now().Add(-time.Hour)
		for _, name := range []string{"a.yaml", "tasks/b.yaml", "tasks", "."} {
			if err := os.Chtimes(at(name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, old := range []bool{true, false} {
		for name, tt := range map[string]struct {
			change func()
			want   bool
		}{
			"nothing":                         {func() {}, true},
			"the same is written again":       {func() { write("a.yaml", "one") }, true},
			"a file is written":               {func() { write("a.yaml", "two") }, false},
			"a file gets longer":              {func() { write("a.yaml", "more") }, false},
			"a file is made in a folder":      {func() { write("tasks/c.yaml", "") }, false},
			"a file is made that was not":     {func() { write("taxonomy.yaml", "") }, false},
			"a file is removed":               {func() { _ = os.Remove(at("tasks/b.yaml")) }, false},
			"a file that is not read is made": {func() { write("notes.txt", "") }, true},
			"another file takes its place":    {func() { write("c.tmp", "two"); _ = os.Rename(at("c.tmp"), at("a.yaml")) }, false},
		} {
			if err := os.RemoveAll(at("tasks")); err != nil {
				t.Fatal(err)
			}
			for _, left := range []string{"taxonomy.yaml", "notes.txt"} {
				_ = os.Remove(at(left))
			}
			if err := os.Mkdir(at("tasks"), 0o700); err != nil {
				t.Fatal(err)
			}
			write("a.yaml", "one")
			write("tasks/b.yaml", "one")
			if old {
				age()
			}
			note, done := NewFiles(slog.New(slog.DiscardHandler)).Begin()
			for _, name := range []string{".", "a.yaml", "tasks", "tasks/b.yaml", "taxonomy.yaml"} {
				note(at(name))
			}
			read := done()
			tt.change()
			for range 2 { // a second look at the same, too
				if got := read.Unchanged(); got != tt.want {
					t.Errorf("%s, of old files %v: unchanged is %v", name, old, got)
				}
			}
		}
	}
	// A write right after the reading may leave the time of the file as it was.
	write("a.yaml", "one")
	note, done := NewFiles(slog.New(slog.DiscardHandler)).Begin()
	note(at("a.yaml"))
	read := done()
	info, err := os.Stat(at("a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write("a.yaml", "two")
	if err := os.Chtimes(at("a.yaml"), info.ModTime(), info.ModTime()); err != nil || read.Unchanged() {
		t.Errorf("a file that was written within one step of the clock is unchanged (%v)", err)
	}
	if (*ReadFiles)(nil).Unchanged() || (&ReadFiles{}).Unchanged() {
		t.Error("files that nobody has read are unchanged")
	}
}

func TestARenamedFolderIsReadOnceAndWatchedUnderItsNewName(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	if err := os.MkdirAll(at("tenants/beta/tasks"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := NewFiles(slog.New(slog.DiscardHandler))
	load := func(names ...string) {
		note, done := f.Begin()
		for _, name := range names {
			note(at(name))
		}
		done()
	}
	w := &folderWatcher{files: f, log: f.log, newWatcher: fsnotify.NewWatcher}
	defer func() { w.close() }()
	load("tenants", "tenants/beta", "tenants/beta/tasks")
	w.renew()
	if err := os.Rename(at("tenants/beta"), at("tenants/gamma")); err != nil {
		t.Fatal(err)
	}
	for !w.stale {
		w.noteRename(<-w.events)
	}
	w.renew()
	load("tenants", "tenants/gamma", "tenants/gamma/tasks")
	for range 2 {
		if w.missedChange() {
			t.Fatal("the renamed folder is read again, although nothing has changed")
		}
	}
	if err := os.WriteFile(at("tenants/gamma/tasks/new.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for e := range w.events { // one from the new folders may come first
		if filepath.Base(e.Name) == "new.yaml" {
			if !f.concerns(e.Name) {
				t.Errorf("a new file in the renamed folder is ignored: %s", e)
			}
			break
		}
	}
	// A folder that is read under two names is watched under one of them.
	if err := os.Symlink(at("tenants/gamma"), at("tenants/link")); err != nil {
		t.Skip("no links here:", err)
	}
	load("tenants", "tenants/gamma", "tenants/gamma/tasks", "tenants/link", "tenants/link/tasks")
	for range 2 {
		if w.missedChange() {
			t.Fatal("a folder with two names is read again, although nothing has changed")
		}
	}
}
