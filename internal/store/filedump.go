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
	err := f.withSnapshot(ctx, func(tx *sql.Tx) error {
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
		var log Record
		end := func() {
			if log.Kind != "" && log.Entry.Seq != log.Span.Last {
				addFault("log %s ends with %d, not %d", log.Name, log.Entry.Seq, log.Span.Last)
			}
		}
		if err := dumpSnapshot(ctx, tx, func(r Record, err error) error {
			switch {
			case errors.Is(err, errDamaged):
				addFault("%s", err)
			case err != nil:
				return err
			case r.Kind == KindLog:
				end()
				log = r
				log.Entry.Seq = r.Span.First - 1
			case r.Kind == KindEntry:
				if log.Entry.Seq++; log.Entry.Seq != r.Entry.Seq {
					addFault("log %s has no entry %d", log.Name, log.Entry.Seq)
					log.Entry.Seq = r.Entry.Seq
				}
			}
			return nil
		}); err != nil {
			return err
		}
		end()
		rows, err = tx.QueryContext(ctx, `SELECT count(*) FROM entry WHERE id / ? NOT IN (SELECT id FROM log)`, entriesOfLog)
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var lost int
			err := rows.Scan(&lost)
			if lost > 0 {
				addFault("%d entries belong to no log", lost)
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
	err := f.withSnapshot(ctx, func(tx *sql.Tx) error {
		return dumpSnapshot(ctx, tx, func(r Record, err error) error {
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

// withSnapshot runs use on a snapshot of the file.
func (f *File) withSnapshot(ctx context.Context, use func(*sql.Tx) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	err := f.reads.inTransaction(ctx, use)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // SQLite reports a cancelled context as an interruption
	}
	return err
}

// inTransaction runs use in a read-only transaction.
func (r fileReader) inTransaction(ctx context.Context, use func(*sql.Tx) error) error {
	tx, err := r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := use(tx); err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// dumpSnapshot calls see with each record, and with an error for each damaged one.
func dumpSnapshot(ctx context.Context, tx *sql.Tx, see func(Record, error) error) error {
	now := time.Now()
	query := func(scan func(*sql.Rows) error, text string, args ...any) error {
		rows, err := tx.QueryContext(ctx, text, args...)
		return scanAll(rows, err, scan)
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
	var names []string
	if err := query(func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, `SELECT name FROM log ORDER BY name`); err != nil {
		return err
	}
	for _, name := range names {
		id, span, err := txSpan(ctx, tx, name)
		log := Record{Kind: KindLog, Name: name, Span: span}
		if err := see(log, err); err != nil {
			return err
		}
		if err := query(func(rows *sql.Rows) error {
			err := scanEntries(rows, func(e Entry) error {
				if e.Seq < span.First { // it is in the same row as the first entry
					return nil
				}
				return see(Record{Kind: KindEntry, Name: log.Name, Entry: Entry{e.Seq, cloneBytes(e.Data)}}, nil)
			})
			if errors.Is(err, errDamaged) {
				return see(Record{Kind: KindEntry, Name: log.Name}, err)
			}
			return err
		}, `SELECT id, sum, data, sizes FROM entry WHERE id > ? AND id < ? ORDER BY id`, id*entriesOfLog, (id+1)*entriesOfLog); err != nil {
			return err
		}
	}
	return nil
}

// Load implements Store, in one transaction.
func (f *File) Load(ctx context.Context, records iter.Seq2[Record, error]) error {
	var own error // the error of loadRecords, which is returned unchanged
	r := fileChange{durable: true, exclusive: true, apply: func(tx *fileTransaction) error {
		own = tx.loadRecords(ctx, records)
		return own
	}}
	if err := f.submit(ctx, &r); own == nil || sqliteCode(own) != 0 {
		return err
	}
	return own
}

func (tx *fileTransaction) loadRecords(ctx context.Context, records iter.Seq2[Record, error]) error {
	now := time.Now().UnixMicro()
	var any int
	if err := tx.query(func(rows *sql.Rows) error { return rows.Scan(&any) }, `SELECT EXISTS (SELECT 1 FROM log)
		OR EXISTS (SELECT 1 FROM value WHERE grp != '' AND (expires = 0 OR expires > ?)) OR EXISTS (SELECT 1 FROM meter WHERE whole > ?)`, now, now); err != nil {
		return err
	}
	if any != 0 {
		return errNotEmpty
	}
	if err := cmp.Or(tx.exec(`DELETE FROM value WHERE grp != ''`), tx.exec(`DELETE FROM meter`)); err != nil { // expired ones
		return err
	}
	var log int64
	var entries []Entry
	size := 0
	flush := func() error {
		err := tx.putEntries(log, entries)
		entries, size = entries[:0], 0
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
		case KindLog:
			if err = flush(); err == nil {
				log, err = tx.newLog(r.Name, r.Span)
			}
		case KindEntry:
			entries = append(entries, r.Entry)
			if size += len(r.Entry.Data); len(entries) >= MaxAppend || size >= maxBatchBytes {
				err = flush()
			}
		}
		if err != nil {
			return err
		}
	}
	return flush()
}
