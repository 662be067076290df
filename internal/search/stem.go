package search

import "strings"

// stem cuts the endings off an English word, so that "listing", "listed" and
// "lists" are one. It is the algorithm of M. F. Porter ("An algorithm for suffix
// stripping", 1980) with the departures of its author's own program, and keeps
// the one word of its author's later exceptions that tools are often about:
// "news" is not the plural of "new". It works in place, and returns the part of
// w that is left. What has other characters than lower-case ASCII letters stays
// as it is.
//
// We have our own since it is small, done with, and sits where every word of
// every definition passes.
func stem(w []byte) []byte {
	if len(w) <= 2 || string(w) == "news" {
		return w
	}
	for _, c := range w {
		if c < 'a' || c > 'z' {
			return w
		}
	}
	s := stemmer(w)
	s.plurals()
	s.participles()
	if s.ends("y") && s.vowelIn(len(s)-1) {
		s[len(s)-1] = 'i'
	}
	s.replace(step2)
	s.replace(step3)
	s.residues()
	s.tidy()
	return s
}

func stemOf(word string) string { return string(stem([]byte(word))) }

type stemmer []byte

// A rule replaces an ending. Of those that fit, the first is taken.
type rule struct{ from, to string }

var (
	step2 = rules(`ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize
		ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log`)
	step3 = rules(`icate:ic ative: alize:al iciti:ic ical:ic ful: ness:`)
	step4 = rules(`al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: sion:s tion:t ou: ism: ate: iti: ous: ive: ize:`)
)

func rules(text string) (all []rule) {
	for r := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(r, ":")
		all = append(all, rule{from, to})
	}
	return all
}

// consonant reports whether the letter at i is one; y is, unless it stands
// behind another.
func (s stemmer) consonant(i int) bool {
	switch s[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !s.consonant(i-1)
	}
	return true
}

// measure counts, in the first n letters, how often consonants follow vowels.
func (s stemmer) measure(n int) (m int) {
	vowel := false
	for i := range n {
		c := s.consonant(i)
		if c && vowel {
			m++
		}
		vowel = !c
	}
	return m
}

func (s stemmer) vowelIn(n int) bool {
	for i := range n {
		if !s.consonant(i) {
			return true
		}
	}
	return false
}

func (s stemmer) ends(suffix string) bool {
	return len(s) > len(suffix) && string(s[len(s)-len(suffix):]) == suffix
}

// doubled reports whether the word ends in two equal consonants.
func (s stemmer) doubled() bool {
	n := len(s)
	return n >= 2 && s[n-1] == s[n-2] && s.consonant(n-1)
}

// short reports whether the first n letters end in consonant, vowel, consonant,
// the last not w, x or y: as in "hop", which comes from "hoping".
func (s stemmer) short(n int) bool {
	if n < 3 || !s.consonant(n-1) || s.consonant(n-2) || !s.consonant(n-3) {
		return false
	}
	return s[n-1] != 'w' && s[n-1] != 'x' && s[n-1] != 'y'
}

func (s *stemmer) cut(n int) { *s = (*s)[:len(*s)-n] }

func (s *stemmer) plurals() {
	switch {
	case s.ends("sses"), s.ends("ies"):
		s.cut(2)
	case s.ends("s") && !s.ends("ss"):
		s.cut(1)
	}
}

func (s *stemmer) participles() {
	switch {
	case s.ends("eed"):
		if s.measure(len(*s)-3) > 0 {
			s.cut(1)
		}
		return
	case s.ends("ed") && s.vowelIn(len(*s)-2):
		s.cut(2)
	case s.ends("ing") && s.vowelIn(len(*s)-3):
		s.cut(3)
	default:
		return
	}
	switch {
	case s.ends("at"), s.ends("bl"), s.ends("iz"):
		*s = append(*s, 'e')
	case s.doubled() && !s.ends("l") && !s.ends("s") && !s.ends("z"):
		s.cut(1)
	case s.measure(len(*s)) == 1 && s.short(len(*s)):
		*s = append(*s, 'e')
	}
}

// replace applies the first of the rules whose ending is there, if enough is left
// before it.
func (s *stemmer) replace(rules []rule) {
	for _, r := range rules {
		if s.ends(r.from) {
			if s.measure(len(*s)-len(r.from)) > 0 {
				s.cut(len(r.from))
				*s = append(*s, r.to...)
			}
			return
		}
	}
}

func (s *stemmer) residues() {
	for _, r := range step4 {
		if s.ends(r.from) {
			// The s and t of "sion" and "tion" belong to what is left.
			if s.measure(len(*s)-len(r.from)+len(r.to)) > 1 {
				s.cut(len(r.from) - len(r.to))
			}
			return
		}
	}
}

// tidy takes a last e and the second of two l.
func (s *stemmer) tidy() {
	if n := len(*s) - 1; s.ends("e") {
		if m := s.measure(n); m > 1 || m == 1 && !s.short(n) {
			s.cut(1)
		}
	}
	if s.ends("l") && s.doubled() && s.measure(len(*s)) > 1 {
		s.cut(1)
	}
}
