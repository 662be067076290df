package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// The limits of one batch.
const (
	maxBatch      = 1024    // changes
	maxBatchBytes = 4 << 20 // unless the first change alone has more
)

// A fileChange is a function that changes the file.
type fileChange struct {
	// apply makes the change. If it returns ErrConflict or ErrInvalid, it has changed nothing. After any
	// other error it may be called again.
	apply   func(*fileTransaction) error
	durable bool
	// checkpoint moves the WAL into the file when the change is made.
	checkpoint bool

	exclusive bool // apply is called only once, alone in its transaction, and watches ctx itself
	size      int  // bytes of data
	expiring  int  // how many values it writes that expire

	ctx     context.Context
	decided atomic.Bool // set by the first of: the writer that begins the change, the caller that gives up
	result  chan error
}

// submit hands a change to the writer and waits for it. If the caller gives up before the writer begins the
// change, it is not made.
func (f *File) submit(ctx context.Context, r *fileChange) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.ctx, r.result = ctx, make(chan error, 1)
	if err := f.enqueue(ctx, r); err != nil {
		return err
	}
	select {
	case err := <-r.result:
		return err
	case <-ctx.Done():
		if !r.decided.CompareAndSwap(false, true) && r.exclusive {
			return <-r.result // apply watches ctx itself
		}
		return ctx.Err()
	}
}

func (f *File) enqueue(ctx context.Context, r *fileChange) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	select {
	case f.changes <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A fileWriter makes the changes, one batch after the other.
type fileWriter struct {
	*File
	db             *sql.DB // one connection
	tx             fileTransaction
	durable        bool  // whether PRAGMA synchronous is FULL
	busyWAL        int64 // bytes of the WAL when it could not be truncated last
	expiringWrites int   // writes of expiring values since deleteExpired ran

	markChecked time.Time   // when the mark was last found unchanged
	hangTimer   *time.Timer // fires if a commit takes too long
	shrink      bool        // the file has much free space after its migration
}

// A fileTransaction is an open transaction.
type fileTransaction struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// commitBatches makes changes until the channel of changes is closed.
func (w *fileWriter) commitBatches() {
	defer close(w.writerDone)
	defer func() {
		if err := w.closeConnection(); err != nil {
			w.log.Error("closing the store", "file", w.path, "error", explainError(err))
		}
	}()
	look := time.NewTicker(examineInterval)
	defer look.Stop()
	w.hangTimer = time.AfterFunc(hangAfter, func() { w.fault.record(errDiskHangs, w.path, w.log) })
	w.hangTimer.Stop()
	var kept *fileChange // a change that did not fit into the last batch
	for {
		var batch []*fileChange
		if kept != nil {
			batch = append(batch, kept)
		} else {
			select {
			case r, ok := <-w.changes:
				if !ok {
					return
				}
				batch = append(batch, r)
			case <-look.C:
				w.logs.probe()
				if text, _ := w.fault.current(); text == "" {
					if err := w.checkFiles(); err != nil {
						w.fault.record(err, w.path, w.log)
					}
					continue
				}
				// A change without effect finds out whether the file can be written to again, also if no call tries:
				batch = append(batch, &fileChange{apply: touchFile, durable: true, ctx: context.Background(), result: make(chan error, 1)})
			}
		}
		if batch, kept = w.collectBatch(batch); len(batch) > 0 {
			w.commitBatch(batch)
		}
	}
}

// collectBatch adds the waiting changes to batch. It leaves out changes without a waiting caller.
func (w *fileWriter) collectBatch(batch []*fileChange) (all []*fileChange, kept *fileChange) {
	bytes := batch[0].size
	for next := batch[0]; ; {
		if next.decided.CompareAndSwap(false, true) {
			all = append(all, next)
		}
		if next.exclusive || len(all) >= maxBatch {
			return all, nil
		}
		select {
		case r, ok := <-w.changes:
			if !ok {
				return all, nil
			}
			if bytes += r.size; len(all) > 0 && (r.exclusive || bytes > maxBatchBytes) {
				return all, r
			}
			next = r
		default:
			return all, nil
		}
	}
}

// commitBatch makes the changes of a batch in one transaction and reports their results. If that fails, it
// makes each change in a transaction of its own, so that one bad change does not fail the others.
func (w *fileWriter) commitBatch(batch []*fileChange) {
	errs, err := w.tryBatch(batch)
	if err != nil && len(batch) > 1 && !isBusy(err) && !errors.Is(err, errReplaced) {
		for _, r := range batch {
			w.commitBatch([]*fileChange{r})
		}
		return
	}
	if err == nil || !batch[0].exclusive || sqliteCode(err) != 0 {
		w.fault.record(err, w.path, w.log)
	}
	for i, r := range batch {
		if err != nil {
			r.result <- w.wrapError(err)
		} else {
			r.result <- errs[i]
		}
	}
	w.truncateWAL()
}

// tryBatch makes the changes in one transaction. It returns the error of each change, or one error if the
// transaction failed.
func (w *fileWriter) tryBatch(batch []*fileChange) (errs []error, err error) {
	if w.replaced.Load() != nil {
		if err := w.checkFiles(); err != nil { // do not write to a file that is not ours
			return nil, err
		}
	}
	durable, checkpoint, sweeps := false, false, 0
	for _, r := range batch {
		durable = durable || r.durable
		checkpoint = checkpoint || r.checkpoint
		sweeps += r.expiring
	}
	if err := w.setDurable(durable); err != nil {
		return nil, err
	}
	if err := w.tx.exec(`BEGIN IMMEDIATE`); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // it fails if SQLite has rolled back by itself
			_, _ = w.tx.conn.ExecContext(context.Background(), `ROLLBACK`)
		}
	}()
	if err := w.checkMark(); err != nil {
		return nil, err
	}
	errs = make([]error, len(batch))
	for i, r := range batch {
		errs[i] = r.apply(&w.tx)
		if err := errs[i]; err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrInvalid) {
			return nil, err
		}
	}
	if w.expiringWrites += sweeps; w.expiringWrites >= sweepInterval {
		if err := w.deleteExpired(w.expiringWrites); err != nil {
			return nil, err
		}
		w.expiringWrites = 0
	}
	w.hangTimer.Reset(hangAfter)
	err = w.tx.exec(`COMMIT`)
	w.hangTimer.Stop()
	if err == nil && checkpoint {
		_ = w.tx.pragma(`PRAGMA wal_checkpoint(FULL)`) // a reader may prevent it
	}
	if err == nil && durable { // a commit to a removed file is not durable
		err = w.checkFiles()
	}
	if err == nil {
		w.replaced.Store(nil)
	}
	return errs, err
}

// hangAfter is how long a commit may take before Status reports it.
const hangAfter = 2 * time.Second

var errDiskHangs = fmt.Errorf("the disk has not ended a write for %s; waiting changes are made when it continues, or refused", hangAfter)

// setDurable chooses whether the next commits wait for the disk. In WAL mode, FULL syncs the WAL after each
// commit, and with it all earlier commits. NORMAL syncs the WAL only before a checkpoint: a commit then
// survives the process, but not the machine (https://sqlite.org/pragma.html#pragma_synchronous,
// https://sqlite.org/wal.html#performance_considerations). The setting takes effect at once if no transaction
// is open.
func (w *fileWriter) setDurable(durable bool) error {
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

// sweepInterval is how many writes of expiring values there are between two runs of deleteExpired. One run
// costs as much as some of these writes, since SQLite plans it anew each time.
const sweepInterval = 64

// deleteExpired deletes some more expired values than were written, so that their number never grows, and it
// never takes long.
func (w *fileWriter) deleteExpired(written int) error {
	now, n := time.Now().UnixMicro(), 2*written+8
	return cmp.Or(
		w.tx.settleExpired(now, n),
		w.tx.exec(`DELETE FROM account WHERE id IN (SELECT id FROM account WHERE held = 0 AND ends <= ? LIMIT ?)`, now, n),
		w.tx.exec(`DELETE FROM value WHERE id IN (SELECT id FROM value WHERE expires > 0 AND expires <= ? LIMIT ?)`, now, n),
		w.tx.exec(`DELETE FROM meter WHERE id IN (SELECT id FROM meter WHERE whole <= ? LIMIT ?)`, now, n))
}

// touchFile changes nothing but has to be written.
func touchFile(tx *fileTransaction) error {
	return tx.pragma(fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations)))
}

// maxWAL is how long the WAL may become before truncateWAL waits for its readers. SQLite itself moves the WAL
// into the file each 1000 pages, as far as no reader needs it.
const maxWAL = 64 << 20

// truncateWAL empties the WAL if readers have prevented that for a long time. It does not wait twice for a
// reader that continues, such as an export.
func (w *fileWriter) truncateWAL() {
	if now := fileSize(w.path + "-wal"); now > maxWAL && now > w.busyWAL+maxWAL {
		_ = w.tx.pragma(`PRAGMA wal_checkpoint(TRUNCATE)`)
		w.busyWAL = fileSize(w.path + "-wal")
	} else {
		w.busyWAL = min(w.busyWAL, now)
	}
}

// A fileFault says whether a file can be written to, and logs when that changes.
type fileFault struct {
	mu    sync.Mutex
	text  string // "" if it can be written to
	since time.Time
}

// record records the result of a write.
func (f *fileFault) record(err error, path string, log *slog.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil && f.text != "":
		log.Info("the store is available again", "file", path, "after", time.Since(f.since))
		f.text, f.since = "", time.Time{}
	case err != nil && f.text == "":
		f.text, f.since = explainError(err), time.Now()
		log.Error("the store is unavailable", "file", path, "error", f.text)
	}
}

// current returns why the file cannot be written to, or "", and since when.
func (f *fileFault) current() (text string, since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text, f.since
}

// exec runs one statement. It prepares the statement when it is first used.
func (tx *fileTransaction) exec(text string, args ...any) error {
	s, err := tx.stmt(text)
	if err == nil {
		_, err = s.ExecContext(context.Background(), args...)
	}
	return err
}

// pragma runs a statement without preparing it: SQLite runs some of them while they are prepared, and then
// never again.
func (tx *fileTransaction) pragma(text string) error {
	_, err := tx.conn.ExecContext(context.Background(), text)
	return err
}

// query runs a query and calls scan for each row.
func (tx *fileTransaction) query(scan func(*sql.Rows) error, text string, args ...any) error {
	s, err := tx.stmt(text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	return scanAll(rows, err, scan)
}

func (tx *fileTransaction) stmt(text string) (*sql.Stmt, error) {
	if s := tx.stmts[text]; s != nil {
		return s, nil
	}
	s, err := tx.conn.PrepareContext(context.Background(), text)
	if err == nil {
		tx.stmts[text] = s
	}
	return s, err
}
