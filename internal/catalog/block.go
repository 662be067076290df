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

	// maxProblems limits the problems that are reported for one block.
	maxProblems = 8
)

// A block is what one place states about one tool. It has been parsed, but not yet checked against a taxonomy.
type block struct {
	field        string // the place of the block
	capabilities []statedCapability
	problems     []problem // if it is not empty, the block is ignored and the tool is refused
}

type statedCapability struct {
	verb, resource string
	constraints    []string
}

// readBlock parses the block at n.
func readBlock(t *tree, n int32, field string) block {
	b := block{field: field}
	if t.nodes[n].kind != '[' {
		b.addProblem("", "is %s; want a list of {verb, resource, constraints}", t.kindName(n))
		return b
	}
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		if len(b.capabilities) == MaxCapabilities {
			b.addProblem("", "has more than %d capabilities", MaxCapabilities)
			return b
		}
		b.capabilities = append(b.capabilities, b.readCapability(t, c, fmt.Sprintf("[%d]", len(b.capabilities))))
	}
	return b
}

func (b *block) addProblem(at, format string, args ...any) {
	if len(b.problems) < maxProblems {
		b.problems = append(b.problems, *problemf(b.field+at, format, args...))
	}
}

var capabilityFields = []string{"verb", "resource", "constraints"}

func (b *block) readCapability(t *tree, n int32, at string) statedCapability {
	var c statedCapability
	if t.nodes[n].kind != '{' {
		b.addProblem(at, "is %s; want an object with verb and resource", t.kindName(n))
		return c
	}
	for m := t.nodes[n].first; m != none; m = t.nodes[m].next {
		switch name := string(t.nodes[m].name); name {
		case "verb":
			c.verb = b.readString(t, m, at+".verb")
		case "resource":
			c.resource = b.readString(t, m, at+".resource")
		case "constraints":
			c.constraints = b.readStrings(t, m, at+".constraints")
		default:
			b.addProblem(at, "%s is not a field here%s", safeQuote(name), suggestNearest(name, capabilityFields))
		}
	}
	for _, name := range capabilityFields[:2] {
		if t.member(n, name) == none {
			b.addProblem(at, "has no %s", name)
		}
	}
	return c
}

func (b *block) readString(t *tree, n int32, at string) string {
	s, ok := t.stringValue(n)
	if !ok {
		b.addProblem(at, "is %s; want a string", t.kindName(n))
	}
	return s
}

func (b *block) readStrings(t *tree, n int32, at string) (words []string) {
	if t.nodes[n].kind != '[' {
		b.addProblem(at, "is %s; want a list of strings", t.kindName(n))
		return nil
	}
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		if len(words) == MaxConstraints {
			b.addProblem(at, "has more than %d constraints", MaxConstraints)
			return words
		}
		words = append(words, b.readString(t, c, fmt.Sprintf("%s[%d]", at, len(words))))
	}
	return words
}

// resolveCapabilities converts the stated capabilities to sorted capabilities from source, or returns the problems: the words that tax does not
// have.
func (b *block) resolveCapabilities(tax *switchboard.Taxonomy, source switchboard.Source) ([]switchboard.Capability, []problem) {
	if len(b.problems) > 0 {
		return nil, b.problems
	}
	caps := make([]switchboard.Capability, 0, len(b.capabilities))
	var ps []problem
	for i, c := range b.capabilities {
		unknown := func(at, word, what string, near func() string) {
			if len(ps) < maxProblems {
				ps = append(ps, *problemf(fmt.Sprintf("%s[%d].%s", b.field, i, at), "%s is not a %s%s", safeQuote(word), what, near()))
			}
		}
		if !slices.Contains(switchboard.Verbs, switchboard.Verb(c.verb)) {
			unknown("verb", c.verb, "verb", func() string { return suggestNearest(c.verb, switchboard.Verbs) })
		}
		if !tax.HasResource(switchboard.Resource(c.resource)) {
			unknown("resource", c.resource, "resource here", func() string { return suggestNearest(c.resource, tax.Resources()) })
		}
		capability := switchboard.Capability{Verb: switchboard.Verb(c.verb), Resource: switchboard.Resource(c.resource)}
		for j, k := range c.constraints {
			if !tax.HasConstraint(switchboard.Constraint(k)) {
				unknown(fmt.Sprintf("constraints[%d]", j), k, "constraint here", func() string { return suggestNearest(k, tax.Constraints()) })
			}
			capability.Constraints = append(capability.Constraints, switchboard.Constraint(k))
		}
		caps = append(caps, capability)
	}
	if len(ps) > 0 {
		return nil, ps
	}
	return normalize(caps, source), nil
}

// normalize returns a sorted copy of caps with this source, without duplicates. It never returns nil.
func normalize(caps []switchboard.Capability, source switchboard.Source) []switchboard.Capability {
	out := make([]switchboard.Capability, 0, len(caps))
	for _, c := range caps {
		c.Source = source
		c.Constraints = slices.Clone(c.Constraints)
		slices.Sort(c.Constraints)
		c.Constraints = slices.Compact(c.Constraints)
		out = append(out, c)
	}
	return sortUnique(out)
}

// sortUnique sorts caps in place and removes duplicates.
func sortUnique(caps []switchboard.Capability) []switchboard.Capability {
	slices.SortFunc(caps, compareCapabilities)
	return slices.CompactFunc(caps, func(a, b switchboard.Capability) bool { return compareCapabilities(a, b) == 0 })
}

// compareCapabilities compares verb, then resource, constraints, and source (the strongest first).
func compareCapabilities(a, b switchboard.Capability) int {
	return cmp.Or(
		strings.Compare(string(a.Verb), string(b.Verb)),
		strings.Compare(string(a.Resource), string(b.Resource)),
		slices.Compare(a.Constraints, b.Constraints),
		slices.Index(switchboard.Sources, a.Source)-slices.Index(switchboard.Sources, b.Source),
	)
}
