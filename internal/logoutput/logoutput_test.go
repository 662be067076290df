package logoutput

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func texts(entries []Line) (all []string) {
	for _, e := range entries {
		_, text := e.Text()
		all = append(all, e.From+": "+text)
	}
	return all
}

func TestRecordsAndLinesOfServersAreReadInTheOrderOfTheirTimes(t *testing.T) {
	data := t.TempDir()
	var stderr bytes.Buffer
	o := New(&stderr, false)
	log := slog.New(o.Handler()).With("a", 1)
	log.Info("before")
	o.Keep(data)
	log.WithGroup("g").Info("first", "text", "two words")
	o.KeepStderr("files", "second", 0)
	log.Info(process.StderrMessage, "stderr", "second")
	log.Debug("below the level")
	o.KeepError("refused", errors.New("its reason"))
	o.KeepStderr("files", "third", 2)
	o.Close()
	log.Info("after")

	if got := strings.Count(stderr.String(), "\n"); got != 4 {
		t.Errorf("stderr has %d records:\n%s", got, stderr.String())
	}
	r := NewLogReader(data)
	entries, _, err := r.Read(time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`switchboard: INFO first a=1 g={"text":"two words"}`, "files: second", "switchboard: ERROR refused err=\"its reason\"", "files: (2 lines left out) third"}
	if got := texts(entries); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if entries, _, err = NewLogReader(data, "files").Read(time.Time{}, 1); err != nil || len(entries) != 1 || entries[0].Time.IsZero() {
		t.Errorf("%v %v", texts(entries), err)
	}
	if entries, _, err = r.Read(time.Now().Add(time.Hour), 0); err != nil || len(entries) != 0 {
		t.Errorf("%v %v", texts(entries), err)
	}
	if names, err := r.Names(); fmt.Sprint(names) != "[files switchboard]" || err != nil {
		t.Errorf("names %v, %v", names, err)
	}
	err = filepath.WalkDir(Folder(data), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheSettingsChangeForHandlersThatExist(t *testing.T) {
	var stderr bytes.Buffer
	o := New(&stderr, false)
	o.Apply(Settings{Level: slog.LevelWarn})
	log := slog.New(o.Handler()).With("server", "files")
	log.Info("unseen")
	o.Apply(Settings{Format: FormatJSON, Level: slog.LevelDebug})
	log.Debug("seen")
	to := filepath.Join(t.TempDir(), "out.log")
	o.Apply(Settings{To: to})
	log.Info("elsewhere")
	o.Close()
	if got := stderr.String(); !strings.HasPrefix(got, `{"time":`) || !strings.HasSuffix(got, `"level":"DEBUG","msg":"seen","server":"files"}`+"\n") {
		t.Errorf("%q", got)
	}
	if text, err := os.ReadFile(to); err != nil || !strings.HasSuffix(string(text), "level=INFO msg=elsewhere server=files\n") {
		t.Errorf("%q %v", text, err)
	}
}

func TestARecordThatCannotBeWrittenToItsFileGoesToStderr(t *testing.T) {
	var stderr bytes.Buffer
	o := New(&stderr, false)
	o.Apply(Settings{To: filepath.Join(t.TempDir(), "no", "folder")})
	slog.New(o.Handler()).Info("kept anyway")
	o.Close()
	if got := stderr.String(); !strings.Contains(got, "kept anyway") || !strings.Contains(got, "cannot be written") {
		t.Errorf("%q", got)
	}
}

// Several processes append to one file: here, several writers that know nothing of each other.
func TestLinesOfSeveralWritersStayWholeWhileTheFileIsRotated(t *testing.T) {
	const writers, lines, limit = 4, 300, 16 << 10
	path := filepath.Join(t.TempDir(), "logs", serverFolder, "a.log")
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			w := newFileQueue(func(err error) { t.Error(err) })
			for i := range lines {
				if err := w.append(file{path, limit, true}, encodeServerLine("a", fmt.Sprintf("%d %d %s", n, i, strings.Repeat("x", i%100)), 0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, name := range []string{path, path + rotated} {
		text, err := os.ReadFile(name)
		if err != nil || len(text) == 0 || len(text) > limit+writers*1024 {
			t.Fatalf("%s: %d bytes, %v", name, len(text), err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, `{"time":"`) || !strings.HasSuffix(line, "\"}\n") || strings.Count(line, `"server"`) != 1 {
				t.Fatalf("%s has the line %q", name, line)
			}
		}
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 2 {
		t.Errorf("%v %v", left, err)
	}
}

func TestARotationThatWasCutShortDoesNotStopLaterOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	if err := errors.Join(os.WriteFile(path, make([]byte, 100), 0o600), os.WriteFile(path+rotating, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	f := file{path, 100, true}
	if err := rotate(f); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + rotated); err == nil {
		t.Error("it was rotated while another process does that")
	}
	old := time.Now().Add(-2 * rotationLimit)
	if err := os.Chtimes(path+rotating, old, old); err != nil {
		t.Fatal(err)
	}
	if err := rotate(f); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + rotated); err != nil {
		t.Error(err)
	}
}

func TestOnlySoManyServersHaveFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), serverFolder)
	w := newFileQueue(func(err error) { t.Error(err) })
	for i := range maxServerFiles + 3 {
		path := filepath.Join(folder, fmt.Sprintf("s%d.log", i))
		if err := w.append(file{path, maxServerFile, true}, []byte("x\n")); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(i), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != maxServerFiles {
		t.Errorf("%d files, %v", len(left), err)
	}
	if _, err := os.Stat(filepath.Join(folder, "s2.log")); err == nil {
		t.Error("the file with the oldest line is still there")
	}
}

// A server may have the name that our own records have.
func TestAServerNamedSwitchboardHasLinesOfItsOwn(t *testing.T) {
	data := t.TempDir()
	o := New(io.Discard, false)
	o.Keep(data)
	slog.New(o.Handler()).Info("our record")
	o.KeepStderr(Own, "its line", 0)
	o.KeepStderr("files", "another line", 0)
	o.Close()
	for _, r := range []*LogReader{NewLogReader(data), NewLogReader(data, Own, "files", Own)} {
		entries, at, err := r.Read(time.Time{}, 0)
		if want := []string{"switchboard: INFO our record", "switchboard: its line", "files: another line"}; err != nil || fmt.Sprint(texts(entries)) != fmt.Sprint(want) {
			t.Errorf("%q %v\nwant\n%q", texts(entries), err, want)
		}
		if len(at.files) != 3 {
			t.Errorf("%d positions", len(at.files))
		}
	}
}

func TestOneEndOfARecordCannotBeginAnother(t *testing.T) {
	for raw, want := range map[string]string{
		`{"time":"2026-11-24T19:26:31Z","level":"INFO","msg":"a","x":"one\r2026","y":"\u001b[2J","z":"\u2028","plain":"žluť"}`: `INFO a x="one\r2026" y="\x1b[2J" z="\u2028" plain=žluť`,
		`{"level":"WARN","msg":"one\ntwo\u202e"}`: `WARN "one\ntwo\u202e"`,
		`{"level":"WARN","msg":"two words"}`:      `WARN two words`,
	} {
		if _, got := (Line{From: Own, Raw: []byte(raw)}).Text(); got != want {
			t.Errorf("%s\nis %s\nwant %s", raw, got, want)
		}
	}
}

func TestALineThatIsNoJSONIsStillJSONForPrograms(t *testing.T) {
	whole := `{"time":"2026-11-24T19:26:31Z","server":"a","pid":1,"text":"x"}`
	for raw, want := range map[string]string{whole: whole, `{"time":"2026`: `{"from":"a","damaged":"{\"time\":\"2026"}`} {
		if got := string(Line{From: "a", Raw: []byte(raw), ofServer: true}.JSON()); got != want {
			t.Errorf("%s is %s", raw, got)
		}
	}
}

func TestAFolderThatCannotBeReadIsNoEmptyOne(t *testing.T) {
	for _, path := range []string{Folder(""), filepath.Join(Folder(""), serverFolder)} {
		data := t.TempDir()
		if err := errors.Join(os.MkdirAll(filepath.Join(data, filepath.Dir(path)), 0o700), os.WriteFile(filepath.Join(data, path), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if names, err := NewLogReader(data).Names(); err == nil {
			t.Errorf("%s: the names are %q", path, names)
		}
		if entries, _, err := NewLogReader(data).Read(time.Time{}, 0); err == nil {
			t.Errorf("%s: the lines are %q", path, texts(entries))
		}
	}
}

// A folder that cannot be written has the same effect.
func TestAFileThatCannotBeRotatedStopsGrowing(t *testing.T) {
	const limit = 4096
	path := filepath.Join(t.TempDir(), "a.log")
	if err := os.MkdirAll(filepath.Join(path+rotated, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := newFileQueue(func(err error) { t.Error(err) })
	full := 0
	for range 200 {
		switch err := w.append(file{path, limit, true}, []byte(strings.Repeat("x", 99)+"\n")); {
		case errors.Is(err, errFull):
			full++
		case err != nil:
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > limit+limit/8 || full == 0 {
		t.Errorf("%v: %v, %d lines were refused", err, info, full)
	}
	if err := os.RemoveAll(path + rotated); err != nil {
		t.Fatal(err)
	}
	if err := w.append(file{path, limit, true}, []byte("y\n")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLinesThatFindTheQueueFullAreReported(t *testing.T) {
	var reports []error
	w := newFileQueue(func(err error) { reports = append(reports, err) })
	w.started = true // the disk is so slow that nothing is taken from the queue yet
	f := file{filepath.Join(t.TempDir(), "a.log"), maxFile, true}
	for range queuedLines + 7 {
		w.enqueue(queuedLine{f, []byte("x\n"), io.Discard})
	}
	go w.run()
	w.close(wait.Bound)
	if len(reports) != 1 || !errors.Is(reports[0], errSlow) || !strings.Contains(reports[0].Error(), " 7 lines were left out") {
		t.Errorf("reported: %v", reports)
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	data := t.TempDir()
	o := New(io.Discard, false)
	o.Keep(data)
	log := slog.New(o.Handler())
	atMost := func(lines int) func() bool { return func() bool { return len(o.writer.queue) <= lines } }
	for i := range 2*maxOwnFile/(2*maxKeptText) + 200 {
		o.KeepStderr("a", strings.Repeat("x", 2<<10), 0) // as long as a line can be
		log.Info("long", "text", strings.Repeat("y", 1<<20)[:maxKeptText+i%2], "err", errors.New(strings.Repeat("z", 5<<10)))
		if i%(queuedLines/8) == 0 {
			wait.Until(t, "half of the lines are written", atMost(queuedLines/2))
		}
	}
	wait.Until(t, "the lines are written", atMost(0))
	o.Close()
	if n := o.writer.lost.Load(); n > 0 {
		t.Errorf("%d lines were lost", n)
	}
	for path, limit := range map[string]int64{filepath.Join(Folder(data), ownFile): maxOwnFile, serverFile(Folder(data), "a"): maxServerFile} {
		for _, name := range []string{path, path + rotated} {
			if info, err := os.Stat(name); err != nil || info.Size() > limit {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
	entries, _, err := NewLogReader(data, Own).Read(time.Time{}, 1)
	if err != nil || len(entries) != 1 || len(entries[0].Raw) > 2*maxKeptText+200 || !strings.Contains(string(entries[0].Raw), "z…") {
		t.Errorf("%d lines, %v", len(entries), err)
	}
}

func TestFollowBeginsAnewInAFileThatWasCut(t *testing.T) {
	s := logSource{filepath.Join(t.TempDir(), "a.log"), "a", true}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("one\ntwo\nthr")
	entries, at, err := s.read()
	if want := []string{"a: one", "a: two"}; err != nil || fmt.Sprint(texts(entries)) != fmt.Sprint(want) {
		t.Fatalf("%q %v", texts(entries), err)
	}
	put("one\ntwo\nthree\n")
	if entries, at, err = s.readNew(at); err != nil || fmt.Sprint(texts(entries)) != "[a: three]" {
		t.Errorf("%q %v", texts(entries), err)
	}
	put("new\n")
	if entries, at, err = s.readNew(at); err != nil || fmt.Sprint(texts(entries)) != "[a: new]" {
		t.Errorf("%q %v", texts(entries), err)
	}
	if entries, _, err = s.readNew(at); err != nil || len(entries) > 0 {
		t.Errorf("%q %v", texts(entries), err)
	}
}

func TestVerboseLeavesNoRecordOut(t *testing.T) {
	var stderr bytes.Buffer
	o := New(&stderr, true)
	o.Apply(Settings{Level: slog.LevelError})
	slog.New(o.Handler()).Debug("seen")
	o.Close()
	if !strings.Contains(stderr.String(), "msg=seen") {
		t.Errorf("%q", stderr.String())
	}
}

// hangingWriter blocks each write until it is closed.
type hangingWriter chan struct{}

func (w hangingWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}

func TestADiskThatHangsDelaysNoCaller(t *testing.T) {
	hangs := make(hangingWriter)
	w := newFileQueue(func(error) {})
	nowhere := file{path: filepath.Join(t.TempDir(), "no", "folder"), limit: maxFile}
	for range 2 * queuedLines {
		w.enqueue(queuedLine{nowhere, []byte("x\n"), hangs})
	}
	if n := w.lost.Load(); n < queuedLines-1 {
		t.Errorf("only %d lines were left out", n)
	}
	close(hangs)
	w.close(wait.Bound)
}

func TestAFullDiskLosesLinesAndNothingElse(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("skipped: this system has no /dev/full")
	}
	data := t.TempDir()
	path := serverFile(Folder(data), "a")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink("/dev/full", path)); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	o := New(&stderr, false)
	o.Keep(data)
	for range 100 {
		o.KeepStderr("a", "lost", 0)
	}
	slog.New(o.Handler()).Info("our own record")
	o.Close()
	if got := stderr.String(); strings.Count(got, "cannot be written") != 1 || !strings.Contains(got, "no space left") || !strings.Contains(got, "our own record") {
		t.Errorf("%q", got)
	}
	if entries, _, err := NewLogReader(data, Own).Read(time.Time{}, 0); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", texts(entries), err)
	}
}

func TestALineBehindOneThatWasCutBeginsOnItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	w := newFileQueue(func(err error) { t.Error(err) })
	if err := os.WriteFile(path, []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.torn[path] = true
	for _, line := range []string{"one\n", "two\n"} {
		if err := w.append(file{path, maxFile, true}, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "cut\none\ntwo\n" {
		t.Errorf("%q %v", text, err)
	}
}

func TestFollowSeesNewLinesAcrossARotationAndANewServer(t *testing.T) {
	data := t.TempDir()
	folder := Folder(data)
	w := newFileQueue(func(err error) { t.Error(err) })
	add := func(server, text string) {
		t.Helper()
		if err := w.append(file{serverFile(folder, server), maxServerFile, true}, encodeServerLine(server, text, 0)); err != nil {
			t.Fatal(err)
		}
	}
	add("a", "old")
	r := NewLogReader(data)
	entries, at, err := r.Read(time.Time{}, 10)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	seen := make(chan Line, 10)
	ended := make(chan error, 1)
	ctx, stop := t.Context(), errors.New("stop")
	go func() {
		ended <- r.Follow(ctx, at, func(all []Line) error {
			for _, e := range all {
				seen <- e
				if strings.Contains(string(e.Raw), "last") {
					return stop
				}
			}
			return nil
		})
	}()
	add("a", "before the rotation")
	if err := os.Rename(serverFile(folder, "a"), serverFile(folder, "a")+rotated); err != nil {
		t.Fatal(err)
	}
	add("a", "behind it")
	add("b", "of a new server")
	var got []Line
	for range 3 {
		got = append(got, wait.Receive(t, "a new line", seen))
	}
	if want := []string{"a: before the rotation", "a: behind it", "b: of a new server"}; fmt.Sprint(texts(got)) != fmt.Sprint(want) {
		t.Errorf("%q\nwant\n%q", texts(got), want)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	add("a", "last")
	wait.Receive(t, "the last line", seen)
	if err := wait.Receive(t, "the end", ended); !errors.Is(err, stop) {
		t.Error(err)
	}
}
