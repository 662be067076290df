package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// A file's mark is a value with a random id, in a group without a name, where no caller can write. If the
// mark is gone or different, the file is not the one that was opened.
const markName = "mark"

const selectMark = `SELECT data FROM value WHERE grp = '' AND name = ?`

// readOrMakeMark reads the mark of a file that is being opened. It makes a mark if there is none: the file is
// new, or older than marks are.
func (w *fileWriter) readOrMakeMark() error {
	ctx := context.Background()
	err := w.tx.conn.QueryRowContext(ctx, selectMark, markName).Scan(&w.id)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	r := newValueRow(Key{"", markName}, Value{Version: newVersion(), Data: []byte(rand.Text())})
	if _, err := w.tx.conn.ExecContext(ctx, `INSERT OR IGNORE INTO value (grp, name, version, expires, sum, data) VALUES ('', ?, ?, 0, ?, ?)`,
		markName, r.version, r.sum, r.data); err != nil {
		return err
	}
	return w.tx.conn.QueryRowContext(ctx, selectMark, markName).Scan(&w.id) // another process may have inserted one first
}

// errReplaced says that the file is not the one that was opened.
var errReplaced = errors.New("it is not the store that was opened")

// checkMark compares the mark with the remembered one, at most once a second. It runs in a transaction.
func (w *fileWriter) checkMark() error {
	now := time.Now()
	if now.Sub(w.markChecked) < examineInterval && now.After(w.markChecked) {
		return nil
	}
	var id string
	if err := w.tx.query(func(rows *sql.Rows) error { return rows.Scan(&id) }, selectMark, markName); err != nil {
		return err
	}
	if id != w.id {
		return w.markReplaced("its mark is gone or different: its content was deleted or replaced by the content of another store; put the content back, or restart Switchboard to use the present one")
	}
	w.markChecked = now
	return nil
}

// partNames are the suffixes of the file, its WAL and the index of the WAL. The three belong together: a
// process that opens the path and finds another file in place of one of them does not see our writes.
var partNames = [...]string{"", "-wal", "-shm"}

// fileParts remembers which files the parts are.
type fileParts struct {
	mu    sync.Mutex
	files [len(partNames)]os.FileInfo
}

// checkFiles finds out whether the parts are the files that were opened. It takes a few microseconds.
func (f *File) checkFiles() error {
	f.parts.mu.Lock()
	defer f.parts.mu.Unlock()
	for i, part := range partNames {
		found, err := os.Stat(f.path + part)
		first := f.parts.files[i]
		switch {
		case err == nil && first == nil:
			f.parts.files[i] = found
		case err == nil && os.SameFile(found, first), first == nil:
		case errors.Is(err, fs.ErrNotExist):
			return f.markReplaced(f.path + part + " was removed while it was open; changes are lost when this process ends: put it back, or restart Switchboard to continue without its content")
		case err != nil:
			return f.markReplaced(f.path + part + " cannot be examined: " + err.Error())
		default:
			return f.markReplaced(f.path + part + " was replaced by another file while it was open: put the first one back, or restart Switchboard to use this one")
		}
	}
	return nil
}

// markReplaced makes all calls that need the file fail with an error that says why.
func (f *File) markReplaced(why string) error {
	err := &replacedError{why}
	f.replaced.Store(err)
	return err
}

// A replacedError is an errReplaced with its reason.
type replacedError struct{ why string }

func (e *replacedError) Error() string { return e.why }

func (e *replacedError) Unwrap() error { return errReplaced }
