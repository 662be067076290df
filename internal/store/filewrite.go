package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Bounds of one batch.
const (
	maxBatch      = 1024    // requests
	maxBatchBytes = 4 << 20 // but for the first request
)

// A request is something that changes the file.
type request struct {
	// do makes the change. Where it returns ErrConflict or ErrInvalid, it has changed
	// nothing; where something else went wrong, it is called again.
	do      func(*transaction) error
	durable bool
	once    bool // do is called once, is alone in its transaction, and looks at its context
	size    int  // bytes
	sweeps  int  // it writes what expires: so many

	ctx  context.Context
	left atomic.Bool // by whoever comes first: the writer that begins it, or who no longer waits
	done chan error
}

// ask has the writer make a change, and waits for it. What nobody waits for any more
// is not begun.
func (f *File) ask(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.ctx, r.done = ctx, make(chan error, 1)
	if err := f.hand(ctx, r); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if !r.left.CompareAndSwap(false, true) && r.once {
			return <-r.done // it looks at ctx itself
		}
		return ctx.Err()
	}
}

func (f *File) hand(ctx context.Context, r *request) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	select {
	case f.asked <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A writer makes the changes, one batch after the other.
type writer struct {
	*File
	db      *sql.DB // one connection
	tx      transaction
	durable bool  // what synchronous is set to
	wal     int64 // bytes of the WAL when it could not be emptied
	unswept int   // what was written that expires, since sweep

	compared time.Time // when its mark was last found to be the same
	parts    [len(parts)]os.FileInfo
	hang     *time.Timer // ends where the disk has not taken a write for long
}

// A transaction is what a request uses.
type transaction struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt

	data, sizes []byte // of a row of entries, used again
}

// run makes changes until no more can be asked for.
func (w *writer) run() {
	defer close(w.ended)
	defer func() {
		if err := w.close(); err != nil {
			w.log.Error("closing the store", "file", w.path, "error", explain(err))
		}
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	w.hang = time.AfterFunc(hangs, func() { w.note(errHangs) })
	w.hang.Stop()
	var kept *request // that did not fit into the batch before
	for {
		var batch []*request
		if kept != nil {
			batch = append(batch, kept)
		} else {
			select {
			case r, ok := <-w.asked:
				if !ok {
					return
				}
				batch = append(batch, r)
			case <-look.C:
				if w.Status().Fault == "" {
					if err := w.checkFiles(); err != nil {
						w.note(err)
					}
					continue
				}
				// So that it recovers where nobody dares to ask:
				batch = append(batch, &request{do: touch, durable: true, ctx: context.Background(), done: make(chan error, 1)})
			}
		}
		if batch, kept = w.collect(batch); len(batch) > 0 {
			w.commit(batch)
		}
	}
}

// collect adds to batch what waits. What nobody waits for any more is left out.
func (w *writer) collect(batch []*request) (all []*request, kept *request) {
	bytes := batch[0].size
	for next := batch[0]; ; {
		if next.left.CompareAndSwap(false, true) {
			all = append(all, next)
		}
		if next.once || len(all) >= maxBatch {
			return all, nil
		}
		select {
		case r, ok := <-w.asked:
			if !ok {
				return all, nil
			}
			if bytes += r.size; len(all) > 0 && (r.once || bytes > maxBatchBytes) {
				return all, r
			}
			next = r
		default:
			return all, nil
		}
	}
}

// commit makes the changes of a batch in one transaction and answers them; or, where
// that fails, in one transaction each, so that only those fail that have to.
func (w *writer) commit(batch []*request) {
	errs, err := w.try(batch)
	if err != nil && len(batch) > 1 && !isBusy(err) && !errors.Is(err, errReplaced) {
		for _, r := range batch {
			w.commit([]*request{r})
		}
		return
	}
	if err == nil || !batch[0].once || code(err) != 0 {
		w.note(err)
	}
	for i, r := range batch {
		if err != nil {
			r.done <- w.failed(err)
		} else {
			r.done <- errs[i]
		}
	}
	w.bound()
}

// try makes the changes in one transaction. Each has an answer, unless it failed as a
// whole.
func (w *writer) try(batch []*request) (errs []error, err error) {
	if w.lost.Load() != nil {
		if err := w.checkFiles(); err != nil { // nothing is written to it
			return nil, err
		}
	}
	durable, sweeps := false, 0
	for _, r := range batch {
		durable = durable || r.durable
		sweeps += r.sweeps
	}
	if err := w.sync(durable); err != nil {
		return nil, err
	}
	if err := w.tx.exec(`BEGIN IMMEDIATE`); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // nothing to undo where SQLite has done it by itself
			_, _ = w.tx.conn.ExecContext(context.Background(), `ROLLBACK`)
		}
	}()
	if err := w.checkMark(); err != nil {
		return nil, err
	}
	errs = make([]error, len(batch))
	for i, r := range batch {
		errs[i] = r.do(&w.tx)
		if err := errs[i]; err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrInvalid) {
			return nil, err
		}
	}
	if w.unswept += sweeps; w.unswept >= sweepAfter {
		if err := w.sweep(w.unswept); err != nil {
			return nil, err
		}
		w.unswept = 0
	}
	w.hang.Reset(hangs)
	err = w.tx.exec(`COMMIT`)
	w.hang.Stop()
	if err == nil && durable { // which it is not in a file that was removed
		err = w.checkFiles()
	}
	if err == nil {
		w.lost.Store(nil)
	}
	return errs, err
}

// hangs is how long the disk may take for a commit before Status says so.
const hangs = 2 * time.Second

var errHangs = fmt.Errorf("the disk has not ended a write for %s; what waits for that is done when it goes on, or is refused", hangs)

// sync chooses whether the next commits wait for the disk. In WAL mode, FULL syncs the
// WAL after each commit, and with it all that was committed before; with NORMAL it
// is synced before a checkpoint only, and what was committed survives the process,
// but not the machine (https://sqlite.org/pragma.html#pragma_synchronous,
// https://sqlite.org/wal.html#performance_considerations). It takes effect at once, if no
// transaction is open.
func (w *writer) sync(durable bool) error {
	if durable == w.durable {
		return nil
	}
	text := `PRAGMA synchronous = NORMAL`
	if durable {
		text = `PRAGMA synchronous = FULL`
	}
	if err := w.tx.pragma(text); err != nil {
		return err
	}
	w.durable = durable
	return nil
}

// sweepAfter is after how many writes of what expires sweep runs: it costs as much as some
// of them, since SQLite plans it anew each time.
const sweepAfter = 64

// sweep lets go of what has expired: some more than is written, so that it never
// grows, and never takes long.
func (w *writer) sweep(written int) error {
	now, n := time.Now().UnixMicro(), 2*written+8
	return cmp.Or(
		w.tx.exec(`DELETE FROM value WHERE id IN (SELECT id FROM value WHERE expires > 0 AND expires <= ? LIMIT ?)`, now, n),
		w.tx.exec(`DELETE FROM meter WHERE id IN (SELECT id FROM meter WHERE whole <= ? LIMIT ?)`, now, n))
}

// touch changes nothing, but has to be written.
func touch(tx *transaction) error {
	return tx.pragma(fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations)))
}

// maxWAL is how long the WAL may become before its readers are waited for. SQLite
// itself moves it into the file each 1000 pages, as far as nobody reads it.
const maxWAL = 64 << 20

// bound empties the WAL where readers have kept it from being emptied for long. One
// that reads on, as an export does, is not waited for twice.
func (w *writer) bound() {
	if now := size(w.path + "-wal"); now > maxWAL && now > w.wal+maxWAL {
		_ = w.tx.pragma(`PRAGMA wal_checkpoint(TRUNCATE)`)
		w.wal = size(w.path + "-wal")
	} else {
		w.wal = min(w.wal, now)
	}
}

// note keeps in mind whether the file can be written to.
func (f *File) note(err error) {
	f.faultMu.Lock()
	defer f.faultMu.Unlock()
	switch {
	case err == nil && f.fault != "":
		f.log.Info("the store is available again", "file", f.path, "after", time.Since(f.since))
		f.fault, f.since = "", time.Time{}
	case err != nil && f.fault == "":
		f.fault, f.since = explain(err), time.Now()
		f.log.Error("the store is unavailable", "file", f.path, "error", f.fault)
	}
}

// exec runs one statement, which is prepared when it is first used.
func (tx *transaction) exec(text string, args ...any) error {
	s, err := tx.stmt(text)
	if err == nil {
		_, err = s.ExecContext(context.Background(), args...)
	}
	return err
}

// pragma runs one that is not prepared: SQLite runs some of them when they are
// prepared, and then never again.
func (tx *transaction) pragma(text string) error {
	_, err := tx.conn.ExecContext(context.Background(), text)
	return err
}

// query reads rows, each with scan.
func (tx *transaction) query(scan func(*sql.Rows) error, text string, args ...any) error {
	s, err := tx.stmt(text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	return scanAll(rows, err, scan)
}

func (tx *transaction) stmt(text string) (*sql.Stmt, error) {
	if s := tx.stmts[text]; s != nil {
		return s, nil
	}
	s, err := tx.conn.PrepareContext(context.Background(), text)
	if err == nil {
		tx.stmts[text] = s
	}
	return s, err
}
