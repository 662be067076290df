package catalog

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes limits the name of a tool.
const MaxNameBytes = 128

// CheckName returns what is wrong with the name of a tool, or "".
//
// The specification advises [A-Za-z0-9_.-]. Real servers also use spaces, slashes and Chinese; such names are only
// mapped when a client sees them. But people read names in rules and approvals, so no two names that look alike may
// both exist. A name consists of printable ASCII and of characters of Chinese, Japanese and Korean that have only one
// form. It has no *, which is for patterns, no space at either end, and no two spaces in a row. All other characters
// are refused: controls, characters that are invisible or reorder text, variation selectors, combining marks,
// full-width and other compatibility forms, and alphabets with letters that look like Latin ones.
func CheckName(name string) string {
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
		if !allowedInName(r) {
			return "has the character " + showRune(r) + ", which is not allowed in names"
		}
	}
	return ""
}

// showRune returns a character with its code, or the code alone if a person would not see the character.
func showRune(r rune) string {
	code := fmt.Sprintf("U+%04X", r)
	if unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !hasNoInk(r) {
		return `"` + string(r) + `" (` + code + ")"
	}
	return code
}

// hasNoInk reports whether the letter or symbol is empty: the fillers of Hangul, and the empty pattern of Braille.
func hasNoInk(r rune) bool {
	switch r {
	case '\u115F', '\u1160', '\u3164', '\uFFA0', '\u2800':
		return true
	}
	return false
}

func allowedInName(r rune) bool {
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
