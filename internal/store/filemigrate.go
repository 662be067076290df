package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// entriesOfLog is how many entries a log could have in a file of schema version 1 or 2. The id of a row of
// entries was the id of its log times entriesOfLog plus the number of its first entry.
const entriesOfLog = 1 << 44

// moveEntries moves the entries of a file of schema version 2 into logs. The caller inserts the logs' rows when
// their table has been made, and removes their folders if that fails.
func (w *fileWriter) moveEntries() (*logLoader, error) {
	l := &logLoader{file: w.File}
	if err := w.logs.removeLeft(); err != nil {
		return l, err
	}
	type oldLog struct {
		id   int64
		name string
		span Span
	}
	var logs []oldLog
	query := func(scan func(*sql.Rows) error, text string, args ...any) error {
		rows, err := w.tx.conn.QueryContext(context.Background(), text, args...)
		return scanAll(rows, err, scan)
	}
	if err := query(func(rows *sql.Rows) error {
		var o oldLog
		var sum int64
		if err := rows.Scan(&o.id, &o.name, &o.span.First, &o.span.Last, &sum); err != nil {
			return err
		}
		if sum != checksum([]byte(o.name), o.span.First, o.span.Last) {
			return damagedError("the end of log %s", o.name)
		}
		logs = append(logs, o)
		return nil
	}, `SELECT id, name, first, last, sum FROM log ORDER BY name`); err != nil {
		return l, err
	}
	for _, o := range logs {
		if w.log != nil {
			w.log.Info("the entries of a log are moved into files of their own", "file", w.path, "log", o.name, "entries", o.span.Last+1-o.span.First)
		}
		if err := l.begin(o.name, o.span); err != nil {
			return l, err
		}
		next := o.span.First
		if err := query(func(rows *sql.Rows) error {
			return scanEntries(rows, func(e Entry) error {
				switch {
				case e.Seq < o.span.First: // it is in the same row as the first entry
					return nil
				case e.Seq != next:
					return damagedError("entry %d of log %s", next, o.name)
				}
				next++
				return l.add(cloneBytes(e.Data))
			})
		}, `SELECT id, sum, data, sizes FROM entry WHERE id > ? AND id < ? ORDER BY id`, o.id*entriesOfLog, (o.id+1)*entriesOfLog); err != nil {
			return l, err
		}
		if next != o.span.Last+1 {
			return l, damagedError("entry %d of log %s", next, o.name)
		}
	}
	return l, l.end()
}

// scanEntries reads the columns id, sum, data and sizes, and calls see with each entry of the row. The
// entry's data is valid only during see.
func scanEntries(rows *sql.Rows, see func(Entry) error) error {
	var id, sum int64
	var data, sizes sql.RawBytes
	if err := rows.Scan(&id, &sum, &data, &sizes); err != nil {
		return err
	}
	e := Entry{Seq: uint64(id % entriesOfLog)}                                             //nolint:gosec // ids are positive
	if sum != int64(crc32.Update(uint32(checksum(data, uint64(id))), castagnoli, sizes)) { //nolint:gosec // a checksum has 32 bits
		return damagedError("the row of entries from entry %d of a log", e.Seq)
	}
	if len(sizes) == 0 {
		e.Data = data
		return see(e)
	}
	for ; len(sizes) > 0; e.Seq++ {
		size, n := binary.Uvarint(sizes)
		if n <= 0 || size > uint64(len(data)) {
			return damagedError("the size of entry %d of a log", e.Seq)
		}
		e.Data, data, sizes = data[:size], data[size:], sizes[n:]
		if err := see(e); err != nil {
			return err
		}
	}
	return nil
}

// migrateFrom changes the file of that schema version to the next version, in a transaction.
func (w *fileWriter) migrateFrom(version int64) error {
	const entriesInRows = 2 // the last version with them
	if version != entriesInRows {
		return w.tx.pragma(migrations[version])
	}
	moved, err := w.moveEntries()
	if err == nil {
		if err = w.tx.pragma(migrations[version]); err == nil {
			err = moved.finish(&w.tx)
		}
	}
	if err != nil {
		moved.undo()
		return fmt.Errorf("moving its logs into files: %w", err)
	}
	w.shrink = len(moved.made) > 0
	return nil
}

// shrinkFile gives the space of the moved entries back.
func (w *fileWriter) shrinkFile() {
	if err := errors.Join(w.tx.pragma(`VACUUM`), w.tx.pragma(`PRAGMA wal_checkpoint(TRUNCATE)`)); err != nil && w.log != nil {
		w.log.Warn("the file could not be made smaller", "file", w.path, "err", err)
	}
}
