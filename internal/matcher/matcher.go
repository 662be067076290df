// Package matcher finds the tools that can do what a requirement asks, and
// drops those that could also do what it forbids: the stages filter and prune.
//
// Filter takes the tools with a capability of the required verb and resource
// (or a descendant of the resource), or those that the requirement names.
//
// Prune keeps a tool when every one of its capabilities carries every required
// constraint. Not only the one that matches: a call of the tool can exercise
// any of them, so a tool that reads and also writes is not readonly. What
// weaker sources say besides (switchboard.Tool.Kept) counts so:
//
//   - a capability of a verb and resource that the winning source does not
//     speak of is one more that must carry the constraints;
//   - human_in_the_loop and rate_limited, said of a verb and resource of which
//     the winning source does speak, add to what that capability carries, for
//     Switchboard enforces them whoever said it. Nothing else is added, and
//     what else such a weaker word lacks does not count: the winner wins.
//
// A tool that states no capability carries no constraint. That a tool is readonly counts only where a person vouches for the word
// (switchboard.Tool.Vouched), unless switchboard.Tenant.TrustFor says that the server's own is enough.
//
// Neither stage knows of tenants: whoever makes an Index gives it the view of
// one. Which server is best is left to package ranking.
package matcher

import (
	"context"
	"slices"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Catalog is what a tenant's servers offer. It does not change, and neither do
// the slices that it returns, which are sorted by id.
type Catalog interface {
	// Match returns the tools with a capability of v on r or on any descendant
	// of r.
	Match(v switchboard.Verb, r switchboard.Resource) []*switchboard.Tool

	// Named returns the tools that match a pattern of Requirement.Tools.
	Named(pattern string) []*switchboard.Tool
}

// An Index is a catalog with what its stages find out about the tools only
// once. It is safe for concurrent use.
type Index struct {
	catalog Catalog
	all     []*switchboard.Tool
	bits    map[switchboard.Constraint]uint64 // one bit each, of the first 63 constraints

	mu    sync.RWMutex
	found map[query][]decide.Candidate
}

// A query is what a catalog is asked: for a verb and resource, or for a pattern.
type query struct {
	verb     switchboard.Verb
	resource switchboard.Resource
	pattern  string
}

// New returns an Index of the catalog. The constraints of tax are those that
// are compared fast (the first 63 of them); others are compared all the same.
func New(catalog Catalog, tax *switchboard.Taxonomy) *Index {
	all := slices.Clone(catalog.Named("*/*"))
	slices.SortFunc(all, func(a, b *switchboard.Tool) int { return a.ID.Compare(b.ID) })
	x := &Index{catalog: catalog, all: all, bits: map[switchboard.Constraint]uint64{}, found: map[query][]decide.Candidate{}}
	for i, c := range tax.Constraints() {
		if i < 63 { // the last bit is vouchedReadOnly
			x.bits[c] = 1 << i
		}
	}
	return x
}

// Filter returns the stage that finds a requirement's candidates. It refuses a
// requirement by name where the tenant may not have one.
func (x *Index) Filter() decide.Stage { return filter{x} }

// Prune returns the stage that drops candidates without a required constraint.
func (x *Index) Prune() decide.Stage { return prune{x} }

type filter struct{ *Index }

// Name implements decide.Stage.
func (filter) Name() string { return decide.StageFilter }

// Apply implements decide.Stage.
func (f filter) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	if q.Requirement.ByName() {
		return f.named(q, in, drop)
	}
	return append(in, f.find(query{verb: q.Requirement.Verb, resource: q.Requirement.Resource})...), nil
}

// find returns what the catalog answers, as candidates in the order of their
// ids. They are made once, and shared.
func (x *Index) find(q query) []decide.Candidate {
	x.mu.RLock()
	found, ok := x.found[q]
	x.mu.RUnlock()
	if ok {
		return found
	}
	if q.pattern != "" {
		found = x.candidates(x.catalog.Named(q.pattern))
	} else {
		found = x.candidates(x.catalog.Match(q.verb, q.resource))
	}
	if len(found) == 0 {
		return nil // not kept: what can be asked for is endless, what is there is not
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.found[q] = found
	return found
}

// named returns the candidates that any of the patterns matches, in the order
// of their ids. A pattern that matches nothing is something that the task needs
// and cannot have: then there is no partial match, and all are dropped.
func (x *Index) named(q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	if !q.Tenant.ByName {
		return nil, &switchboard.Error{
			Code:        switchboard.CodeNotAuthorized,
			Text:        "task " + string(q.Task.ID) + " may not start: it requires tools by name, and this tenant may not",
			Requirement: q.Requirement.String(),
			Stage:       decide.StageFilter,
			Hint:        "require capabilities, or ask the operator for allow: [by_name]",
		}
	}
	on, unmatched := in, ""
	for _, pattern := range q.Requirement.Tools {
		found := x.find(query{pattern: pattern})
		if len(found) == 0 && unmatched == "" {
			unmatched = pattern
		}
		on = append(on, found...)
	}
	if len(q.Requirement.Tools) > 1 {
		slices.SortFunc(on, byID)
		on = slices.CompactFunc(on, func(a, b decide.Candidate) bool { return a.Tool == b.Tool })
	}
	if unmatched == "" {
		return on, nil
	}
	if drop != nil {
		for _, c := range on {
			drop(c, decide.Reason{Text: "no tool is named " + unmatched + ", which the requirement names too"})
		}
	}
	return in, nil
}

// candidates returns the tools as candidates in the order of their ids, marked
// with the constraints that they carry.
func (x *Index) candidates(tools []*switchboard.Tool) []decide.Candidate {
	found := make([]decide.Candidate, len(tools))
	for i, t := range tools {
		found[i] = decide.Candidate{Tool: t, Marks: x.carries(t)}
	}
	slices.SortFunc(found, byID)
	at := 0
	for i := range found {
		// Both are sorted, and what is found is some of them all.
		n, _ := slices.BinarySearchFunc(x.all[at:], found[i].Tool.ID, func(t *switchboard.Tool, id switchboard.ToolID) int { return t.ID.Compare(id) })
		at += n
		found[i].Index = int32(at)
	}
	return found
}

func byID(a, b decide.Candidate) int { return a.Tool.ID.Compare(b.Tool.ID) }
