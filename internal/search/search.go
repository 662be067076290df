// Package search finds tools by words. It decides how well a tool fits what is
// asked for, from the tool's definition and the other tools of the same index,
// and nothing else: which tools one may see, and so which index is asked, is
// for others.
//
// It is lexical and pure: no state, no clock, no I/O. Equal tools and an equal
// query give equal matches in an equal order, whatever the order of the tools.
//
// # How a tool is scored
//
// By BM25F: how often the words of the query stand in a tool, counted by field
// and by how long the field is, with rare words counting more than common ones.
// A word counts in part as it is written, and in part as its stem (see stem).
// Words that mean the same (see alike) count for less, and so do two words that
// are one elsewhere ("file system"). A tool whose name the query is, comes
// first; names that the query mentions or begins count besides.
package search

import (
	"math"
	"slices"
	"strings"
	"unique"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The weights are round numbers with a reason each, and not fitted to tasks: with
// half or twice as much of any one, the sets of docs/benchmarks.md lose 3 in 100
// of their tasks at 5 at most, and the smallest 3 of 38.
var (
	// weight is what a word in each field counts.
	weight = [fields]float64{
		inName:   3,   // the author's own summary in a few words
		inTitle:  2,   // the same for people, mostly the name again
		inText:   1,   // the measure of the others
		inParam:  0.5, // says what it works with: half of the tools share id, path, query
		inDetail: 0.3, // mostly says how to write a value
		inServer: 0.5, // tells servers apart, not the tools of one
	}
	// slope is how much a long field makes each of its words count for less: not
	// at all (0) to in full proportion (1).
	slope = [fields]float64{
		inName:   0.3, // a long name is precise rather than wordy
		inTitle:  0.3,
		inText:   0.75, // the usual value of BM25
		inParam:  0.75,
		inDetail: 0.75,
		inServer: 0,
	}
)

const (
	// saturation is how soon a repeated word stops counting: the usual value.
	saturation = 1.2

	// exactly is the share of a word as it is written; the rest is its stem's.
	// "keys" asks for keys rather than for a key, but also for a key.
	exactly = 0.4

	// synonym is what a word counts that only means the same. It counts as no rarer
	// than the word that was asked for: who asks to "get" something has said
	// little, and has not asked for the one tool that says "retrieve".
	synonym = 0.4

	// joined is what two words count that are written as one.
	joined = 0.5

	// begun is what a word counts that is the beginning of a tool's, where no tool
	// has it as it is: "calend", or "postgres" where all say "postgresql".
	begun = 0.5

	// called lifts the tool whose name the query is above all others.
	called = 1000.0
)

// Bounds of a query, and of what it finds.
const (
	MaxQuery   = 8 << 10 // bytes; Search does not look behind them, and whoever asks people or models refuses more
	MaxMatches = 100
)

// An Index finds tools among those that it was made of. It is immutable and
// safe for concurrent use. What is not in it has no influence on anything that
// it answers.
type Index struct {
	docs  []*Doc  // by id
	named []int32 // docs, by name
	terms map[unique.Handle[string]]*list
	stems map[string]*list
	words []string // those of terms, sorted
}

// A list are the tools that hold a word, or any word of a stem.
type list struct {
	of   *list // of a word: that of its stem
	idf  float64
	docs []posting
}

type posting struct {
	doc   int32
	score float32 // at first, how often the word is there, weighted by field
}

// New makes the index of docs, whose ids differ.
func New(docs []*Doc) *Index {
	x := &Index{docs: slices.Clone(docs), terms: map[unique.Handle[string]]*list{}, stems: map[string]*list{}}
	slices.SortFunc(x.docs, func(a, b *Doc) int { return a.id.Compare(b.id) })
	x.named = make([]int32, len(docs))
	for i := range x.named {
		x.named[i] = int32(i)
	}
	slices.SortStableFunc(x.named, func(a, b int32) int { return strings.Compare(x.docs[a].name, x.docs[b].name) })

	var mean [fields]float64
	for f := range mean {
		sum := 0
		for _, d := range docs {
			sum += d.length[f]
		}
		mean[f] = max(float64(sum)/float64(max(len(docs), 1)), 1)
	}
	for i, d := range x.docs {
		var scale [fields]float64
		for f := range scale {
			scale[f] = weight[f] / (1 - slope[f] + slope[f]*float64(d.length[f])/mean[f])
		}
		for _, w := range d.words {
			times := 0.0
			for f, n := range w.times {
				times += float64(n) * scale[f]
			}
			x.add(int32(i), w.word, float32(times))
		}
	}
	x.words = make([]string, 0, len(x.terms))
	for w, l := range x.terms {
		l.finish(len(docs))
		x.words = append(x.words, w.Value())
	}
	slices.Sort(x.words)
	for _, l := range x.stems {
		l.finish(len(docs))
	}
	return x
}

func (x *Index) add(doc int32, word unique.Handle[string], times float32) {
	l := x.terms[word]
	if l == nil {
		s := stemOf(word.Value())
		if x.stems[s] == nil {
			x.stems[s] = &list{}
		}
		l = &list{of: x.stems[s]}
		x.terms[word] = l
	}
	l.docs = append(l.docs, posting{doc, times})
	if n := len(l.of.docs); n > 0 && l.of.docs[n-1].doc == doc {
		l.of.docs[n-1].score += times
	} else {
		l.of.docs = append(l.of.docs, posting{doc, times})
	}
}

// finish turns how often the word is there into what it scores.
func (l *list) finish(docs int) {
	l.idf = idf(len(l.docs), docs)
	for i := range l.docs {
		t := float64(l.docs[i].score)
		l.docs[i].score = float32(t * (saturation + 1) / (t + saturation))
	}
}

// idf is what a word counts that n of so many tools have.
func idf(n, docs int) float64 {
	return math.Log(1 + (float64(docs-n)+0.5)/(float64(n)+0.5))
}

// A Match is a tool that was found.
type Match struct {
	ID    switchboard.ToolID
	Score float64 // compares only with others of the same answer
}

// Search returns the tools that fit best, the best first, and of equals the one
// whose server, then name, is first in bytes. There are at most limit and
// MaxMatches.
func (x *Index) Search(query string, limit int) []Match {
	scores := make([]float64, len(x.docs))
	query = query[:min(MaxQuery, len(query))]
	x.scoreWords(query, scores)
	x.scoreNames(query, scores)

	limit = min(limit, MaxMatches)
	if limit < 1 {
		return nil
	}
	var best []int
	for i, s := range scores {
		if s <= 0 || len(best) == limit && s <= scores[best[limit-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, s, func(j int, s float64) int {
			if scores[j] >= s {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, i)
		best = best[:min(limit, len(best))]
	}
	found := make([]Match, len(best))
	for i, j := range best {
		found[i] = Match{x.docs[j].id, scores[j]}
	}
	return found
}

// scoreWords adds what each tool scores for the words of the query.
func (x *Index) scoreWords(query string, scores []float64) {
	var asked []string // as written, each once
	seen, done := map[string]bool{}, map[string]bool{}
	eachWord(query, func(w []byte) {
		if !stops[string(w)] && !seen[string(w)] {
			seen[string(w)] = true
			asked = append(asked, string(w))
		}
	})
	score := func(l *list, share, mostIDF float64) {
		for _, p := range l.docs {
			scores[p.doc] += share * min(l.idf, mostIDF) * float64(p.score)
		}
	}
	anyIDF := math.Inf(1)
	// Each stem counts once, for the first reason that there is: it is asked for,
	// it means the same, it is two words in one.
	once := func(stem string, share, mostIDF float64) {
		if l := x.stems[stem]; l != nil && !done[stem] {
			done[stem] = true
			score(l, share, mostIDF)
		}
	}
	for _, w := range asked {
		if l := x.terms[unique.Make(w)]; l != nil {
			score(l, exactly, anyIDF)
		}
		once(stemOf(w), 1-exactly, anyIDF)
	}
	for _, w := range asked {
		s, rarity := stemOf(w), anyIDF
		if l := x.stems[s]; l != nil {
			rarity = l.idf
		} else {
			for _, longer := range x.begunBy(w) {
				score(x.terms[unique.Make(longer)], begun, anyIDF)
			}
		}
		for _, other := range synonyms[s] {
			once(other, synonym, rarity)
		}
	}
	for i := 1; i < len(asked); i++ {
		once(stemOf(asked[i-1]+asked[i]), joined, anyIDF)
	}
}

// begunBy returns words of tools that begin with word, which is none itself: not
// many, and none where it is too short to mean one.
func (x *Index) begunBy(word string) []string {
	const least, most = 3, 16
	from, _ := slices.BinarySearch(x.words, word)
	to := from
	for to < len(x.words) && to-from < most && len(word) >= least && strings.HasPrefix(x.words[to], word) {
		to++
	}
	return x.words[from:to]
}

// scoreNames adds what each tool scores for its name as a whole: the query is
// it, mentions it, or is its beginning.
func (x *Index) scoreNames(query string, scores []float64) {
	key := keyOf(query)
	if key == "" {
		return
	}
	for _, i := range x.namedFrom(key, true) {
		scores[i] += called
	}
	for i, d := range x.docs {
		if rest, ok := strings.CutPrefix(key, d.server); ok && rest == d.name {
			scores[i] += called
		}
	}
	words := strings.Fields(query)
	if len(words) == 1 {
		begin := x.namedFrom(key, false)
		for _, i := range begin {
			scores[i] += idf(len(begin), len(x.docs)) * (saturation + 1)
		}
		return
	}
	for _, w := range words {
		parts := 0
		eachWord(w, func([]byte) { parts++ })
		if parts < 2 {
			continue
		}
		same := x.namedFrom(keyOf(w), true)
		for _, i := range same {
			scores[i] += idf(len(same), len(x.docs)) * (saturation + 1)
		}
	}
}

// namedFrom returns the tools whose name is key or, where whole is false, begins
// with it.
func (x *Index) namedFrom(key string, whole bool) []int32 {
	from, _ := slices.BinarySearchFunc(x.named, key, func(i int32, key string) int { return strings.Compare(x.docs[i].name, key) })
	to := from
	for to < len(x.named) {
		name := x.docs[x.named[to]].name
		if name != key && (whole || !strings.HasPrefix(name, key)) {
			break
		}
		to++
	}
	return x.named[from:to]
}
