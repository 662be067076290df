package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/store/segment"
)

// A logView is a log as it was at the instant of a snapshot.
type logView struct {
	row  logRow
	view segment.View
	err  error // why the log cannot be read
}

// withSnapshot runs use on a snapshot of the file and of its logs, as of one instant: no log is written to
// while the snapshot is taken.
func (o *fileLogs) withSnapshot(ctx context.Context, use func(*sql.Tx, []logView) error) error {
	o.file.mu.RLock()
	defer o.file.mu.RUnlock()
	if o.file.closed {
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	err := o.trySnapshot(ctx, use)
	for errors.Is(err, errMoreLogs) {
		err = o.trySnapshot(ctx, use)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // SQLite reports a cancelled context as an interruption
	}
	return err
}

// errMoreLogs says that a log was made while a snapshot was taken.
var errMoreLogs = errors.New("a log was made meanwhile")

func (o *fileLogs) trySnapshot(ctx context.Context, use func(*sql.Tx, []logView) error) error {
	var views []logView
	var held []func()
	release := func() {
		for _, end := range held {
			end()
		}
		held = nil
	}
	defer release()
	if err := o.file.reads.query(ctx, func(rows *sql.Rows) error {
		row, err := scanLog(rows)
		views = append(views, logView{row: row, err: err})
		return nil
	}, selectLogs+` ORDER BY name`); err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		if v.err != nil {
			continue
		}
		l, err := o.find(ctx, v.row.name)
		if err == nil {
			var end func()
			if v.view, end, err = l.Hold(ctx); err == nil {
				held = append(held, end)
			}
		}
		if v.err = err; err != nil && !errors.Is(err, errDamaged) {
			return err
		}
	}
	return o.file.reads.inTransaction(ctx, func(tx *sql.Tx) error {
		n := 0
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM log`).Scan(&n); err != nil { // the snapshot begins here
			return err
		}
		release()
		if n != len(views) {
			return errMoreLogs
		}
		return use(tx, views)
	})
}

// dumpLog calls see with the records of a log. After a damaged part it calls see with an error.
func dumpLog(ctx context.Context, v *logView, see func(Record, error) error) error {
	r := Record{Kind: KindLog, Name: v.row.name}
	if v.err != nil {
		return see(r, v.err)
	}
	if r.Span.First, r.Span.Last = v.view.Span(); r.Span.Last == 0 {
		return nil // its first Append was interrupted: no other backend has such a log
	}
	if err := see(r, nil); err != nil {
		return err
	}
	var own error
	err := v.view.Read(ctx, func(e segment.Entry) bool {
		own = see(Record{Kind: KindEntry, Name: r.Name, Entry: Entry{e.Seq, append([]byte{}, e.Data...)}}, nil)
		return own == nil
	})
	if own == nil && errors.Is(err, errDamaged) {
		return see(Record{Kind: KindEntry, Name: r.Name}, err)
	}
	return cmp.Or(own, err)
}
