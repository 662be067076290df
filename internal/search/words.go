package search

import (
	"unicode"
	"unicode/utf8"
)

// maxWord bounds a word, in bytes. What is longer is no word of a language: its
// beginning counts.
const maxWord = 40

// eachWord calls f with the words of text, in lower case and in their order.
// Words are runs of letters and digits. One that is written together, such as
// getUser, HTTPServer or sha256, is given in its parts; one of just two parts
// as a whole besides, for GitHub is one word to some, and two to others. Han
// and Kana, between which stand no spaces, are given one by one. What f is
// given is valid until it returns, and f may change it.
func eachWord(text string, f func(word []byte)) {
	var r run
	for i := 0; i < len(text); {
		c, n := rune(text[i]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRuneInString(text[i:])
		}
		i += n
		switch k := kindOf(c); k {
		case outside:
			r.end(f)
		case alone:
			r.end(f)
			f(utf8.AppendRune(r.text[:0], c))
		default:
			r.add(c, k)
		}
	}
	r.end(f)
}

// A kind is what a character is to words.
type kind uint8

const (
	outside kind = iota // between words
	small               // a letter that is not a capital
	capital
	digit
	alone // a word by itself
)

func kindOf(c rune) kind {
	switch {
	case 'a' <= c && c <= 'z':
		return small
	case 'A' <= c && c <= 'Z':
		return capital
	case '0' <= c && c <= '9':
		return digit
	case c < utf8.RuneSelf:
		return outside
	case unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana):
		return alone
	case unicode.IsUpper(c):
		return capital
	case unicode.IsLetter(c), unicode.IsMark(c):
		return small
	case unicode.IsDigit(c):
		return digit
	}
	return outside
}

// A run is one run of letters and digits, and where its parts begin.
type run struct {
	text  [maxWord]byte
	n     int
	cuts  [maxWord]uint8
	parts int // behind the first

	last, before kind // of the last two characters
	lastAt       int  // where the last begins
}

func (r *run) add(c rune, k kind) {
	if c = unicode.ToLower(c); r.n+utf8.RuneLen(c) > maxWord {
		return
	}
	switch {
	case r.n == 0:
	case k == capital && r.last != capital, (k == digit) != (r.last == digit):
		r.cut(r.n)
	case k == small && r.last == capital && r.before == capital:
		r.cut(r.lastAt) // HTTPServer
	}
	r.before, r.last, r.lastAt = r.last, k, r.n
	r.n += utf8.EncodeRune(r.text[r.n:], c)
}

func (r *run) cut(at int) {
	r.cuts[r.parts] = uint8(at)
	r.parts++
}

// end gives the run's words to f, and begins the next one.
func (r *run) end(f func([]byte)) {
	n, parts := r.n, r.parts
	r.n, r.parts, r.last, r.before = 0, 0, outside, outside
	switch {
	case n == 0:
		return
	case parts == 1:
		whole := r.text
		f(whole[:n])
	}
	from := 0
	for i := range parts {
		to := int(r.cuts[i])
		r.part(from, to, parts == 1, f)
		from = to
	}
	r.part(from, n, parts == 1, f)
}

// part gives one part, but for a single letter or digit of what is given as a
// whole: the s and the 3 of s3 say nothing.
func (r *run) part(from, to int, whole bool, f func([]byte)) {
	if !whole || to-from > 1 {
		f(r.text[from:to:to])
	}
}

// stops are words that say nothing of what a tool is for. In a large index they
// would be too common to matter. In a group of ten tools, the one whose
// description says "you" must not be the answer to every question.
var stops = set(`a an the this that these those it its of in on at to for from by with as into about and or but if then than
	so is are was were be been being am has have had do does did can could will would should may might must i me my we us
	our you your he she they them their his her there here what which who whom whose when where how why please just also
	any some such no not s t re ve ll d m`)
