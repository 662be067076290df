package suspect

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// A class is a set of kinds of words; each kind is one bit. See lexicon.
type class [4]uint64

func bit(i int) (c class) {
	c[i/64] = 1 << (i % 64)
	return c
}

func (c class) or(d class) class { return class{c[0] | d[0], c[1] | d[1], c[2] | d[2], c[3] | d[3]} }

// meets reports whether the sets share a kind.
func (c class) meets(d class) bool { return c[0]&d[0]|c[1]&d[1]|c[2]&d[2]|c[3]&d[3] != 0 }

const (
	maxSteps      = 6       // of a pattern
	wholeSentence = 1 << 20 // words
)

// A pattern is a sequence of words, by kind. It is written as in "not 2 tell|show 6 user": a word of the kind not, at most two words, a word of one of the next
// two kinds, and so on. Without a number, the words follow each other. All words belong to one sentence; with a c behind the number, no comma, colon or semicolon
// is between them either. The kind end is the end of the sentence.
//
// A pattern that begins with ~ does not match if one of the three words before it is a negation; with ~~, no word of the sentence before it may be one.
type pattern struct {
	rule    int  // index in rules
	excuses bool // a sentence that matches is not meant by the rule
	steps   []patternStep
	negates int32 // the number of words before it that must not be a negation

	asksForNames bool // a step is the name of a tool
}

type patternStep struct {
	kinds  class
	gap    int  // the number of words that may be before it
	clause bool // it belongs to the clause of the step before it
}

// compile reads a pattern. The rules are constants, so a fault is ours.
func (v *wordKinds) compile(text string) (p pattern) {
	rest := strings.TrimLeft(text, "~")
	switch len(text) - len(rest) {
	case 1:
		p.negates = 3
	case 2:
		p.negates = wholeSentence
	}
	gap, clause := 0, false
	for word := range strings.FieldsSeq(rest) {
		if n, err := strconv.Atoi(strings.TrimSuffix(word, "c")); err == nil {
			gap, clause = n, strings.HasSuffix(word, "c")
			continue
		}
		kinds := v.class(word)
		p.asksForNames = p.asksForNames || kinds.meets(v.class("ident|peer"))
		p.steps = append(p.steps, patternStep{kinds, gap, clause})
		gap, clause = 0, false
	}
	if len(p.steps) == 0 || len(p.steps) > maxSteps {
		panic("a pattern has too many steps, or none: " + text)
	}
	return p
}

// A machine has the patterns of all rules, ordered by the kinds of words that they wait for. It reads a sentence word by word, so the time is linear in the
// number of words, also for a text that is made to match nearly.
type machine struct {
	patterns []pattern
	waits    [64 * len(class{})][maxSteps][]int // by kind and step: the indexes of patterns
	not      class
}

func newMachine(v *wordKinds) *machine {
	m := &machine{not: v.class("not")}
	for i, r := range rules {
		for j, text := range slices.Concat(r.patterns, r.excuses) {
			p := v.compile(text)
			p.rule, p.excuses = i, j >= len(r.patterns)
			for s, step := range p.steps {
				for kind := range step.kinds.all {
					m.waits[kind][s] = append(m.waits[kind][s], len(m.patterns))
				}
			}
			m.patterns = append(m.patterns, p)
		}
	}
	return m
}

// all yields the kinds of the class.
func (c class) all(yield func(kind int) bool) {
	for i, half := range c {
		for ; half != 0; half &= half - 1 {
			if !yield(64*i + bits.TrailingZeros64(half)) {
				return
			}
		}
	}
}

// A stepRef is a step of a pattern, with what a word that it waits for is compared with.
type stepRef struct {
	pattern, gap, negates int32
	step                  int8
	clause, last          bool
}

// refs returns the steps that wait for a word of the class, later steps of a pattern first: one word must not serve two steps.
func (m *machine) refs(c class) (all []stepRef) {
	for s := maxSteps - 1; s >= 0; s-- {
		for kind := range c.all {
			for _, p := range m.waits[kind][s] {
				of := &m.patterns[p]
				all = append(all, stepRef{int32(p), int32(of.steps[s].gap), of.negates, int8(s), of.steps[s].clause, s == len(of.steps)-1})
			}
		}
	}
	return all
}

// A matching says how far each pattern has matched in the sentence that is being read.
type matching struct {
	m       *machine
	word    int32            // the number of the word, from the first one of the text; sentences are far apart
	begin   int32            // the first word of the sentence
	notWord int32            // the last negation
	clause  int32            // the last word with a sign that ends a clause
	reached [][maxSteps]mark // by pattern
}

// A mark is the last word that completed a step of a pattern.
type mark struct{ word, from int32 } // from is the first word's first byte

// apart is more than any gap. Words of two sentences are apart.
const apart = 64

// mostWords leaves room for the words of any definition in an int32.
const mostWords = 1 << 30

func newMatching(m *machine) *matching {
	return &matching{m: m, word: apart, begin: apart, reached: make([][maxSteps]mark, len(m.patterns))}
}

// next reads the next word, nil for one without kinds, which begins at the byte from, and calls f with each pattern that it completes. endsClause says that a sign behind the word ends a
// clause. The latest words that match a pattern's beginning are those to which the next step is nearest, so it is enough to remember them.
func (p *matching) next(e *lexisEntry, from int, endsClause bool, f func(pattern *pattern, begin mark)) {
	p.word++
	if e != nil {
		p.step(e.refs, from, f)
		if e.not {
			p.notWord = p.word
		}
	}
	if endsClause {
		p.clause = p.word
	}
}

func (p *matching) step(refs []stepRef, from int, f func(pattern *pattern, begin mark)) {
	for i := range refs {
		r := &refs[i]
		marks := &p.reached[r.pattern]
		now := mark{p.word, int32(from)}
		if r.step == 0 {
			if p.notWord >= max(p.begin, p.word-r.negates) && r.negates > 0 {
				continue
			}
		} else {
			before := marks[r.step-1]
			if before.word < p.word-1-r.gap || r.clause && before.word <= p.clause {
				continue
			}
			now.from = before.from
		}
		marks[r.step] = now
		if r.last {
			f(&p.m.patterns[r.pattern], now)
		}
	}
}

// endSentence makes the words so far too far away for any pattern.
func (p *matching) endSentence() {
	p.word += apart
	p.begin = p.word
}
