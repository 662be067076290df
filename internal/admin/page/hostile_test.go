package page_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// A hostileScene shows views in which everything that others can write is one of the texts, in turn.
type hostileScene struct {
	addresses []string
	groups    [][]string // the texts of each page
	show      func(t *testing.T, address string, texts ...string) string

	// otherShape is a part of pages that may have other elements than the rest; "" if there are none.
	otherShape string
}

// hostileScenes are all scenes. Whoever adds a view adds it to one of them.
var hostileScenes = map[string]func(t *testing.T) hostileScene{
	"now": nowScene, "decision": decisionTexts, "recorded decisions": recordedTexts, "ranking and configuration": rankingScene, "lists of servers, approvals and receipts": listsScene, "a server, a request and a receipt": singlesScene, "replays": replaysScene,
	"policies": policiesScene, "budgets": budgetsScene, "tasks": tasksScene, "try": tryScene, "capabilities": capabilitiesScene, "pins": pinsScene,
}

// PG-01 on the templates: a text of others makes no element and no attribute, no link leads elsewhere, and no character hides.
func TestPG01TextOfOthersOnEachViewStaysText(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for name, open := range hostileScenes {
		scene := open(t)
		for _, address := range scene.addresses {
			shown[page.PathOfView(address)] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene.check(t)
		})
	}
	for _, path := range page.PathsOfViews() {
		if !shown[path] {
			t.Errorf("no scene shows the view %s", path)
		}
	}
}

// check shows each view with each group of texts.
func (s *hostileScene) check(t *testing.T) {
	for _, address := range s.addresses {

		first := s.show(t, address, "text")
		plain, scripts := shapeOf(first), strings.Count(first, "<script") // ours
		for _, texts := range s.groups {
			got := s.show(t, address, texts...)
			if s.otherShape != "" && strings.Contains(got, s.otherShape) {
				if strings.Count(got, "<script") != scripts {
					t.Errorf("%s: %.60q makes a script:\n%s", address, texts, got)
				}
			} else if shapeOf(got) != plain {
				t.Errorf("%s: %.60q makes other elements or attributes:\n%s", address, texts, got)
			}
			for rest := got; ; {
				_, link, found := strings.Cut(rest, `href="`)
				if !found {
					break
				}
				rest = link
				if to, _, _ := strings.Cut(link, `"`); !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "#") || strings.HasPrefix(to, "//") {
					t.Errorf("%s: %.60q makes the link %q", address, texts, to)
				}
			}
			if at := findHidden(got); at >= 0 {
				t.Errorf("%s: %.60q: the page has a character as itself that is not visible:\n%.300q", address, texts, got[max(0, at-100):])
			}
		}
	}
}

// shapeOf returns the characters of a page that make elements and attributes.
func shapeOf(page string) string {
	shape := make([]byte, 0, len(page)/8)
	for i := range len(page) {
		if c := page[i]; c == '<' || c == '>' || c == '"' {
			shape = append(shape, c)
		}
	}
	return string(shape)
}

// findHidden returns where a page has a character that is not visible as itself; -1 if it has none. The names and values of fields are left out: a form sends
// them as they are.
func findHidden(page string) int {
	const name, value = ` name="`, ` value="`
	for i := 0; i < len(page); {
		c := page[i]
		switch {
		case c == ' ' && (strings.HasPrefix(page[i:], name) || strings.HasPrefix(page[i:], value)):
			i += strings.IndexByte(page[i:], '"') + 1
			i += max(0, strings.IndexByte(page[i:], '"'))
		case c > ' ' && c < 0x7f && c != '&' || c == ' ' || c == '\n' || c == '\t':
			i++
		case c == '&':
			n := 1 + max(0, strings.IndexByte(page[i:], ';'))
			if strings.IndexFunc(html.UnescapeString(page[i:i+n]), isHidden) >= 0 {
				return i
			}
			i += n
		default:
			r, n := utf8.DecodeRuneInString(page[i:])
			if isHidden(r) {
				return i
			}
			i += n
		}
	}
	return -1
}

// isHidden reports whether a character of a page is not visible as itself.
func isHidden(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff || r >= 0xe0000 && r <= 0xe0fff ||
		r == 0xad || r == 0x61c || r == 0x3164 || r >= 0x180b && r <= 0x180f || r >= 0xfe00 && r <= 0xfe0f
}

// open returns the view at an address, which must be there.
func (d *desk) open(t *testing.T, address string, cookie []string) string {
	t.Helper()
	w := d.ask("GET", address, host, "", cookie...)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", address, w.Code, w.Body)
	}
	return w.Body.String()
}

// hostileTexts are groups of texts that try to be something else than text. Each text is one line of at most that many bytes.
func hostileTexts(t *testing.T, most int) (all [][]string) {
	line := func(text string) string {
		return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), most)], "\n", " "), "")
	}
	for _, text := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`, `</title></bdi></code><script>`, `{{.Officer}}`, `<!--`, `]]>`,
		"a\u202egnp.exe", "pay\u200bpal", "tag\U000e0041\U000e0042", "nul\x00esc\x1b[31m", "\u2066x\u2069", "line\u2028sep", `\u{202e}`, "../../now?tenant=x#y", "a\nb", "soft\u00adhyphen \u061cmark \u180evowel \u3164filler 0\ufe0f\u180b\U000e0100",
	} {
		all = append(all, []string{line(text)})
	}
	naughty, err := naughtyTexts()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	} else if err != nil {
		t.Logf("the naughty strings are not here, so the test has only its own: %v", err)
	}
	lines := make([]string, len(naughty))
	for i, text := range naughty {
		lines[i] = cmp.Or(line(text), "empty") // what is empty is left out
	}
	return slices.AppendSeq(all, slices.Chunk(lines, 12)) // there are 12 concerns
}

// naughtyTexts reads the naughty strings, and the texts of poisoned tools.
var naughtyTexts = sync.OnceValues(func() (all []string, err error) {
	text, err := os.ReadFile(realdata.File("badinput", "blns", "blns.json"))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for _, file := range []string{"positives.jsonl", "hard_negatives.jsonl"} {
		if err == nil {
			err = realdata.Lines(realdata.File("poison", file), func(line []byte) error {
				var of struct{ Tool any }
				err := json.Unmarshal(line, &of)
				all = append(all, strings.Join(textsIn(of.Tool), " "))
				return err
			})
		}
	}
	return all, err
})

// lineBytes is how long a hostile text is if its view shows it whole.
const lineBytes = 400

// joinedTexts returns all texts, each page with one, as few as have 900 bytes at most: a view shows one of 1,000 bytes whole.
func joinedTexts(groups [][]string) (all [][]string) {
	joined := ""
	for _, group := range groups {
		if len(group) == 1 { // ours, each by itself
			all = append(all, group)
			continue
		}
		for _, text := range group {
			if len(joined)+1+len(text) > 900 {
				all, joined = append(all, []string{joined}), ""
			}
			joined = strings.TrimPrefix(joined+" "+text, " ")
		}
	}
	if joined != "" {
		all = append(all, []string{joined})
	}
	return all
}

// textsIn returns all texts in a value of JSON, also the names of members.
func textsIn(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			all = append(all, textsIn(one)...)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = append(append(all, name), textsIn(v[name])...)
		}
	}
	return all
}

// inTurn returns a function that returns the texts in turn.
func inTurn(texts []string) (next func() string) {
	turn := 0
	return func() string {
		turn++
		return texts[turn%len(texts)]
	}
}
