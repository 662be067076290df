package record

import (
	"cmp"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options bound a Log. The zero value has the defaults.
type Options struct {
	MaxBytes     int64         // of all that is kept; 0 means DefaultMaxBytes
	MaxAge       time.Duration // of what is kept; 0 means DefaultMaxAge
	SegmentBytes int64         // of one file of the log; 0 means 4 MiB
	Queue        int           // how many records may wait to be written; 0 means 1024

	Log *slog.Logger // nil means none

	create func(name string) (file, error) // nil means createFile
}

// The default bounds.
const (
	DefaultMaxBytes = 256 << 20
	DefaultMaxAge   = 30 * 24 * time.Hour

	defaultSegmentBytes = 4 << 20
	defaultQueue        = 1024

	// again is after what time the same is recorded again, so that what is
	// decided all the time is in every part of the log; a file of it is not
	// appended to for longer.
	again = 24 * time.Hour

	maxKnown  = 1 << 16          // of whom is remembered what was recorded last
	hush      = time.Minute      // between two words in the log on the same trouble
	lastWait  = 5 * time.Second  // for the disk, when closing
	tempLives = time.Hour        // of a file that somebody may still be writing
	blockSize = 4 << 10          // what a small file takes
	tempName  = ".writing-*.tmp" // of an archive that is not whole yet
)

// A file is what is written to.
type file interface {
	io.WriteCloser
	Sync() error
	Truncate(size int64) error
}

// A Log writes records. Use New. It is safe for concurrent use.
type Log struct {
	dir   string
	o     Options
	done  chan struct{}
	known map[string]known // by Entry.Of

	current file
	name    string // of current, within dir
	begun   time.Time
	size    int64 // of current
	total   int64 // of all, as far as it is known

	mu     sync.Mutex
	queue  chan func() Record // nil once closed
	status Status
	spoken time.Time // of the last word in the log
}

type known struct {
	same string
	when time.Time
}

// A Record is an entry, and what it refers to: the archives by the names in
// Entry.Archives.
type Record struct {
	Entry
	Texts map[string]Archive
}

// Status says how recording goes.
type Status struct {
	Folder  string `json:"folder"`
	Written int    `json:"written"`
	Lost    int    `json:"lost"`            // what could not be written, or not soon enough
	Fault   string `json:"fault,omitempty"` // why nothing can be written now
}

// New returns a Log in the folder, which is made where it is not there. That it
// cannot be is said in the log and in Status, and tried again with each record.
func New(dir string, o Options) *Log {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, defaultSegmentBytes)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.create == nil {
		o.create = createFile
	}
	l := &Log{
		dir: dir, o: o, done: make(chan struct{}), known: map[string]known{},
		queue: make(chan func() Record, cmp.Or(o.Queue, defaultQueue)), status: Status{Folder: dir},
	}
	go l.run(l.queue)
	return l
}

// Add has make called soon, on another goroutine, and writes what it returns,
// unless that says what was recorded of the same already. It does not wait. A nil
// Log takes nothing.
func (l *Log) Add(make func() Record) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return
	}
	select {
	case l.queue <- make:
	default:
		l.lost("decisions are made faster than they are written", nil)
	}
}

// Close writes what waits, unless the disk takes too long, and ends the Log.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if l.queue != nil {
		close(l.queue)
		l.queue = nil
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(lastWait):
	}
}

// Status says how it goes. That of a nil Log is nil.
func (l *Log) Status() *Status {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	return &s
}

// lost counts a record that is not written, and says so. The caller holds l.mu.
func (l *Log) lost(why string, err error) {
	l.status.Lost++
	if err != nil {
		l.status.Fault = err.Error()
	}
	if now := time.Now(); now.Sub(l.spoken) >= hush {
		l.spoken = now
		l.o.Log.Error("decisions are not recorded, so policy diff will not know them: "+why, "folder", l.dir, "lost", l.status.Lost, "err", err)
	}
}

// written notes how writing a record ended.
func (l *Log) written(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.lost("the folder cannot be written to", err)
		return
	}
	l.status.Written++
	if l.status.Fault != "" {
		l.o.Log.Info("decisions are recorded again", "folder", l.dir, "lost", l.status.Lost)
		l.status.Fault, l.spoken = "", time.Time{}
	}
}

// run is the goroutine that writes.
func (l *Log) run(queue <-chan func() Record) {
	defer close(l.done)
	if err := l.prepare(); err != nil {
		l.mu.Lock()
		l.status.Fault, l.spoken = err.Error(), time.Now()
		l.mu.Unlock()
		l.o.Log.Error("decisions cannot be recorded, so policy diff will not know them; name another folder with --data", "folder", l.dir, "err", err)
	}
	for make := range queue {
		r := make()
		was, ok := l.known[r.Of]
		if ok && was.same == string(r.Same) && r.Time.Sub(was.when) < again {
			continue
		}
		err := l.write(&r)
		if err == nil && len(queue) == 0 {
			err = l.current.Sync()
		}
		if err == nil {
			l.know(&r.Entry)
			if l.total > l.o.MaxBytes {
				err = l.prune()
			}
		}
		l.written(err)
	}
	l.rotate()
}

func (l *Log) know(e *Entry) {
	if len(l.known) >= maxKnown {
		clear(l.known) // some are written once more
	}
	l.known[e.Of] = known{string(e.Same), e.Time}
}

// prepare makes the folders, drops what is too old, and learns what the process
// before recorded last: a client may start one for each session.
func (l *Log) prepare() error {
	for _, sub := range []string{logDir, archiveDir} {
		if err := os.MkdirAll(filepath.Join(l.dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := l.prune(); err != nil {
		return err
	}
	names, err := segments(l.dir)
	if err != nil || len(names) == 0 {
		return err
	}
	_, err = readSegment(filepath.Join(l.dir, logDir, names[len(names)-1]), func(e Entry) { l.know(&e) })
	return err
}

// write writes the record behind what it refers to.
func (l *Log) write(r *Record) error {
	line, err := r.line()
	if err != nil {
		return err
	}
	for _, a := range r.Texts {
		if err := l.keep(a); err != nil {
			return err
		}
	}
	if err := l.segment(r.Time, int64(len(line))); err != nil {
		return err
	}
	if _, err := l.current.Write(line); err != nil {
		// Nothing may stand behind half a line.
		err = errors.Join(err, l.current.Truncate(l.size))
		l.rotate()
		return err
	}
	l.size += int64(len(line))
	l.total += int64(len(line))
	return nil
}

// segment sees to it that there is a file of the log to which n bytes can be
// appended.
func (l *Log) segment(now time.Time, n int64) error {
	if l.current != nil {
		_, err := os.Stat(filepath.Join(l.dir, l.name)) // another process may have dropped it
		if err == nil && l.size+n <= l.o.SegmentBytes && now.Sub(l.begun) < again {
			return nil
		}
		l.rotate()
		if err := l.prune(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(l.dir, logDir), 0o700); err != nil {
		return err
	}
	name := filepath.Join(logDir, now.UTC().Format(segmentLayout)+"-"+strings.ToLower(rand.Text()[:8])+logExt)
	f, err := l.o.create(filepath.Join(l.dir, name))
	if err != nil {
		return err
	}
	l.current, l.name, l.begun, l.size = f, name, now, 0
	return nil
}

// rotate ends the file that is being written to.
func (l *Log) rotate() {
	if l.current == nil {
		return
	}
	_ = l.current.Sync()  // what can be done about it is done with the next record
	_ = l.current.Close() // likewise
	l.current = nil
	if l.size == 0 {
		_ = os.Remove(filepath.Join(l.dir, l.name)) // it is in the way of nobody
	}
}

// keep stores a text, or notes that it is still referred to.
func (l *Log) keep(a Archive) error {
	name := archiveFile(l.dir, a.Digest)
	now := time.Now()
	if os.Chtimes(name, now, now) == nil {
		return nil
	}
	folder := filepath.Dir(name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, tempName)
	if err != nil {
		return err
	}
	n, err := pack(f, a.Data())
	if err == nil {
		err = os.Chtimes(f.Name(), now, now) // the system's own clock for files is behind
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // or prune does
		return err
	}
	l.total += n
	return syncFolder(folder)
}

// pack writes the text to f, and closes that when it is on the disk.
func pack(f *os.File, text []byte) (n int64, err error) {
	z := gzip.NewWriter(f)
	_, err = z.Write(text)
	err = errors.Join(err, z.Close(), f.Sync())
	if info, failed := f.Stat(); failed == nil {
		n = info.Size()
	}
	return n, errors.Join(err, f.Close())
}

func syncFolder(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func createFile(name string) (file, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
}

// prune drops the oldest files of the log, until what is left is as young and as
// small as it has to be, and the archives that only they referred to.
func (l *Log) prune() error {
	names, err := segments(l.dir)
	if err != nil {
		return err
	}
	logs, err := list(filepath.Join(l.dir, logDir))
	if err != nil {
		return err
	}
	archives, err := list(filepath.Join(l.dir, archiveDir))
	if err != nil {
		return err
	}
	l.total = 0
	for _, i := range logs {
		l.total += max(i.Size(), blockSize)
	}
	for _, i := range archives {
		l.total += max(i.Size(), blockSize)
	}
	tooOld := time.Now().Add(-l.o.MaxAge)
	dropped := false
	for len(names) > 0 && (l.total > l.o.MaxBytes || logs[names[0]] != nil && logs[names[0]].ModTime().Before(tooOld)) {
		oldest := names[0]
		names, dropped = names[1:], true
		if filepath.Join(logDir, oldest) == l.name {
			l.rotate()
		}
		if err := l.drop(filepath.Join(logDir, oldest), logs[oldest]); err != nil {
			return err
		}
		needed := time.Now()
		if len(names) > 0 {
			needed, _ = began(names[0])
		}
		for name, i := range archives {
			if i.ModTime().Before(needed) && (filepath.Ext(name) == archiveExt || time.Since(i.ModTime()) > tempLives) {
				if err := l.drop(filepath.Join(archiveDir, name), i); err != nil {
					return err
				}
				delete(archives, name)
			}
		}
	}
	if dropped {
		clear(l.known) // what is decided all the time is recorded anew
	}
	return nil
}

func (l *Log) drop(name string, i fs.FileInfo) error {
	if i != nil {
		l.total -= max(i.Size(), blockSize)
	}
	if err := os.Remove(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// list returns the files of a folder, which may be absent, by name.
func list(folder string) (map[string]fs.FileInfo, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]fs.FileInfo{}
	for _, e := range entries {
		if i, err := e.Info(); err == nil { // else it has gone meanwhile
			out[e.Name()] = i
		}
	}
	return out, nil
}
