// Package annotate suggests capabilities for tools that have none. It reads the definition of a tool, the name of its
// server and the other tools of the server. It decides which verb, resource and constraints these speak for. Whether a
// suggestion counts is the decision of a person: WriteProposal writes a file for review, and cmd/switchboard moves the
// accepted rows into an overlay.
//
// It is lexical and pure: no state, no clock, no I/O. Equal tools give equal suggestions, for any order of the tools.
// Everything that it reads may be hostile, so every text is cleaned and bounded, and is read once from its beginning to
// its end.
//
// # How a suggestion is made
//
// A Sign says where something was read and what it speaks for, with a weight. The weights of the signs are added for each
// verb and for each resource, and the heaviest ones win. If they are too light, there is no suggestion.
//
// Two things are stricter than that. "readonly" is suggested only if the name and the description (or the annotation
// readOnlyHint) speak for a verb that changes nothing, and no sign speaks against it. "pii_safe" is never suggested, because
// no definition can show it.
package annotate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ToolServer is one server, and the definitions of all its tools.
type ToolServer struct {
	Name  string // its id in the configuration, or what it calls itself
	Tools []DefinedTool
}

// A DefinedTool is one tool as its server defines it.
type DefinedTool struct {
	Name       string
	Definition []byte // its object in tools/list
	Digest     switchboard.Digest
}

// A ToolSuggestion says what one tool seems to be able to do.
type ToolSuggestion struct {
	Tool   string             `json:"tool"`
	Digest switchboard.Digest `json:"digest"` // of the definition that was read

	// Capability is the suggestion; nil if the signs are too weak.
	Capability *Label `json:"capability,omitempty"`

	// Resources are the resources that the signs speak for, at most three, the likeliest first.
	Resources []switchboard.Resource `json:"resources,omitempty"`

	// Facts are what else an overlay can say about the tool. There are none without a capability.
	Facts []SuggestedFact `json:"facts,omitempty"`

	// Confidence is the measured share of right suggestions among those with a similar Lead, in hundredths.
	Confidence int `json:"confidence"`

	// Lead is how far the heaviest signs lead over the next ones, from 0 to 99. Confidence follows from it.
	Lead int `json:"lead"`

	// Contradictions say which signs cannot both be true, such as an annotation that says readonly on a tool that
	// deletes. Such a tool deserves a look before its suggestion is accepted.
	Contradictions []string `json:"contradictions,omitempty"`

	// Why says why there is no suggestion.
	Why string `json:"why,omitempty"`

	// Missing is a resource that the tool seems to act on, and that the taxonomy does not have.
	Missing switchboard.Resource `json:"missing_resource,omitempty"`

	For     []Sign `json:"for,omitempty"`     // heaviest first
	Against []Sign `json:"against,omitempty"` // heaviest first
}

// A Label is a suggested capability.
type Label struct {
	Verb        switchboard.Verb         `json:"verb"`
	Resource    switchboard.Resource     `json:"resource"`
	Constraints []switchboard.Constraint `json:"constraints,omitempty"` // sorted
}

// String returns, for example, "search internet [readonly]".
func (c Label) String() string {
	return switchboard.Capability{Verb: c.Verb, Resource: c.Resource, Constraints: c.Constraints}.String()
}

// A Sign is one thing that was read and speaks for or against a suggestion.
type Sign struct {
	Where  string `json:"where"` // "name", "description", "annotations", "parameters", "server" or "other tools"
	Says   string `json:"says"`
	Weight int    `json:"weight"` // in the points that are added
}

// The least weights of a suggestion, and the least lead over the second.
const (
	leastVerb     = 4
	leastResource = 6
)

// Suggest returns a suggestion for each tool of the server, with resources of the taxonomy. Tools with contradictions
// come first; both parts are sorted by name.
func Suggest(server ToolServer, taxonomy *switchboard.Taxonomy) []ToolSuggestion {
	tools := slices.SortedFunc(slices.Values(server.Tools), func(a, b DefinedTool) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Digest, b.Digest), slices.Compare(a.Definition, b.Definition))
	})
	terms := matchTerms(taxonomy)
	s := readServer(server.Name, tools, terms)
	out := make([]ToolSuggestion, len(tools))
	for i := range tools {
		out[i] = s.suggest(i)
	}
	slices.SortStableFunc(out, func(a, b ToolSuggestion) int {
		return -cmp.Compare(min(1, len(a.Contradictions)), min(1, len(b.Contradictions)))
	})
	return out
}

// A serverReading is what was read about a server and its tools.
type serverReading struct {
	terms  *terms
	tools  []*toolReading // sorted by name
	common map[string]bool
	name   []subjectVote // what the server's name speaks for
	shares map[int]int   // how many thousandths of its tools speak for a subject
}

// readServer reads all tools of a server.
func readServer(name string, tools []DefinedTool, terms *terms) *serverReading {
	s := &serverReading{terms: terms, shares: map[int]int{}}
	words := splitWords(cleanText(name, maxNameBytes), maxNameWords)
	for _, t := range tools {
		s.tools = append(s.tools, readTool(t))
	}
	s.common = commonWords(words, s.tools)
	s.name = terms.voteWords("server", words, serverFactor)
	for _, t := range s.tools {
		t.voteVerbs(s.common)
		t.votes = t.voteSubjects(terms)
		t.shares = t.subjectShares()
		for subject, share := range t.shares {
			s.shares[subject] += share
		}
	}
	return s
}

// commonWords returns the words of names that say nothing about one tool: those of the server's name, and those that
// the names of all tools begin with.
func commonWords(server []string, tools []*toolReading) map[string]bool {
	common := map[string]bool{"mcp": true, "tool": true, "api": true}
	for _, w := range server {
		if _, verb := verbWords[w]; !verb {
			common[w] = true
		}
	}
	if len(tools) < 3 {
		return common
	}
	for at := 0; ; at++ {
		first := ""
		for i, t := range tools {
			if at+1 >= len(t.words) || i > 0 && t.words[at] != first {
				return common
			}
			first = t.words[at]
		}
		if _, verb := verbWords[first]; verb {
			return common
		}
		common[first] = true
	}
}

// suggest makes the suggestion for the tool.
func (s *serverReading) suggest(i int) ToolSuggestion {
	t := s.tools[i]
	out := ToolSuggestion{Tool: t.tool.Name, Digest: t.tool.Digest}
	resources := s.weighResources(i)
	subjects := rank(resources, slices.Sorted(maps.Keys(resources)))
	subject, second := keyAt(subjects, 0), keyAt(subjects, 1)
	t.addTypicalVerbs(subject, s.terms)
	verbs := map[switchboard.Verb]int{}
	for _, v := range t.verbs {
		verbs[v.verb] += v.weight
	}
	ranked := rank(verbs, switchboard.Verbs)
	verb, secondVerb := keyAt(ranked, 0), keyAt(ranked, 1)
	out.Contradictions = t.contradictions(verb)
	term, known := s.terms.term(subject, t.words, s.name)
	switch {
	case verbs[verb] < leastVerb && resources[subject] < leastResource:
		out.Why = "neither a verb nor a resource is clear"
	case verbs[verb] < leastVerb:
		out.Why = "no verb is clear"
	case resources[subject] < leastResource:
		out.Why = "no resource is clear"
	case !known:
		out.Missing = term
		out.Why = fmt.Sprintf("its resource seems to be %s, which the taxonomy does not have", term)
	default:
		out.Capability = &Label{Verb: verb, Resource: term}
		out.Resources = s.firstTerms(subjects, resources, t.words)
		out.Lead = min(leadOf(verbs[verb], verbs[secondVerb]), leadOf(resources[subject], resources[second]))
		out.Confidence = confidenceOf(out.Lead, len(out.Contradictions) > 0)
	}
	constraints := t.constrain(verb, subject, s.terms)
	if out.Capability != nil {
		out.Capability.Constraints = constraints
		out.Facts = t.readFacts(out.Capability, subject, s.terms)
	}
	s.collectSigns(&out, i, verb, subject, term)
	return out
}

// leadOf returns how clearly the first weight leads over the second, from 0 to 99.
func leadOf(first, second int) int {
	return max(0, min(99, 100*first/(first+max(0, second)+2)))
}

// rank returns the keys by their weights, the largest first. Of equal weights, the key that is first in order comes first.
func rank[K comparable](weights map[K]int, order []K) []K {
	keys := slices.DeleteFunc(slices.Clone(order), func(k K) bool { _, ok := weights[k]; return !ok })
	slices.SortStableFunc(keys, func(a, b K) int { return cmp.Compare(weights[b], weights[a]) })
	return keys
}

// keyAt returns the key at the index, or the zero key if there are fewer.
func keyAt[K comparable](keys []K, i int) (k K) {
	if i < len(keys) {
		k = keys[i]
	}
	return k
}

// maxResources limits the resources of one suggestion. Each of them has at least one part in otherShare of the weight of the first.
const (
	maxResources = 3
	otherShare   = 5
)

// firstTerms returns the resources of the taxonomy for the heaviest subjects.
func (s *serverReading) firstTerms(ranked []int, weights map[int]int, words []string) (terms []switchboard.Resource) {
	for _, subject := range ranked {
		term, known := s.terms.term(subject, words, s.name)
		if len(terms) == maxResources || weights[subject] <= 0 || weights[subject]*otherShare < weights[ranked[0]] {
			break
		}
		if known && !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return terms
}

// SortForReview sorts suggestions as a person should look at them: those with contradictions first, then those with the least confidence.
func SortForReview(all []ToolSuggestion) {
	slices.SortStableFunc(all, func(a, b ToolSuggestion) int {
		return cmp.Or(-cmp.Compare(min(1, len(a.Contradictions)), min(1, len(b.Contradictions))), cmp.Compare(a.Confidence, b.Confidence), cmp.Compare(a.Lead, b.Lead), cmp.Compare(a.Tool, b.Tool))
	})
}
