package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// Most contorted constructions in 1,000 words, of one package or folder, and of everything together.
const (
	mostOfOne = 5
	mostOfAll = 3
)

// contorted are constructions that make a reader read a sentence twice: relative clauses without a noun, a pronoun in the place of the thing, and
// passives of "have". A match is a hint, not a proof, so the limits leave room for a good sentence.
var contorted = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`\b(?:about|after|among|at|before|behind|beside|by|for|from|in|of|on|through|to|under|with|without) (?:which|whom|whose)\b`,
	`\b(?:and|as|by|for|from|is|know|knows|of|said|say|says|than|to) who\b`,
	`\bwho(?:ever|se)\b|\b(?:what|which)ever\b`,
	`\b(?:about|and|as|behind|but|by|for|from|in|not|of|on|or|than|to|with) what\b`,
	`\b(?:and|are|as|be|is|not|of|or|than|to|with) th(?:at|ose) of\b`,
	`\b(?:nobody|but for|lets? go|letting go)\b`,
	`\bhas (?:it|them|[a-z]+) (?:archived|asked|bound|done|kept|known|noted|read|recorded|run|told|written)\b`,
}, "|"))

// A passage is a comment or a paragraph.
type passage struct {
	place string // file:line
	text  string
}

func TestCommentsAndDocumentsArePlain(t *testing.T) {
	byFolder := map[string][]passage{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		short := filepath.ToSlash(strings.TrimPrefix(name, root+"/"))
		if d.IsDir() {
			if base := d.Name(); name != root && strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || short == "deploy/run" {
				return filepath.SkipDir
			}
			return nil
		}
		var found []passage
		switch {
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			found, err = comments(name, short)
		case strings.HasSuffix(name, ".md"):
			found, err = paragraphs(name, short)
		}
		folder := filepath.ToSlash(filepath.Dir(short))
		byFolder[folder] = append(byFolder[folder], found...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	allWords, allFound := 0, 0
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		words, found := 0, 0
		for _, p := range byFolder[folder] {
			words += len(strings.Fields(p.text))
			found += len(contorted.FindAllString(p.text, -1))
			if wrongArticle.MatchString(p.text) {
				t.Errorf("%s: %.40s…: write \"An\"", p.place, p.text)
			}
		}
		allWords, allFound = allWords+words, allFound+found
		if found > 1 && found*1000 > mostOfOne*words {
			t.Errorf("%s: %d contorted constructions in %d words; the limit is %d in 1,000. The worst:\n%s", folder, found, words, mostOfOne, worst(byFolder[folder]))
		}
	}
	t.Logf("%d contorted constructions in %d words", allFound, allWords)
	if allWords < 50_000 {
		t.Errorf("only %d words were found: the search misses files", allWords)
	}
	if allFound*1000 > mostOfAll*allWords {
		t.Errorf("%d contorted constructions in %d words; the limit is %d in 1,000", allFound, allWords, mostOfAll)
	}
}

// wrongArticle finds the comment of a name that begins with a vowel's sound, behind "A".
var wrongArticle = regexp.MustCompile(`^A (?:[AI]|E[^u]|O[^n])[a-z]`)

// The example of the part on plain words, before and after.
func TestTheCheckFindsAContortedSentenceAndPassesAPlainOne(t *testing.T) {
	for text, want := range map[string]int{
		"maxRecorded bounds of whom is remembered what was recorded last.":            1,
		"maxRecorded limits how many subjects the recorder remembers.":                0,
		"move has s found no more, but for what is under way in it.":                  1,
		"move removes s from the lookup table because another replica owns it now.":   0,
		"version is that of the form of a Receipt.":                                   1,
		"Nobody while another writes.":                                                1,
		"lead declines when another caller is writing, or when ctx may expire first.": 0,
	} {
		if got := len(contorted.FindAllString(text, -1)); got != want {
			t.Errorf("%q: %d found, want %d", text, got, want)
		}
	}
}

// comments returns the comments of a Go file.
func comments(name, short string) ([]passage, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	found := make([]passage, 0, len(file.Comments))
	for _, group := range file.Comments {
		found = append(found, passage{fmt.Sprintf("%s:%d", short, files.Position(group.Pos()).Line), plain(group)})
	}
	return found, nil
}

// plain returns the text of a comment without directives.
func plain(group *ast.CommentGroup) string { return strings.Join(strings.Fields(group.Text()), " ") }

// paragraphs returns the paragraphs of a Markdown file, without its blocks of code.
func paragraphs(name, short string) ([]passage, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var found []passage
	fenced, line := false, 1
	for block := range strings.SplitSeq(string(text), "\n\n") {
		var kept []string
		for l := range strings.SplitSeq(block, "\n") {
			if strings.HasPrefix(l, "```") {
				fenced = !fenced
			} else if !fenced && !strings.HasPrefix(l, "    ") {
				kept = append(kept, l)
			}
		}
		if len(kept) > 0 {
			found = append(found, passage{fmt.Sprintf("%s:%d", short, line), strings.Join(kept, " ")})
		}
		line += strings.Count(block, "\n") + 2
	}
	return found, nil
}

// worst lists the five passages with the most contorted constructions.
func worst(passages []passage) string {
	sorted := slices.Clone(passages)
	slices.SortStableFunc(sorted, func(a, b passage) int {
		return cmp.Compare(len(contorted.FindAllString(b.text, -1)), len(contorted.FindAllString(a.text, -1)))
	})
	var b strings.Builder
	for _, p := range sorted[:min(5, len(sorted))] {
		fmt.Fprintf(&b, "  %s: %q\n", p.place, contorted.FindAllString(p.text, -1))
	}
	return b.String()
}
