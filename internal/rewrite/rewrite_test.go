package rewrite_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/rewrite"
)

// endlessWriter makes the test program change the file of that name until it is killed.
const endlessWriter = "REWRITE_TEST_FILE"

func TestMain(m *testing.M) {
	if name := os.Getenv(endlessWriter); name != "" {
		for i := 0; ; i++ {
			if err := rewrite.File(context.Background(), name, 0o600, func([]byte) ([]byte, error) { return whole(i), nil }); err != nil {
				fmt.Println("error:", err)
				os.Exit(1)
			}
			fmt.Println(i)
		}
	}
	os.Exit(m.Run())
}

// whole returns one of two contents, large enough to be written in pieces.
func whole(i int) []byte {
	return append(bytes.Repeat([]byte{"ab"[i%2]}, 300_000), '\n')
}

// appendLine is a change that adds a line.
func appendLine(line string) func([]byte) ([]byte, error) {
	return func(old []byte) ([]byte, error) { return append(slices.Clone(old), line+"\n"...), nil }
}

func writeFile(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil || string(got) != text {
		t.Errorf("%s holds %q, %v; want %q", filepath.Base(name), got, err, text)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != mode {
		t.Errorf("%s has the mode %v, %v; want %v", filepath.Base(name), info.Mode(), err, mode)
	}
}

// wantFiles fails the test unless the folder holds these files and no other.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

func TestAFileKeepsItsModeAndALinkStays(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	writeFile(t, file, "a\n", 0o640)
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	if err := rewrite.File(t.Context(), link, 0o600, appendLine("b")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, file, "a\nb\n", 0o640)
	if to, err := os.Readlink(link); err != nil || to != "real" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	wantFiles(t, dir, "link", "real")
}

func TestAnAbsentFileIsMadeWithTheGivenMode(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "new")
	err := rewrite.File(t.Context(), file, 0o600, func(old []byte) ([]byte, error) {
		if old != nil {
			t.Errorf("old = %q, want nil", old)
		}
		return []byte("x\n"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, file, "x\n", 0o600)
	wantFiles(t, dir, "new")
}

// It can hold a secret.
func TestWhatAKilledProcessHasLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "same")
	writeFile(t, file, "a\n", 0o644)
	writeFile(t, filepath.Join(dir, ".same.switchboard-new"), "half", 0o600)
	writeFile(t, filepath.Join(dir, ".none.switchboard-new"), "half", 0o600)
	if err := rewrite.File(t.Context(), file, 0o600, func(old []byte) ([]byte, error) { return old, nil }); err != nil {
		t.Fatal(err)
	}
	if err := rewrite.Discard(t.Context(), filepath.Join(dir, "none")); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "same")
}

func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "same")
	writeFile(t, file, "a\n", 0o644)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("no")
	for want, change := range map[error]func([]byte) ([]byte, error){
		nil:     func(old []byte) ([]byte, error) { return old, nil },
		refusal: func([]byte) ([]byte, error) { return []byte("b\n"), refusal },
	} {
		if err := rewrite.File(t.Context(), file, 0o600, change); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
		if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
			t.Errorf("the file is another one, %v", err)
		}
	}
	wantFiles(t, dir, "same")
}

func TestFilesThatCannotBeChangedAreRefused(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "read-only"), "a\n", 0o444)
	if err := os.Symlink("gone", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for name, why := range map[string]string{"read-only": "is read-only; make it writable", "dangling": "is a link to a file that does not exist", ".": "is no regular file"} {
		err := rewrite.File(t.Context(), filepath.Join(dir, name), 0o600, appendLine("b"))
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: error %v, want %q", name, err, why)
		}
	}
	wantFiles(t, dir, "dangling", "read-only")
}

func TestAFolderThatCannotBeWrittenIsNamedByTheFile(t *testing.T) {
	const folder = "/sys" // not even root may make a file there
	if _, err := os.Stat(folder); err != nil {
		t.Skip("there is no such folder here:", err)
	}
	name := filepath.Join(folder, "f.yaml")
	err := rewrite.File(t.Context(), name, 0o600, appendLine("b"))
	if want := name + " cannot be changed, because its folder cannot be written: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestAChangeIsComputedAnewIfTheFileHasChangedMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	writeFile(t, file, "a\n", 0o600)
	calls := 0
	err := rewrite.File(t.Context(), file, 0o600, func(old []byte) ([]byte, error) {
		if calls++; calls <= 2 { // an editor saves the file without our lock
			writeFile(t, file, string(old)+"editor\n", 0o600)
		}
		return appendLine("ours")(old)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, file, "a\neditor\neditor\nours\n", 0o600)
}

func TestAFileThatNeverStopsChangingIsGivenUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	writeFile(t, file, "", 0o600)
	err := rewrite.File(t.Context(), file, 0o600, func(old []byte) ([]byte, error) {
		writeFile(t, file, string(old)+"x", 0o600)
		return []byte("ours"), nil
	})
	if err == nil || !strings.Contains(err.Error(), "another program changes it all the time") {
		t.Errorf("error %v", err)
	}
}

func TestWritersAtOnceLoseNoChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	var all sync.WaitGroup
	const writers, changes = 6, 5
	for w := range writers {
		all.Go(func() {
			for c := range changes {
				if err := rewrite.File(t.Context(), file, 0o600, appendLine(fmt.Sprint(w, c))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(strings.ReplaceAll(string(got), " ", "-"))
	if slices.Sort(lines); len(slices.Compact(lines)) != writers*changes {
		t.Errorf("%d changes are in the file, want %d", len(lines), writers*changes)
	}
}

// A process that is killed in between leaves the old file or the new one, and the next change removes what it left.
func TestAKillLeavesAWholeFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for round := range 8 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), endlessWriter+"="+file)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + round {
			if !lines.Scan() || strings.HasPrefix(lines.Text(), "error") {
				t.Fatalf("the writer said %q, %v", lines.Text(), lines.Err())
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // it was killed
		got, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, whole(0)) && !bytes.Equal(got, whole(1)) {
			t.Fatalf("round %d: the file holds %d bytes that are neither content, %v", round, len(got), err)
		}
	}
	if err := rewrite.File(t.Context(), file, 0o600, func([]byte) ([]byte, error) { return []byte("end\n"), nil }); err != nil {
		t.Fatal(err)
	}
	wantFile(t, file, "end\n", 0o600)
	wantFiles(t, dir, "f")
}
