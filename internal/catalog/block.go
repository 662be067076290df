package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const blockName = switchboard.BlockName

// Limits of one block.
const (
	MaxCapabilities = 64
	MaxConstraints  = 32 // of one capability

	// maxProblems bounds what is said about one block.
	maxProblems = 8
)

// A block is what one place says of one tool, read but not yet held against a
// taxonomy.
type block struct {
	field    string // where it stands
	claims   []claim
	problems []problem // not empty: the block counts for nothing, and the tool is refused
}

type claim struct {
	verb, resource string
	constraints    []string
}

// readBlock reads the block at n.
func readBlock(t *tree, n int32, field string) block {
	b := block{field: field}
	if t.nodes[n].kind != '[' {
		b.fault("", "is %s; want a list of {verb, resource, constraints}", t.kindName(n))
		return b
	}
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		if len(b.claims) == MaxCapabilities {
			b.fault("", "has more than %d capabilities", MaxCapabilities)
			return b
		}
		b.claims = append(b.claims, b.readClaim(t, c, fmt.Sprintf("[%d]", len(b.claims))))
	}
	return b
}

func (b *block) fault(at, format string, args ...any) {
	if len(b.problems) < maxProblems {
		b.problems = append(b.problems, *problemf(b.field+at, format, args...))
	}
}

var claimFields = []string{"verb", "resource", "constraints"}

func (b *block) readClaim(t *tree, n int32, at string) claim {
	var c claim
	if t.nodes[n].kind != '{' {
		b.fault(at, "is %s; want an object with verb and resource", t.kindName(n))
		return c
	}
	for m := t.nodes[n].first; m != none; m = t.nodes[m].next {
		switch name := string(t.nodes[m].name); name {
		case "verb":
			c.verb = b.word(t, m, at+".verb")
		case "resource":
			c.resource = b.word(t, m, at+".resource")
		case "constraints":
			c.constraints = b.words(t, m, at+".constraints")
		default:
			b.fault(at, "%s is not a field here%s", quoted(name), suggest(name, claimFields))
		}
	}
	for _, name := range claimFields[:2] {
		if t.member(n, name) == none {
			b.fault(at, "has no %s", name)
		}
	}
	return c
}

func (b *block) word(t *tree, n int32, at string) string {
	s, ok := t.text(n)
	if !ok {
		b.fault(at, "is %s; want a string", t.kindName(n))
	}
	return s
}

func (b *block) words(t *tree, n int32, at string) (words []string) {
	if t.nodes[n].kind != '[' {
		b.fault(at, "is %s; want a list of strings", t.kindName(n))
		return nil
	}
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		if len(words) == MaxConstraints {
			b.fault(at, "has more than %d constraints", MaxConstraints)
			return words
		}
		words = append(words, b.word(t, c, fmt.Sprintf("%s[%d]", at, len(words))))
	}
	return words
}

// resolve turns the claims into capabilities from source, in their one order,
// or says which words tax does not know.
func (b *block) resolve(tax *switchboard.Taxonomy, source switchboard.Source) ([]switchboard.Capability, []problem) {
	if len(b.problems) > 0 {
		return nil, b.problems
	}
	caps := make([]switchboard.Capability, 0, len(b.claims))
	var ps []problem
	for i, c := range b.claims {
		unknown := func(at, word, what string, near func() string) {
			if len(ps) < maxProblems {
				ps = append(ps, *problemf(fmt.Sprintf("%s[%d].%s", b.field, i, at), "%s is not a %s%s", quoted(word), what, near()))
			}
		}
		if !slices.Contains(switchboard.Verbs, switchboard.Verb(c.verb)) {
			unknown("verb", c.verb, "verb", func() string { return suggest(c.verb, switchboard.Verbs) })
		}
		if !tax.HasResource(switchboard.Resource(c.resource)) {
			unknown("resource", c.resource, "resource here", func() string { return suggest(c.resource, tax.Resources()) })
		}
		capability := switchboard.Capability{Verb: switchboard.Verb(c.verb), Resource: switchboard.Resource(c.resource)}
		for j, k := range c.constraints {
			if !tax.HasConstraint(switchboard.Constraint(k)) {
				unknown(fmt.Sprintf("constraints[%d]", j), k, "constraint here", func() string { return suggest(k, tax.Constraints()) })
			}
			capability.Constraints = append(capability.Constraints, switchboard.Constraint(k))
		}
		caps = append(caps, capability)
	}
	if len(ps) > 0 {
		return nil, ps
	}
	return normal(caps, source), nil
}

// normal returns caps as said by source, sorted, without duplicates; never
// nil. caps is left as it is.
func normal(caps []switchboard.Capability, source switchboard.Source) []switchboard.Capability {
	out := make([]switchboard.Capability, 0, len(caps))
	for _, c := range caps {
		c.Source = source
		c.Constraints = slices.Clone(c.Constraints)
		slices.Sort(c.Constraints)
		c.Constraints = slices.Compact(c.Constraints)
		out = append(out, c)
	}
	return ordered(out)
}

// ordered sorts caps in place and drops duplicates.
func ordered(caps []switchboard.Capability) []switchboard.Capability {
	slices.SortFunc(caps, compareCapabilities)
	return slices.CompactFunc(caps, func(a, b switchboard.Capability) bool { return compareCapabilities(a, b) == 0 })
}

// compareCapabilities orders by verb, resource, constraints, and source from
// the strongest on.
func compareCapabilities(a, b switchboard.Capability) int {
	return cmp.Or(
		strings.Compare(string(a.Verb), string(b.Verb)),
		strings.Compare(string(a.Resource), string(b.Resource)),
		slices.Compare(a.Constraints, b.Constraints),
		slices.Index(switchboard.Sources, a.Source)-slices.Index(switchboard.Sources, b.Source),
	)
}

// almost reports whether a name is meant for known but is not it: another
// case, another separator, or a slip of the pen. Such a name is refused, since
// a restriction that nobody reads is worse than none.
func almost(name []byte, known string) bool {
	if len(name) < len(known)-3 || len(name) > len(known)+3 || string(name) == known {
		return false
	}
	s := strings.ToLower(string(name))
	return strings.EqualFold(string(name), known) || distance(s, known) <= slack(known)
}

// slack is how many slips still count as the same name: none in short names,
// which have real neighbours ("title" and "tile").
func slack(known string) int {
	switch {
	case len(known) >= len(blockName):
		return 3
	case len(known) >= len("capabilities"):
		return 2
	}
	return 0
}
