package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
)

// backupSuffix is the end of a backup's name, before its number. Connect never reads a backup.
const backupSuffix = ".before-switchboard"

// maxBackups limits the backups of one file.
const maxBackups = 100

// backupName returns the name for a backup of a file with that text: a name that nothing has yet, not even a link, which could lead to any file of
// the user. A backup with the same text serves too.
func backupName(file string, text []byte) (string, error) {
	for n := 1; n <= maxBackups; n++ {
		name := file + backupSuffix
		if n > 1 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		info, err := os.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", err
		case !info.Mode().IsRegular():
			continue
		}
		if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, text) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s has %d backups (%s%s-2 and so on); delete those that you do not need", file, maxBackups, filepath.Base(file), backupSuffix)
}

// lock waits until no other process changes the records of the data folder.
func lock(data string) (unlock func(), err error) {
	dir := filepath.Join(data, recordFolder)
	if err := ownfile.MakeFolders(dir); err != nil {
		return nil, err
	}
	f, err := ownfile.Open(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := ownfile.Lock(f); err != nil {
		_ = f.Close() // the first error counts
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Apply makes the changes. If it returns ErrChanged or another error, it has changed nothing, or has undone it.
func (p *Plan) Apply(ctx context.Context) error {
	if !p.Changed() {
		return nil
	}
	unlock, err := lock(p.options.Data)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.checkUnchanged(); err != nil {
		return err
	}
	if err := p.nameBackups(); err != nil {
		return err
	}
	before, err := readFile(recordDir(p.options.Data).path(p.options.Client.ID))
	if err != nil {
		return err
	}
	if err := recordDir(p.options.Data).write(ctx, p.record); err != nil {
		return err
	}
	if err := p.writeFiles(ctx); err != nil {
		if undo := p.revert(context.WithoutCancel(ctx), before); undo != nil {
			return fmt.Errorf("%w; and what was done could not be undone: %s. To undo it: switchboard disconnect %s", err, undo.Error(), p.options.Client.ID)
		}
		return err
	}
	return nil
}

// nameBackups gives each file that is about to be changed for the first time the name of its backup.
func (p *Plan) nameBackups() (err error) {
	for _, c := range p.Changes {
		if f := p.record.file(c.File); c.Before != nil && f.Backup == "" && f.Steps[0].Before == digestOf(c.Before) {
			if f.Backup, err = backupName(c.File, c.Before); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUnchanged reports whether the files are as they were when the plan was made.
func (p *Plan) checkUnchanged() error {
	text, err := readFile(recordDir(p.options.Data).path(p.options.Client.ID))
	if err != nil {
		return err
	}
	if digestOf(text) != p.before {
		return ErrChanged
	}
	for _, c := range append([]FileChange{p.Config}, p.Changes...) {
		now, err := readFile(c.File)
		if err != nil {
			return err
		}
		if digestOf(now) != digestOf(c.Before) {
			return ErrChanged
		}
	}
	return nil
}

func (p *Plan) writeFiles(ctx context.Context) error {
	dir := filepath.Dir(p.Config.File)
	if err := ownfile.MakeFolders(dir); err != nil {
		return err
	}
	for _, s := range p.Servers {
		if s.Stays != "" {
			continue
		}
		for _, f := range s.contents {
			name := filepath.Join(dir, filepath.FromSlash(f.Name))
			if !exists(name) {
				p.made = append(p.made, name)
			}
			if err := writeSecret(ctx, name, f.Content.Reveal()); err != nil {
				return err
			}
		}
	}
	if err := edit.File(ctx, p.Config.File, p.options.Read, p.Config.expect); err != nil {
		return err
	}
	for _, c := range p.Changes {
		if err := os.MkdirAll(filepath.Dir(c.File), 0o755); err != nil {
			return err
		}
		f := p.record.file(c.File)
		if f.Backup != "" && f.Steps[0].Before == digestOf(c.Before) && !exists(f.Backup) {
			p.made = append(p.made, f.Backup)
			if err := rewrite.File(ctx, f.Backup, 0o600, func([]byte) ([]byte, error) { return c.Before, nil }); err != nil {
				return err
			}
		}
		if err := rewrite.File(ctx, c.File, 0o600, c.expect); err != nil {
			return err
		}
	}
	return nil
}

// revert undoes what writeFiles has done before its error, and no earlier connection. record is the text of the record from before. If a file of the
// client has been changed since, everything stays, so that the client's entry still works.
func (p *Plan) revert(ctx context.Context, record []byte) error {
	for _, c := range p.Changes {
		if err := c.revert(ctx); err != nil {
			return err
		}
	}
	if err := p.Config.revert(ctx); err != nil {
		return err
	}
	for _, name := range p.made {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if record == nil {
		return recordDir(p.options.Data).remove(p.options.Client.ID)
	}
	return rewrite.File(ctx, recordDir(p.options.Data).path(p.options.Client.ID), 0o600, func([]byte) ([]byte, error) { return record, nil })
}

// revert gives a file its old text again. It is no error if the file has that text, but one if it has neither of the two.
func (c FileChange) revert(ctx context.Context) error {
	now, err := readFile(c.File)
	if err != nil || digestOf(now) == digestOf(c.Before) {
		return err
	}
	if c.Before != nil {
		return rewrite.File(ctx, c.File, 0o600, FileChange{File: c.File, Before: c.After, After: c.Before}.expect)
	}
	if !bytes.Equal(now, c.After) {
		return ErrChanged
	}
	return os.Remove(c.File)
}

// expect returns the new text if the file still has the old one.
func (c FileChange) expect(old []byte) ([]byte, error) {
	if (old == nil) != (c.Before == nil) || !bytes.Equal(old, c.Before) {
		return nil, ErrChanged
	}
	return c.After, nil
}

// writeSecret writes a new file for its owner only, whole. A file with the same content is left by a killed process.
func writeSecret(ctx context.Context, name, content string) error {
	if err := ownfile.MakeFolders(filepath.Dir(name)); err != nil {
		return err
	}
	return rewrite.File(ctx, name, 0o600, func(old []byte) ([]byte, error) {
		if old != nil && string(old) != content {
			return nil, fmt.Errorf("%s exists and holds another secret; move it away, and try again", name)
		}
		return []byte(content), nil
	})
}
