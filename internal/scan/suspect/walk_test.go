package suspect

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// plainTexts returns the texts of a value, with their places, by the functions of wire.
func plainTexts(value []byte, at textPlace) (all []string) {
	switch {
	case len(value) == 0:
	case len(at) > maxDepth && (value[0] == '{' || value[0] == '['):
		return []string{at.begin() + "=" + unquote(string(value))}
	case value[0] == '"':
		return []string{at.begin() + "=" + unquote(string(value[1:len(value)-1]))}
	case value[0] == '{':
		for name, member := range wire.Members(value) {
			below := append(slices.Clone(at), name)
			all = append(all, below.begin()+" is "+name)
			all = append(all, plainTexts(member, below)...)
		}
	case value[0] == '[':
		i := 0
		for element := range wire.Elements(value) {
			all = append(all, plainTexts(element, append(slices.Clone(at), strconv.Itoa(i)))...)
			i++
		}
	}
	return all
}

// The walk reads a definition once, and yields the texts that the functions of wire find member by member.
func FuzzTheWalkYieldsTheTextsOfAValue(f *testing.F) {
	for _, seed := range []string{
		`{"a":"b","c":["d",{"e\u0041":"\"\\"},1,null,[]],"f":{},"\\":true}`, " [ ] ", `"x"`, `{"a" : { "b" : [ "c" , "d" ] } , "e":-1.5e3}`, `["\\\\","\\\""]`,
		strings.Repeat("[", maxDepth+3) + `{"a":"]"}` + strings.Repeat("]", maxDepth+3),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got []string
		eachText(text, func(at textPlace, spelling string, isName bool) { // no text may make it panic
			sign := "="
			if isName {
				sign = " is "
			}
			got = append(got, at.begin()+sign+unquote(spelling))
		})
		if !wire.Strict([]byte(text)) {
			return
		}
		if want := plainTexts([]byte(strings.TrimSpace(text)), nil); !slices.Equal(got, want) {
			t.Errorf("%s\n%q, want\n%q", text, got, want)
		}
	})
}

// A spoken word has the kinds of a word, and says whether a sign behind it ends a clause.
type spokenWord struct {
	class class
	ends  bool
}

// matches reports whether a pattern matches a sentence. It tries each way.
func matches(p *pattern, words []spokenWord, not class) bool {
	var from func(at int, steps []patternStep) bool
	from = func(at int, steps []patternStep) bool {
		if len(steps) == 0 {
			return true
		}
		for i := at; i < len(words) && i <= at+steps[0].gap; i++ {
			between := slices.ContainsFunc(words[at-1:i], func(w spokenWord) bool { return w.ends })
			if words[i].class.meets(steps[0].kinds) && (!steps[0].clause || !between) && from(i+1, steps[1:]) {
				return true
			}
		}
		return false
	}
	for i := range words {
		negated := slices.ContainsFunc(words[max(0, i-int(p.negates)):i], func(w spokenWord) bool { return w.class.meets(not) })
		if words[i].class.meets(p.steps[0].kinds) && !negated && from(i+1, p.steps[1:]) {
			return true
		}
	}
	return false
}

func TestTheMachineMatchesWhatTryingEachWayMatches(t *testing.T) {
	l := theLexis()
	random := rand.New(rand.NewPCG(3, 4))
	var vocabulary []class
	for _, word := range slices.Sorted(maps.Keys(l.kinds)) {
		vocabulary = append(vocabulary, l.kinds[word])
	}
	vocabulary = append(vocabulary, l.shapes.url, l.shapes.mail, l.shapes.ident, l.shapes.place, class{}, class{})
	matching, matched := newMatching(l.machine), 0
	for range 3000 {
		// A sentence of the kinds of one pattern, and of other words, has many beginnings of matches.
		p := &l.machine.patterns[random.IntN(len(l.machine.patterns))]
		words := make([]spokenWord, random.IntN(30))
		for i := range words {
			if words[i].class = vocabulary[random.IntN(len(vocabulary))]; random.IntN(2) == 0 {
				words[i].class = words[i].class.or(p.steps[random.IntN(len(p.steps))].kinds)
			}
			words[i].ends = random.IntN(8) == 0
		}
		got := map[*pattern]bool{}
		for _, w := range words {
			matching.next(l.newEntry("", w.class), 0, w.ends, func(p *pattern, _ mark) { got[p] = true })
		}
		matching.endSentence()
		for i := range l.machine.patterns {
			p := &l.machine.patterns[i]
			if want := matches(p, words, l.machine.not); want != got[p] {
				t.Fatalf("pattern %d of %s: %v, want %v", i, rules[p.rule].ID, got[p], want)
			}
		}
		matched += len(got)
	}
	if matched < 2000 {
		t.Errorf("only %d matches", matched)
	}
}
