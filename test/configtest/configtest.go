// Package configtest holds what the tests of the packages that read configurations share: Archives with
// Golden files, an environment with secrets, and a check of faults.
package configtest

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the want files in testdata")

// Canary is the value of every secret in these tests. No output may contain it.
const Canary = "canary-7f3a"

// Env is the environment of these tests.
func Env(name string) (string, bool) {
	v, ok := map[string]string{
		"BRAVE_KEY": Canary, "VISIBLE_TOKEN": "for-all-to-see", "GITHUB_TOKEN": Canary, "EMPTY": "", "BROKEN": Canary + "\r\nX-Injected: 1", "NUL": Canary + "\x00",
		"LONG": strings.Repeat(Canary, 10_000),
	}[name]
	return v, ok
}

// Archives runs a test for each archive that the pattern names.
func Archives(t *testing.T, pattern string, run func(t *testing.T, ar *txtar.Archive)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			run(t, ar)
			if *update && !t.Failed() {
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Golden compares got with a file of the archive; with -update it writes the file.
func Golden(t *testing.T, ar *txtar.Archive, name, got string) {
	t.Helper()
	if strings.Contains(got, Canary) {
		t.Errorf("%s shows a secret:\n%s", name, got)
	}
	i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == name })
	if *update {
		if i < 0 {
			ar.Files, i = append(ar.Files, txtar.File{Name: name}), len(ar.Files)
		}
		ar.Files[i].Data = []byte(got)
	}
	if i < 0 {
		t.Fatalf("the archive has no %s; run with -update", name)
	}
	if want := string(ar.Files[i].Data); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// Resolved is the value of every variable in the fuzz tests. It is in no file. A Canary would not do:
// a mangled file may contain it where the loader cannot know that it is a secret.
const Resolved = "resolved-5d1e"

// ResolveAll is an environment: every variable has the value Resolved.
func ResolveAll(string) (string, bool) { return Resolved, true }

// CheckFaults fails the test unless err is nil, or Faults at positions that exist, sorted, in text
// that is safe for a terminal.
func CheckFaults(t *testing.T, fsys fstest.MapFS, err error) {
	t.Helper()
	if err == nil {
		return
	}
	fs, ok := errors.AsType[switchboard.Faults](err)
	if !ok || len(fs) == 0 {
		t.Fatalf("error is %T %v, want Faults", err, err)
	}
	for _, f := range fs {
		if f.Text == "" || strings.ContainsFunc(f.String(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("fault %q contains unprintable characters", f)
		}
		file, ok := fsys[f.File]
		if lines := 1; ok {
			lines += bytes.Count(file.Data, []byte("\n"))
			if f.Line < 0 || f.Line > lines || f.Line > 0 && f.Column < 1 {
				t.Errorf("fault %q has a line outside of its file of %d lines", f, lines)
			}
		}
		if f.File == "" {
			t.Errorf("fault %q names no file", f)
		}
	}
	if !slices.IsSortedFunc(fs[:min(len(fs), document.MaxFaults)], func(a, b switchboard.Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	}) {
		t.Errorf("the faults are not sorted:\n%v", err)
	}
	if strings.Contains(err.Error(), Resolved) {
		t.Errorf("a fault shows a secret:\n%v", err)
	}
}

// RealData returns a file of the folder of real data beside the checkout.
func RealData(t *testing.T, name string) []byte {
	t.Helper()
	dir := realdata.File()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("no %s; set SWITCHBOARD_DATA to the folder of test data", name)
	}
	return b
}
