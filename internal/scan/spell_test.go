package scan_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/scan"
)

func TestWhatIsInvisibleIsSpeltOut(t *testing.T) {
	for text, want := range map[string]string{
		"plain ✓ žluť 👩‍💻 ❤️ 数\u3000字 می\u200cخواهم": "plain ✓ žluť 👩‍💻 ❤️ 数\u3000字 می\u200cخواهم",
		"two\nlines\tand":                                         `two\u{a}lines\u{9}and`,
		"\x1b]52;c;aGk=\x07\x1b[2J":                               `\u{1b}]52;c;aGk=\u{7}\u{1b}[2J`,
		"C1 \u009b2J, \x9b2J, \xff\xc3":                           `C1 \u{9b}2J, \x9b2J, \xff\xc3`,
		"turned \u202e and\u2066 a\u200bb\u200dc\U000e0041\ufeff": `turned \u{202e} and\u{2066} a\u{200b}b\u{200d}c\u{e0041}\u{feff}`,
		"soft\u00adhyphen \ue123 \u2800 \u034f \u2028":            `soft\u{ad}hyphen \u{e123} \u{2800} \u{34f} \u{2028}`,
		"👩\u200b\u200d💻":                                          `👩\u{200b}\u{200d}💻`,
		"\ufffd":                                                  "\ufffd",
	} {
		if got := scan.Spell(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if got, want := scan.SpellLines(text), strings.NewReplacer(`\u{a}`, "\n", `\u{9}`, "\t").Replace(want); got != want {
			t.Errorf("%q became the lines %q, want %q", text, got, want)
		}
	}
}

func FuzzSpell(f *testing.F) {
	f.Add("a\u200d\x1b[31m\xff👩\u200d💻\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := scan.Spell(text)
		if !utf8.ValidString(got) || scan.Spell(got) != got {
			t.Errorf("%q became %q", text, got)
		}
		if clean, removed := scan.Clean(got); removed > 0 {
			t.Errorf("%q became %q, and then %q", text, got, clean)
		}
		for _, r := range got {
			if unicode.IsControl(r) {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}
