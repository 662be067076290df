package catalog

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxNameBytes bounds the name of a tool.
const MaxNameBytes = 128

// checkName says what is wrong with the name of a tool, or "".
//
// The specification advises [A-Za-z0-9_.-]; real servers also use spaces,
// slashes and Chinese, and those names are only mapped when they are shown to
// a client. But people read names in rules and approvals, so that no two that
// look alike may both exist: a name is of printable ASCII, without * (which is
// for patterns), without spaces at an end or next to each other, and of
// characters of Chinese, Japanese and Korean that have one form only. All
// other characters are refused: controls, what is invisible or reorders text,
// variation selectors, combining marks, full-width and other compatibility
// forms, and the alphabets that have letters which look like Latin ones.
func checkName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > MaxNameBytes:
		return fmt.Sprintf("is %d bytes long; at most %d are allowed", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case name[0] == ' ' || name[len(name)-1] == ' ' || strings.Contains(name, "  "):
		return "has a space at an end, or two in a row"
	}
	for _, r := range name {
		if !nameRune(r) {
			return fmt.Sprintf("has the character %+q, which is not allowed in names", r)
		}
	}
	return ""
}

func nameRune(r rune) bool {
	switch {
	case r == '*':
		return false
	case r < utf8.RuneSelf:
		return ' ' <= r && r <= '~'
	case '\u4E00' <= r && r <= '\u9FFF', '\u3400' <= r && r <= '\u4DBF': // Han
		return true
	case '\u3041' <= r && r <= '\u3096', '\u30A1' <= r && r <= '\u30FA', r == '\u3005', r == '\u30FC': // kana
		return true
	case '\uAC00' <= r && r <= '\uD7A3': // Hangul syllables
		return true
	}
	return false
}
