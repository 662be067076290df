package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
)

// create makes a log in a folder of the machine, with small segments.
func create(t testing.TB) (folder string, l *Log) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "log")
	l, err := Create(folder, "owner", 1, Options{segmentSize: 4000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.folder.stateFile.Close() })
	return folder, l
}

// open opens the log in the folder as another process does.
func open(t testing.TB, folder string) *Log {
	t.Helper()
	l, err := Open(t.Context(), folder, "owner", Options{segmentSize: 4000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.folder.stateFile.Close() })
	return l
}

// fill appends n entries, some at a time.
func fill(t testing.TB, l *Log, n int) {
	t.Helper()
	_, last, err := l.Span(t.Context())
	for end := last + uint64(n); err == nil && last < end; {
		var entries [][]byte
		for range min(1+last%4, end-last) {
			entries = append(entries, entryText(last+1+uint64(len(entries)), 0, int(last%9)*40))
		}
		err = l.Append(t.Context(), last, entries...)
		last += uint64(len(entries))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantEntries checks that the log holds the entries of fill, first to last.
func wantEntries(l *Log, first, last uint64) error {
	f, n, texts, err := checkEntries(l)
	if err != nil {
		return err
	}
	if f != first || n != last {
		return fmt.Errorf("it holds %d to %d, want %d to %d", f, n, first, last)
	}
	for seq, text := range texts {
		if !strings.HasPrefix(text, fmt.Sprintf("%d/0 ", seq)) {
			return fmt.Errorf("entry %d is %.20q", seq, text)
		}
	}
	return nil
}

func TestProcessesThatShareALogAppendInTurn(t *testing.T) {
	folder, one := create(t)
	two := open(t, folder)
	for i := range 60 {
		l, other := one, two
		if i%3 == 0 {
			l, other = two, one
		}
		fill(t, l, 1+i%5)
		if err := other.Append(t.Context(), 0, []byte("late")); !errors.Is(err, ErrConflict) {
			t.Fatalf("an Append after entry 0 by the process that did not append last: %v", err)
		}
	}
	_, last, err := two.Span(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Log{one, two, open(t, folder)} {
		if err := wantEntries(l, 1, last); err != nil {
			t.Error(err)
		}
	}
}

func TestALogOfAnotherOwnerIsRefused(t *testing.T) {
	folder, _ := create(t)
	if _, err := Open(t.Context(), folder, "other", Options{}); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

// Each byte of each file is changed, and each file is cut off at each place. Either that is found and the
// error names the file, or all entries are intact.
func TestDamageIsFoundOrChangesNoEntry(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	folder, l := create(t)
	const entries = 40
	fill(t, l, entries)
	names, err := osDisk{}.List(folder)
	if err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[name], err = os.ReadFile(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	disk := func(name string, data []byte) *cutDisk {
		d := newCutDisk()
		for n, content := range files {
			if n == name {
				content = data
			}
			if content != nil {
				d.inodes[filepath.Join("d", n)] = &inode{data: bytes.Clone(content)}
			}
		}
		return d
	}
	look := func(name string, data []byte) (found bool) {
		l, err := Open(t.Context(), "d", "owner", Options{Disk: disk(name, data), segmentSize: 4000})
		if err == nil {
			err = wantEntries(l, 1, entries)
		}
		if err == nil {
			return false
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), " d") {
			t.Errorf("%s, %d bytes: %v", name, len(data), err)
		}
		return true
	}
	if look("", nil) {
		t.Fatal("the undamaged log is reported as damaged")
	}
	luck := rand.New(rand.NewPCG(law.Seed(t), 0))
	for name, data := range files {
		content := len(bytes.TrimRight(data, "\x00"))
		for at := range content {
			harmed := bytes.Clone(data)
			harmed[at] ^= 1 << luck.IntN(8)
			if !look(name, harmed) {
				t.Errorf("%s: byte %d of %d was changed, without an error", name, at, content)
			}
			if at%7 == 0 && !look(name, data[:at]) {
				t.Errorf("%s was cut off at %d of %d bytes, without an error", name, at, content)
			}
			if t.Failed() {
				return
			}
		}
		if !look(name, nil) {
			t.Errorf("%s was removed, without an error", name)
		}
	}
}

func TestAReadInTheMiddleOfASegmentReadsLittle(t *testing.T) {
	disk := newCutDisk()
	l, err := Create("d", "owner", 1, Options{Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	const entries = 10_000 // 7 MB, in one segment
	for last := uint64(0); last < entries; last += 1000 {
		var some [][]byte
		for i := range uint64(1000) {
			some = append(some, entryText(last+1+i, 0, 700))
		}
		if err := l.Load(some...); err != nil {
			t.Fatal(err)
		}
	}
	for _, after := range []uint64{1, 4999, 9000, entries - 1} {
		disk.bytesIn = 0
		if err := l.Read(t.Context(), after, func(e Entry) bool {
			if e.Seq != after+1 || !bytes.HasPrefix(e.Data, fmt.Appendf(nil, "%d/0 ", after+1)) {
				t.Errorf("entry %d is %.20q", e.Seq, e.Data)
			}
			return false
		}); err != nil {
			t.Fatal(err)
		}
		if most := 4 * chunkSize; disk.bytesIn > most {
			t.Errorf("for entry %d %d bytes were read, at most %d are needed", after+1, disk.bytesIn, most)
		}
	}
}

func TestALargeAppendAddsNoZeros(t *testing.T) {
	disk := newCutDisk()
	l, err := Create("d", "owner", 1, Options{Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	file := disk.inodes[filepath.Join("d", segmentName(1))]
	for last, size := range []int{2 * largeAppend, 3 * growth, 10} {
		if err := l.Append(t.Context(), uint64(last), entryText(uint64(last+1), 0, size)); err != nil {
			t.Fatal(err)
		}
		if zeros := len(file.data) - len(bytes.TrimRight(file.data, "\x00")); (zeros > 0) != (size < largeAppend) {
			t.Errorf("behind an entry of %d bytes are %d zeros", size, zeros)
		}
	}
	if err := wantEntries(l, 1, 3); err != nil {
		t.Error(err)
	}
}

func TestTrimmedSegmentsAreRemoved(t *testing.T) {
	folder, l := create(t)
	fill(t, l, 200)
	before, _ := osDisk{}.List(folder)
	for _, first := range []uint64{2, 17, 100, 101, 199, 201} {
		if err := l.Trim(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*Log{l, open(t, folder)} {
			if err := wantEntries(l, first, 200); err != nil {
				t.Errorf("trimmed to %d: %v", first, err)
			}
		}
	}
	after, _ := osDisk{}.List(folder)
	if len(after) >= len(before)/2 || len(after) > 3 {
		t.Errorf("before: %v\nafter: %v", before, after)
	}
	fill(t, l, 10)
	if err := wantEntries(open(t, folder), 201, 210); err != nil {
		t.Error(err)
	}
}

// The reader gets what it asked for or learns that it was trimmed, and never takes that for damage.
func TestALogIsTrimmedWhileItIsRead(t *testing.T) {
	folder, l := create(t)
	fill(t, l, 400)
	reader := open(t, folder)
	seen := uint64(0)
	err := reader.Read(t.Context(), 0, func(e Entry) bool {
		if seen = e.Seq; seen == 5 {
			if err := l.Trim(t.Context(), 300); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	if !errors.Is(err, ErrTrimmed) || seen >= 300 {
		t.Errorf("after entry %d: %v", seen, err)
	}
	if err := wantEntries(reader, 300, 400); err != nil {
		t.Error(err)
	}
}

func TestAViewStaysAsItWas(t *testing.T) {
	_, l := create(t)
	fill(t, l, 50)
	v, release, err := l.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Append(held, 50, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Append to a log that is held: %v", err)
	}
	release()
	fill(t, l, 100)
	n := uint64(0)
	if err := v.Read(t.Context(), func(e Entry) bool { n = e.Seq; return true }); err != nil || n != 50 {
		t.Errorf("the view ends with %d, %v", n, err)
	}
}

func TestACallerDoesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newCutDisk()
		l, err := Create("d", "owner", 1, Options{Disk: disk})
		if err != nil {
			t.Fatal(err)
		}
		hang := make(chan struct{})
		disk.hang = hang
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Append(ctx, 0, []byte("1/0 ")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an Append to a disk that hangs: %v", err)
		}
		if _, last, err := l.Span(t.Context()); err != nil || last != 0 {
			t.Errorf("an entry that is not durable is there: %d, %v", last, err)
		}
		disk.mu.Lock()
		disk.hang = nil
		disk.mu.Unlock()
		close(hang)
		synctest.Wait()
		if err := wantEntries(l, 1, 1); err != nil {
			t.Errorf("after the disk has answered: %v", err)
		}
		if err := l.Append(t.Context(), 1, []byte("2/0 ")); err != nil {
			t.Error(err)
		}
	})
}

func TestALogGoesOnWhenThereIsSpaceAgain(t *testing.T) {
	disk := newCutDisk()
	l, err := Create("d", "owner", 1, Options{Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	disk.noSpace = true
	if err := l.Append(t.Context(), 0, entryText(1, 0, 5000)); err != nil {
		t.Errorf("there is no space for zeros, but for the entry: %v", err)
	}
	last := uint64(1)
	for ; err == nil; last++ {
		err = l.Append(t.Context(), last, entryText(last+1, 0, 1000))
	}
	last--
	if err := l.Probe(t.Context()); err == nil {
		t.Error("a full disk can be written to")
	}
	if err := wantEntries(l, 1, last); err != nil {
		t.Error(err)
	}
	disk.noSpace = false
	if err := l.Probe(t.Context()); err != nil {
		t.Errorf("there is space again: %v", err)
	}
	fill(t, l, 3)
	if err := wantEntries(l, 1, last+3); err != nil {
		t.Error(err)
	}
}

func TestNothingIsAcknowledgedInAFileThatWasReplaced(t *testing.T) {
	disk := newCutDisk()
	l, err := Create("d", "owner", 1, Options{Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 3)
	disk.replaced = true
	if err := l.Append(t.Context(), 3, []byte("x")); !errors.Is(err, ErrReplaced) {
		t.Error(err)
	}
	if err := l.Probe(t.Context()); !errors.Is(err, ErrReplaced) {
		t.Error(err)
	}
	disk.replaced = false
	fill(t, l, 3)
	if err := wantEntries(l, 1, 6); err != nil {
		t.Error(err)
	}
}

// Whatever is in the files: Open and Read end, and allocate no more than the files hold.
func FuzzOpen(f *testing.F) {
	disk := newCutDisk()
	l, err := Create("d", "owner", 1, Options{Disk: disk})
	if err != nil {
		f.Fatal(err)
	}
	if err := l.Append(f.Context(), 0, []byte("one"), []byte("two")); err != nil {
		f.Fatal(err)
	}
	name := filepath.Join("d", segmentName(1))
	f.Add(disk.inodes[filepath.Join("d", stateFile)].data, disk.inodes[name].data[:200], []byte{})
	f.Fuzz(func(t *testing.T, state, seg, index []byte) {
		d := newCutDisk()
		d.inodes[filepath.Join("d", stateFile)] = &inode{data: state}
		d.inodes[name] = &inode{data: seg}
		d.inodes[filepath.Join("d", indexName(1))] = &inode{data: index}
		l, err := Open(t.Context(), "d", "owner", Options{Disk: d})
		if err != nil {
			return
		}
		n := 0
		_ = l.Read(t.Context(), 0, func(Entry) bool { n++; return true })
		if n > len(seg) {
			t.Errorf("%d entries in %d bytes", n, len(seg))
		}
		_ = l.Append(t.Context(), l.writer.state.last, []byte("more"))
	})
}

// BenchmarkAppend measures an Append of two receipts to a file of the machine, beside the same write and sync
// alone.
func BenchmarkAppend(b *testing.B) {
	entries := [][]byte{bytes.Repeat([]byte("r"), 750), bytes.Repeat([]byte("r"), 750)}
	b.Run("log", func(b *testing.B) {
		_, l := create(b)
		l.writer.full = segmentSize
		b.ReportAllocs()
		for last := uint64(0); b.Loop(); last += 2 {
			if err := l.Append(context.Background(), last, entries...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("log, on a disk that syncs at once", func(b *testing.B) {
		_, l := create(b)
		l.writer.full = segmentSize
		l.writer.active = unsyncedFile{l.writer.active}
		b.ReportAllocs()
		for last := uint64(0); b.Loop(); last += 2 {
			if err := l.Append(context.Background(), last, entries...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write and sync", func(b *testing.B) {
		file, err := os.Create(filepath.Join(b.TempDir(), "file"))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		whole := bytes.Join(entries, nil)
		if _, err := file.Write(make([]byte, segmentSize)); err != nil {
			b.Fatal(err)
		}
		for at := int64(0); b.Loop(); at = (at + int64(len(whole))) % segmentSize {
			if _, err := file.WriteAt(whole, at); err != nil {
				b.Fatal(err)
			}
			if err := syncData(file); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// An unsyncedFile is a file whose SyncData does nothing.
type unsyncedFile struct{ DiskFile }

func (unsyncedFile) SyncData() error { return nil }
