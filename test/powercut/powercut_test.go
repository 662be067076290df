package powercut_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/powercut"
)

// quoted are the texts that strace prints in hexadecimal digits.
var quoted = regexp.MustCompile(`'[^']*'|<[/s][^>]*>`)

// record writes calls into a file as strace does. The text has 'x' for the string x.
func record(t *testing.T, calls string) []powercut.Event {
	t.Helper()
	text := quoted.ReplaceAllStringFunc(calls, func(s string) string {
		digits := ""
		for _, b := range []byte(s[1 : len(s)-1]) {
			digits += fmt.Sprintf(`\x%02x`, b)
		}
		if s[0] == '<' {
			return "<" + digits + ">"
		}
		return `"` + digits + `"`
	})
	file := filepath.Join(t.TempDir(), "record")
	if err := os.WriteFile(file, []byte(strings.TrimLeft(text, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := powercut.Read(file, "/d")
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// files returns what is in a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	list, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil {
			text = []byte("a folder")
		}
		all[filepath.Base(name)] = string(text)
	}
	return all
}

func TestAPowerCutKeepsWhatWasSyncedAndMayLoseTheRest(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		calls    string
		drop     bool
		few, all map[string]string // what is left if nothing, and if everything else is kept
	}{
		"nothing happens": {"", false, map[string]string{"old": "old"}, map[string]string{"old": "old"}},
		"a write without a sync": {
			"1 pwrite64(3</d/old>, 'new', 3, 1) = 3\n", false,
			map[string]string{"old": "old"},
			map[string]string{"old": "onew"},
		},
		"a write with a sync": {
			"1 pwrite64(3</d/old>, 'new', 3, 1) = 3\n1 fdatasync(3</d/old>) = 0\n", false,
			map[string]string{"old": "onew"},
			map[string]string{"old": "onew"},
		},
		"a sync that does nothing": {
			"1 pwrite64(3</d/old>, 'new', 3, 1) = 3\n1 fdatasync(3</d/old>) = 0\n", true,
			map[string]string{"old": "old"},
			map[string]string{"old": "onew"},
		},
		"a write that begins while a sync is under way": {
			"1 fsync(3</d/old> <unfinished ...>\n2 pwrite64(3</d/old>, 'new', 3, 1) = 3\n1 <... fsync resumed>) = 0\n", false,
			map[string]string{"old": "old"},
			map[string]string{"old": "onew"},
		},
		"a write that returns while a sync is under way": {
			"2 pwrite64(3</d/old>, 'new', 3, 1 <unfinished ...>\n1 fsync(3</d/old> <unfinished ...>\n2 <... pwrite64 resumed>) = 3\n1 <... fsync resumed>) = 0\n", false,
			map[string]string{"old": "old"},
			map[string]string{"old": "onew"},
		},
		"a sync that has not returned": {
			"1 pwrite64(3</d/old>, 'new', 3, 1) = 3\n1 fsync(3</d/old> <unfinished ...>\n", false,
			map[string]string{"old": "old"},
			map[string]string{"old": "onew"},
		},
		"a sync that fails": {
			"1 pwrite64(3</d/old>, 'new', 3, 1) = 3\n1 fsync(3</d/old>) = -1 EIO (Input/output error)\n", false,
			map[string]string{"old": "old"},
			map[string]string{"old": "onew"},
		},
		"a new file that is synced, in a folder that is not": {
			"1 openat(AT_FDCWD</d>, 'new', O_WRONLY|O_CREAT|O_APPEND, 0600) = 4</d/new>\n1 write(4</d/new>, 'a', 1) = 1\n1 write(4</d/new>, 'b', 1) = 1\n1 fsync(4</d/new>) = 0\n", false,
			map[string]string{"old": "old"},
			map[string]string{"old": "old", "new": "ab"},
		},
		"a new file that is not synced, in a folder that is": {
			"1 openat(AT_FDCWD</d>, 'new', O_WRONLY|O_CREAT, 0600) = 4</d/new>\n1 write(4</d/new>, 'ab', 2) = 2\n1 fsync(5</d>) = 0\n", false,
			map[string]string{"old": "old", "new": ""},
			map[string]string{"old": "old", "new": "ab"},
		},
		"a rename": {
			"1 openat(AT_FDCWD</d>, 'new', O_WRONLY|O_CREAT, 0600) = 4</d/new>\n1 write(4</d/new>, 'ab', 2) = 2\n1 fsync(4</d/new>) = 0\n1 fsync(5</d>) = 0\n1 rename('/d/new', '/d/old') = 0\n", false,
			map[string]string{"old": "old", "new": "ab"},
			map[string]string{"old": "ab"},
		},
		"a file that is removed, and a folder": {
			"1 unlink('/d/old') = 0\n1 mkdirat(AT_FDCWD</d>, 'sub', 0700) = 0\n", false,
			map[string]string{"old": "old"},
			map[string]string{"sub": "a folder"},
		},
		"a file that is cut off, and written over": {
			"1 ftruncate(3</d/old>, 1) = 0\n1 fsync(3</d/old>) = 0\n1 openat(AT_FDCWD</d>, 'old', O_WRONLY|O_CREAT|O_TRUNC, 0600) = 4</d/old>\n1 writev(4</d/old>, [{iov_base='x', iov_len=1}, {iov_base='y', iov_len=1}], 2) = 2\n", false,
			map[string]string{"old": "o"},
			map[string]string{"old": "xy"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "d")
			for kept, want := range map[float64]map[string]string{0: test.few, 1: test.all} {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
				disk, err := powercut.NewDisk(dir)
				if err != nil {
					t.Fatal(err)
				}
				disk.DropSync = func(int) bool { return test.drop }
				if err := disk.Replay("/d", record(t, test.calls)); err != nil {
					t.Fatal(err)
				}
				image := filepath.Join(t.TempDir(), "image")
				if err := disk.Cut(rand.New(rand.NewPCG(1, 2)), kept, image); err != nil {
					t.Fatal(err)
				}
				if got := files(t, image); !maps.Equal(got, want) {
					t.Errorf("with %v of the rest, %q is left, want %q", kept, got, want)
				}
			}
		})
	}
}

func TestAPowerCutCanTearAWriteAndIsTheSameAgainForASeed(t *testing.T) {
	t.Parallel()
	seed := law.Seed(t)
	torn := 0
	for n := range 20 {
		var left [2]string
		for i := range left {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			disk, err := powercut.NewDisk(dir)
			if err != nil {
				t.Fatal(err)
			}
			data := strings.Repeat("x", 4096)
			if err := disk.Replay("/d", record(t, "1 pwrite64(3</d/f>, '"+data+"', 4096, 100) = 4096\n")); err != nil {
				t.Fatal(err)
			}
			image := filepath.Join(t.TempDir(), "image")
			if err := disk.Cut(rand.New(rand.NewPCG(seed, uint64(n))), 0.5, image); err != nil {
				t.Fatal(err)
			}
			left[i] = files(t, image)["f"]
		}
		if left[0] != left[1] {
			t.Fatalf("the same seed leaves %q and %q", left[0], left[1])
		}
		if written := strings.Count(left[0], "x"); written > 0 && written < 4096 {
			torn++
		}
	}
	if torn < 10 {
		t.Errorf("%d of 20 writes were torn", torn)
	}
}

func TestACallThatIsNotUnderstoodIsAnError(t *testing.T) {
	t.Parallel()
	for _, calls := range []string{
		"1 fallocate(3</d/old>, FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE, 0, 1) = 0\n",
		"1 truncate('/d/old', 0) = 0\n",
		"1 pwrite64(3</d/old>, 'new', 3, 1) = 2\n",
		"1 pwrite64(3</d/gone>, 'new', 3, 1) = 3\n",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		disk, err := powercut.NewDisk(dir)
		if err == nil {
			err = disk.Replay("/d", record(t, calls))
		}
		if err == nil {
			t.Errorf("%s is replayed", calls)
		}
	}
}
