package redact

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// shortText is the number of characters below which a text is searched as a whole word only. Inside
// a word, a short text is most likely a coincidence.
const shortText = 3

func isShort(text string) bool { return utf8.RuneCountInString(text) < shortText }

// maxKey is the number of bytes of each text that the index holds. If a key matches, the rest of
// the text is compared after it.
const maxKey = 64

// A textFinder finds many texts in one pass. The time at each position does not depend on the
// length of the texts, and hardly on their number.
type textFinder struct {
	keys      []string // the beginnings of the texts, sorted
	wholeWord []bool   // by key: whole words only
	parent    []int    // by key: the longest other key that is a prefix, or -1
	longer    map[string][]string

	starts      [1 << 10]uint64 // hashes of the first three bytes of keys
	shortStarts [256]bool       // the first byte of shorter keys
}

func newFinder(texts map[string]bool) *textFinder {
	f := &textFinder{longer: map[string][]string{}}
	words := map[string]bool{}
	for text, word := range texts {
		key := text[:min(len(text), maxKey)]
		if text == "" || word && strings.IndexFunc(text, isWordRune) < 0 {
			continue // punctuation alone occurs everywhere
		}
		if was, ok := words[key]; ok {
			word = word && was
		}
		words[key] = word
		if len(text) > maxKey {
			f.longer[key] = append(f.longer[key], text)
		}
		if len(key) < 3 {
			f.shortStarts[key[0]] = true
		} else {
			h := hash3(key)
			f.starts[h/64] |= 1 << (h % 64)
		}
	}
	for key := range words {
		f.keys = append(f.keys, key)
	}
	slices.Sort(f.keys)
	f.wholeWord, f.parent = make([]bool, len(f.keys)), make([]int, len(f.keys))
	for i, key := range f.keys {
		f.wholeWord[i] = words[key]
		p := i - 1
		for p >= 0 && !strings.HasPrefix(key, f.keys[p]) {
			p = f.parent[p]
		}
		f.parent[i] = p
	}
	for _, list := range f.longer {
		slices.Sort(list)
	}
	return f
}

func hash3(text string) uint32 {
	return (uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16) * 2654435761 >> 16
}

// appendMatches appends the positions of the texts.
func (f *textFinder) appendMatches(spans []textRange, text string) []textRange {
	for i := 0; i < len(text); i++ {
		at := f.nextMatch(text, i)
		if at < 0 {
			break
		}
		n := f.matchLength(text, at)
		spans = append(spans, textRange{at, at + n})
		i = max(at, at+n-maxKey) // the next one may begin within this one
	}
	return spans
}

// matchesAny reports whether one of the texts occurs.
func (f *textFinder) matchesAny(text string) bool { return f.nextMatch(text, 0) >= 0 }

// nextMatch returns the position of the next of the texts from i on, or -1.
func (f *textFinder) nextMatch(text string, i int) int {
	if len(f.keys) == 0 {
		return -1
	}
	for ; i < len(text); i++ {
		if !f.shortStarts[text[i]] {
			if len(text)-i < 3 {
				continue
			}
			if h := hash3(text[i:]); f.starts[h/64]&(1<<(h%64)) == 0 {
				continue
			}
		}
		if f.matchLength(text, i) > 0 {
			return i
		}
	}
	return -1
}

// matchLength returns the length of the longest of the texts at i, or 0.
func (f *textFinder) matchLength(text string, i int) int {
	here := text[i:min(len(text), i+maxKey)]
	k, found := slices.BinarySearch(f.keys, here)
	if !found {
		k-- // the last smaller key: the match is this key, one of its prefixes, or none
	}
	for ; k >= 0; k = f.parent[k] {
		key := f.keys[k]
		if !strings.HasPrefix(here, key) || f.wholeWord[k] && !isWhole(text, i, i+len(key)) {
			continue
		}
		if len(key) < maxKey {
			return len(key)
		}
		return maxKey + f.continuation(key, text[i+maxKey:])
	}
	return 0
}

// continuation returns how many bytes of text continue one of the longer texts. They are sorted, so
// the best match is next to the insertion point of text.
func (f *textFinder) continuation(key, text string) (n int) {
	longer := f.longer[key]
	k, _ := slices.BinarySearchFunc(longer, text, func(l, text string) int { return strings.Compare(l[maxKey:], text) })
	for _, k := range []int{k - 1, k} {
		if k >= 0 && k < len(longer) {
			n = max(n, commonPrefix(longer[k][maxKey:], text))
		}
	}
	return n
}

// commonPrefix returns the length of the common prefix.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// isWhole reports whether the part of the text is not inside a longer word.
func isWhole(text string, from, to int) bool {
	within := from > 0 && isWord(text[from-1]) && isWord(text[from]) || to < len(text) && isWord(text[to]) && isWord(text[to-1])
	return !within
}

func isWord(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || isDigit(c) }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isWordRune(r rune) bool { return r >= utf8.RuneSelf || isWord(byte(r)) }
