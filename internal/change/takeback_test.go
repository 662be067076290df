package change

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
)

// Where a file cannot be put back, readers see the whole old content all the same, and the next start puts it back.
func TestATakeBackThatFailsHalfwayIsEndedByTheNextStart(t *testing.T) {
	w := newWorld(t)
	wish := severalWish(w, t)
	in := filepath.Join(w.dir, filepath.FromSlash(tenantFile))
	w.o.reached = func(step string) {
		if step == "exchanged" { // a folder stands where the file was, as if it could not be written
			w.refuses.Store(true)
			if err := errors.Join(os.Rename(in, in+".kept"), os.Mkdir(in, 0o700)); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := w.Apply(t.Context(), wish); reason(err) != "SB-CONF-001" || !strings.Contains(err.Error(), "the next start tries it again") {
		t.Errorf("%v", err)
	}
	w.o.reached = nil
	if err := errors.Join(os.Remove(in), os.Rename(in+".kept", in)); err != nil {
		t.Fatal(err)
	}
	if got := w.meaning(t); got != oldMeaning {
		t.Errorf("a reader sees %s", got)
	}
	if err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.meaning(t); got != oldMeaning || w.text(t, oldTask) == "" {
		t.Errorf("after the next start: %s", got)
	}
}

// A file that somebody edits meanwhile stays as it is, and the others get their old contents.
func TestATakeBackGoesOnPastAnEditedFile(t *testing.T) {
	w := newWorld(t)
	wish := severalWish(w, t)
	before := w.text(t, tenantFile)
	const edit = "task_id: next # by hand\nrequired_capabilities: [{tools: [\"a/*\"]}]\n"
	w.o.reached = func(step string) {
		if step == "exchanged" {
			w.refuses.Store(true)
			if err := os.WriteFile(filepath.Join(w.dir, filepath.FromSlash(newTask)), []byte(edit), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := w.Apply(t.Context(), wish); reason(err) != "SB-CONF-001" || !strings.Contains(err.Error(), newTask) {
		t.Errorf("%v", err)
	}
	if w.text(t, tenantFile) != before || w.text(t, newTask) != edit || w.text(t, oldTask) == "" {
		t.Errorf("%q, %q, %q", w.text(t, tenantFile), w.text(t, newTask), w.text(t, oldTask))
	}
}

// A journal that names another file than one of a configuration is not ours: the next start writes nothing.
func TestAJournalWritesOnlyFilesOfAConfiguration(t *testing.T) {
	w := newWorld(t)
	journal, err := config.EncodeJournal([]config.JournaledFile{{Path: "run.sh", After: []byte("x")}})
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, config.JournalFile), journal, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), `"run.sh"`) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "run.sh")); err == nil {
		t.Error("it was written")
	}
}
