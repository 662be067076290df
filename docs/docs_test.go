package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/docs"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestEveryCodeHasItsText(t *testing.T) {
	for _, code := range switchboard.Codes() {
		found := docs.Codes(string(code))
		if len(found) != 1 || found[0].Code != string(code) || found[0].Title == "" || !strings.HasPrefix(found[0].Text, "## "+string(code)) {
			t.Errorf("%s: %+v", code, found)
		}
		if n := strings.Count(found[0].Text, "\n## "); n != 0 {
			t.Errorf("the text of %s has %d more sections", code, n)
		}
	}
	if found := docs.Codes("sb-lazy"); len(found) != 4 {
		t.Errorf("%d codes begin with SB-LAZY", len(found))
	}
	if found := docs.Codes("SB-NONE"); found != nil {
		t.Errorf("there is %+v", found)
	}
}

func TestADocumentIsFoundByItsNameItsFileAndALink(t *testing.T) {
	for _, name := range []string{"calls", "calls.md", "docs/calls.md", "../calls.md", "Calls"} {
		if page, ok := docs.Find(name); !ok || page.Name != "calls" || page.Title != "Calls" {
			t.Errorf("%s: %v %q %q", name, ok, page.Name, page.Title)
		}
	}
	if page, ok := docs.Find("errors/README.md"); !ok || page.Title != "Error codes" {
		t.Errorf("%v %q", ok, page.Title)
	}
	if page, ok := docs.Find("calls#rate-limits"); !ok || !strings.HasPrefix(page.Text, "## Rate limits\n") || strings.Count(page.Text, "\n## ") != 0 {
		t.Errorf("%v %.100q", ok, page.Text)
	}
	for _, name := range []string{"", "nothing", "calls#nothing", "../README.md", "schema"} {
		if page, ok := docs.Find(name); ok {
			t.Errorf("%q is %q", name, page.Name)
		}
	}
}

// Links of the documents to documents must lead somewhere.
func TestEveryLinkToADocumentLeadsThere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+\.md(#[^)\s]*)?|#[^)\s]+)\)`)
	outside := []string{"../README.md", "../CONTRIBUTING.md", "../SECURITY.md"}
	links := 0
	for _, page := range docs.Pages() {
		for _, m := range link.FindAllStringSubmatch(page.Text, -1) {
			file, _, _ := strings.Cut(m[1], "#")
			if slices.Contains(outside, file) || strings.Contains(file, "://") || strings.Contains(file, "../policies/") {
				continue
			}
			links++
			if _, ok := docs.LinkName(page.Name, m[1]); !ok {
				t.Errorf("%s: %s leads nowhere", page.Name, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}
