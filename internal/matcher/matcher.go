// Package matcher finds the tools that can do what a requirement asks, and drops those that could also do what it
// forbids. These are the stages filter and prune.
//
// Filter takes the tools with a capability of the required verb on the required resource, or on a descendant of the
// resource. For a named capability it takes the tools that provide it, and for a requirement by name the named tools.
//
// Prune keeps a tool if every one of its capabilities carries every required constraint. The matching capability is not
// enough: a call of the tool can exercise any of them, so a tool that reads and also writes is not readonly. Statements
// of weaker sources (switchboard.Tool.Kept) count as follows:
//
//   - If the strongest source does not state a verb and resource, a weaker source's capability for them must carry
//     the constraints too.
//   - If it does, human_in_the_loop and rate_limited from a weaker source are added to its capability, because
//     Switchboard enforces them from every source. Nothing else of the weaker statement counts.
//
// A tool without capabilities carries no constraint. readonly counts only if a person vouches for the source
// (switchboard.Tool.Vouched), unless switchboard.Tenant.TrustFor accepts the server's own word.
//
// Neither stage knows tenants: an Index is made from the view of one tenant. Package ranking decides which server is
// best.
package matcher

import (
	"context"
	"slices"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Catalog is what a tenant's servers offer. It is immutable, and so are the slices that it returns. They are sorted
// by id.
type Catalog interface {
	// Match returns the tools with a capability of v on r or on a descendant of r.
	Match(v switchboard.Verb, r switchboard.Resource) []*switchboard.Tool

	// Named returns the tools that match a pattern of Requirement.Tools.
	Named(pattern string) []*switchboard.Tool
}

// A CapabilityIndex says which tools provide named capabilities. It is immutable, and so are the slices that it returns.
type CapabilityIndex interface {
	// Provided returns the tools that provide the version that ref means.
	Provided(ref string) []*switchboard.Tool
}

// An Index is a catalog with a cache of its answers. It is safe for concurrent use.
type Index struct {
	catalog      Catalog
	capabilities CapabilityIndex

	mu    sync.RWMutex
	cache map[catalogQuery][]decide.Candidate
}

// A catalogQuery is a question to the catalog: a verb and resource, a named capability, or a pattern.
type catalogQuery struct {
	verb       switchboard.Verb
	resource   switchboard.Resource
	capability string
	pattern    string
}

// New returns an Index of the catalog and of what provides named capabilities.
func New(catalog Catalog, capabilities CapabilityIndex) *Index {
	return &Index{catalog: catalog, capabilities: capabilities, cache: map[catalogQuery][]decide.Candidate{}}
}

// Filter returns the stage that finds a requirement's candidates. It refuses a requirement by name if the tenant may
// not use names.
func (x *Index) Filter() decide.Stage { return filterStage{x} }

// Prune returns the stage that drops candidates without a required constraint.
func Prune() decide.Stage { return pruneStage{} }

type filterStage struct{ *Index }

// Name implements decide.Stage.
func (filterStage) Name() string { return decide.StageFilter }

// Apply implements decide.Stage.
func (f filterStage) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	if q.Requirement.ByName() {
		return f.candidatesByName(q, in, drop)
	}
	if q.Requirement.Capability != "" {
		return append(in, f.cachedCandidates(catalogQuery{capability: q.Requirement.Capability})...), nil
	}
	return append(in, f.cachedCandidates(catalogQuery{verb: q.Requirement.Verb, resource: q.Requirement.Resource})...), nil
}

// cachedCandidates returns the catalog's answer as candidates in the order of their ids. They are made once and shared.
func (x *Index) cachedCandidates(q catalogQuery) []decide.Candidate {
	x.mu.RLock()
	found, ok := x.cache[q]
	x.mu.RUnlock()
	if ok {
		return found
	}
	switch {
	case q.pattern != "":
		found = makeCandidates(x.catalog.Named(q.pattern))
	case q.capability != "":
		found = makeCandidates(x.capabilities.Provided(q.capability))
	default:
		found = makeCandidates(x.catalog.Match(q.verb, q.resource))
	}
	if len(found) == 0 {
		return nil // not cached: the number of possible queries has no limit, but the number of those with a result has
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cache[q] = found
	return found
}

// candidatesByName returns the candidates that match any of the patterns, in the order of their ids. If one pattern matches
// nothing, the task lacks something that it needs. So there is no partial match: all candidates are dropped.
func (x *Index) candidatesByName(q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
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
		found := x.cachedCandidates(catalogQuery{pattern: pattern})
		if len(found) == 0 && unmatched == "" {
			unmatched = pattern
		}
		on = append(on, found...)
	}
	if len(q.Requirement.Tools) > 1 {
		slices.SortFunc(on, compareIDs)
		on = slices.CompactFunc(on, func(a, b decide.Candidate) bool { return a.Tool == b.Tool })
	}
	if unmatched == "" {
		return on, nil
	}
	for _, c := range on {
		drop(c, decide.Reason{Text: "no tool is named " + unmatched + ", which the requirement names too"})
	}
	return in, nil
}

// makeCandidates returns the tools as candidates, in the order of their ids.
func makeCandidates(tools []*switchboard.Tool) []decide.Candidate {
	found := make([]decide.Candidate, len(tools))
	for i, t := range tools {
		found[i] = decide.Candidate{Tool: t}
	}
	slices.SortFunc(found, compareIDs)
	return found
}

func compareIDs(a, b decide.Candidate) int { return a.Tool.Key().Compare(b.Tool.Key()) }
