package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// File is a Store in one SQLite file. Several processes can open the same file, and the contract holds across
// them, except for notices: they reach only the subscribers of the process that publishes them. Use OpenFile.
//
// All changes go through one goroutine. It makes all waiting changes in one transaction, with one wait for
// the disk.
type File struct {
	path       string
	id         string // from the file's mark
	log        *slog.Logger
	notices    noticeHub
	reads      fileReader
	changes    chan *fileChange
	writerDone chan struct{} // closed when fileWriter has ended

	mu     sync.RWMutex // calls in flight hold it for reading, Close holds it for writing
	closed bool

	fault    fileFault
	replaced atomic.Pointer[replacedError] // nil while it is the file that was opened
}

// FileOptions are the options of OpenFile. The zero value works.
type FileOptions struct {
	Log *slog.Logger // nil means no log
}

// maxRead is how many bytes Read returns at most, unless the first entry alone has more.
const maxRead = 16 << 20

// entriesOfLog is how many entries a log can ever have. The id of a row of entries is the id of its log times
// entriesOfLog plus the number of its first entry: so the entries of a log lie side by side, and appended
// rows come after all others of their log.
const entriesOfLog = 1 << 44

// Entries that are appended together share rows, since a row costs as much as its content. Rows that are too
// small would leave much of their pages empty, so a group of entries below minRowBytes is stored one entry a
// row: with 3 or 4 receipts at a time, files would otherwise be larger by 21 and 36 %.
const (
	maxRowBytes = 32 << 10 // unless the first entry alone has more
	minRowBytes = 24 << 10
)

// checksum is stored beside each value and entry: SQLite detects a damaged page structure, but not a changed
// byte in the data of a page.
func checksum(data []byte, of ...uint64) int64 {
	var sum uint32
	for _, n := range of {
		sum = crc32.Update(sum, castagnoli, binary.BigEndian.AppendUint64(nil, n))
	}
	return int64(crc32.Update(sum, castagnoli, data))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A valueRow is a row of the table of values.
type valueRow struct {
	version, expires, sum int64
	data                  []byte
}

func newValueRow(k Key, v Value) valueRow {
	r := valueRow{version: int64(v.Version), data: v.Data}
	if !v.Expires.IsZero() {
		r.expires = v.Expires.UnixMicro()
	}
	r.sum = r.checksum(k)
	return r
}

func (r *valueRow) checksum(k Key) int64 {
	key := crc32.Checksum([]byte(k.Group+"\x00"+k.Name), castagnoli)
	return checksum(r.data, uint64(key), uint64(r.version), uint64(r.expires))
}

// value returns the value of the row at now; the zero Value if it has expired.
func (r *valueRow) value(k Key, now time.Time) (Value, error) {
	if r.sum != r.checksum(k) {
		return Value{}, damagedError("the value %q of %q", k.Name, k.Group)
	}
	if r.expires != 0 && r.expires <= now.UnixMicro() {
		return Value{}, nil
	}
	v := Value{Data: r.data, Version: Version(r.version)}
	if r.expires != 0 {
		v.Expires = time.UnixMicro(r.expires)
	}
	return v, nil
}

// cloneBytes returns a copy of raw that is never nil.
func cloneBytes(raw sql.RawBytes) []byte { return append([]byte{}, raw...) }

// scanAll calls scan for each row and closes rows.
func scanAll(rows *sql.Rows, err error, scan func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := scan(rows); err != nil {
			_ = rows.Close()
			return err
		}
	}
	return cmp.Or(rows.Err(), rows.Close())
}

// A fileReader has the read-only connections to a file. It opens few of them, and closes idle ones.
type fileReader struct{ *sql.DB }

// query runs a query and calls scan for each row.
func (r fileReader) query(ctx context.Context, scan func(*sql.Rows) error, text string, args ...any) error {
	rows, err := r.QueryContext(ctx, text, args...)
	return scanAll(rows, err, scan)
}

// withReads runs one call that changes nothing.
func (f *File) withReads(ctx context.Context, use func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	if lost := f.replaced.Load(); lost != nil {
		return f.wrapError(lost)
	}
	// A context that can end costs a goroutine for each statement. These statements are short.
	return f.wrapError(use(context.WithoutCancel(ctx)))
}

// Value implements Store.
func (f *File) Value(ctx context.Context, k Key) (v Value, err error) {
	if err := k.check(); err != nil {
		return Value{}, err
	}
	err = f.withReads(ctx, func(ctx context.Context) error {
		return f.reads.query(ctx, func(rows *sql.Rows) error {
			var r valueRow
			var data sql.RawBytes
			if err := rows.Scan(&r.version, &r.expires, &r.sum, &data); err != nil {
				return err
			}
			r.data = cloneBytes(data)
			v, err = r.value(k, time.Now())
			return err
		}, `SELECT version, expires, sum, data FROM value WHERE grp = ? AND name = ?`, k.Group, k.Name)
	})
	return v, err
}

// List implements Store.
func (f *File) List(ctx context.Context, group string) (all []NamedValue, err error) {
	if err := checkName("a group", group); err != nil {
		return nil, err
	}
	now := time.Now()
	err = f.withReads(ctx, func(ctx context.Context) error {
		return f.reads.query(ctx, func(rows *sql.Rows) error {
			var r valueRow
			var name string
			var data sql.RawBytes
			if err := rows.Scan(&name, &r.version, &r.expires, &r.sum, &data); err != nil {
				return err
			}
			r.data = cloneBytes(data)
			v, err := r.value(Key{group, name}, now)
			if v.Version != 0 {
				all = append(all, NamedValue{name, v})
			}
			return err
		}, `SELECT name, version, expires, sum, data FROM value
			WHERE grp = ? AND (expires = 0 OR expires > ?) ORDER BY name LIMIT ?`, group, now.UnixMicro(), MaxEntries)
	})
	return all, err
}

// Apply implements Store.
func (f *File) Apply(ctx context.Context, c Change) (Version, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	r := fileChange{durable: c.Durable, expiring: len(c.Writes)}
	writes := make([]Write, len(c.Writes))
	for i, w := range c.Writes {
		w.Data = bytes.Clone(w.Data) // the caller may return before it is written, and reuse it
		r.size += len(w.Data)
		writes[i] = w
	}
	var made Version
	r.apply = func(tx *fileTransaction) error {
		now := time.Now()
		for _, w := range writes {
			var was Version
			if err := tx.query(func(rows *sql.Rows) error {
				var version, expires int64
				err := rows.Scan(&version, &expires)
				if expires == 0 || expires > now.UnixMicro() {
					was = Version(version)
				}
				return err
			}, `SELECT version, expires FROM value WHERE grp = ? AND name = ?`, c.Group, w.Name); err != nil {
				return err
			}
			if !w.mayReplace(was) {
				return fmt.Errorf("%s/%s: %w", c.Group, w.Name, ErrConflict)
			}
		}
		made = newVersion()
		for _, w := range writes {
			if w.Data == nil {
				if err := tx.exec(`DELETE FROM value WHERE grp = ? AND name = ?`, c.Group, w.Name); err != nil {
					return err
				}
				continue
			}
			value := Value{Data: w.Data, Version: made}
			if w.TTL > 0 {
				value.Expires = now.Add(w.TTL)
			}
			if err := tx.putValue(Key{c.Group, w.Name}, value); err != nil {
				return err
			}
		}
		return nil
	}
	if err := f.submit(ctx, &r); err != nil {
		return 0, err
	}
	return made, nil
}

func (tx *fileTransaction) putValue(k Key, v Value) error {
	r := newValueRow(k, v)
	return tx.exec(`INSERT INTO value (grp, name, version, expires, sum, data) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (grp, name) DO UPDATE SET version = excluded.version, expires = excluded.expires, sum = excluded.sum, data = excluded.data`,
		k.Group, k.Name, r.version, r.expires, r.sum, r.data)
}

// Take implements Store.
func (f *File) Take(ctx context.Context, group string, want Want, limits ...Limit) (got int, wait time.Duration, err error) {
	if err := checkTake(group, want, limits); err != nil {
		return 0, 0, err
	}
	r := fileChange{expiring: len(limits)}
	var took struct { // the writer may set it after the caller has returned
		n    int
		wait time.Duration
	}
	r.apply = func(tx *fileTransaction) error {
		was := make([]limitState, len(limits))
		for i, l := range limits {
			if err := tx.query(func(rows *sql.Rows) (err error) {
				was[i], err = scanMeter(rows, Key{group, l.Name})
				return err
			}, `SELECT whole, sum FROM meter WHERE grp = ? AND name = ?`, group, l.Name); err != nil {
				return err
			}
		}
		var next []limitState
		next, took.n, took.wait = takeFromLimits(was, limits, want, time.Now().UnixMicro())
		for i, l := range limits {
			if next[i] == was[i] {
				continue
			}
			if err := tx.putLimit(group, l.Name, next[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := f.submit(ctx, &r); err != nil {
		return 0, 0, err
	}
	return took.n, took.wait, nil
}

func (tx *fileTransaction) putLimit(group, name string, m limitState) error {
	return tx.exec(`INSERT INTO meter (grp, name, whole, sum) VALUES (?, ?, ?, ?)
		ON CONFLICT (grp, name) DO UPDATE SET whole = excluded.whole, sum = excluded.sum`,
		group, name, m.fullAt, m.checksum(Key{group, name}))
}

func (m limitState) checksum(k Key) int64 {
	return checksum([]byte(k.Group+"\x00"+k.Name), uint64(m.fullAt))
}

// scanMeter reads the columns whole and sum.
func scanMeter(rows *sql.Rows, k Key) (limitState, error) {
	var m limitState
	var sum int64
	if err := rows.Scan(&m.fullAt, &sum); err != nil {
		return limitState{}, err
	}
	if sum != m.checksum(k) {
		return limitState{}, damagedError("the limit %q of %q", k.Name, k.Group)
	}
	return m, nil
}

// Append implements Store.
func (f *File) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	if err := checkAppend(log, entries); err != nil {
		return err
	}
	r := fileChange{durable: true}
	own := make([]Entry, len(entries))
	whole := bytes.Join(entries, nil) // a copy: the caller may return before they are written
	for i, e := range entries {
		own[i] = Entry{after + 1 + uint64(i), whole[r.size : r.size+len(e)]}
		r.size += len(e)
	}
	r.apply = func(tx *fileTransaction) error {
		id, s, err := tx.readSpan(log)
		switch {
		case err != nil:
			return err
		case s.Last != after:
			return fmt.Errorf("log %s ends with %d, not %d: %w", log, s.Last, after, ErrConflict)
		case s.Last+uint64(len(own)) >= entriesOfLog:
			return fmt.Errorf("%w: more entries of one log than %d", ErrInvalid, int64(entriesOfLog))
		case id == 0:
			if id, err = tx.newLog(log, s); err != nil {
				return err
			}
		}
		if err := tx.putEntries(id, own); err != nil {
			return err
		}
		s.Last += uint64(len(own))
		return tx.setSpan(id, log, s)
	}
	return f.submit(ctx, &r)
}

// readSpan returns the id and the span of the log; id is 0 if there is no such log.
func (tx *fileTransaction) readSpan(log string) (id int64, s Span, err error) {
	s = Span{1, 0}
	err = tx.query(func(rows *sql.Rows) error {
		id, s, err = scanSpan(rows, log)
		return err
	}, selectSpan, log)
	return id, s, err
}

const selectSpan = `SELECT id, first, last, sum FROM log WHERE name = ?`

// scanSpan reads the columns id, first, last and sum.
func scanSpan(rows *sql.Rows, log string) (id int64, s Span, err error) {
	var sum int64
	if err := rows.Scan(&id, &s.First, &s.Last, &sum); err != nil {
		return 0, Span{}, err
	}
	if sum != s.checksum(log) {
		return 0, Span{}, damagedError("the end of log %s", log)
	}
	return id, s, nil
}

func (s Span) checksum(log string) int64 { return checksum([]byte(log), s.First, s.Last) }

func (tx *fileTransaction) newLog(name string, s Span) (id int64, err error) {
	err = tx.query(func(rows *sql.Rows) error { return rows.Scan(&id) },
		`INSERT INTO log (name, first, last, sum) VALUES (?, ?, ?, ?) RETURNING id`, name, int64(s.First), int64(s.Last), s.checksum(name))
	return id, err
}

func (tx *fileTransaction) setSpan(id int64, log string, s Span) error {
	return tx.exec(`UPDATE log SET first = ?, last = ?, sum = ? WHERE id = ?`, int64(s.First), int64(s.Last), s.checksum(log), id)
}

// putEntries inserts the entries of a log.
func (tx *fileTransaction) putEntries(log int64, entries []Entry) error {
	for len(entries) > 0 {
		id, n := log*entriesOfLog+int64(entries[0].Seq), entriesPerRow(entries)
		data, sizes := entries[0].Data, []byte(nil) // a single entry needs no sizes
		if n > 1 {
			data, sizes = tx.rowData[:0], tx.rowSizes[:0]
			for _, e := range entries[:n] {
				data = append(data, e.Data...)
				sizes = binary.AppendUvarint(sizes, uint64(len(e.Data)))
			}
			tx.rowData, tx.rowSizes = data, sizes
		}
		if err := tx.exec(`INSERT INTO entry (id, sum, data, sizes) VALUES (?, ?, ?, ?)`, id, entryRowSum(id, data, sizes), data, sizes); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// entriesPerRow returns how many of the entries go into one row.
func entriesPerRow(entries []Entry) (n int) {
	size := 0
	for n < len(entries) && size+len(entries[n].Data) <= maxRowBytes && entries[n].Seq == entries[0].Seq+uint64(n) {
		size += len(entries[n].Data)
		n++
	}
	if size < minRowBytes {
		return 1
	}
	return n
}

// entryRowSum returns the checksum of a row of entries.
func entryRowSum(id int64, data, sizes []byte) int64 {
	return int64(crc32.Update(uint32(checksum(data, uint64(id))), castagnoli, sizes)) //nolint:gosec // a checksum has 32 bits
}

// Read implements Store.
func (f *File) Read(ctx context.Context, log string, after uint64, limit int) (all []Entry, err error) {
	if err := checkName("a log", log); err != nil {
		return nil, err
	}
	limit = min(limit, MaxEntries)
	if after >= entriesOfLog || limit <= 0 {
		return nil, f.withReads(ctx, func(context.Context) error { return nil })
	}
	size := 0
	err = f.withReads(ctx, func(ctx context.Context) error {
		return f.reads.inTransaction(ctx, func(tx *sql.Tx) error {
			id, span, err := txSpan(ctx, tx, log)
			if err != nil || span.Last <= after {
				return err
			}
			begin := max(after+1, span.First)
			next := begin
			rows, err := tx.QueryContext(ctx, `SELECT id, sum, data, sizes FROM entry
				WHERE id >= (SELECT max(id) FROM entry WHERE id >= ?1 AND id <= ?1 + ?2) AND id <= ?1 + ?3 ORDER BY id LIMIT ?4`,
				id*entriesOfLog, int64(begin), int64(span.Last), limit)
			err = scanAll(rows, err, func(rows *sql.Rows) error {
				return scanEntries(rows, func(e Entry) error {
					switch {
					case e.Seq < begin: // it is in the same row as begin
						return nil
					case e.Seq != next:
						return damagedError("entry %d of log %s", next, log)
					}
					if size += len(e.Data); len(all) == limit || size > maxRead && len(all) > 0 {
						return errEnough
					}
					all = append(all, Entry{e.Seq, cloneBytes(e.Data)})
					next++
					return nil
				})
			})
			if err == nil && next <= span.Last && len(all) < limit {
				return damagedError("entry %d of log %s", next, log)
			}
			return err
		})
	})
	return all, err
}

func txSpan(ctx context.Context, tx *sql.Tx, log string) (id int64, s Span, err error) {
	s = Span{1, 0}
	rows, err := tx.QueryContext(ctx, selectSpan, log)
	err = scanAll(rows, err, func(rows *sql.Rows) (err error) {
		id, s, err = scanSpan(rows, log)
		return err
	})
	return id, s, err
}

// errEnough ends a read early. It is no failure.
var errEnough = errors.New("enough")

// scanEntries reads the columns id, sum, data and sizes, and calls see with each entry of the row. The
// entry's data is valid only during see.
func scanEntries(rows *sql.Rows, see func(Entry) error) error {
	var id, sum int64
	var data, sizes sql.RawBytes
	if err := rows.Scan(&id, &sum, &data, &sizes); err != nil {
		return err
	}
	e := Entry{Seq: uint64(id % entriesOfLog)}
	if sum != entryRowSum(id, data, sizes) {
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

// Span implements Store.
func (f *File) Span(ctx context.Context, log string) (Span, error) {
	s := Span{1, 0}
	if err := checkName("a log", log); err != nil {
		return Span{}, err
	}
	err := f.withReads(ctx, func(ctx context.Context) error {
		return f.reads.query(ctx, func(rows *sql.Rows) (err error) {
			_, s, err = scanSpan(rows, log)
			return err
		}, selectSpan, log)
	})
	if err != nil {
		return Span{}, err
	}
	return s, nil
}

// Logs implements Store.
func (f *File) Logs(ctx context.Context) (names []string, err error) {
	err = f.withReads(ctx, func(ctx context.Context) error {
		return f.reads.query(ctx, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			names = append(names, name)
			return err
		}, `SELECT name FROM log ORDER BY name`)
	})
	return names, err
}

// trimAtOnce is how many entries Trim deletes in one transaction.
const trimAtOnce = 4096

// Trim implements Store.
func (f *File) Trim(ctx context.Context, log string, first uint64) error {
	if err := checkName("a log", log); err != nil {
		return err
	}
	for done := false; !done; {
		r := fileChange{apply: func(tx *fileTransaction) error {
			id, s, err := tx.readSpan(log)
			if err != nil {
				return err
			}
			next := min(first, s.Last+1, s.First+trimAtOnce)
			if done = id == 0 || next <= s.First; done {
				return nil
			}
			// A row is deleted with the last of its entries. The row with the entry next stays, if there is one.
			if err := tx.exec(`DELETE FROM entry WHERE id >= ?1 AND id < ?1 + ?2
				AND (?2 > ?3 OR id < (SELECT max(id) FROM entry WHERE id <= ?1 + ?2))`, id*entriesOfLog, int64(next), int64(s.Last)); err != nil {
				return err
			}
			s.First = next
			return tx.setSpan(id, log, s)
		}}
		if err := f.submit(ctx, &r); err != nil {
			return err
		}
	}
	return nil
}

// Publish implements Store. Only subscribers in this process get the notice.
func (f *File) Publish(ctx context.Context, topic string, data []byte) error {
	if err := cmp.Or(checkName("a topic", topic), checkSize("the bytes of a notice", len(data), MaxNotice)); err != nil {
		return err
	}
	return f.withReads(ctx, func(context.Context) error {
		f.notices.publish(topic, data)
		return nil
	})
}

// Subscribe implements Store.
func (f *File) Subscribe(topic string, heard func([]byte)) (stop func()) {
	return f.notices.subscribe(topic, heard)
}

// Status implements Store.
func (f *File) Status() Status {
	fault, since := f.fault.current()
	return Status{Kind: "file", Where: f.path, ID: f.id, Survives: "machine", Fault: fault, Since: since, Lost: fault != "" && f.replaced.Load() != nil}
}

// Close implements Store.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	close(f.changes)
	<-f.writerDone
	f.notices.close()
	err := f.reads.Close()
	openFiles.Lock()
	defer openFiles.Unlock()
	if openFiles.files[f.path]--; openFiles.files[f.path] == 0 {
		delete(openFiles.files, f.path)
	}
	return f.wrapError(err)
}

// fileSize returns the bytes of the file at path; 0 if there is no file.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return min(info.Size(), math.MaxInt64)
}
