package search

import (
	"unicode"
	"unicode/utf8"
)

// maxWord limits the bytes of a word. Longer words are cut: no language has them.
const maxWord = 40

// eachWord calls f with the words of text, in lower case and in their order. Words are runs of letters and digits. A
// compound word, such as getUser, HTTPServer or sha256, is split into its parts. A compound of exactly two parts is
// also passed as a whole, because GitHub is one word to some people and two to others. Han and Kana, which have no
// spaces between words, are passed one by one. The slice is valid until f returns, and f may change it.
func eachWord(text string, f func(word []byte)) {
	var r wordRun
	for i := 0; i < len(text); {
		c, n := rune(text[i]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRuneInString(text[i:])
		}
		i += n
		switch k := classOf(c); k {
		case outside:
			r.flush(f)
		case alone:
			r.flush(f)
			f(utf8.AppendRune(r.text[:0], c))
		default:
			r.addChar(c, k)
		}
	}
	r.flush(f)
}

// A charClass says how a character delimits words.
type charClass uint8

const (
	outside charClass = iota // between words
	small                    // a letter that is not a capital
	capital
	digit
	alone // a word by itself
)

func classOf(c rune) charClass {
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

// A wordRun is one run of letters and digits, and the beginnings of its parts.
type wordRun struct {
	text  [maxWord]byte
	n     int
	cuts  [maxWord]uint8
	parts int // number of parts after the first

	last, previous charClass // the classes of the last two characters
	lastAt         int       // the index of the last character
}

func (r *wordRun) addChar(c rune, k charClass) {
	if c = unicode.ToLower(c); r.n+utf8.RuneLen(c) > maxWord {
		return
	}
	switch {
	case r.n == 0:
	case k == capital && r.last != capital, (k == digit) != (r.last == digit):
		r.addCut(r.n)
	case k == small && r.last == capital && r.previous == capital:
		r.addCut(r.lastAt) // HTTPServer
	}
	r.previous, r.last, r.lastAt = r.last, k, r.n
	r.n += utf8.EncodeRune(r.text[r.n:], c)
}

func (r *wordRun) addCut(at int) {
	r.cuts[r.parts] = uint8(at)
	r.parts++
}

// flush passes the run's words to f, and begins the next run.
func (r *wordRun) flush(f func([]byte)) {
	n, parts := r.n, r.parts
	r.n, r.parts, r.last, r.previous = 0, 0, outside, outside
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
		r.emitPart(from, to, parts == 1, f)
		from = to
	}
	r.emitPart(from, n, parts == 1, f)
}

// emitPart passes one part to f, except for a single letter or digit of a compound that is passed as a whole: the s
// and the 3 of s3 mean nothing alone.
func (r *wordRun) emitPart(from, to int, whole bool, f func([]byte)) {
	if !whole || to-from > 1 {
		f(r.text[from:to:to])
	}
}

// stopWords are words that do not describe a tool's purpose. In a large index they would be too common to matter. In
// a group of ten tools, the only description with the word "you" must not be the answer to every question.
var stopWords = wordSet(`a an the this that these those it its of in on at to for from by with as into about and or but if then than
	so is are was were be been being am has have had do does did can could will would should may might must i me my we us
	our you your he she they them their his her there here what which who whom whose when where how why please just also
	any some such no not s t re ve ll d m`)
