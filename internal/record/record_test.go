package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "write" {
		writeForever(os.Args[2])
	}
	os.Exit(m.Run())
}

// of is a record that says text of whose, and refers to an archive of each of
// texts.
func of(whose, text string, when time.Time, texts ...string) Record {
	decision := fmt.Appendf(nil, `{"says":"%s <&> \u2028"}`, text)
	r := Record{Texts: map[string]Archive{}, Entry: Entry{
		Time: when, Of: whose, Same: canonical.Sum(decision), Digest: canonical.Sum(decision),
		Decision: decision, Archives: map[string]switchboard.Digest{},
	}}
	for i, text := range texts {
		name := fmt.Sprint("text", i)
		r.Texts[name] = Archive{canonical.Sum([]byte(text)), func() []byte { return []byte(text) }}
		r.Archives[name] = r.Texts[name].Digest
	}
	return r
}

// keep records all of rs in the folder.
func keep(dir string, o Options, rs ...Record) *Log {
	l := New(dir, o)
	for _, r := range rs {
		l.Add(func() Record { return r })
	}
	l.Close()
	<-l.done
	return l
}

func read(t *testing.T, dir string, since time.Time) (said []string, damaged int) {
	t.Helper()
	entries, damaged, err := Read(dir, since)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		said = append(said, e.Of+": "+string(e.Decision))
		for _, d := range e.Archives {
			if _, err := ReadArchive(dir, d); err != nil {
				t.Errorf("%s refers to an archive: %v", e.Of, err)
			}
		}
	}
	return said, damaged
}

func TestWhatIsRecordedIsReadBackToTheByte(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "data"), time.Now()
	l := keep(dir, Options{}, of("a", "one", now, "x", "y"), of("b", "two", now.Add(1), "x"))
	if got := *l.Status(); got.Written != 2 || got.Lost != 0 || got.Fault != "" {
		t.Errorf("status %+v", got)
	}
	got, damaged := read(t, dir, time.Time{})
	if want := []string{`a: {"says":"one <&> \u2028"}`, `b: {"says":"two <&> \u2028"}`}; !slices.Equal(got, want) || damaged != 0 {
		t.Errorf("read %q and %d damaged, want %q", got, damaged, want)
	}
	if text, err := ReadArchive(dir, canonical.Sum([]byte("y"))); string(text) != "y" || err != nil {
		t.Errorf("the archive holds %q, %v", text, err)
	}
	if got, _ := read(t, dir, now.Add(1)); len(got) != 1 {
		t.Errorf("since the second, there is %q", got)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	if len(files) != 3 { // x is there once
		t.Errorf("there are %q", files)
	}
	for _, file := range append(files, dir, filepath.Join(dir, logDir), filepath.Join(dir, archiveDir)) {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may look into %s: %v, %v", file, info.Mode(), err)
		}
	}
}

func TestTheSameIsRecordedOnceADay(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Add(-time.Hour)
	keep(dir, Options{}, of("a", "one", now), of("a", "one", now.Add(time.Minute)), of("b", "one", now), of("a", "two", now), of("a", "one", now), of("a", "one", now.Add(25*time.Hour)))
	if got, _ := read(t, dir, time.Time{}); len(got) != 5 {
		t.Errorf("there are %q", got)
	}
	// Another process goes on where that ended: each session may have its own.
	keep(dir, Options{}, of("a", "one", now.Add(26*time.Hour)), of("b", "one", now.Add(time.Hour)))
	if got, _ := read(t, dir, time.Time{}); len(got) != 6 { // what b said is in a file before the last
		t.Errorf("there are %q", got)
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	dir, o := t.TempDir(), Options{MaxBytes: 256 << 10, SegmentBytes: 16 << 10}
	noise := rand.New(rand.NewPCG(1, 2))
	l := New(dir, o)
	const n = 150
	for i := range n {
		text := make([]byte, 2000)
		for j := range text {
			text[j] = byte('a' + noise.IntN(26))
		}
		l.Add(func() Record { return of("a", fmt.Sprint(i), time.Now(), string(text), "always") })
	}
	l.Close()
	<-l.done
	if got := l.Status(); got.Written != n || got.Fault != "" {
		t.Errorf("status %+v", got)
	}
	var size int64
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
		if strings.HasSuffix(file, logExt) && info.Size() > o.SegmentBytes {
			t.Errorf("%s has %d bytes", file, info.Size())
		}
	}
	if size > o.MaxBytes {
		t.Errorf("%d bytes are kept", size)
	}
	got, _ := read(t, dir, time.Time{}) // which looks for every archive
	if len(got) < 20 || !strings.Contains(got[len(got)-1], "says\":\"149") {
		t.Errorf("%d are kept: %.40q", len(got), got)
	}
	if len(files) > len(got)+20 {
		t.Errorf("%d files for %d records: archives that none refers to stay", len(files), len(got))
	}
}

func TestWhatIsOldIsDropped(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	long := now.Add(-40 * 24 * time.Hour)
	keep(dir, Options{}, of("a", "old", long, "only then", "still"))
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, file := range files {
		if err := os.Chtimes(file, long, long); err != nil {
			t.Fatal(err)
		}
	}
	keep(dir, Options{}, of("a", "new", now, "still"))
	if got, _ := read(t, dir, time.Time{}); len(got) != 1 || !strings.Contains(got[0], "new") {
		t.Errorf("there are %q", got)
	}
	if _, err := ReadArchive(dir, canonical.Sum([]byte("only then"))); err == nil {
		t.Error("an archive is kept that nothing refers to")
	}
}

// A cut is a file on a disk that is full after so many bytes.
type cut struct {
	file
	left *int
}

func (c cut) Write(p []byte) (int, error) {
	n := min(len(p), *c.left)
	*c.left -= n
	if _, err := c.file.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// shout is a log that can be read while it is written.
type shout struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shout) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func TestAFullDiskIsSaidAndGotOver(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	var said shout
	left := 1000
	o := Options{Log: slog.New(slog.NewTextHandler(&said, nil)), create: func(name string) (file, error) {
		f, err := createFile(name)
		return cut{f, &left}, err
	}}
	l := New(dir, o)
	add := func(r Record) { l.Add(func() Record { return r }) }
	for i := range 10 {
		add(of("a", fmt.Sprint(i), now.Add(time.Duration(i))))
	}
	l.Add(func() Record { left = 1 << 20; return of("b", "again", now.Add(time.Second)) })
	l.Close()
	<-l.done
	got, damaged := read(t, dir, time.Time{})
	s := l.Status()
	if s.Fault != "" || s.Lost == 0 || s.Written+s.Lost != 11 {
		t.Errorf("status %+v", s)
	}
	if damaged != 0 || len(got) < 2 || !strings.HasPrefix(got[len(got)-1], "b: ") {
		t.Errorf("there are %q, and %d are damaged", got, damaged)
	}
	for _, want := range []string{"no space left", "level=ERROR", "decisions are recorded again"} {
		if !strings.Contains(said.b.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, said.b.String())
		}
	}
	if n := strings.Count(said.b.String(), "level=ERROR"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

func TestAFolderThatCannotBeWrittenToIsSaidAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said shout
	l := keep(filepath.Join(file, "data"), Options{Log: slog.New(slog.NewTextHandler(&said, nil))}, of("a", "one", time.Now()))
	if s := l.Status(); s.Lost != 1 || s.Written != 0 || !strings.Contains(s.Fault, "not a directory") {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(said.b.String(), "decisions cannot be recorded") {
		t.Errorf("the log says %q", said.b.String())
	}
}

func TestNobodyWaitsForTheDisk(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{})
	l := New(t.TempDir(), Options{Queue: 3})
	now := time.Now()
	l.Add(func() Record { close(held); <-hold; return of("a", "0", now) })
	<-held
	for i := range 10 {
		l.Add(func() Record { return of("a", fmt.Sprint(i+1), now) })
	}
	if s := l.Status(); s.Lost != 7 {
		t.Errorf("%d are counted as lost, want 7", s.Lost)
	}
	close(hold)
	l.Close()
	l.Add(func() Record { t.Error("a closed log takes a record"); return Record{} })
	if s := l.Status(); s.Written != 4 || s.Lost != 7 {
		t.Errorf("status %+v", s)
	}
	(*Log)(nil).Add(nil)
	(*Log)(nil).Close()
	if (*Log)(nil).Status() != nil {
		t.Error("no log has a status")
	}
}

func TestDamageIsCountedAndPassedOver(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	keep(dir, Options{}, of("a", "one", now, "x"), of("a", "two", now), of("a", "three", now))
	names, err := segments(dir)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	file := filepath.Join(dir, logDir, names[0])
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("two"), []byte("TWO"), 1)
	if err := os.WriteFile(file, text[:len(text)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, damaged := read(t, dir, time.Time{}); len(got) != 1 || damaged != 2 {
		t.Errorf("read %q, and %d damaged", got, damaged)
	}
	x := archiveFile(dir, canonical.Sum([]byte("x")))
	other := archiveFile(dir, canonical.Sum([]byte("other")))
	if err := os.Rename(x, other); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadArchive(dir, canonical.Sum([]byte("other"))); err == nil {
		t.Errorf("an archive under another's name gives %q", text)
	}
}

// writeForever records until it is killed, and says when it has begun.
func writeForever(dir string) {
	l := New(dir, Options{SegmentBytes: 64 << 10})
	for i := 0; ; i++ {
		done := make(chan struct{})
		l.Add(func() Record {
			defer close(done)
			return of("a", strings.Repeat(fmt.Sprint(i, " "), 200), time.Now(), fmt.Sprint("archive", i/10))
		})
		<-done
		if i == 20 {
			fmt.Println("going")
		}
	}
}

func TestAKillLeavesALogThatCanBeRead(t *testing.T) {
	dir := t.TempDir()
	before := 0
	for range 10 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "write", dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("going"))); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("it ended with %v", err)
		}
		got, damaged := read(t, dir, time.Time{}) // and every archive is there, and whole
		if damaged > 10 || len(got) < before+19 {
			t.Errorf("%d are read, of which %d were before; %d are damaged", len(got), before, damaged)
		}
		before = len(got)
	}
}
