// Package search finds tools by words. It decides how well a tool fits a query, from the tool's definition and the
// other tools of the same index, and from nothing else. Its callers decide which tools a client may see, and so which
// index a query uses.
//
// It is lexical and pure: no state, no clock, no I/O. Equal tools and an equal query give equal matches in an equal
// order, for any order of the tools.
//
// # How a tool is scored
//
// The score is BM25F: the number of times that the query's words occur in a tool, weighted by field and by the length
// of the field. Rare words count more than common ones. A part of a word's score is for its exact form, the rest for
// its stem (see stem). Synonyms (see synonymGroups) count less, and so do two words that other tools write as one
// ("file system"). A tool with the query as its name comes first. Names that contain or begin with words of the query
// get an additional score.
package search

import (
	"math"
	"slices"
	"strings"
	"unique"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The weights are round numbers with a reason each, and not fitted to tasks: if any one of
// half or twice as much of any one, the sets of docs/benchmarks.md lose 3 in 100
// of their tasks at 5 at most, and the smallest 3 of 38.
var (
	// fieldWeight is the weight of a word in each field.
	fieldWeight = [fields]float64{
		inName:   3,   // the author's own summary in a few words
		inTitle:  2,   // the same for people, mostly the name again
		inText:   1,   // the unit for the others
		inParam:  0.5, // names the tool's objects, but half of the tools share id, path, query
		inDetail: 0.3, // mostly says how to write a value
		inServer: 0.5, // distinguishes servers, not the tools of one server
	}
	// lengthSlope is how much a long field reduces the weight of each of its words: from 0, not at all, to 1, in
	// proportion to the length.
	lengthSlope = [fields]float64{
		inName:   0.3, // a long name is precise rather than wordy
		inTitle:  0.3,
		inText:   0.75, // the usual value of BM25
		inParam:  0.75,
		inDetail: 0.75,
		inServer: 0,
	}
)

const (
	// saturation limits the score of a repeated word: the usual value of BM25.
	saturation = 1.2

	// exactShare is the share of a word's exact form in its score; the rest is for its stem. The query "keys" asks
	// rather for keys than for a key, but also for a key.
	exactShare = 0.4

	// synonymShare is the share of a synonym. A synonym counts as no rarer than the query's own word: a query with
	// "get" is not specific, and does not ask for the only tool that says "retrieve".
	synonymShare = 0.4

	// joinedShare is the share of two words that a tool writes as one.
	joinedShare = 0.5

	// prefixShare is the share of a query word that is only a prefix of a tool's word, if no tool has it exactly:
	// "calend", or "postgres" when every tool says "postgresql".
	prefixShare = 0.5

	// nameBonus puts the tool with the query as its name above all others.
	nameBonus = 1000.0
)

// Limits of a query and its matches.
const (
	MaxQuery   = 8 << 10 // bytes; Search ignores the rest, and callers refuse longer queries of people and models
	MaxMatches = 100
)

// An Index finds tools among the docs that it was made of. It is immutable and safe for concurrent use. Tools outside
// of the index do not influence its answers.
type Index struct {
	docs   []*Doc  // sorted by id
	byName []int32 // indexes into docs, sorted by name
	terms  map[unique.Handle[string]]*postingList
	stems  map[string]*postingList
	words  []string // the keys of terms, sorted
}

// A postingList has the tools with one word, or with any word of one stem.
type postingList struct {
	stemList *postingList // for a word: the list of its stem
	idf      float64
	docs     []posting
}

type posting struct {
	doc   int32
	score float32 // until computeScores: the number of occurrences, weighted by field
}

// New makes the index of docs. Their ids must differ.
func New(docs []*Doc) *Index {
	x := &Index{docs: slices.Clone(docs), terms: map[unique.Handle[string]]*postingList{}, stems: map[string]*postingList{}}
	slices.SortFunc(x.docs, func(a, b *Doc) int { return a.id.Compare(b.id) })
	x.byName = make([]int32, len(docs))
	for i := range x.byName {
		x.byName[i] = int32(i)
	}
	slices.SortStableFunc(x.byName, func(a, b int32) int { return strings.Compare(x.docs[a].name, x.docs[b].name) })

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
			scale[f] = fieldWeight[f] / (1 - lengthSlope[f] + lengthSlope[f]*float64(d.length[f])/mean[f])
		}
		for _, w := range d.words {
			times := 0.0
			for f, n := range w.times {
				times += float64(n) * scale[f]
			}
			x.addPosting(int32(i), w.word, float32(times))
		}
	}
	x.words = make([]string, 0, len(x.terms))
	for w, l := range x.terms {
		l.computeScores(len(docs))
		x.words = append(x.words, w.Value())
	}
	slices.Sort(x.words)
	for _, l := range x.stems {
		l.computeScores(len(docs))
	}
	return x
}

func (x *Index) addPosting(doc int32, word unique.Handle[string], times float32) {
	l := x.terms[word]
	if l == nil {
		s := stemOf(word.Value())
		if x.stems[s] == nil {
			x.stems[s] = &postingList{}
		}
		l = &postingList{stemList: x.stems[s]}
		x.terms[word] = l
	}
	l.docs = append(l.docs, posting{doc, times})
	if n := len(l.stemList.docs); n > 0 && l.stemList.docs[n-1].doc == doc {
		l.stemList.docs[n-1].score += times
	} else {
		l.stemList.docs = append(l.stemList.docs, posting{doc, times})
	}
}

// computeScores turns weighted counts into scores.
func (l *postingList) computeScores(docs int) {
	l.idf = idf(len(l.docs), docs)
	for i := range l.docs {
		t := float64(l.docs[i].score)
		l.docs[i].score = float32(t * (saturation + 1) / (t + saturation))
	}
}

// idf returns the inverse document frequency of a word that n of the docs contain.
func idf(n, docs int) float64 {
	return math.Log(1 + (float64(docs-n)+0.5)/(float64(n)+0.5))
}

// A Match is a tool that was found.
type Match struct {
	ID    switchboard.ToolID
	Score float64 // comparable only within one answer
}

// Search returns the tools with the best scores, best first. Equal scores are ordered by the bytes of server and
// name. It returns at most limit tools, and at most MaxMatches.
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

// scoreWords adds the scores for the words of the query.
func (x *Index) scoreWords(query string, scores []float64) {
	var asked []string // in their exact form, without duplicates
	seen, done := map[string]bool{}, map[string]bool{}
	eachWord(query, func(w []byte) {
		if !stopWords[string(w)] && !seen[string(w)] {
			seen[string(w)] = true
			asked = append(asked, string(w))
		}
	})
	score := func(l *postingList, share, mostIDF float64) {
		for _, p := range l.docs {
			scores[p.doc] += share * min(l.idf, mostIDF) * float64(p.score)
		}
	}
	anyIDF := math.Inf(1)
	// Each stem counts once, for the first reason that applies: it is in the query, it is
	// it means the same, it is two words in one.
	once := func(stem string, share, mostIDF float64) {
		if l := x.stems[stem]; l != nil && !done[stem] {
			done[stem] = true
			score(l, share, mostIDF)
		}
	}
	for _, w := range asked {
		if l := x.terms[unique.Make(w)]; l != nil {
			score(l, exactShare, anyIDF)
		}
		once(stemOf(w), 1-exactShare, anyIDF)
	}
	for _, w := range asked {
		s, rarity := stemOf(w), anyIDF
		if l := x.stems[s]; l != nil {
			rarity = l.idf
		} else {
			for _, longer := range x.wordsWithPrefix(w) {
				score(x.terms[unique.Make(longer)], prefixShare, anyIDF)
			}
		}
		for _, other := range synonyms[s] {
			once(other, synonymShare, rarity)
		}
	}
	for i := 1; i < len(asked); i++ {
		once(stemOf(asked[i-1]+asked[i]), joinedShare, anyIDF)
	}
}

// wordsWithPrefix returns some words of tools with the prefix word, which is no word of a tool itself. It returns
// none if the prefix is too short to be specific.
func (x *Index) wordsWithPrefix(word string) []string {
	const least, most = 3, 16
	from, _ := slices.BinarySearch(x.words, word)
	to := from
	for to < len(x.words) && to-from < most && len(word) >= least && strings.HasPrefix(x.words[to], word) {
		to++
	}
	return x.words[from:to]
}

// scoreNames adds the scores for whole names: the query is the tool's name, contains it, or is its prefix.
func (x *Index) scoreNames(query string, scores []float64) {
	key := nameKey(query)
	if key == "" {
		return
	}
	for _, i := range x.docsNamed(key, true) {
		scores[i] += nameBonus
	}
	for i, d := range x.docs {
		if rest, ok := strings.CutPrefix(key, d.server); ok && rest == d.name {
			scores[i] += nameBonus
		}
	}
	words := strings.Fields(query)
	if len(words) == 1 {
		begin := x.docsNamed(key, false)
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
		same := x.docsNamed(nameKey(w), true)
		for _, i := range same {
			scores[i] += idf(len(same), len(x.docs)) * (saturation + 1)
		}
	}
}

// docsNamed returns the tools with the name key, or, unless whole, with that prefix.
func (x *Index) docsNamed(key string, whole bool) []int32 {
	from, _ := slices.BinarySearchFunc(x.byName, key, func(i int32, key string) int { return strings.Compare(x.docs[i].name, key) })
	to := from
	for to < len(x.byName) {
		name := x.docs[x.byName[to]].name
		if name != key && (whole || !strings.HasPrefix(name, key)) {
			break
		}
		to++
	}
	return x.byName[from:to]
}
