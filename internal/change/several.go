package change

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxChangedBytes limits the old and new texts of one change of several files: the store keeps them as one value.
const maxChangedBytes = 4 << 20

// permitAll is Permit for all files of a wish. tenant is their tenant, "" if they have no tenant in common; office is the least one that allows all of them.
func permitAll(e *Editor, w *Wish) (tenant switchboard.TenantID, office switchboard.Office, err error) {
	files := w.Files()
	if len(files) > config.MaxJournalFiles {
		return "", "", switchboard.Refuse(switchboard.CodeBadArguments, "a change has at most %d files", config.MaxJournalFiles)
	}
	for i, f := range files {
		owner, by, err := e.Permit(&w.By, f.Path)
		if err != nil {
			return "", "", err
		}
		if i == 0 {
			tenant, office = owner, by
			continue
		}
		if owner != tenant {
			tenant = ""
		}
		if by != switchboard.OfficeAuthor && office == switchboard.OfficeAuthor {
			office = by
		}
	}
	return tenant, office, checkDistinct(e, files)
}

// checkDistinct refuses two paths of one file: in other spellings, or through a link.
func checkDistinct(e *Editor, files []FileWish) error {
	seen := map[string]string{}
	for _, f := range files {
		real, err := ResolvePath(e, f.Path)
		if err != nil {
			return err
		}
		for _, key := range []string{"spelling " + cases.Fold().String(norm.NFC.String(f.Path)), "file " + real} {
			if other, ok := seen[key]; ok && other != f.Path || ok && strings.HasPrefix(key, "spelling") {
				return switchboard.Refuse(switchboard.CodeBadArguments, "%.200q and %.200q are one file", other, f.Path)
			}
			seen[key] = f.Path
		}
	}
	return nil
}

// ResolvePath follows all links of a path of a file. The result is relative to the folder of the main file, so a link does not hide which file it leads to. The main
// file keeps its name, wherever its own link leads. The error is a *NotFoundError.
func ResolvePath(e *Editor, name string) (string, error) {
	target, err := e.locate(name)
	if err != nil || name == filepath.Base(e.o.File) {
		return name, err
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(e.o.File))
	if err != nil {
		return "", &NotFoundError{Text: "the folder of the configuration cannot be read"}
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	rest := ""
	for at := target; ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			rest = filepath.Join(filepath.Base(at), rest) // it does not exist yet
			continue
		}
		rel, relErr := filepath.Rel(folder, filepath.Join(real, rest))
		if err != nil || relErr != nil || !filepath.IsLocal(rel) {
			return "", &NotFoundError{Text: name + " is behind a link that leads out of its folder"}
		}
		return filepath.ToSlash(rel), nil
	}
}

// readAll returns the present contents of the files of a wish, in the order of w.Files.
func readAll(e *Editor, w *Wish) (old [][]byte, err error) {
	for _, f := range w.Files() {
		text, err := e.read(f.Path)
		if err != nil {
			return nil, err
		}
		old = append(old, text)
	}
	return old, nil
}

func newRevision(w *Wish, files []FileRevision) *Revision {
	return &Revision{By: w.By.ID, Auth: w.By.Auth, Reason: w.Reason, Reverts: w.Reverts, Source: w.Source, FileRevision: files[0], More: files[1:]}
}

// A severalFiles changes several files as one. It must be used under the lock of changes.
type severalFiles struct{ *Editor }

// apply is Apply for several files. The order makes it safe against kills: the note in the store, the intents, the journal beside the files, the files,
// the reload, the end of the journal, the outcomes. From the instant when the journal appears, every reader sees the new content of all files, and the next start
// finishes the exchange; before it, every reader sees the old content.
func (e severalFiles) apply(ctx context.Context, w Wish, tenant switchboard.TenantID, office switchboard.Office) (*Revision, error) {
	release, err := holdFor(ctx, e.Editor, &w)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := e.finish(ctx); err != nil { // of a process that was killed
		return nil, err
	}
	old, err := readAll(e.Editor, &w)
	if err != nil {
		return nil, err
	}
	if err := e.admit(ctx, w, tenant, office, old); err != nil {
		return nil, err
	}
	files, total := w.Files(), 0
	revisions := make([]FileRevision, len(files))
	exchange, back := make([]config.JournaledFile, len(files)), make([]config.JournaledFile, len(files))
	for i, f := range files {
		owner, by, err := e.Permit(&w.By, f.Path)
		if err != nil {
			return nil, err
		}
		revisions[i] = FileRevision{Path: f.Path, Office: by, Tenant: owner}
		revisions[i].setTexts(old[i], f.Text)
		target, err := e.locate(f.Path)
		if err != nil {
			return nil, err
		}
		revisions[i].NewFolder = f.Text != nil && !exists(filepath.Dir(target))
		exchange[i] = config.JournaledFile{Path: f.Path, Before: digestOf(old[i]), After: f.Text, DropFolder: f.DropFolder}
		back[i] = config.JournaledFile{Path: f.Path, Before: digestOf(f.Text), After: old[i], DropFolder: revisions[i].NewFolder}
		if total += len(old[i]) + len(f.Text); total > maxChangedBytes {
			return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: fmt.Sprintf("the old and new texts have more than %d bytes together; change fewer files at once", maxChangedBytes), Hint: "nothing was written"}
		}
	}
	c := newRevision(&w, revisions)
	if err := e.begin(ctx, c); err != nil {
		return nil, errors.Join(err, e.end(ctx, c, false, ""))
	}
	reach(&e.o, "begun")
	ctx = context.WithoutCancel(ctx) // from here the change is made, also if the officer does not wait for the answer
	if err := e.exchange(ctx, exchange); err != nil {
		note := e.takeBack(ctx, back, "the files could not be written")
		return nil, errors.Join(e.explain(w.Path, err), e.end(ctx, c, false, note))
	}
	reach(&e.o, "exchanged")
	if err := e.o.Reload(ctx); err != nil {
		note := e.takeBack(ctx, back, "the reload refused them")
		refused := &switchboard.Error{Code: switchboard.CodeConfig, Text: note + ": " + err.Error()}
		return nil, errors.Join(refused, e.end(ctx, c, false, note))
	}
	reach(&e.o, "in force")
	if err := e.removeJournal(ctx); err != nil {
		return c, &switchboard.Error{Code: switchboard.CodeConfig, Text: "the change was made and is in force; " + config.JournalFile + " cannot be removed: " + document.ErrorText(err), Hint: "the next change or start removes it"}
	}
	reach(&e.o, "journal removed")
	return c, e.end(ctx, c, true, "")
}

// takeBack puts the old contents back and in force, and says so.
func (e severalFiles) takeBack(ctx context.Context, back []config.JournaledFile, why string) string {
	edited, err := e.exchangeRest(ctx, back)
	if err != nil { // the journal stays: by it, every reader still sees one whole content, and the next change or start ends the exchange
		err = errors.Join(err, e.o.Reload(ctx))
		return why + ", and the old contents could not be put back; the next start tries it again: " + err.Error()
	}
	if err := errors.Join(append(edited, e.o.Reload(ctx), e.removeJournal(ctx))...); err != nil {
		return why + ", and the old contents could not be put back: " + err.Error()
	}
	return why + ", and the files have their old contents again"
}

// exchangeRest is exchange, but goes on past a file that somebody has edited: it stays as it is. edited says which.
func (e severalFiles) exchangeRest(ctx context.Context, files []config.JournaledFile) (edited []error, err error) {
	if err := e.writeJournal(ctx, files); err != nil {
		return nil, err
	}
	return e.exchangeUnedited(ctx, files)
}

// exchangeUnedited gives each file its new content, but for those that somebody has edited.
func (e severalFiles) exchangeUnedited(ctx context.Context, files []config.JournaledFile) (edited []error, err error) {
	for i := range files {
		if err := e.exchangeFile(ctx, &files[i]); errors.Is(err, errEdited) {
			edited = append(edited, err)
		} else if err != nil {
			return edited, err
		}
	}
	return edited, nil
}

// exchange writes the journal, and then gives each file its new content. The journal stays.
func (e severalFiles) exchange(ctx context.Context, files []config.JournaledFile) error {
	if err := e.writeJournal(ctx, files); err != nil {
		return err
	}
	for i, f := range files {
		if err := e.exchangeFile(ctx, &f); err != nil {
			return err
		}
		if i == 0 {
			reach(&e.o, "first file exchanged")
		}
	}
	return nil
}

// writeJournal writes the journal of an exchange.
func (e severalFiles) writeJournal(ctx context.Context, files []config.JournaledFile) error {
	text, err := config.EncodeJournal(files)
	if err != nil {
		return err
	}
	reach(&e.o, "journal next")
	if err := rewrite.File(ctx, e.journal(), 0o600, func([]byte) ([]byte, error) { return text, nil }); err != nil {
		return err
	}
	reach(&e.o, "journal written")
	return nil
}

// errEdited says that a file has neither the old content nor the new one.
var errEdited = errors.New("somebody has edited it meanwhile")

// exchangeFile gives one file its new content, if it has the old one or the new one.
func (e severalFiles) exchangeFile(ctx context.Context, f *config.JournaledFile) error {
	target, err := e.locate(f.Path)
	if f.After == nil && (errors.Is(err, fs.ErrNotExist) || err == nil && !exists(filepath.Dir(target))) {
		return nil // the folder was not made yet, so there is no file
	}
	if err != nil {
		return err
	}
	if f.After == nil && f.DropFolder {
		emptied, err := e.dropFolder(target, f.Before)
		if emptied || err != nil {
			return err
		}
	}
	err = e.put(ctx, target, f.After, func(old []byte) error {
		if now := digestOf(old); now != f.Before && now != digestOf(f.After) {
			return fmt.Errorf("%s: %w", f.Path, errEdited)
		}
		return nil
	})
	return err
}

// dropFolder removes a folder with the one file in it, at one instant: an empty folder of policies would deny everything. ok is false if the file is to be removed
// alone. A folder that somebody has put another file in meanwhile comes back with it.
func (e severalFiles) dropFolder(target, digest string) (ok bool, err error) {
	folder, name := filepath.Dir(target), filepath.Base(target)
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		return false, nil //nolint:nilerr // then the removal of the file says what is wrong
	}
	reach(&e.o, "folder looked at")
	aside := filepath.Join(filepath.Dir(folder), "."+filepath.Base(folder)+".switchboard-old-"+rand.Text())
	if err := os.Rename(folder, aside); err != nil {
		return false, err
	}
	text, err := os.ReadFile(filepath.Join(aside, name))
	if ok = err == nil && digestOf(text) == digest; ok && os.Remove(filepath.Join(aside, name)) == nil && os.Remove(aside) == nil {
		return true, nil
	}
	if err := os.Rename(aside, folder); err != nil {
		return false, fmt.Errorf("what somebody has put into %s meanwhile is in %s; put it back by hand: %w", folder, aside, err)
	}
	return ok && !exists(target), nil
}

// HasFolder reports whether the folder of a file exists.
func HasFolder(e *Editor, name string) bool {
	target, err := e.locate(name)
	return err == nil && exists(filepath.Dir(target))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// finish finishes an exchange that a killed process has begun. A file that somebody has edited since stays as it is.
func (e severalFiles) finish(ctx context.Context) error {
	files, err := config.ReadJournal(filepath.Dir(e.o.File))
	if err != nil || files == nil {
		return err
	}
	for _, f := range files { // no journal of ours names any other file
		if _, _, ok := e.OwnerOf(f.Path); !ok {
			return fmt.Errorf("%s names the path %.100q, which is none of a configuration; put the files in order by hand, and remove it", config.JournalFile, f.Path)
		}
	}
	if _, err := e.exchangeUnedited(ctx, files); err != nil {
		return err
	}
	return e.removeJournal(ctx)
}

func (e severalFiles) removeJournal(ctx context.Context) error {
	return rewrite.Remove(ctx, e.journal(), func([]byte) error { return nil })
}

func (e severalFiles) journal() string {
	return filepath.Join(filepath.Dir(e.o.File), config.JournalFile)
}

// reach tells a test that a step was reached.
func reach(o *Options, step string) {
	if o.reached != nil {
		o.reached(step)
	}
}

// FindTakenBack returns the newest kept change that a file with the text would take back: one that has replaced that very content. nil if there is none.
func FindTakenBack(ctx context.Context, e *Editor, files []FileWish) (*Revision, error) {
	all, err := e.History(ctx, &switchboard.Officer{Operator: true})
	if err != nil {
		return nil, err
	}
	for i := range all {
		for _, was := range all[i].Files() {
			if slices.ContainsFunc(files, func(f FileWish) bool { return f.Path == was.Path && was.BeforeDigest == digestOf(f.Text) }) {
				return &all[i], nil
			}
		}
	}
	return nil, nil
}
