package redact

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEscapes bounds how often the escapes of a text are resolved: JSON within JSON doubles its backslashes each
// time.
const maxEscapes = 16

// unescaped resolves escapes as JSON has them, once. ok is false where there are none. It is shorter than the text.
func unescaped(text string) (plain string, ok bool) {
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
		c, size := escape(text[i+n:])
		b.WriteString(c)
		i += n + size
	}
	return b.String(), true
}

// singles are the escapes of one letter, and plains what each other ASCII character stands for: itself.
var singles = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f"}

// escape resolves the escape that a text begins with, and says how long it is.
func escape(text string) (c string, size int) {
	if len(text) < 2 {
		return "", 1
	}
	if c, ok := singles[text[1]]; ok {
		return c, 2
	}
	if r, ok := unicode4(text); ok {
		if utf16.IsSurrogate(r) {
			if low, ok := unicode4(text[6:]); ok {
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

// unicode4 reads \uXXXX.
func unicode4(text string) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	code, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(code), err == nil
}

// A span is a part of a text.
type span struct{ from, to int }

// resolved is an escape: where it stands, and where that stands which it stands for.
type resolved struct{ at, to, size, width int }

// before returns where the spans, which are of what the text is after its escapes have been resolved once, stand in
// the text itself.
func before(text string, spans []span) []span {
	var escapes []resolved
	to := 0
	for i := 0; i < len(text); {
		n := strings.IndexByte(text[i:], '\\')
		if n < 0 {
			break
		}
		c, size := escape(text[i+n:])
		to += n
		escapes = append(escapes, resolved{at: i + n, to: to, size: size, width: len(c)})
		to += len(c)
		i += n + size
	}
	// last finds the last escape that stands for something at or before a place.
	last := func(place int) (e resolved, inside bool) {
		i := sort.Search(len(escapes), func(i int) bool { return escapes[i].to > place }) - 1
		if i < 0 {
			return resolved{}, false
		}
		return escapes[i], place < escapes[i].to+escapes[i].width
	}
	out := make([]span, len(spans))
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
