package change

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where a file cannot be put back, readers see the whole old content all the same, and the next start puts it back.
func TestATakeBackThatFailsHalfwayIsEndedByTheNextStart(t *testing.T) {
	w := newWorld(t)
	wish := severalWish(w, t)
	in := filepath.Join(w.dir, filepath.FromSlash(tenantFile))
	w.Editor.o.reached = func(step string) {
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
	w.Editor.o.reached = nil
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
	w.Editor.o.reached = func(step string) {
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
