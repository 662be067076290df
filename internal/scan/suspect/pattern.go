package suspect

import (
	"math/bits"
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

// most steps of a pattern
const maxSteps = 6

// A pattern is a sequence of words, by kind. It is written as in "not 2 tell|show 6 user": a word of the kind not, at most two words, a word of one of the next
// two kinds, and so on. Without a number, the words follow each other. All words belong to one sentence.
//
// A pattern that begins with ~ does not match if one of the three words before it is a negation.
type pattern struct {
	rule    int // index in rules
	steps   []patternStep
	negates bool // it begins with ~

	asksForNames bool // a step is the name of a tool
}

type patternStep struct {
	kinds class
	gap   int // the number of words that may be before it
}

// compile reads a pattern. The rules are constants, so a fault is ours.
func (v *wordKinds) compile(rule int, text string) pattern {
	p := pattern{rule: rule}
	rest, negated := strings.CutPrefix(text, "~")
	p.negates = negated
	gap := 0
	for word := range strings.FieldsSeq(rest) {
		if n, err := strconv.Atoi(word); err == nil {
			gap = n
			continue
		}
		kinds := v.class(word)
		p.asksForNames = p.asksForNames || kinds.meets(v.class("ident|peer"))
		p.steps = append(p.steps, patternStep{kinds, gap})
		gap = 0
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
		for _, text := range r.patterns {
			p := v.compile(i, text)
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

// A stepRef is a step of a pattern.
type stepRef struct{ pattern, step, gap int32 }

// refs returns the steps that wait for a word of the class, later steps of a pattern first: one word must not serve two steps.
func (m *machine) refs(c class) (all []stepRef) {
	for s := maxSteps - 1; s >= 0; s-- {
		for kind := range c.all {
			for _, p := range m.waits[kind][s] {
				all = append(all, stepRef{int32(p), int32(s), int32(m.patterns[p].steps[s].gap)})
			}
		}
	}
	return all
}

// A progress says how far each pattern has matched in the sentence that is being read.
type progress struct {
	m       *machine
	word    int32 // the number of the word, from the first one of the text; sentences are far apart
	notWord int32 // the last negation
	reached []mark
}

// A mark is the last word at which a step of a pattern was reached.
type mark struct{ word, fromWord, from int32 } // from is the first word's first byte

// apart is more than any gap. Words of two sentences are apart.
const apart = 64

func newProgress(m *machine) progress {
	return progress{m: m, word: apart, reached: make([]mark, len(m.patterns)*maxSteps)}
}

// next reads the next word, which begins at the byte from, and calls f with each pattern that it completes. The latest words that match a pattern's beginning
// are those to which the next step is nearest, so it is enough to remember them.
func (p *progress) next(c class, refs []stepRef, from int, f func(pattern *pattern, begin mark)) {
	p.word++
	for _, r := range refs {
		marks := p.reached[int(r.pattern)*maxSteps:][:maxSteps]
		pattern := &p.m.patterns[r.pattern]
		now := mark{p.word, p.word, int32(from)}
		if r.step == 0 {
			if pattern.negates && p.notWord >= p.word-3 {
				continue
			}
		} else {
			before := marks[r.step-1]
			if before.word < p.word-1-r.gap || before.word == 0 {
				continue
			}
			now.fromWord, now.from = before.fromWord, before.from
		}
		marks[r.step] = now
		if int(r.step) == len(pattern.steps)-1 {
			f(pattern, now)
		}
	}
	if c.meets(p.m.not) {
		p.notWord = p.word
	}
}

// endSentence makes the words so far too far away for any pattern.
func (p *progress) endSentence() { p.word += apart }
