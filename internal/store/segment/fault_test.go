package segment

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
)

// The state was lost with the machine, so Open has to adopt entries of several segments. Each use of the disk fails
// in turn, and what could not be read is still there afterwards.
func TestAnOpenThatFailsDropsNoEntry(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	const entries = 60
	whole := newCutDisk()
	o := Options{Disk: whole, segmentSize: 4000}
	l, err := Create("d", "owner", 1, o)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 3)
	statePath := filepath.Join("d", stateFile)
	old := bytes.Clone(whole.inodes[statePath].data)
	fill(t, l, entries-3)
	whole.inodes[statePath].data = old
	for uses := 0; ; uses++ {
		disk := newCutDisk()
		for path, n := range whole.inodes {
			disk.inodes[path] = &inode{data: bytes.Clone(n.data)}
		}
		o.Disk, disk.uses, disk.oneFault = disk, uses, true
		_, failed := Open(t.Context(), "d", "owner", o)
		if failed != nil && !errors.Is(failed, errNoPower) {
			t.Errorf("after %d uses of the disk: %v", uses, failed)
		}
		disk.uses = -1
		disk.locks = map[*inode]*cutFile{}
		l, err := Open(t.Context(), "d", "owner", o)
		if err == nil {
			err = wantEntries(l, 1, entries)
		}
		if err != nil {
			t.Fatalf("an Open failed after %d uses of the disk, and then: %v", uses, err)
		}
		if failed == nil {
			if uses < 20 {
				t.Errorf("Open uses the disk only %d times", uses)
			}
			return
		}
	}
}

// One process makes segments that the other one has not listed, before that one makes a segment too.
func TestAProcessFindsTheSegmentsOfOthers(t *testing.T) {
	folder, one := create(t)
	two := open(t, folder)
	fill(t, one, 10)
	if err := wantEntries(two, 1, 10); err != nil { // it knows the segments now
		t.Fatal(err)
	}
	fill(t, one, 70)
	segments := func() int { names, _ := filepath.Glob(filepath.Join(folder, "*.log")); return len(names) }
	last, before := uint64(80), segments()
	for ; segments() == before; last++ {
		fill(t, two, 1)
	}
	for after := range last {
		if err := two.Read(t.Context(), after, func(e Entry) bool {
			if e.Seq != after+1 {
				t.Errorf("entry %d follows entry %d", e.Seq, after)
			}
			return false
		}); err != nil {
			t.Fatalf("after entry %d: %v", after, err)
		}
	}
}

// A writer cuts off the zeros at the end of a segment after it has begun the next one.
func TestAReaderAllowsThatASegmentBecomesShorter(t *testing.T) {
	folder, l := create(t)
	fill(t, l, 10)
	end := l.writer.state.end
	g, err := l.folder.openSegment(1, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.file.Close() }()
	if g.end <= end {
		t.Fatalf("there are no zeros behind byte %d of %d", end, g.end)
	}
	if err := os.Truncate(filepath.Join(folder, segmentName(1)), end); err != nil {
		t.Fatal(err)
	}
	s := l.writer.state
	s.base = 11 // it is not the active one
	next, _, err := l.walkSegment(t.Context(), g, &s, segmentWalker{next: 1, see: func(Entry) bool { return true }})
	if err != nil || next != 11 {
		t.Errorf("the next entry is %d, %v", next, err)
	}
}

func TestAProbeOfAReplacedFileWritesNothing(t *testing.T) {
	disk := newCutDisk()
	l, err := Create("d", "owner", 1, Options{Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	disk.replaced = true
	active := disk.inodes[filepath.Join("d", segmentName(1))]
	before := len(active.data)
	for range 3 {
		if err := l.Probe(t.Context()); !errors.Is(err, ErrReplaced) {
			t.Error(err)
		}
	}
	if len(active.data) != before {
		t.Errorf("it had %d bytes, and has %d", before, len(active.data))
	}
}

// An Append of several frames that a crash has cut short is dropped as a whole. It does not come back when a later
// Append, cut short too, writes the bytes that it lacks.
func TestAHalfAppendIsDropped(t *testing.T) {
	disk := newCutDisk()
	o := Options{Disk: disk}
	l, err := Create("d", "owner", 1, o)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 3)
	state := disk.inodes[filepath.Join("d", stateFile)]
	old := bytes.Clone(state.data)
	if err := l.Append(t.Context(), 3, entryText(4, 0, frameSize), entryText(5, 0, frameSize), entryText(6, 0, 9)); err != nil {
		t.Fatal(err)
	}
	segment := disk.inodes[filepath.Join("d", segmentName(1))]
	lacking := segment.data[l.writer.state.frame:]
	later := bytes.Clone(lacking)
	clear(lacking)
	state.data = old
	for _, when := range []string{"at the next start", "at the start after a later Append"} {
		if l, err = Open(t.Context(), "d", "owner", o); err != nil {
			t.Fatal(err)
		}
		if err := wantEntries(l, 1, 3); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		copy(lacking, later)
	}
}

// Each part of the files is replaced by the same part of a log that differs only in what its entries say.
func TestPartsOfAnotherLogAreDamage(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	const entries = 40
	logs := func(attempt int) (*cutDisk, *Log) {
		disk := newCutDisk()
		l, err := Create("d", "owner", 1, Options{Disk: disk, segmentSize: 4000})
		for seq := uint64(1); err == nil && seq <= entries; seq++ {
			err = l.Append(t.Context(), seq-1, entryText(100+seq, attempt, 300)) // all have the same length
		}
		if err != nil {
			t.Fatal(err)
		}
		return disk, l
	}
	other, l := logs(1)
	frame := l.writer.state.end - l.writer.state.frame
	for path := range other.inodes {
		if filepath.Ext(path) == ".index" {
			continue
		}
		from := other.inodes[path].data
		parts := [][2]int64{{0, int64(len(from))}}
		if base, ok := parseName(filepath.Base(path)); ok {
			header := int64(segmentHeader + len("owner"))
			if base == 1 {
				parts = [][2]int64{{header, header + frame}, {header + frame, header + 2*frame}}
			} else {
				parts = append(parts, [2]int64{header, header + frame})
			}
		}
		for _, part := range parts {
			disk, open := logs(0)
			copy(disk.inodes[path].data[part[0]:part[1]], from[part[0]:part[1]])
			_, _, _, err := checkEntries(open)
			if err == nil {
				t.Errorf("%s, bytes %d to %d: an open log reads them", path, part[0], part[1])
			}
			again, err := Open(t.Context(), "d", "owner", Options{Disk: disk, segmentSize: 4000})
			if err == nil && path == filepath.Join("d", stateFile) {
				t.Errorf("%s: the log is opened", path)
			}
			if err == nil {
				_, _, _, err = checkEntries(again)
			}
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s, bytes %d to %d: %v", path, part[0], part[1], err)
			}
		}
	}
}

// Each use of the disk in an Append that begins a segment fails in turn. What Open then finds stays, also when
// the power is cut at once, and the log goes on.
func TestALogGoesOnAfterAFaultAtEachStepOfAnAppend(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	for uses := 0; ; uses++ {
		disk := newCutDisk()
		o := Options{Disk: disk, segmentSize: 1500}
		l, err := Create("d", "owner", 1, o)
		if err != nil {
			t.Fatal(err)
		}
		last := uint64(0)
		for ; l.writer.state.end < l.writer.full; last++ {
			fill(t, l, 1)
		}
		disk.uses, disk.oneFault = uses, true
		failed := l.Append(t.Context(), last, entryText(last+1, 0, 1500))
		reached := disk.uses < 0
		disk.uses = -1
		disk.locks = map[*inode]*cutFile{}
		opened, err := Open(t.Context(), "d", "owner", o)
		if err != nil {
			t.Fatalf("use %d: %v", uses, err)
		}
		_, n, err := opened.Span(t.Context())
		if err != nil || n < last || failed == nil && n == last {
			t.Errorf("use %d: it ends with %d, %v", uses, n, err)
		}
		for seed := range uint64(8) {
			o.Disk = disk.cut(rand.New(rand.NewPCG(seed, 0)))
			l, err := Open(t.Context(), "d", "owner", o)
			if err == nil {
				err = wantEntries(l, 1, n)
			}
			if err != nil {
				t.Fatalf("use %d, after a power cut: %v", uses, err)
			}
		}
		fill(t, l, 3)
		if err := wantEntries(l, 1, n+3); err != nil {
			t.Errorf("use %d: %v", uses, err)
		}
		if !reached {
			return
		}
	}
}

func TestLoadedEntriesAreDurableAfterFlush(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	disk := newCutDisk()
	o := Options{Disk: disk, segmentSize: 1500}
	l, err := Create("d", "owner", 1, o)
	for seq := uint64(1); err == nil && seq <= 30; seq++ {
		err = l.Load(entryText(seq, 0, 300))
	}
	if err == nil {
		err = l.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(8) {
		o.Disk = disk.cut(rand.New(rand.NewPCG(seed, 0)))
		l, err := Open(t.Context(), "d", "owner", o)
		if err == nil {
			err = wantEntries(l, 1, 30)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingIsAcknowledgedInASegmentThatWasRemoved(t *testing.T) {
	folder, l := create(t)
	fill(t, l, 3)
	if err := os.Remove(filepath.Join(folder, segmentName(1))); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), 3, []byte("x")); !errors.Is(err, ErrReplaced) {
		t.Error(err)
	}
}
