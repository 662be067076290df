package segment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A Log is an open log. It is safe for concurrent use, also by several processes.
type Log struct {
	folder *folder
	turn   chan struct{} // holds one: the right to use writer
	writer writer
}

// A folder has the files of a log. It is safe for concurrent use.
type folder struct {
	disk      Disk
	path      string
	owner     string
	statePath string
	stateFile DiskFile

	mu    sync.Mutex
	bases []uint64 // the known segments, sorted
}

// Options are the options of Open and Create. The zero value works.
type Options struct {
	Disk Disk // nil means the file system of the machine

	segmentSize int64 // 0 means segmentSize
}

// lockTimeout is how long a writer waits for a writer in another process.
const lockTimeout = 5 * time.Second

// maxOwner is the most bytes of an owner.
const maxOwner = 4 << 10

// Create makes a log without entries in a new folder. Its first entry will have the number first. owner is
// written into each segment: Open refuses a log of another owner.
func Create(path, owner string, first uint64, o Options) (*Log, error) {
	if len(owner) > maxOwner || first == 0 {
		return nil, fmt.Errorf("a log that begins with entry %d, of an owner of %d bytes", first, len(owner))
	}
	l := newLog(path, owner, o)
	if err := l.folder.disk.MakeFolder(path); err != nil {
		return nil, err
	}
	var err error
	if l.folder.stateFile, err = l.folder.disk.OpenFile(l.folder.statePath, os.O_RDWR|os.O_CREATE|os.O_EXCL); err != nil {
		return nil, err
	}
	w := &l.writer
	w.state = state{first: first, last: first - 1, base: first, end: int64(segmentHeader + len(owner))}
	if err := w.startSegment(first, 0); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	err = l.folder.writeState(w.state)
	for _, sync := range []func() error{
		l.folder.stateFile.SyncData,
		func() error { return l.folder.disk.SyncFolder(path) },
		func() error { return l.folder.disk.SyncFolder(filepath.Dir(path)) },
	} {
		if err == nil {
			err = sync()
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// HasEntries reports whether the folder may hold entries of a log. The folder of an interrupted Create holds none.
func HasEntries(path string) bool {
	names, err := osDisk{}.List(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	for _, name := range names {
		base, ok := parseName(name)
		if !ok && name != stateFile {
			return true
		}
		if ok && !isBlank(filepath.Join(path, name), base) {
			return true
		}
	}
	return false
}

// isBlank reports whether nothing follows the header of the segment with entry base.
func isBlank(path string, base uint64) bool {
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	b := make([]byte, firstGrowth+1)
	n, err := file.ReadAt(b, 0)
	if !isEOF(err) {
		return false // it is larger than Create makes it, or cannot be read
	}
	b = b[:n]
	if len(b) >= segmentHeader {
		owner := int(binary.BigEndian.Uint16(b[segmentHeader-2:]))
		if header, _ := encodeHeader(string(b[segmentHeader:min(segmentHeader+owner, n)]), base, 0); bytes.HasPrefix(b, header) {
			b = b[len(header):]
		}
	}
	return len(bytes.Trim(b, "\x00")) == 0
}

// Open opens the log in the folder. It adopts the frames of an interrupted Append. It returns ErrDamaged if
// entries that were once stored are missing at the end, or if the last ones cannot be read.
func Open(ctx context.Context, path, owner string, o Options) (*Log, error) {
	l := newLog(path, owner, o)
	var err error
	if l.folder.stateFile, err = l.folder.disk.OpenFile(l.folder.statePath, os.O_RDWR); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, damaged(path, "it has no file %s; put the folder back as it was", stateFile)
		}
		return nil, err
	}
	if err := l.takeTurn(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	err = l.writer.recover()
	l.endTurn()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func newLog(path, owner string, o Options) *Log {
	d := &folder{disk: o.Disk, path: path, owner: owner, statePath: filepath.Join(path, stateFile)}
	if d.disk == nil {
		d.disk = osDisk{}
	}
	return &Log{folder: d, turn: make(chan struct{}, 1), writer: writer{folder: d, full: cmp.Or(o.segmentSize, segmentSize)}}
}

// file returns the path of a file of the log.
func (d *folder) file(name string) string { return filepath.Join(d.path, name) }

// Close closes the files, after the last Append has ended. The log must not be used afterwards.
func (l *Log) Close() error {
	l.turn <- struct{}{}
	err := l.folder.stateFile.Close()
	if l.writer.active != nil {
		err = errors.Join(err, l.writer.active.Close())
	}
	return err
}

// takeTurn takes the right to write, from other callers and other processes, and reads the state.
func (l *Log) takeTurn(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := l.lock(ctx)
	if err != nil {
		<-l.turn
		return err
	}
	s, err := l.folder.readState()
	if err == nil && s != l.writer.state {
		err = l.writer.follow(s)
	}
	if err != nil {
		l.endTurn()
	}
	return err
}

// lock takes the lock of the log.
func (l *Log) lock(ctx context.Context) error {
	for deadline := time.Now().Add(lockTimeout); ; {
		ok, err := l.folder.stateFile.TryLock()
		switch {
		case ok || err != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%s: %w for %s", l.folder.path, ErrBusy, lockTimeout)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) endTurn() {
	_ = l.folder.stateFile.Unlock() // it fails only for a closed file, which has no lock
	<-l.turn
}

// readState returns the present state, also while another process changes it.
func (l *Log) readState(ctx context.Context) (state, error) {
	for range 3 {
		if s, err := l.folder.readState(); err == nil || !errors.Is(err, ErrDamaged) {
			return s, err
		}
	}
	if err := l.takeTurn(ctx); err != nil { // it was being written, or it is damaged
		return state{}, err
	}
	defer l.endTurn()
	return l.writer.state, nil
}

func (d *folder) readState() (state, error) {
	var b [stateSize]byte
	if _, err := d.stateFile.ReadAt(b[:], 0); err != nil && !isEOF(err) {
		return state{}, err
	}
	s, ok := decodeState(b[:])
	if !ok {
		return state{}, damaged(d.statePath, "it is not what was written; put the folder back as it was")
	}
	return s, nil
}

func (d *folder) writeState(s state) error {
	_, err := d.stateFile.WriteAt(s.encode(), 0)
	return err
}

// Append appends the entries if after is the last entry, and returns when they are durable. ErrConflict says
// that after is not the last entry. If ctx ends first, or after any other error, it is unknown whether they
// are stored: all of them, or none.
func (l *Log) Append(ctx context.Context, after uint64, entries ...[]byte) error {
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	if last := l.writer.state.last; last != after {
		l.endTurn()
		return fmt.Errorf("%w: %d, not %d", ErrConflict, last, after)
	}
	p := l.writer.plan(entries)
	// The caller may stop waiting for the disk. The turn ends when the disk has answered.
	done := make(chan error, 1)
	go func() {
		err := l.writer.commit(&p, true)
		l.endTurn()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Load appends entries to a log that no other caller uses. They are durable after Flush.
func (l *Log) Load(entries ...[]byte) error {
	p := l.writer.plan(entries)
	return l.writer.commit(&p, false)
}

// Flush makes everything durable that Load has appended.
func (l *Log) Flush() error {
	return errors.Join(l.writer.active.SyncData(), l.folder.stateFile.SyncData())
}

// Probe finds out whether entries can be written again, after an Append has failed.
func (l *Log) Probe(ctx context.Context) error {
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	defer l.endTurn()
	w := &l.writer
	if err := w.checkPlace(); err != nil {
		return err // what would be written cannot be found again
	}
	if err := w.grow(max(w.size, w.state.end) + 1); err != nil {
		return err
	}
	return w.active.SyncData()
}

// Trim deletes the entries before first. Their bytes go with the last entry of their segment.
func (l *Log) Trim(ctx context.Context, first uint64) error {
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	s := l.writer.state
	s.first = max(s.first, min(first, s.last+1))
	err := l.folder.writeState(s)
	if err == nil {
		err = l.folder.stateFile.SyncData() // before segments go
	}
	if err == nil {
		l.writer.state = s
	}
	l.endTurn()
	if err != nil {
		return err
	}
	bases, err := l.folder.listSegments()
	if err != nil {
		return err
	}
	for i, base := range bases {
		if base == s.base || i+1 == len(bases) || bases[i+1] > s.first {
			break
		}
		if err := l.folder.disk.Remove(l.folder.file(segmentName(base))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_ = l.folder.disk.Remove(l.folder.file(indexName(base)))
	}
	l.folder.forgetSegments()
	return nil
}
