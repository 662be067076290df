package redact

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// shortText is how many characters a text has that is looked for as a word alone: in the middle of words, it
// is most likely something else.
const shortText = 3

func short(text string) bool { return utf8.RuneCountInString(text) < shortText }

// maxKey is how much of a text is looked for at once, in bytes. Of a longer one, what follows in the same way is
// found with it.
const maxKey = 64

// A finder finds many texts in one pass. At each place it takes a time that does not depend on how long they are, and
// hardly on how many.
type finder struct {
	keys   []string // what the texts begin with, sorted
	whole  []bool   // by key: as a word alone
	parent []int    // by key: the longest other that it begins with, or -1
	longer map[string][]string

	starts [1 << 10]uint64 // of the first three bytes of keys, by a hash
	tiny   [256]bool       // the first byte of shorter keys
}

func newFinder(texts map[string]bool) *finder {
	f := &finder{longer: map[string][]string{}}
	words := map[string]bool{}
	for text, word := range texts {
		key := text[:min(len(text), maxKey)]
		if text == "" || word && strings.IndexFunc(text, wordly) < 0 {
			continue // signs alone stand everywhere
		}
		if was, ok := words[key]; ok {
			word = word && was
		}
		words[key] = word
		if len(text) > maxKey {
			f.longer[key] = append(f.longer[key], text)
		}
		if len(key) < 3 {
			f.tiny[key[0]] = true
		} else {
			h := hash3(key)
			f.starts[h/64] |= 1 << (h % 64)
		}
	}
	for key := range words {
		f.keys = append(f.keys, key)
	}
	slices.Sort(f.keys)
	f.whole, f.parent = make([]bool, len(f.keys)), make([]int, len(f.keys))
	for i, key := range f.keys {
		f.whole[i] = words[key]
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

// find appends where texts stand.
func (f *finder) find(spans []span, text string) []span {
	for i := 0; i < len(text); i++ {
		at := f.next(text, i)
		if at < 0 {
			break
		}
		n := f.at(text, at)
		spans = append(spans, span{at, at + n})
		i = max(at, at+n-maxKey) // the next one may begin within this one
	}
	return spans
}

// has reports whether one of the texts stands there.
func (f *finder) has(text string) bool { return f.next(text, 0) >= 0 }

// next returns where the next of the texts stands from i on, or -1.
func (f *finder) next(text string, i int) int {
	if len(f.keys) == 0 {
		return -1
	}
	for ; i < len(text); i++ {
		if !f.tiny[text[i]] {
			if len(text)-i < 3 {
				continue
			}
			if h := hash3(text[i:]); f.starts[h/64]&(1<<(h%64)) == 0 {
				continue
			}
		}
		if f.at(text, i) > 0 {
			return i
		}
	}
	return -1
}

// at returns the length of the longest text that stands at i, or 0.
func (f *finder) at(text string, i int) int {
	here := text[i:min(len(text), i+maxKey)]
	k, found := slices.BinarySearch(f.keys, here)
	if !found {
		k-- // the last that is smaller: what stands here begins with it, or with one that it begins with, or with none
	}
	for ; k >= 0; k = f.parent[k] {
		key := f.keys[k]
		if !strings.HasPrefix(here, key) || f.whole[k] && !isWhole(text, i, i+len(key)) {
			continue
		}
		if len(key) < maxKey {
			return len(key)
		}
		return maxKey + f.more(key, text[i+maxKey:])
	}
	return 0
}

// more returns how far the text goes on as one of the longer texts does. They are sorted, so that the ones which
// have most in common with it stand next to where it would.
func (f *finder) more(key, text string) (n int) {
	longer := f.longer[key]
	k, _ := slices.BinarySearchFunc(longer, text, func(l, text string) int { return strings.Compare(l[maxKey:], text) })
	for _, k := range []int{k - 1, k} {
		if k >= 0 && k < len(longer) {
			n = max(n, common(longer[k][maxKey:], text))
		}
	}
	return n
}

// common returns how many bytes both begin with.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// isWhole reports whether the part of the text is no part of a longer word.
func isWhole(text string, from, to int) bool {
	within := from > 0 && isWord(text[from-1]) && isWord(text[from]) || to < len(text) && isWord(text[to]) && isWord(text[to-1])
	return !within
}

func isWord(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || isDigit(c) }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func wordly(r rune) bool { return r >= utf8.RuneSelf || isWord(byte(r)) }
