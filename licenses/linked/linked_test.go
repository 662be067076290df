package linked

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func readStandard(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "texts", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(text), "COPYRIGHT", "Copyright (c) 2026 Ann Author", 1)
}

func TestALicenseWithOtherTermsIsNotRecognized(t *testing.T) {
	mit := readStandard(t, "MIT")
	for _, tt := range []struct{ name, text, want string }{
		{"MIT", mit, "MIT"},
		{"BSD with three clauses", readStandard(t, "BSD-3-Clause"), "BSD-3-Clause"},
		{"two licenses", mit + "\n" + readStandard(t, "BSD-3-Clause"), "BSD-3-Clause MIT"},
		{"a condition more", mit + "\nThe Software must not be used by a company that has more than 100 employees.\n", ""},
		{"the Commons Clause", "\"Commons Clause\" License Condition v1.0\n\nThe Software is provided to you by the Licensor under the License, as defined below, subject to the following condition.\n\nWithout limiting other conditions in the License, the grant of rights under the License will not include, and the License does not grant to you, the right to Sell the Software.\n\n" + mit, ""},
		{"no license", "All rights reserved.\n", ""},
		{"nothing", "", ""},
	} {
		got, err := recognize(tidy(tt.text))
		if want := strings.Fields(tt.want); (err == nil) != (tt.want != "") || err == nil && !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, want)
		}
	}
}

func TestLicensesAreFoundFromTheFolderOfThePackageUpToThatOfTheModule(t *testing.T) {
	above := t.TempDir()
	module := filepath.Join(above, "module")
	for name, text := range map[string]string{
		"LICENSE":                         "not of the module",
		"module/LICENSE.txt":              readStandard(t, "MIT"),
		"module/NOTICE":                   "A notice.\r\n",
		"module/license.go":               "package module",
		"module/sub/COPYING":              readStandard(t, "BSD-3-Clause"),
		"module/sub/package/readme.md":    "text",
		"module/other/LICENSE":            "of a package that is not linked",
		"module/sub/package/licenses/BSD": "a folder",
	} {
		file := filepath.Join(above, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := Work{Name: "module"}
	for range 2 { // another package of the module adds nothing
		if err := w.addFiles(module, filepath.Join(module, "sub", "package")); err != nil {
			t.Fatal(err)
		}
	}
	var files []string
	for _, text := range w.Texts {
		files = append(files, text.File)
	}
	if want := []string{"LICENSE.txt", "NOTICE", "sub/COPYING"}; !slices.Equal(files, want) || !slices.Equal(w.IDs(), []string{"BSD-3-Clause", "MIT"}) || w.Texts[1].Text != "A notice.\n" {
		t.Errorf("files %q, ids %q", files, w.IDs())
	}
	if err := w.addFiles(module, above); err == nil {
		t.Error("a folder outside of the module was read")
	}
}

func TestAWorkWithinAnotherHasTheCopyrightInAComment(t *testing.T) {
	for program, want := range map[string]string{
		"#include <x.h>\n/* Not this. */\n/*\n * Copyright Ann.\n *\n * Do it.\n */\nint x;\n": "Copyright Ann.\n\nDo it.\n",
		"int x;\n// Copyright Ann.\n//\n// Do it.\nint y;\n":                                   "Copyright Ann.\n\nDo it.\n",
	} {
		if got := tidy(string(copyrightComment([]byte(program)))); got != want {
			t.Errorf("%q", got)
		}
	}
	if got := copyrightComment([]byte("/* no */ int x;\n")); got != nil {
		t.Errorf("%q", got)
	}
}

func TestTheFileHasEveryTextOnceAndARowForEachWork(t *testing.T) {
	one := Text{File: "LICENSE", Text: "One.\n", IDs: []string{"MIT"}}
	got := Render("Ours.\n", []Work{
		{Name: "a", Version: "v1", Texts: []Text{one, {File: "NOTICE", Text: "Two.\n"}}},
		{Name: "b", Version: "v2", Texts: []Text{one}},
		{Name: "c", In: "b", Texts: []Text{{Text: "Ours.\n", IDs: []string{"Apache-2.0"}}}},
	})
	for _, row := range []string{
		"\na     v1       MIT         2, 3\n", "\nb     v2       MIT         2\n", "\nc     as in b  Apache-2.0  1\n",
		"\nText 1: Apache-2.0, with Switchboard, c\n", "\nText 2: MIT, with a, b\n", "\nText 3: a notice, with a\n",
	} {
		if !strings.Contains(got, row) {
			t.Errorf("it lacks %q:\n%s", row, got)
		}
	}
	if strings.Count(got, "One.\n") != 1 || strings.Count(got, "Two.\n") != 1 {
		t.Errorf("a text is there more than once, or not at all:\n%s", got)
	}
}
