package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
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

// recognise compares the mark, once a second at most. It runs in a transaction.
func (w *writer) recognise() error {
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
	w.lost.Store(nil)
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
