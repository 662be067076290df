package markdown_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/docs"
	"github.com/summit-switchboard/switchboard/internal/markdown"
)

const sample = `# Title

A paragraph with ` + "`code`" + `, **bold text** and a [link](calls.md#keys),
over two lines.

* an item
* another one that is so long that it does not fit into one line of this width
  and goes on

| key | means |
| --- | --- |
| ` + "`a\\|b`" + ` | one |
| c | two |

| key | means |
| --- | --- |
| d | a meaning that is much too long for a column beside the first one here |

` + "```yaml switchboard.yaml\nservers:\n  a: {}\n```" + `

    $ switchboard demo
`

func TestATextIsShownWithinTheWidth(t *testing.T) {
	got := markdown.Render(sample, markdown.Options{Width: 40, Link: func(target string) string { return "docs " + strings.TrimSuffix(target, ".md#keys") }})
	const want = "# Title\n" + `
A paragraph with ` + "`code`" + `, **bold text**
and a link (docs calls), over two lines.

- an item
- another one that is so long that it
  does not fit into one line of this
  width and goes on

key    means
` + "`a|b`" + `  one
c      two

d
    a meaning that is much too long for
    a column beside the first one here

    servers:
      a: {}

    $ switchboard demo
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestWithColourTheMarksBecomeStyles(t *testing.T) {
	got := markdown.Render("# A `b`\n\nsee **two words** and `x`.\n", markdown.Options{Width: 80, Color: true})
	if want := "\x1b[1;4mA b\x1b[0m\n\nsee \x1b[1mtwo\x1b[0m \x1b[1mwords\x1b[0m and \x1b[36mx\x1b[0m.\n"; got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

// No word of a document may be lost. The headings of tables that become paragraphs are not shown.
func TestEveryDocumentIsShownWhole(t *testing.T) {
	letters := regexp.MustCompile(`[^\pL\pN]+`)
	none := func(string) string { return "" }
	target := regexp.MustCompile(`\]\([^)\s]+\)|(?m)^` + "```.*$")
	for _, page := range docs.Pages() {
		got := markdown.Render(page.Text, markdown.Options{Width: 80, Link: none})
		var lost []string
		for want := range strings.FieldsSeq(letters.ReplaceAllString(target.ReplaceAllString(page.Text, "]"), " ")) {
			if !strings.Contains(got, want) && utf8.RuneCountInString(want) > 2 {
				lost = append(lost, want)
			}
		}
		if len(lost) > 3 {
			t.Errorf("%s lacks the words %q", page.Name, lost)
		}
	}
}
