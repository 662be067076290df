package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
)

// errNoPower is the error of each use of a disk after its power was cut.
var errNoPower = errors.New("the power is cut")

// A cutDisk is a disk in memory that loses what was not synced when its power is cut.
type cutDisk struct {
	mu       sync.Mutex
	inodes   map[string]*inode // by path
	synced   map[string]*inode // the same, as the folders were synced
	uses     int               // left until the power is cut; negative: it never is
	oneFault bool              // only one use fails
	forgets  bool              // SyncData and SyncFolder do nothing
	bytesIn  int               // read
	hang     chan struct{}     // SyncData waits until it is closed
	locks    map[*inode]*cutFile
	noSpace  bool
	replaced bool // IsAt finds other files
}

// An inode is a file: its bytes now, those that are synced, and the writes since.
type inode struct {
	data, synced []byte
	writes       []unsynced
}

// An unsynced write put data at a place of a file. A write without data has truncated it.
type unsynced struct {
	at   int64
	data []byte
}

func newCutDisk() *cutDisk {
	return &cutDisk{inodes: map[string]*inode{}, synced: map[string]*inode{}, uses: -1, locks: map[*inode]*cutFile{}}
}

// use counts one use.
func (d *cutDisk) use() error {
	if d.uses == 0 {
		if d.oneFault {
			d.uses = -1
		}
		return errNoPower
	}
	d.uses--
	return nil
}

func (d *cutDisk) OpenFile(path string, flag int) (DiskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.use(); err != nil {
		return nil, err
	}
	n := d.inodes[path]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case n != nil && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrExist}
	case n == nil:
		n = &inode{}
		d.inodes[path] = n
	}
	f := &cutFile{disk: d, inode: n}
	if flag&os.O_TRUNC != 0 {
		n.truncate(0)
	}
	return f, nil
}

func (d *cutDisk) MakeFolder(string) error { return nil }

func (d *cutDisk) List(folder string) (names []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.use(); err != nil {
		return nil, err
	}
	for path := range d.inodes {
		if filepath.Dir(path) == folder {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (d *cutDisk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.use(); err != nil {
		return err
	}
	if d.inodes[path] == nil {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	delete(d.inodes, path)
	return nil
}

func (d *cutDisk) SyncFolder(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.use(); err != nil {
		return err
	}
	if !d.forgets {
		d.synced = maps.Clone(d.inodes)
	}
	return nil
}

// cut returns the disk as it may be when the power is back: each sector that was written and not synced is
// there or not, and so is each file whose folder was not synced.
func (d *cutDisk) cut(luck *rand.Rand) *cutDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := newCutDisk()
	for _, path := range slices.Sorted(maps.Keys(d.synced)) {
		after.inodes[path] = d.synced[path]
	}
	for _, path := range slices.Sorted(maps.Keys(d.inodes)) {
		if luck.IntN(2) == 0 {
			after.inodes[path] = d.inodes[path]
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after.inodes)) {
		data := after.inodes[path].afterCut(luck)
		after.inodes[path] = &inode{data: data, synced: slices.Clone(data)}
	}
	after.synced = maps.Clone(after.inodes)
	return after
}

const sector = 512

func (n *inode) afterCut(luck *rand.Rand) []byte {
	data := slices.Clone(n.synced)
	for _, w := range n.writes {
		if w.data == nil { // truncated
			if luck.IntN(2) == 0 {
				data = slices.Clone(data[:min(int64(len(data)), w.at)])
			}
			continue
		}
		for from := int64(0); from < int64(len(w.data)); {
			to := min(int64(len(w.data)), from+sector-(w.at+from)%sector)
			if luck.IntN(2) == 0 {
				if need := w.at + to - int64(len(data)); need > 0 {
					data = append(data, make([]byte, need)...)
				}
				copy(data[w.at+from:], w.data[from:to])
			}
			from = to
		}
	}
	return data
}

func (n *inode) truncate(size int64) {
	if size < int64(len(n.data)) {
		n.data = n.data[:size]
		n.writes = append(n.writes, unsynced{at: size})
	}
}

// A cutFile is an open file of a cutDisk.
type cutFile struct {
	disk  *cutDisk
	inode *inode
}

func (f *cutFile) lock() (func(), error) {
	f.disk.mu.Lock()
	return f.disk.mu.Unlock, f.disk.use()
}

func (f *cutFile) ReadAt(p []byte, at int64) (int, error) {
	unlock, err := f.lock()
	defer unlock()
	if err != nil {
		return 0, err
	}
	if at >= int64(len(f.inode.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.inode.data[at:])
	f.disk.bytesIn += n
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *cutFile) WriteAt(p []byte, at int64) (int, error) {
	unlock, err := f.lock()
	defer unlock()
	if err != nil {
		return 0, err
	}
	if f.disk.noSpace && at+int64(len(p)) > int64(len(f.inode.data)) {
		return 0, errors.New("no space")
	}
	if need := at + int64(len(p)) - int64(len(f.inode.data)); need > 0 {
		f.inode.data = append(f.inode.data, make([]byte, need)...)
	}
	copy(f.inode.data[at:], p)
	f.inode.writes = append(f.inode.writes, unsynced{at, slices.Clone(p)})
	return len(p), nil
}

func (f *cutFile) SyncData() error {
	f.disk.mu.Lock()
	hang := f.disk.hang
	f.disk.mu.Unlock()
	if hang != nil {
		<-hang
	}
	unlock, err := f.lock()
	defer unlock()
	if err == nil && !f.disk.forgets {
		f.inode.synced, f.inode.writes = slices.Clone(f.inode.data), nil
	}
	return err
}

func (f *cutFile) Truncate(size int64) error {
	unlock, err := f.lock()
	defer unlock()
	if err == nil {
		f.inode.truncate(size)
	}
	return err
}

func (f *cutFile) Size() (int64, error) {
	unlock, err := f.lock()
	defer unlock()
	return int64(len(f.inode.data)), err
}

func (f *cutFile) IsAt(path string) bool {
	unlock, err := f.lock()
	defer unlock()
	return err == nil && f.disk.inodes[path] == f.inode && !f.disk.replaced
}

func (f *cutFile) HasName() bool { return true }

func (f *cutFile) TryLock() (bool, error) {
	unlock, err := f.lock()
	defer unlock()
	if err != nil {
		return false, err
	}
	if owner := f.disk.locks[f.inode]; owner != nil && owner != f {
		return false, nil
	}
	f.disk.locks[f.inode] = f
	return true, nil
}

func (f *cutFile) Unlock() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	delete(f.disk.locks, f.inode)
	return nil
}

func (f *cutFile) Close() error { return nil }

// entryText is the text of an entry: it contains its own number, and tells two attempts apart.
func entryText(seq uint64, attempt int, size int) []byte {
	return fmt.Appendf(nil, "%d/%d %s", seq, attempt, strings.Repeat("x", size))
}

// checkEntries reads the whole log, and returns its last entry and what the entries are.
func checkEntries(l *Log) (first, last uint64, texts map[uint64]string, err error) {
	first, last, err = l.Span(context.Background())
	if err != nil {
		return 0, 0, nil, err
	}
	texts = map[uint64]string{}
	next := first
	err = l.Read(context.Background(), 0, func(e Entry) bool {
		if e.Seq != next {
			err = cmp.Or(err, fmt.Errorf("entry %d in place of %d", e.Seq, next))
		}
		next++
		texts[e.Seq] = string(e.Data)
		return true
	})
	if err == nil && next != last+1 {
		err = fmt.Errorf("the log holds %d to %d, and %d follows the last one that was read", first, last, next)
	}
	return first, last, texts, err
}

// cutPower appends to a log and trims it until the power is cut, again and again. It returns what is wrong
// first.
func cutPower(seed uint64, cuts int, forgets bool) error {
	luck := rand.New(rand.NewPCG(seed, 0))
	o := Options{}
	disk := newCutDisk()
	disk.forgets = forgets
	o.Disk, o.segmentSize = disk, 3000
	l, err := Create("d", "owner", 1, o)
	if err != nil {
		return err
	}
	acked := map[uint64]string{}
	var first, last uint64 = 1, 0 // that were acknowledged
	maybe := map[uint64][]string{}
	for attempt := range cuts {
		disk.uses = luck.IntN(150)
		for {
			if luck.IntN(12) == 0 {
				to := first + uint64(luck.IntN(8))
				if l.Trim(context.Background(), to) != nil {
					first = max(first, min(to, last+1)) // it may have been trimmed
					break
				}
				first = max(first, min(to, last+1))
				continue
			}
			entries := make([][]byte, 1+luck.IntN(4))
			large := luck.IntN(6) == 0 // several frames
			for i := range entries {
				entries[i] = entryText(last+1+uint64(i), attempt, luck.IntN(700))
				if large {
					entries[i] = entryText(last+1+uint64(i), attempt, luck.IntN(2*frameSize))
				}
			}
			if err := l.Append(context.Background(), last, entries...); err != nil {
				if !errors.Is(err, errNoPower) && disk.uses != 0 {
					return fmt.Errorf("cut %d: %w", attempt, err)
				}
				for i, e := range entries {
					maybe[last+1+uint64(i)] = append(maybe[last+1+uint64(i)], string(e))
				}
				break
			}
			for i, e := range entries {
				acked[last+1+uint64(i)] = string(e)
			}
			last += uint64(len(entries))
		}
		disk.uses = -1
		disk = disk.cut(luck)
		disk.forgets = forgets
		o.Disk, o.segmentSize = disk, int64(1000+luck.IntN(3000))
		if l, err = Open(context.Background(), "d", "owner", o); err != nil {
			return fmt.Errorf("cut %d, open: %w", attempt, err)
		}
		f, n, texts, err := checkEntries(l)
		switch {
		case err != nil:
			return fmt.Errorf("cut %d, read: %w; %+v", attempt, err, l.writer.state)
		case n < last || f > first:
			return fmt.Errorf("cut %d: entries %d to %d were acknowledged, and %d to %d are there", attempt, first, last, f, n)
		}
		for seq := f; seq <= n; seq++ {
			if want, ok := acked[seq]; ok && texts[seq] != want || !ok && !slices.Contains(maybe[seq], texts[seq]) {
				return fmt.Errorf("cut %d: entry %d is %.20q", attempt, seq, texts[seq])
			}
			acked[seq] = texts[seq]
		}
		first, last = f, n
		clear(maybe)
	}
	return nil
}

func TestNoAcknowledgedEntryIsLostWhenThePowerIsCut(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	seed := law.Seed(t)
	for i := range uint64(10) {
		if err := cutPower(seed+i, 50, false); err != nil {
			t.Fatalf("seed %d: %v", seed+i, err)
		}
	}
}

// Without it, the test above could pass because its disk loses nothing.
func TestADiskThatDoesNotSyncLosesEntries(t *testing.T) {
	lost := 0
	for i := range uint64(20) {
		if cutPower(i, 10, true) != nil {
			lost++
		}
	}
	if lost < 15 {
		t.Errorf("only %d of 20 logs on a disk that does not sync have lost something", lost)
	}
}
