package redact

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEscapes limits how often the escapes of a text are resolved: each level of JSON within JSON
// doubles the backslashes.
const maxEscapes = 16

// unescapeOnce resolves JSON escapes once. ok is false if there are none. The result is shorter than
// the text.
func unescapeOnce(text string) (plain string, ok bool) {
	if strings.IndexByte(text, '\\') < 0 {
		return text, false
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		n := strings.IndexByte(text[i:], '\\')
		if n < 0 {
			b.WriteString(text[i:])
			break
		}
		b.WriteString(text[i : i+n])
		c, size := decodeEscape(text[i+n:])
		b.WriteString(c)
		i += n + size
	}
	return b.String(), true
}

// letterEscapes maps the letter of a short escape to its character. After a backslash, every other
// ASCII character except u means itself.
var letterEscapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f"}

// decodeEscape resolves the escape at the start of a text, and returns its length.
func decodeEscape(text string) (c string, size int) {
	if len(text) < 2 {
		return "", 1
	}
	if c, ok := letterEscapes[text[1]]; ok {
		return c, 2
	}
	if r, ok := decodeUnicodeEscape(text); ok {
		if utf16.IsSurrogate(r) {
			if low, ok := decodeUnicodeEscape(text[6:]); ok {
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					return string(both), 12
				}
			}
		}
		return string(r), 6
	}
	_, n := utf8.DecodeRuneInString(text[1:])
	return text[1 : 1+n], 1 + n
}

// decodeUnicodeEscape reads \uXXXX.
func decodeUnicodeEscape(text string) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	code, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(code), err == nil
}

// A textRange is a part of a text.
type textRange struct{ from, to int }

// An escapeMapping is an escape: its position and size in the text, and the position and width of
// its character in the resolved text.
type escapeMapping struct{ at, to, size, width int }

// mapToEscaped maps spans of a text with resolved escapes to spans of the text itself.
func mapToEscaped(text string, spans []textRange) []textRange {
	var escapes []escapeMapping
	to := 0
	for i := 0; i < len(text); {
		n := strings.IndexByte(text[i:], '\\')
		if n < 0 {
			break
		}
		c, size := decodeEscape(text[i+n:])
		to += n
		escapes = append(escapes, escapeMapping{at: i + n, to: to, size: size, width: len(c)})
		to += len(c)
		i += n + size
	}
	// last returns the last escape with a character that begins at or before place.
	last := func(place int) (e escapeMapping, inside bool) {
		i := sort.Search(len(escapes), func(i int) bool { return escapes[i].to > place }) - 1
		if i < 0 {
			return escapeMapping{}, false
		}
		return escapes[i], place < escapes[i].to+escapes[i].width
	}
	out := make([]textRange, len(spans))
	for i, s := range spans {
		e, inside := last(s.from)
		out[i].from = e.at
		if !inside {
			out[i].from = e.at + e.size + s.from - e.to - e.width
		}
		e, inside = last(s.to - 1)
		out[i].to = e.at + e.size
		if !inside {
			out[i].to += s.to - e.to - e.width
		}
	}
	return out
}
