package token

import (
	"unicode"
	"unicode/utf8"
)

// A runeClass is a set of characters that the splitting rules treat alike. The rules are regular expressions over these
// classes.
type runeClass uint8

const (
	upper    runeClass = 1 << iota // \p{Lu} \p{Lt}
	lower                          // \p{Ll}
	caseless                       // \p{Lm} \p{Lo}
	mark                           // \p{M}
	number                         // \p{N}
	space                          // \s without line breaks
	newline                        // \r \n
	other                          // everything else, also invalid UTF-8

	letter = upper | lower | caseless
	// The characters that a word of o200k_base may begin with, and may end with.
	wordHead = upper | caseless | mark
	wordTail = lower | caseless | mark
	// The characters of signs.
	signChars = mark | other
)

// ascii holds the classes of the ASCII characters, because most text consists of them.
var ascii = func() (t [utf8.RuneSelf]runeClass) {
	for r := range t {
		t[r] = classify(rune(r))
	}
	return t
}()

func classify(r rune) runeClass {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.Is(unicode.Ll, r):
		return lower
	case unicode.In(r, unicode.Lo, unicode.Lm):
		return caseless
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return upper
	case unicode.IsSpace(r):
		return space
	case unicode.Is(unicode.N, r):
		return number
	case unicode.Is(unicode.M, r):
		return mark
	}
	return other
}

// classAt returns the class of the character at offset i, and the offset of the next character. At the end of the text the
// class is 0.
func classAt(text []byte, i int) (runeClass, int) {
	switch {
	case i >= len(text):
		return 0, i
	case text[i] < utf8.RuneSelf:
		return ascii[text[i]], i + 1
	}
	r, n := utf8.DecodeRune(text[i:])
	return classify(r), i + n
}

// skipClasses returns the end of the longest run of characters of these classes that begins at i.
func skipClasses(text []byte, i int, of runeClass) int {
	for {
		c, next := classAt(text, i)
		if c&of == 0 {
			return i
		}
		i = next
	}
}

// A splitFunc returns the end of the piece that begins at i, where i is before the end of the text. It looks at each
// character a bounded number of times.
type splitFunc func(text []byte, i int) int

// splitO200k follows
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitO200k(text []byte, i int) int {
	c, next := classAt(text, i)
	begin := i
	if c&(space|other) != 0 { // a mark is left out here: it may also be a letter, with the same result
		begin = next
	}
	if end := scanWord(text, begin); end > begin {
		return scanContraction(text, end)
	}
	return scanOther(text, i, true)
}

// scanWord returns the end of the first or second rule if its letters begin at i, and i if there are none.
func scanWord(text []byte, i int) int {
	// end is the end of the longest head; last is the last offset in it where a tail can end.
	end, last := i, i
	for {
		c, next := classAt(text, end)
		if c&wordHead == 0 {
			break
		}
		if end = next; c&wordTail != 0 {
			last = next
		}
	}
	if after := skipClasses(text, end, wordTail); after > end {
		return after
	}
	if last > i {
		return last
	}
	return end
}

// splitCl100k follows
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+
//	|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitCl100k(text []byte, i int) int {
	if end := scanContraction(text, i); end > i {
		return end
	}
	c, next := classAt(text, i)
	begin := i
	if c&(mark|space|other) != 0 {
		begin = next
	}
	if end := skipClasses(text, begin, letter); end > begin {
		return end
	}
	return scanOther(text, i, false)
}

// scanOther follows the rules that both encodings share, for numbers, signs and spaces.
func scanOther(text []byte, i int, slashes bool) int {
	c, next := classAt(text, i)
	if c == number {
		for range 2 {
			if c, after := classAt(text, next); c == number {
				next = after
			}
		}
		return next
	}
	signs := i
	if text[i] == ' ' {
		signs = next
	}
	if end := skipClasses(text, signs, signChars); end > signs {
		for end < len(text) && (text[end] == '\r' || text[end] == '\n' || slashes && text[end] == '/') {
			end++
		}
		return end
	}
	// Spaces: up to the last line break. Without one, all but the last space, which belongs to the following piece, if
	// there is one.
	end, before, broken := i, i, 0
	for {
		c, next := classAt(text, end)
		if c&(space|newline) == 0 {
			break
		}
		before, end = end, next
		if c == newline {
			broken = end
		}
	}
	switch {
	case broken > 0:
		return broken
	case end == len(text) || before == i:
		return end
	}
	return before
}

// scanContraction returns the end of an 's, 't, 're, 've, 'm, 'll or 'd, in upper or lower case, that begins at i; it
// returns i if there is none.
func scanContraction(text []byte, i int) int {
	if len(text)-i < 2 || text[i] != '\'' {
		return i
	}
	var b byte // the character after that
	if i+2 < len(text) {
		b = text[i+2] | 0x20
	}
	switch text[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if b == 'e' {
			return i + 3
		}
	case 'l':
		if b == 'l' {
			return i + 3
		}
	}
	if i+2 < len(text) && text[i+1] == 0xc5 && text[i+2] == 0xbf { // ſ matches s when the case is ignored
		return i + 3
	}
	return i
}
