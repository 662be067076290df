package page_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Whoever adds a view makes its pictures with "make screenshots", and shows them in docs/page.md.
func TestEachViewHasItsPictures(t *testing.T) {
	t.Parallel()
	const docs = "../../../docs/"
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = answer(200, "application/json", overviewOf(t, ""))
	views := regexp.MustCompile(`<li><a href="(/[^"?]+)`).FindAllStringSubmatch(d.ask("GET", "/now", host, "", cookie...).Body.String(), -1)
	if len(views) < 10 {
		t.Fatalf("the navigation has the views %q", views)
	}
	guide := read(docs + "page.md")
	for _, view := range views {
		for _, scheme := range []string{"light", "dark"} {
			picture := "images/" + strings.Trim(view[1], "/") + "-" + scheme + ".png"
			if !strings.Contains(guide, "]("+picture+")") {
				t.Errorf("docs/page.md does not show %s", picture)
			}
		}
	}
	shown := map[string]bool{}
	for _, text := range []string{guide, strings.ReplaceAll(read("../../../README.md"), "docs/images/", "images/")} {
		for _, m := range regexp.MustCompile(`\]\(images/([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			shown[m[1]] = true
		}
	}
	kept, err := os.ReadDir(docs + "images")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range kept {
		if !shown[file.Name()] {
			t.Errorf("no document shows docs/images/%s", file.Name())
		}
		delete(shown, file.Name())
	}
	for name := range shown {
		t.Errorf("docs/images has no %s", path.Base(name))
	}
}
