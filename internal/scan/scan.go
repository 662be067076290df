// Package scan cleans text that people and models read of what can deceive them: sequences that steer a terminal, and characters that
// are not seen or that turn the order of others. Which texts are cleaned, the callers decide.
//
// Removed are control characters but for line feed and tab, escape sequences as a whole (ECMA-48: CSI, and OSC and its like with their text),
// the bidirectional controls of Unicode (UAX #9), tag characters, and characters without width. A zero-width joiner and a variation selector stay where they belong to an
// emoji, and joiners between letters of the scripts that are written with them.
package scan

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The characters that have a meaning of their own here.
const (
	escape   = 0x1b
	bell     = 0x07
	joiner   = 0x200d // ZWJ
	nonJoint = 0x200c // ZWNJ
)

// joined are the scripts of which words are written with joiners between letters.
var joined = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
	unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Tibetan,
}

// Clean returns the text without what can deceive, and how many characters that were. A text that has none is returned as it is.
func Clean(text string) (clean string, removed int) {
	at := suspect(text)
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
			n = sequence(text[at:])
		}
		if keep(r, before, text[at+size:]) && (r != utf8.RuneError || size > 1) { // what is left of a broken character could make another
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

// suspect returns where the first character stands that could have to go, or -1.
func suspect(text string) int {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if Hidden(r) || r == utf8.RuneError && size == 1 {
				return i
			}
			i += size - 1
		case c < ' ' && c != '\n' && c != '\t', c == 0x7f:
			return i
		}
	}
	return -1
}

// Hidden reports whether the character is one that is not shown for itself.
func Hidden(r rune) bool {
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

// keep reports whether the character stays, between the one before it and the rest of the text.
func keep(r, before rune, rest string) bool {
	if !Hidden(r) {
		return true
	}
	switch {
	case r >= 0xfe00 && r <= 0xfe0f:
		return pictured(before) || unicode.Is(unicode.Han, before) || unicode.In(before, joined...)
	case r >= 0xe0100 && r <= 0xe01ef:
		return unicode.Is(unicode.Han, before)
	case r == joiner, r == nonJoint:
		next, _ := utf8.DecodeRuneInString(rest)
		return r == joiner && pictured(before) && pictured(next) || unicode.In(before, joined...) && unicode.In(next, joined...)
	}
	return false
}

// pictured reports whether the character is, or ends, an emoji.
func pictured(r rune) bool {
	return unicode.Is(unicode.So, r) || r >= 0x1f3fb && r <= 0x1f3ff || r == 0xfe0f || r >= '0' && r <= '9' || r == '#' || r == '*' ||
		unicode.Is(unicode.Sm, r) || r == 0x203c || r == 0x2049
}

func lastRune(text string) rune {
	r, _ := utf8.DecodeLastRuneInString(text)
	return r
}

// sequence returns the length of the escape sequence with which text begins.
func sequence(text string) int {
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

// CleanJSON cleans the texts that are values in a JSON value, at any depth, and returns how many characters were removed. The names of
// members stay as they are: what is sent under another name is another member. raw is strictly scanned JSON. Where nothing is removed
// it is returned as it is.
func CleanJSON(raw []byte) (clean []byte, removed int) {
	from := 0 // of raw, what is not in clean yet
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		end, odd := textEnd(raw, i)
		if odd && !named(raw[end:]) {
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

// textEnd returns where the text ends that begins at i, and whether anything in it could have to go.
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

// named reports whether the text before rest is the name of a member.
func named(rest []byte) bool {
	for _, c := range rest {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == ':'
		}
	}
	return false
}
