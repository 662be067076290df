// Package scan removes deceptive characters from text that people and models read: sequences that
// control a terminal, invisible characters, and characters that change the order of others. The
// callers decide which texts are cleaned.
//
// It removes control characters except line feed and tab, whole escape sequences (ECMA-48: CSI, and
// OSC and similar ones with their text), the bidirectional controls of Unicode (UAX #9), tag
// characters, and characters without width. A zero-width joiner and a variation selector stay if
// they belong to an emoji. Joiners also stay between letters of scripts that need them.
package scan

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The characters with a special meaning here.
const (
	escape   = 0x1b
	bell     = 0x07
	joiner   = 0x200d // ZWJ
	nonJoint = 0x200c // ZWNJ
)

// joiningScripts lists the scripts that use joiners between letters.
var joiningScripts = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
	unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Tibetan,
}

// Clean removes deceptive characters, and returns how many there were. A text without any is
// returned unchanged.
func Clean(text string) (clean string, removed int) {
	at := firstSuspect(text)
	if at < 0 {
		return text, 0
	}
	var b strings.Builder
	b.WriteString(text[:at])
	before := lastRune(text[:at])
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		n := size
		if r == escape {
			n = escapeLength(text[at:])
		}
		if staysVisible(r, before, text[at+size:]) && (r != utf8.RuneError || size > 1) { // the rest of a broken character could form another one
			b.WriteString(text[at : at+size])
			before = r
		} else {
			removed += utf8.RuneCountInString(text[at : at+n])
		}
		at += n
	}
	if removed == 0 {
		return text, 0
	}
	return b.String(), removed
}

// Removed yields the position of each character or escape sequence that Clean removes, with its first character.
func Removed(text string) iter.Seq2[int, rune] {
	return func(yield func(int, rune) bool) {
		at := firstSuspect(text)
		if at < 0 {
			return
		}
		for before := lastRune(text[:at]); at < len(text); {
			r, size := utf8.DecodeRuneInString(text[at:])
			n := size
			if r == escape {
				n = escapeLength(text[at:])
			}
			if staysVisible(r, before, text[at+size:]) && (r != utf8.RuneError || size > 1) {
				before = r
			} else if !yield(at, r) {
				return
			}
			at += n
		}
	}
}

// firstSuspect returns the position of the first character that may have to be removed, or -1.
func firstSuspect(text string) int {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if IsHidden(r) || r == utf8.RuneError && size == 1 {
				return i
			}
			i += size - 1
		case c < ' ' && c != '\n' && c != '\t', c == 0x7f:
			return i
		}
	}
	return -1
}

// IsHidden reports whether the character is not visible as itself.
func IsHidden(r rune) bool {
	switch {
	case r < ' ':
		return r != '\n' && r != '\t'
	case r >= 0x7f && r <= 0x9f, // DEL, C1
		r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, // bidirectional
		r == 0x180e, r >= 0x200b && r <= joiner, r >= 0x2060 && r <= 0x2065, r >= 0x206a && r <= 0x206f, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb, // without width
		r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, // fillers
		r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff, // variation selectors, tags
		r == 0x2028, r == 0x2029: // line and paragraph separators
		return true
	}
	return false
}

// staysVisible reports whether the character stays, between the one before it and the rest of the
// text.
func staysVisible(r, before rune, rest string) bool {
	if !IsHidden(r) {
		return true
	}
	switch {
	case r >= 0xfe00 && r <= 0xfe0f:
		return isEmoji(before) || unicode.Is(unicode.Han, before) || unicode.In(before, joiningScripts...)
	case r >= 0xe0100 && r <= 0xe01ef:
		return unicode.Is(unicode.Han, before)
	case r == joiner, r == nonJoint:
		next, _ := utf8.DecodeRuneInString(rest)
		return r == joiner && isEmoji(before) && isEmoji(next) || unicode.In(before, joiningScripts...) && unicode.In(next, joiningScripts...)
	}
	return false
}

// isEmoji reports whether the character is an emoji or ends one.
func isEmoji(r rune) bool {
	return unicode.Is(unicode.So, r) || r >= 0x1f3fb && r <= 0x1f3ff || r == 0xfe0f || r >= '0' && r <= '9' || r == '#' || r == '*' ||
		unicode.Is(unicode.Sm, r) || r == 0x203c || r == 0x2049
}

func lastRune(text string) rune {
	r, _ := utf8.DecodeLastRuneInString(text)
	return r
}

// escapeLength returns the length of the escape sequence at the start of text.
func escapeLength(text string) int {
	if len(text) < 2 {
		return 1
	}
	switch c := text[1]; {
	case c == '[': // CSI: parameters, intermediates, and a final byte
		i := 2
		for i < len(text) && text[i] >= 0x20 && text[i] <= 0x3f {
			i++
		}
		if i < len(text) && text[i] >= 0x40 && text[i] <= 0x7e {
			i++
		}
		return i
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_': // text, until ST or BEL; never beyond the line
		for i := 2; i < len(text); i++ {
			switch {
			case text[i] == bell:
				return i + 1
			case text[i] == '\n', text[i] == escape && (i+1 == len(text) || text[i+1] != '\\'):
				return i
			case text[i] == escape:
				return i + 2
			}
		}
		return len(text)
	case c > ' ' && c <= 0x2f: // intermediates, and a final byte; a space is left to the text
		i := 2
		for i < len(text) && text[i] > ' ' && text[i] <= 0x2f {
			i++
		}
		if i < len(text) && text[i] >= 0x30 && text[i] <= 0x7e {
			i++
		}
		return i
	case c >= 0x30 && c <= 0x7e:
		return 2
	}
	return 1
}

// CleanJSON cleans the texts in a JSON value, at any depth, and returns how many characters were
// removed. Names of members stay as they are, because a renamed member is another member. raw is
// strictly scanned JSON. If nothing is removed, it is returned unchanged.
func CleanJSON(raw []byte) (clean []byte, removed int) {
	from := 0 // the first byte of raw that is not in clean yet
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		end, odd := textEnd(raw, i)
		if odd && !isMemberName(raw[end:]) {
			text, _ := wire.String(raw[i:end])
			if better, n := Clean(text); n > 0 {
				clean = wire.AppendString(append(clean, raw[from:i]...), better)
				from, removed = end, removed+n
			}
		}
		i = end - 1
	}
	if removed == 0 {
		return raw, 0
	}
	return append(clean, raw[from:]...), removed
}

// textEnd returns the end of the text that begins at i, and whether it may contain characters to
// remove.
func textEnd(raw []byte, i int) (end int, odd bool) {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		switch c := raw[i]; {
		case c == '\\':
			i++
			odd = odd || i < len(raw) && (raw[i] == 'u' || raw[i] == 'b' || raw[i] == 'f' || raw[i] == 'r')
		case c >= 0x7f:
			odd = true
		}
	}
	return min(i+1, len(raw)), odd
}

// isMemberName reports whether the text before rest is the name of a member.
func isMemberName(rest []byte) bool {
	for _, c := range rest {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == ':'
		}
	}
	return false
}
