package search

import "strings"

// stem removes the endings of an English word, so that "listing", "listed" and "lists" are equal. It is the algorithm
// of M. F. Porter ("An algorithm for suffix stripping", 1980) with the changes of its author's own program. It also
// has one exception that the author added later, because tools often use the word: "news" is not the plural of "new".
// It works in place and returns the remaining part of w. A word with other characters than lower-case ASCII letters
// stays unchanged.
//
// We have our own implementation because it is small and finished, and every word of every definition passes through
// it.
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
	s.cutPlural()
	s.cutParticiple()
	if s.hasSuffix("y") && s.hasVowel(len(s)-1) {
		s[len(s)-1] = 'i'
	}
	s.applyFirst(step2)
	s.applyFirst(step3)
	s.cutResidue()
	s.cutFinalLetter()
	return s
}

func stemOf(word string) string { return string(stem([]byte(word))) }

type stemmer []byte

// A suffixRule replaces a suffix. The first rule that matches applies.
type suffixRule struct{ from, to string }

var (
	step2 = parseRules(`ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize
		ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log`)
	step3 = parseRules(`icate:ic ative: alize:al iciti:ic ical:ic ful: ness:`)
	step4 = parseRules(`al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: sion:s tion:t ou: ism: ate: iti: ous: ive: ize:`)
)

func parseRules(text string) (all []suffixRule) {
	for r := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(r, ":")
		all = append(all, suffixRule{from, to})
	}
	return all
}

// isConsonant reports whether the letter at i is a consonant. A y is one unless it follows a consonant.
func (s stemmer) isConsonant(i int) bool {
	switch s[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !s.isConsonant(i-1)
	}
	return true
}

// measure counts how often a consonant follows a vowel in the first n letters.
func (s stemmer) measure(n int) (m int) {
	vowel := false
	for i := range n {
		c := s.isConsonant(i)
		if c && vowel {
			m++
		}
		vowel = !c
	}
	return m
}

func (s stemmer) hasVowel(n int) bool {
	for i := range n {
		if !s.isConsonant(i) {
			return true
		}
	}
	return false
}

func (s stemmer) hasSuffix(suffix string) bool {
	return len(s) > len(suffix) && string(s[len(s)-len(suffix):]) == suffix
}

// endsDoubled reports whether the word ends in two equal consonants.
func (s stemmer) endsDoubled() bool {
	n := len(s)
	return n >= 2 && s[n-1] == s[n-2] && s.isConsonant(n-1)
}

// endsShort reports whether the first n letters end in consonant, vowel, consonant, and the last one is not w, x or
// y: as in "hop", the stem of "hoping".
func (s stemmer) endsShort(n int) bool {
	if n < 3 || !s.isConsonant(n-1) || s.isConsonant(n-2) || !s.isConsonant(n-3) {
		return false
	}
	return s[n-1] != 'w' && s[n-1] != 'x' && s[n-1] != 'y'
}

func (s *stemmer) trim(n int) { *s = (*s)[:len(*s)-n] }

func (s *stemmer) cutPlural() {
	switch {
	case s.hasSuffix("sses"), s.hasSuffix("ies"):
		s.trim(2)
	case s.hasSuffix("s") && !s.hasSuffix("ss"):
		s.trim(1)
	}
}

func (s *stemmer) cutParticiple() {
	switch {
	case s.hasSuffix("eed"):
		if s.measure(len(*s)-3) > 0 {
			s.trim(1)
		}
		return
	case s.hasSuffix("ed") && s.hasVowel(len(*s)-2):
		s.trim(2)
	case s.hasSuffix("ing") && s.hasVowel(len(*s)-3):
		s.trim(3)
	default:
		return
	}
	switch {
	case s.hasSuffix("at"), s.hasSuffix("bl"), s.hasSuffix("iz"):
		*s = append(*s, 'e')
	case s.endsDoubled() && !s.hasSuffix("l") && !s.hasSuffix("s") && !s.hasSuffix("z"):
		s.trim(1)
	case s.measure(len(*s)) == 1 && s.endsShort(len(*s)):
		*s = append(*s, 'e')
	}
}

// applyFirst applies the first matching rule, if the part before the suffix is long enough.
func (s *stemmer) applyFirst(rules []suffixRule) {
	for _, r := range rules {
		if s.hasSuffix(r.from) {
			if s.measure(len(*s)-len(r.from)) > 0 {
				s.trim(len(r.from))
				*s = append(*s, r.to...)
			}
			return
		}
	}
}

func (s *stemmer) cutResidue() {
	for _, r := range step4 {
		if s.hasSuffix(r.from) {
			// The s and t of "sion" and "tion" belong to the remaining part.
			if s.measure(len(*s)-len(r.from)+len(r.to)) > 1 {
				s.trim(len(r.from) - len(r.to))
			}
			return
		}
	}
}

// cutFinalLetter removes a final e, and the second of two final l.
func (s *stemmer) cutFinalLetter() {
	if n := len(*s) - 1; s.hasSuffix("e") {
		if m := s.measure(n); m > 1 || m == 1 && !s.endsShort(n) {
			s.trim(1)
		}
	}
	if s.hasSuffix("l") && s.endsDoubled() && s.measure(len(*s)) > 1 {
		s.trim(1)
	}
}
