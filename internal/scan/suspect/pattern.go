package suspect

import (
	"strconv"
	"strings"
)

// A class is a set of kinds of words; each kind is one bit. See lexicon.
type class [2]uint64

func bit(i int) (c class) {
	c[i/64] = 1 << (i % 64)
	return c
}

func (c class) or(d class) class { return class{c[0] | d[0], c[1] | d[1]} }

// meets reports whether the sets share a kind.
func (c class) meets(d class) bool { return c[0]&d[0]|c[1]&d[1] != 0 }

// A pattern is a sequence of words, by kind. It is written as in "not 2 tell|show 6 user": a word of the kind not, at most two words, a word of one of the next
// two kinds, and so on. Without a number, the words follow each other. All words belong to one sentence.
//
// A pattern that begins with ~ does not match if one of the three words before it is a negation.
type pattern struct {
	steps []patternStep
	not   class // the negations, or none
}

type patternStep struct {
	kinds class
	gap   int // the number of words that may be before it
}

// compile reads a pattern. The rules are constants, so a fault is ours.
func (v *wordKinds) compile(text string) (p pattern) {
	rest, negated := strings.CutPrefix(text, "~")
	if negated {
		p.not = v.class("not")
	}
	gap := 0
	for word := range strings.FieldsSeq(rest) {
		if n, err := strconv.Atoi(word); err == nil {
			gap = n
			continue
		}
		p.steps = append(p.steps, patternStep{v.class(word), gap})
		gap = 0
	}
	return p
}

// find returns the words of the sentence that match: the first one, and the one after the last. any is the union of the words' classes.
func (p *pattern) find(words []token, any class) (from, to int, ok bool) {
	for _, s := range p.steps {
		if !s.kinds.meets(any) {
			return 0, 0, false
		}
	}
	for i := range words {
		if !words[i].class.meets(p.steps[0].kinds) || isNegated(words, i, p.not) {
			continue
		}
		if end, ok := matchFrom(words, i+1, p.steps[1:]); ok {
			return i, end, true
		}
	}
	return 0, 0, false
}

func matchFrom(words []token, at int, steps []patternStep) (end int, ok bool) {
	if len(steps) == 0 {
		return at, true
	}
	for i := at; i < len(words) && i <= at+steps[0].gap; i++ {
		if words[i].class.meets(steps[0].kinds) {
			if end, ok := matchFrom(words, i+1, steps[1:]); ok {
				return end, true
			}
		}
	}
	return 0, false
}

func isNegated(words []token, at int, not class) bool {
	for _, w := range words[max(0, at-3):at] {
		if w.class.meets(not) {
			return true
		}
	}
	return false
}
