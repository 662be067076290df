package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// Check implements Store. It reads the whole file.
func (f *File) Check(ctx context.Context) error {
	var faults []string
	n := 0
	addFault := func(format string, args ...any) {
		if n++; n <= 10 {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	err := f.logs.withSnapshot(ctx, func(tx *sql.Tx, views []logView) error {
		rows, err := tx.QueryContext(ctx, `PRAGMA integrity_check(10)`)
		if err := scanAll(rows, err, func(rows *sql.Rows) error {
			var fault string
			if err := rows.Scan(&fault); err != nil {
				return err
			}
			if fault != "ok" {
				addFault("%s", strings.TrimPrefix(fault, "*** in database main ***\n"))
			}
			return nil
		}); err != nil {
			return err
		}
		found, err := readSchema(ctx, tx)
		if err != nil {
			return err
		}
		if want, err := newestSchema(); err != nil || found != want { // for example a renamed column, which no other check finds
			return cmp.Or(err, damagedError("the schema"))
		}
		unknown, err := f.logs.unknownFolders(ctx)
		for _, folder := range unknown {
			addFault("the folder %s belongs to no log", folder)
		}
		if err != nil {
			return err
		}
		return dumpSnapshot(ctx, tx, views, func(_ Record, err error) error {
			if errors.Is(err, errDamaged) {
				addFault("%s", strings.TrimPrefix(err.Error(), errDamaged.Error()+": "))
				return nil
			}
			return err
		})
	})
	if err != nil && sqliteCode(err)&0xff != sqlite3.SQLITE_CORRUPT {
		return f.wrapError(err)
	}
	if err != nil {
		addFault("%s", err)
	}
	if n == 0 {
		return nil
	}
	return f.wrapError(fmt.Errorf("%w, in %d places: %s", errDamaged, n, strings.Join(faults, "; ")))
}

// Dump implements Store. While it reads, the WAL cannot be emptied.
func (f *File) Dump(ctx context.Context, see func(Record) error) error {
	var own error // the error of see, which is returned unchanged
	err := f.logs.withSnapshot(ctx, func(tx *sql.Tx, views []logView) error {
		return dumpSnapshot(ctx, tx, views, func(r Record, err error) error {
			if err != nil {
				return err
			}
			own = see(r)
			return own
		})
	})
	if own != nil {
		return own
	}
	return f.wrapError(err)
}

// inTransaction runs use in a read-only transaction.
func (r *fileReader) inTransaction(ctx context.Context, use func(*sql.Tx) error) error {
	tx, err := r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return use(tx)
}

// dumpSnapshot calls see with each record, and with an error for each damaged one.
func dumpSnapshot(ctx context.Context, tx *sql.Tx, views []logView, see func(Record, error) error) error {
	now := time.Now()
	query := func(scan func(*sql.Rows) error, text string, args ...any) error {
		rows, err := tx.QueryContext(ctx, text, args...)
		return scanAll(rows, err, scan)
	}
	if err := dumpAccounts(query, now.UnixMicro(), see); err != nil {
		return err
	}
	if err := query(func(rows *sql.Rows) error {
		r := Record{Kind: KindValue}
		var v valueRow
		var data sql.RawBytes
		if err := rows.Scan(&r.Group, &r.Name, &v.version, &v.expires, &v.sum, &data); err != nil {
			return err
		}
		v.data = cloneBytes(data)
		var err error
		if r.Value, err = v.value(Key{r.Group, r.Name}, now); err == nil && r.Value.Version == 0 {
			return nil
		}
		return see(r, err)
	}, `SELECT grp, name, version, expires, sum, data FROM value WHERE grp != '' ORDER BY grp, name`); err != nil {
		return err
	}
	if err := query(func(rows *sql.Rows) error {
		r := Record{Kind: KindLimit}
		var m limitState
		var sum int64
		if err := rows.Scan(&r.Group, &r.Name, &m.fullAt, &sum); err != nil {
			return err
		}
		if r.FullAt = time.UnixMicro(m.fullAt); sum != m.checksum(Key{r.Group, r.Name}) {
			return see(r, damagedError("the limit %q of %q", r.Name, r.Group))
		}
		if m.fullAt <= now.UnixMicro() {
			return nil
		}
		return see(r, nil)
	}, `SELECT grp, name, whole, sum FROM meter ORDER BY grp, name`); err != nil {
		return err
	}
	for i := range views {
		if err := dumpLog(ctx, &views[i], see); err != nil {
			return err
		}
	}
	return nil
}

// Load implements Store, in one transaction.
func (f *File) Load(ctx context.Context, records iter.Seq2[Record, error]) error {
	var own error // the error of loadRecords, which is returned unchanged
	logs := &logLoader{file: f}
	r := fileChange{durable: true, exclusive: true, apply: func(tx *fileTransaction) error {
		own = tx.loadRecords(ctx, logs, records)
		return own
	}}
	err := f.submit(ctx, &r)
	if err != nil {
		logs.undo()
	} else {
		f.logs.endMaking()
	}
	if own == nil || sqliteCode(own) != 0 {
		return err
	}
	return own
}

func (tx *fileTransaction) loadRecords(ctx context.Context, logs *logLoader, records iter.Seq2[Record, error]) error {
	now := time.Now().UnixMicro()
	var any int
	if err := tx.query(func(rows *sql.Rows) error { return rows.Scan(&any) }, `SELECT EXISTS (SELECT 1 FROM log)
		OR EXISTS (SELECT 1 FROM value WHERE grp != '' AND (expires = 0 OR expires > ?)) OR EXISTS (SELECT 1 FROM meter WHERE whole > ?)
		OR EXISTS (SELECT 1 FROM hold WHERE expires > ?) OR EXISTS (SELECT 1 FROM account WHERE ends > ?)`, now, now, now, now); err != nil {
		return err
	}
	if any != 0 {
		return errNotEmpty
	}
	if err := cmp.Or(tx.exec(`DELETE FROM value WHERE grp != ''`), tx.exec(`DELETE FROM meter`), tx.exec(`DELETE FROM hold`), tx.exec(`DELETE FROM account`),
		logs.file.logs.removeLeft()); err != nil { // expired ones
		return err
	}
	for r, err := range records {
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		switch r.Kind {
		case KindValue:
			err = tx.putValue(Key{r.Group, r.Name}, r.Value)
		case KindLimit:
			err = tx.putLimit(r.Group, r.Name, limitState{r.FullAt.UnixMicro()})
		case KindAccount:
			err = tx.putAccount(Key{r.Group, r.Name}, newAccountState(r.Account))
		case KindHold:
			err = tx.putHold(Key{r.Group, r.Name}, holdRow{expires: r.Hold.Expires.UnixMicro(), amounts: r.Hold.Amounts})
		case KindLog:
			err = logs.begin(r.Name, r.Span)
		case KindEntry:
			err = logs.add(r.Entry.Data)
		}
		if err != nil {
			return err
		}
	}
	return logs.finish(tx)
}
