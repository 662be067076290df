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
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// File is a Store in an SQLite file and, for the logs, in a folder beside it. Several processes can open the same
// file, and the contract holds across them, except for notices: they reach only the subscribers of the process
// that publishes them. Use OpenFile.
//
// All changes of values, limits and accounts go through one goroutine. It makes all waiting changes in one transaction,
// with one wait for the disk. Appends do not wait for it, nor for appends to other logs.
type File struct {
	fileAccounts
	path       string
	id         string // from the file's mark
	log        *slog.Logger
	glance     bool // see FileOptions
	notices    noticeHub
	reads      fileReader
	changes    chan *fileChange
	writerDone chan struct{} // closed when fileWriter has ended

	mu     sync.RWMutex // calls in flight hold it for reading, Close holds it for writing
	closed bool

	logs     fileLogs
	fault    fileFault
	parts    fileParts
	replaced atomic.Pointer[replacedError] // nil while it is the file that was opened
}

// FileOptions are the options of OpenFile. The zero value works.
type FileOptions struct {
	Log *slog.Logger // nil means no log

	// Glance opens a file only to read from it at once. The file is not made, migrated or checked; one that would have to
	// be migrated is refused.
	Glance bool
}

// maxRead is how many bytes Read returns at most, unless the first entry alone has more.
const maxRead = 16 << 20

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
type fileReader struct {
	*sql.DB

	mu    sync.Mutex
	stmts map[string]*sql.Stmt // by text: to prepare a statement takes as long as to read some rows
}

// query runs a query and calls scan for each row. text is one of a few: its statement is kept.
func (r *fileReader) query(ctx context.Context, scan func(*sql.Rows) error, text string, args ...any) error {
	s, err := r.stmt(ctx, text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, args...)
	return scanAll(rows, err, scan)
}

// stmt returns the statement of the text, for all connections.
func (r *fileReader) stmt(ctx context.Context, text string) (*sql.Stmt, error) {
	r.mu.Lock()
	s := r.stmts[text]
	r.mu.Unlock()
	if s != nil {
		return s, nil
	}
	made, err := r.PrepareContext(ctx, text) // without the lock: it may wait for a connection
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.stmts[text]; s != nil { // another call was faster
		return s, made.Close()
	}
	if r.stmts == nil {
		r.stmts = map[string]*sql.Stmt{}
	}
	r.stmts[text] = made
	return made, nil
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
	c.Writes, r.size = cloneWrites(c.Writes)
	var made Version
	r.apply = func(tx *fileTransaction) (err error) {
		made, err = tx.change(&c, time.Now())
		return err
	}
	if err := f.submit(ctx, &r); err != nil {
		return 0, err
	}
	return made, nil
}

// cloneWrites copies what the caller may reuse before it is written. size is the number of its bytes.
func cloneWrites(all []Write) (writes []Write, size int) {
	writes = slices.Clone(all)
	for i := range writes {
		writes[i].Data = bytes.Clone(writes[i].Data)
		size += len(writes[i].Data)
	}
	return writes, size
}

// change makes the change at now, and returns the new version. After ErrConflict, it has changed nothing.
func (tx *fileTransaction) change(c *Change, now time.Time) (made Version, err error) {
	for _, w := range c.Writes {
		var was Version
		if err := tx.query(func(rows *sql.Rows) error {
			var version, expires int64
			err := rows.Scan(&version, &expires)
			if expires == 0 || expires > now.UnixMicro() {
				was = Version(version)
			}
			return err
		}, `SELECT version, expires FROM value WHERE grp = ? AND name = ?`, c.Group, w.Name); err != nil {
			return 0, err
		}
		if !w.mayReplace(was) {
			return 0, fmt.Errorf("%s/%s: %w", c.Group, w.Name, ErrConflict)
		}
	}
	made = newVersion()
	for _, w := range c.Writes {
		if w.Data == nil {
			if err := tx.exec(`DELETE FROM value WHERE grp = ? AND name = ?`, c.Group, w.Name); err != nil {
				return 0, err
			}
			continue
		}
		value := Value{Data: w.Data, Version: made}
		if w.TTL > 0 {
			value.Expires = now.Add(w.TTL)
		}
		if err := tx.putValue(Key{c.Group, w.Name}, value); err != nil {
			return 0, err
		}
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
	if fault == "" {
		fault, since = f.logs.fault.current()
	}
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
	err := errors.Join(f.logs.close(), f.reads.Close())
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
