package token

import (
	"unicode"
	"unicode/utf8"
)

// A class is what the splitting rules see of a character. The rules are stated as
// regular expressions, over the same classes.
type class uint8

const (
	upper    class = 1 << iota // \p{Lu} \p{Lt}
	lower                      // \p{Ll}
	caseless                   // \p{Lm} \p{Lo}
	mark                       // \p{M}
	number                     // \p{N}
	space                      // \s, but for line breaks
	newline                    // \r \n
	other                      // anything else, invalid UTF-8 too

	letter = upper | lower | caseless
	// What may begin, and what may end, a word of o200k_base.
	head = upper | caseless | mark
	tail = lower | caseless | mark
	// What signs are made of.
	sign = mark | other
)

// ascii are the classes of the first characters, which most text is made of.
var ascii = func() (t [utf8.RuneSelf]class) {
	for r := range t {
		t[r] = classify(rune(r))
	}
	return t
}()

func classify(r rune) class {
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

// at returns the class of the character that begins at i, and where the next one
// does. At the end of the text the class is 0.
func at(text []byte, i int) (class, int) {
	switch {
	case i >= len(text):
		return 0, i
	case text[i] < utf8.RuneSelf:
		return ascii[text[i]], i + 1
	}
	r, n := utf8.DecodeRune(text[i:])
	return classify(r), i + n
}

// run returns where the characters of these classes end that begin at i.
func run(text []byte, i int, of class) int {
	for {
		c, next := at(text, i)
		if c&of == 0 {
			return i
		}
		i = next
	}
}

// A splitter returns where the piece ends that begins at i, which is no later than
// the text. Each looks at a character a bounded number of times.
type splitter func(text []byte, i int) int

// splitO200k follows
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitO200k(text []byte, i int) int {
	c, next := at(text, i)
	begin := i
	if c&(space|other) != 0 { // and not a mark: that can be a letter too, which comes to the same
		begin = next
	}
	if end := word(text, begin); end > begin {
		return contraction(text, end)
	}
	return rest(text, i, true)
}

// word returns where the first or second rule ends that begins at i with its
// letters; at i where there are none.
func word(text []byte, i int) int {
	// The longest head, and the last place in it where a tail can end.
	end, last := i, i
	for {
		c, next := at(text, end)
		if c&head == 0 {
			break
		}
		if end = next; c&tail != 0 {
			last = next
		}
	}
	if after := run(text, end, tail); after > end {
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
	if end := contraction(text, i); end > i {
		return end
	}
	c, next := at(text, i)
	begin := i
	if c&(mark|space|other) != 0 {
		begin = next
	}
	if end := run(text, begin, letter); end > begin {
		return end
	}
	return rest(text, i, false)
}

// rest follows the rules that both encodings have, for numbers, signs and spaces.
func rest(text []byte, i int, slashes bool) int {
	c, next := at(text, i)
	if c == number {
		for range 2 {
			if c, after := at(text, next); c == number {
				next = after
			}
		}
		return next
	}
	signs := i
	if text[i] == ' ' {
		signs = next
	}
	if end := run(text, signs, sign); end > signs {
		for end < len(text) && (text[end] == '\r' || text[end] == '\n' || slashes && text[end] == '/') {
			end++
		}
		return end
	}
	// Spaces: to the last line break; else all but the last, which belongs to what
	// follows, if anything does.
	end, before, broken := i, i, 0
	for {
		c, next := at(text, end)
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

// contraction returns where an 's, 't, 're, 've, 'm, 'll or 'd ends, in any case,
// that begins at i; i where there is none.
func contraction(text []byte, i int) int {
	if len(text)-i < 2 || text[i] != '\'' {
		return i
	}
	var b byte // the one after
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
	if i+2 < len(text) && text[i+1] == 0xc5 && text[i+2] == 0xbf { // ſ, which is an s in upper case
		return i + 3
	}
	return i
}
