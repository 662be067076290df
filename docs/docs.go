// Package docs holds the documents of Switchboard, so that the program can print them.
//
// It decides how a document, a section and the text of an error code are named. It leaves to its callers how they are
// shown.
package docs

import (
	"embed"
	"path"
	"slices"
	"strings"
	"unicode"
)

//go:embed *.md errors/*.md
var files embed.FS

// errorsFile is the document with a section for each error code.
const errorsFile = "errors/README.md"

// A Page is one document.
type Page struct {
	Name  string // as the user writes it: "calls" for calls.md
	Title string // its first heading
	Text  string // its Markdown
}

// A Code is the section of one error code.
type Code struct {
	Code  string // such as SB-LAZY-001
	Title string
	Text  string // its Markdown, from the heading on
}

// Pages returns all documents, sorted by name.
func Pages() []Page {
	folder, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the program
	}
	pages := []Page{readPage(errorsFile)}
	for _, f := range folder {
		if !f.IsDir() {
			pages = append(pages, readPage(f.Name()))
		}
	}
	slices.SortFunc(pages, func(a, b Page) int { return strings.Compare(a.Name, b.Name) })
	return pages
}

func readPage(file string) Page {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // the files are part of the program
	}
	heading, _, _ := strings.Cut(string(text), "\n")
	return Page{Name: nameOf(file), Title: strings.TrimSpace(strings.TrimLeft(heading, "#")), Text: string(text)}
}

// nameOf returns the name of the document in a file. The target of a link in a document is such a file, seen from
// the document.
func nameOf(file string) string {
	for strings.HasPrefix(file, "../") {
		file = file[len("../"):]
	}
	file = strings.ToLower(strings.TrimSuffix(path.Clean(file), path.Ext(file)))
	return strings.TrimPrefix(strings.TrimSuffix(file, "/readme"), "docs/")
}

// Find returns the document that a user names: by its name, its file, or the target of a link to it. If the name
// ends in #SECTION, the text is only that section. ok is false if there is no such document or section.
func Find(name string) (page Page, ok bool) {
	name, anchor, _ := strings.Cut(name, "#")
	name = nameOf(name)
	all := Pages()
	at := slices.IndexFunc(all, func(p Page) bool { return p.Name == name })
	if at < 0 {
		return Page{}, false
	}
	if page = all[at]; anchor != "" {
		page.Text = section(page.Text, func(heading string) bool { return Anchor(heading) == anchor })
	}
	return page, page.Text != ""
}

// LinkName returns the name for Find of the target of a link in a document; ok is false if the link does not lead
// to a document. The link may be within the document itself.
func LinkName(from, target string) (name string, ok bool) {
	file, anchor, found := strings.Cut(target, "#")
	switch {
	case file == "":
		file = from
	case strings.Contains(file, "://"):
		return "", false
	}
	if name = nameOf(file); found {
		name += "#" + anchor
	}
	_, ok = Find(name)
	return name, ok
}

// Codes returns the sections of the codes that begin with prefix, in any case, in the order of the document.
func Codes(prefix string) []Code {
	page := readPage(errorsFile)
	var found []Code
	for line := range strings.Lines(page.Text) {
		heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
		code, title, _ := strings.Cut(heading, " ")
		if !ok || !strings.HasPrefix(code, "SB-") || !strings.HasPrefix(code, strings.ToUpper(prefix)) {
			continue
		}
		found = append(found, Code{Code: code, Title: title, Text: section(page.Text, func(h string) bool { return h == heading })})
	}
	return found
}

// section returns the part of a document below the first heading that is wanted, with the heading, up to the next
// heading that is not deeper; "" if there is none.
func section(text string, wanted func(heading string) bool) string {
	var found strings.Builder
	level, inCode := 0, false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			inCode = !inCode
		}
		rest := strings.TrimLeft(line, "#")
		if depth := len(line) - len(rest); !inCode && depth > 0 && strings.HasPrefix(rest, " ") {
			if level > 0 && depth <= level {
				break
			}
			if level == 0 && wanted(strings.TrimSpace(rest)) {
				level = depth
			}
		}
		if level > 0 {
			found.WriteString(line)
		}
	}
	return strings.TrimRight(found.String(), "\n") + strings.Repeat("\n", min(level, 1))
}

// Anchor returns the anchor that a renderer of Markdown gives to a heading: lower case, spaces as hyphens, without
// punctuation.
func Anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
