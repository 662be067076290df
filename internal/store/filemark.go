package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"time"
)

// A file's mark is a value in a group without a name, which nobody else can write to. It stands there as
// long as the file is the one that it was.
const markName = "mark"

const selectMark = `SELECT data FROM value WHERE grp = '' AND name = ?`

// mark reads the mark of a file that is opened, or makes it where it has none: it is new, or older than
// marks are.
func (w *writer) mark() error {
	ctx := context.Background()
	err := w.tx.conn.QueryRowContext(ctx, selectMark, markName).Scan(&w.id)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	r := rowOf(Key{"", markName}, Value{Version: newVersion(), Data: []byte(rand.Text())})
	if _, err := w.tx.conn.ExecContext(ctx, `INSERT OR IGNORE INTO value (grp, name, version, expires, sum, data) VALUES ('', ?, ?, 0, ?, ?)`,
		markName, r.version, r.sum, r.data); err != nil {
		return err
	}
	return w.tx.conn.QueryRowContext(ctx, selectMark, markName).Scan(&w.id) // another process may have been first
}

// errReplaced says that the file is not the one that was opened.
var errReplaced = errors.New("it is not the store that was opened")

// checkMark compares the mark, once a second at most. It runs in a transaction.
func (w *writer) checkMark() error {
	now := time.Now()
	if now.Sub(w.compared) < lookEvery && now.After(w.compared) {
		return nil
	}
	var id string
	if err := w.tx.query(func(rows *sql.Rows) error { return rows.Scan(&id) }, selectMark, markName); err != nil {
		return err
	}
	if id != w.id {
		return w.lose("its mark is gone or another: what it holds was deleted, or that of another store was put into it; put it back, or restart Switchboard to go on with what is there now")
	}
	w.compared = now
	return nil
}

// parts are the file, its WAL and the index of that, which belong together: who opens the path and finds another
// in the place of one of them does not see what we write.
var parts = [...]string{"", "-wal", "-shm"}

// checkFiles finds out whether the parts stand where they were opened. It costs a few microseconds.
func (w *writer) checkFiles() error {
	for i, part := range parts {
		found, err := os.Stat(w.path + part)
		switch {
		case err == nil && w.parts[i] == nil:
			w.parts[i] = found
		case err == nil && os.SameFile(found, w.parts[i]), w.parts[i] == nil:
		case errors.Is(err, fs.ErrNotExist):
			return w.lose(w.path + part + " was removed while it was open; what is written is lost when this process ends: put it back, or restart Switchboard to go on without what it held")
		case err != nil:
			return w.lose(w.path + part + " cannot be looked at: " + err.Error())
		default:
			return w.lose(w.path + part + " was replaced by another file while it was open: put the first one back, or restart Switchboard to go on with this one")
		}
	}
	return nil
}

// lose has all uses refused that need the file.
func (f *File) lose(why string) error {
	err := &replacedError{why}
	f.lost.Store(err)
	return err
}

// A replacedError is an errReplaced, and says why.
type replacedError struct{ why string }

func (e *replacedError) Error() string { return e.why }

func (e *replacedError) Unwrap() error { return errReplaced }
