package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each file is for Windows, which this test is not run on, and has a mistake on the line that says so.
var mistaken = map[string]string{
	"go.mod":              "module example.com/m\n\ngo 1.26\n",
	"a.go":                "package m\n\n// F is used by others.\nfunc F() int { return 1 }\n",
	"a/a_windows.go":      "package a\n\nimport \"example.com/m\"\n\nfunc f() string { return m.F() } // wrong\n",
	"b/b_windows.go":      "package b\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\n\t\"example.com/m\"\n)\n\nfunc f(w io.Writer) { _, _ = fmt.Fprintf(w, \"%s\", m.F()) } // wrong\n",
	"c/c.go":              "package c\n",
	"c/c_windows_test.go": "package c\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.Logf(\"%d\", \"x\") } // wrong\n",
	"f/f_windows_test.go": "package f\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { _ = undefined } // wrong\n",
	"f/f.go":              "package f\n",
	"c/x_windows_test.go": "package c_test\n\nimport (\n\t\"testing\"\n\n\t_ \"example.com/m/c\"\n)\n\nfunc TestY(*testing.B) {} // wrong\n",
	"d/d_linux.go":        "package d\n\nvar x string = 1\n",
	"e/e_windows.go":      "package e\n\nfunc f() {\n",
}

func TestMistakesInFilesForAnotherSystemAreFound(t *testing.T) {
	root := t.TempDir()
	var want []string
	for name, text := range mistaken {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(text, "\n") {
			if strings.HasSuffix(line, "// wrong") {
				want = append(want, fmt.Sprintf("%s:%d", name, i+1))
			}
		}
	}
	want = append(want, "e/e_windows.go:3") // its end is missing
	t.Setenv("GOFLAGS", "-mod=mod")
	found, err := vet(t.Context(), root, "windows", "./...")
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile(`^(.*?\.go:\d+)`)
	var got []string
	for _, line := range found {
		at, _ := filepath.Rel(root, place.FindString(line))
		got = append(got, filepath.ToSlash(at))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
		t.Errorf("found in %q, want %q:\n%s", got, want, strings.Join(found, "\n"))
	}
	if found, err := vet(t.Context(), root, "plan9", "./..."); len(found) > 0 || err != nil {
		t.Errorf("for a system that the files are not for: %q, %v", found, err)
	}
}
