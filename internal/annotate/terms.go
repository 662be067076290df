package annotate

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The factors of words, by the place where they were read.
const (
	serverFactor   = 4
	nameFactor     = 3
	sentenceFactor = 2
	detailFactor   = 1 // of titles, parameters and results

	// othersFactor is the weight of a subject that all other tools of the server are about, and about nothing else.
	othersFactor = 25
)

// Subjects that other signs than words speak for.
var (
	arithmetic = subjectOf("compute")
	internet   = subjectOf("internet")
)

func subjectOf(r switchboard.Resource) int {
	return slices.IndexFunc(subjects, func(s subject) bool { return slices.Contains(s.names, r) })
}

// A subjectVote is a sign for a subject.
type subjectVote struct {
	subject int
	weight  int
	where   string
	word    string
}

// terms are the resources of a taxonomy, and the subjects that they mean.
type terms struct {
	taxonomy *switchboard.Taxonomy
	subjects []subject                // the vocabulary, and a subject for each term that it does not know
	words    map[string][]subjectSign // of the subjects that the vocabulary does not know
}

// matchTerms finds the subjects of all resources of the taxonomy.
func matchTerms(taxonomy *switchboard.Taxonomy) *terms {
	t := &terms{taxonomy: taxonomy, subjects: slices.Clip(subjects), words: map[string][]subjectSign{}}
	for _, r := range taxonomy.Resources() {
		if knownTerms[r] {
			continue
		}
		own := len(t.subjects)
		t.subjects = append(t.subjects, subject{names: []switchboard.Resource{r}})
		for _, w := range splitWords(string(r), maxNameWords) {
			addSign(t.words, singular(w), subjectSign{own, strongWord})
		}
	}
	return t
}

// knownTerms are the names and products of the vocabulary.
var knownTerms = func() map[switchboard.Resource]bool {
	known := map[switchboard.Resource]bool{}
	for _, s := range subjects {
		for _, name := range s.names {
			known[name] = true
		}
		for product := range strings.FieldsSeq(s.products) {
			known[switchboard.Resource(product)] = true
		}
	}
	return known
}()

// means reports whether the resource is a name of the subject.
func (t *terms) means(subject int, r switchboard.Resource) bool {
	return subject < len(t.subjects) && slices.Contains(t.subjects[subject].names, r)
}

// isProduct reports whether the word is a product of the subject.
func isProduct(word string, subject int) bool {
	return slices.Contains(subjectWords()[word], subjectSign{subject, productWord})
}

// term returns the resource of the taxonomy for the subject: the most special one that the words or the server's name
// speak for. If there is none, known is false, and it returns the resource to add.
func (t *terms) term(subject int, words []string, server []subjectVote) (term switchboard.Resource, known bool) {
	if subject >= len(t.subjects) {
		return "", false
	}
	s := t.subjects[subject]
	for _, name := range s.names {
		if t.taxonomy.HasResource(name) {
			term, known = name, true
			break
		}
	}
	narrower := func(word string) bool {
		r := switchboard.Resource(word)
		return t.taxonomy.HasResource(r) && r != term && (!known && isProduct(word, subject) || known && slices.Contains(t.taxonomy.Ancestors(r), term))
	}
	for _, v := range server {
		if narrower(v.word) {
			return switchboard.Resource(v.word), true
		}
	}
	for _, w := range words {
		if narrower(w) {
			return switchboard.Resource(w), true
		}
	}
	if !known {
		term = s.names[0]
	}
	return term, known
}

// voteWords returns the votes of the words, each word once. Products count as products only in the name of a server.
func (t *terms) voteWords(where string, words []string, factor int) []subjectVote {
	var votes []subjectVote
	seen := map[string]bool{}
	vote := func(word string, products bool) bool {
		signs := append(slices.Clip(subjectWords()[word]), t.words[word]...)
		if seen[word] || len(signs) == 0 {
			return seen[word]
		}
		seen[word] = true
		for _, s := range strongest(signs, products) {
			votes = append(votes, subjectVote{s.subject, s.strength * factor, where, word})
		}
		return true
	}
	for i, w := range words {
		isName := where == "server" || where == "name"
		if isName && i+1 < len(words) {
			vote(w+"-"+words[i+1], true)
		}
		if !vote(w, isName) {
			if one := singular(w); one != w {
				vote(one, isName)
			}
		}
	}
	return votes
}

// strongest returns the strongest sign for each subject. Without products, signs of products are left out.
func strongest(signs []subjectSign, products bool) (out []subjectSign) {
	for _, s := range signs {
		if s.strength == productWord && !products {
			continue
		}
		if i := slices.IndexFunc(out, func(o subjectSign) bool { return o.subject == s.subject }); i < 0 {
			out = append(out, s)
		} else {
			out[i].strength = max(out[i].strength, s.strength)
		}
	}
	return out
}

// voteSubjects returns what the tool itself speaks for.
func (r *toolReading) voteSubjects(t *terms) []subjectVote {
	votes := t.voteWords("name", r.words, nameFactor)
	votes = append(votes, t.voteWords("title", r.title, detailFactor)...)
	votes = append(votes, t.voteWords("description", r.sentence, sentenceFactor)...)
	if r.isArithmetic() {
		votes = append(votes, subjectVote{arithmetic, 20, "parameters", "number"})
	}
	var words []string
	for _, p := range r.params {
		words = append(words, p.words...)
		words = append(words, p.format...)
	}
	votes = append(votes, t.voteWords("parameters", words, detailFactor)...)
	votes = append(votes, t.voteWords("results", r.results, detailFactor)...)
	if isTrue(r.hints.openWorld) {
		votes = append(votes, subjectVote{internet, detailFactor, "annotations", "openWorldHint"})
	}
	return votes
}

// subjectShares returns how many thousandths of the tool's own votes speak for each subject.
func (r *toolReading) subjectShares() map[int]int {
	sum, shares := 0, map[int]int{}
	for _, v := range r.votes {
		if v.where == "name" || v.where == "description" {
			shares[v.subject] += v.weight
			sum += v.weight
		}
	}
	for s, w := range shares {
		shares[s] = 1000 * w / sum
	}
	return shares
}

// weighResources adds the weights of all signs for each subject.
func (s *serverReading) weighResources(i int) map[int]int {
	weights := map[int]int{}
	for _, v := range s.name {
		weights[v.subject] += v.weight
	}
	for _, v := range s.tools[i].votes {
		weights[v.subject] += v.weight
	}
	for subject := range s.shares {
		if w := s.othersWeight(i, subject); w > 0 {
			weights[subject] += w
		}
	}
	return weights
}

// othersWeight returns the weight that the other tools of the server give to the subject.
func (s *serverReading) othersWeight(i, subject int) int {
	if len(s.tools) < 2 {
		return 0
	}
	others := s.shares[subject] - s.tools[i].shares[subject]
	return othersFactor * others / (len(s.tools) - 1) / 1000
}
