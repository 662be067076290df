package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/store/segment"
)

// fileLogs are the logs of a File. Each has a folder in the folder PATH-logs; see package segment. The table log
// of the file says which logs there are.
type fileLogs struct {
	file *File
	mu   sync.Mutex
	open map[string]*segment.Log

	fault   fileFault
	failed  atomic.Pointer[segment.Log] // the last Append to this log failed
	probing atomic.Bool
}

// logsFolder returns the folder of all logs of the file at path.
func logsFolder(path string) string { return path + "-logs" }

// A logRow is a row of the table of logs.
type logRow struct {
	name   string
	folder string // in the folder of all logs
	mark   string // random; in each segment of the log
}

func (r *logRow) checksum() int64 {
	return checksum([]byte(r.name + "\x00" + r.folder + "\x00" + r.mark))
}

// owner returns what is written into each segment, so that no log is taken for another one.
func (r *logRow) owner() string { return r.mark + " " + r.name }

const selectLogs = `SELECT name, folder, mark, sum FROM log`

// scanLog reads the columns of selectLogs.
func scanLog(rows *sql.Rows) (r logRow, err error) {
	var sum int64
	if err := rows.Scan(&r.name, &r.folder, &r.mark, &sum); err != nil {
		return logRow{}, err
	}
	if sum != r.checksum() || filepath.Base(r.folder) != r.folder {
		return r, damagedError("the row of log %s", r.name)
	}
	return r, nil
}

// insert inserts the row.
func (r *logRow) insert(tx *fileTransaction) error {
	return tx.exec(`INSERT INTO log (name, folder, mark, sum) VALUES (?, ?, ?, ?)`, r.name, r.folder, r.mark, r.checksum())
}

// makeLog makes the folder of a new log, whose first entry will have the number first. Its caller has begun a
// transaction that writes, so no other process makes a log.
func (o *fileLogs) makeLog(name string, first uint64) (r logRow, l *segment.Log, err error) {
	dir := logsFolder(o.file.path)
	switch err := ownfile.MakeFolder(dir); {
	case err == nil:
		if err := ownfile.SyncFolder(filepath.Dir(dir)); err != nil {
			return r, nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return r, nil, err
	}
	r = logRow{name: name, mark: rand.Text()}
	for n := 1; ; n++ {
		if r.folder = folderName(name); n > 1 { // the first one is of a log that this file does not know
			r.folder += fmt.Sprintf("~%d", n)
		}
		path := filepath.Join(dir, r.folder)
		if !segment.HasEntries(path) { // an interrupted makeLog has left it
			if err := os.RemoveAll(path); err != nil {
				return r, nil, err
			}
		}
		l, err = segment.Create(path, r.owner(), first, segment.Options{})
		if !errors.Is(err, fs.ErrExist) {
			return r, l, err
		}
	}
}

// folderName returns the name of a log's folder. It is for people, and differs for different logs, also where
// capital letters do not count.
func folderName(log string) string {
	var b strings.Builder
	for _, c := range []byte(log) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && b.Len() > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	const most = 150
	if b.Len() <= most {
		return b.String()
	}
	sum := sha256.Sum256([]byte(log))
	return b.String()[:most] + "~" + hex.EncodeToString(sum[:16])
}

// find returns the log of that name; nil if there is none.
func (o *fileLogs) find(ctx context.Context, name string) (*segment.Log, error) {
	o.mu.Lock()
	l := o.open[name]
	o.mu.Unlock()
	if l != nil {
		return l, nil
	}
	var row logRow
	if err := o.file.reads.query(context.WithoutCancel(ctx), func(rows *sql.Rows) (err error) {
		row, err = scanLog(rows)
		return err
	}, selectLogs+` WHERE name = ?`, name); err != nil || row.name == "" {
		return nil, err
	}
	return o.openRow(ctx, row)
}

// openRow returns the log of the row.
func (o *fileLogs) openRow(ctx context.Context, row logRow) (*segment.Log, error) {
	l, err := segment.Open(ctx, filepath.Join(logsFolder(o.file.path), row.folder), row.owner(), segment.Options{})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if first := o.open[row.name]; first != nil { // another goroutine has opened it
		_ = l.Close()
		return first, nil
	}
	if o.open == nil {
		o.open = map[string]*segment.Log{}
	}
	o.open[row.name] = l
	return l, nil
}

// close closes all logs.
func (o *fileLogs) close() (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.open {
		err = errors.Join(err, l.Close())
	}
	o.open = nil
	return err
}

// withLog runs one call that needs the log of that name, which is nil if there is none.
func (f *File) withLog(ctx context.Context, name string, use func(*segment.Log) error) error {
	if err := checkName("a log", name); err != nil {
		return err
	}
	return f.withReads(ctx, func(context.Context) error {
		l, err := f.logs.find(ctx, name)
		if err != nil {
			return err
		}
		return use(l)
	})
}

// Append implements Store.
func (f *File) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	if err := checkAppend(log, entries); err != nil {
		return err
	}
	for {
		found := false
		err := f.withLog(ctx, log, func(l *segment.Log) error {
			switch found = l != nil; {
			case found:
				return f.logs.appendTo(ctx, l, after, entries)
			case after > 0:
				return fmt.Errorf("there is no log %s, so it does not end with %d: %w", log, after, ErrConflict)
			}
			return nil
		})
		if found || err != nil {
			return err
		}
		if err := f.logs.create(ctx, log); err != nil {
			return err
		}
	}
}

// appendTo appends to the log, and records whether the disk takes what is written.
func (o *fileLogs) appendTo(ctx context.Context, l *segment.Log, after uint64, entries [][]byte) error {
	hang := time.AfterFunc(hangAfter, func() {
		o.failed.Store(l)
		o.fault.record(errDiskHangs, o.file.path, o.file.log)
	})
	err := l.Append(ctx, after, entries...)
	hang.Stop()
	if errors.Is(err, segment.ErrReplaced) { // perhaps with the whole store
		if lost := o.file.checkFiles(); lost != nil {
			o.file.fault.record(lost, o.file.path, o.file.log)
			return lost
		}
	}
	switch {
	case errors.Is(err, segment.ErrConflict):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, segment.ErrBusy):
		return err
	case err != nil:
		o.failed.Store(l)
		o.fault.record(err, o.file.path, o.file.log)
	case o.failed.CompareAndSwap(l, nil):
		o.fault.record(nil, o.file.path, o.file.log)
	}
	return err
}

// create makes a log without entries, unless there is one of that name.
func (o *fileLogs) create(ctx context.Context, name string) error {
	return o.file.submit(ctx, &fileChange{durable: true, apply: func(tx *fileTransaction) error {
		found := false
		if err := tx.query(func(rows *sql.Rows) error {
			_, err := scanLog(rows)
			found = true
			return err
		}, selectLogs+` WHERE name = ?`, name); err != nil || found {
			return err
		}
		row, l, err := o.makeLog(name, 1)
		if err != nil {
			return err
		}
		_ = os.Remove(o.unfinished()) // of a loader that has ended
		return errors.Join(l.Close(), row.insert(tx))
	}})
}

// probe finds out whether a log that could not be written to can be written to again.
func (o *fileLogs) probe() {
	l := o.failed.Load()
	if l == nil || !o.probing.CompareAndSwap(false, true) {
		return
	}
	go func() { // the disk may hang
		defer o.probing.Store(false)
		if !o.file.mu.TryRLock() {
			return
		}
		defer o.file.mu.RUnlock()
		if o.file.closed {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), examineInterval)
		defer cancel()
		if l.Probe(ctx) == nil && o.failed.CompareAndSwap(l, nil) {
			o.fault.record(nil, o.file.path, o.file.log)
		}
	}()
}

// Read implements Store.
func (f *File) Read(ctx context.Context, log string, after uint64, limit int) (all []Entry, err error) {
	limit = min(limit, MaxEntries)
	err = f.withLog(ctx, log, func(l *segment.Log) (err error) {
		if l != nil && limit > 0 {
			all, err = collectEntries(limit, func(see func(segment.Entry) bool) error { return l.Read(ctx, after, see) })
		}
		return err
	})
	return all, err
}

// collectEntries returns up to limit entries that read sees. If they are trimmed meanwhile, it begins again with the
// first entry that is left.
func collectEntries(limit int, read func(see func(segment.Entry) bool) error) ([]Entry, error) {
	for {
		var all []Entry
		size := 0
		err := read(func(e segment.Entry) bool {
			if size += len(e.Data); size > maxRead && len(all) > 0 {
				return false
			}
			all = append(all, Entry{e.Seq, append([]byte{}, e.Data...)})
			return len(all) < limit
		})
		switch {
		case err == nil:
			return all, nil
		case !errors.Is(err, segment.ErrTrimmed):
			return nil, err
		}
	}
}

// Span implements Store.
func (f *File) Span(ctx context.Context, log string) (s Span, err error) {
	s = Span{1, 0}
	err = f.withLog(ctx, log, func(l *segment.Log) (err error) {
		if l != nil {
			s.First, s.Last, err = l.Span(ctx)
		}
		return err
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

// Trim implements Store.
func (f *File) Trim(ctx context.Context, log string, first uint64) error {
	return f.withLog(ctx, log, func(l *segment.Log) error {
		if l == nil {
			return nil
		}
		return l.Trim(ctx, first)
	})
}

// listFolders returns the folders in the folder of all logs.
func (o *fileLogs) listFolders() (folders []string, err error) {
	all, err := os.ReadDir(logsFolder(o.file.path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range all {
		if f.IsDir() {
			folders = append(folders, filepath.Join(logsFolder(o.file.path), f.Name()))
		}
	}
	return folders, nil
}

// unknownFolders returns the folders with entries that belong to no log. A log has a row before it has entries, so
// the rows are read last.
func (o *fileLogs) unknownFolders(ctx context.Context) (unknown []string, err error) {
	all, err := o.listFolders()
	if err != nil {
		return nil, err
	}
	for _, folder := range all {
		if segment.HasEntries(folder) {
			unknown = append(unknown, folder)
		}
	}
	known := map[string]bool{}
	err = o.file.reads.query(ctx, func(rows *sql.Rows) error {
		row, _ := scanLog(rows) // what is damaged is reported with the log
		known[row.folder] = true
		return nil
	}, selectLogs)
	return slices.DeleteFunc(unknown, func(folder string) bool { return known[filepath.Base(folder)] }), err
}
