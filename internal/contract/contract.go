// Package contract decides which tools are equivalents, so that a call to one may move to another. It translates the
// arguments of such a call, and checks results against the output schemas of their tools.
//
// A tool is an equivalent of another only in two cases: an overlay declares it, or both have the same name and schemas
// and are on two servers that the operator vouches for. Equal arguments alone prove nothing: one tool may create what
// the other deletes.
//
// A declaration is checked against both schemas as soon as the tools are known. A pair that cannot be right is a Fault.
// It is then not an equivalent, even if the tools are the same in all other respects.
//
// Tools that provide the same tool of a named capability are equivalents too, with the same arguments.
//
// The package does not decide whether a call moves, nor whether a tool may be called.
package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Tools are the tools that are known now.
type Tools interface {
	// Tool returns the tool with this id.
	Tool(switchboard.ToolID) (*switchboard.Tool, bool)
}

// An EquivalentFault is a mistake in a declared equivalent.
type EquivalentFault struct {
	Tool  switchboard.ToolID // the tool that declares the equivalent
	Other switchboard.ToolID
	Where string // file:line:column
	Why   string
}

// Error returns the fault in one line.
func (f EquivalentFault) Error() string {
	return fmt.Sprintf("%s: server %q, tool %q: equivalent %s: %s", f.Where, f.Tool.Server, f.Tool.Name, f.Other, f.Why)
}

// A Set holds the equivalents. It is immutable and safe for concurrent use.
type Set struct {
	moves       moveTable
	faults      []EquivalentFault
	operatorSet *Set
}

// moveTable are the declared moves, faulty ones included, by the tool that a call moves from and the tool that it moves to.
type moveTable map[switchboard.ToolID]map[switchboard.ToolID]*move

// New returns the equivalents that overlays declare among the tools, in addition to those of above. above is the
// operator's Set, or nil if overlays are the operator's. heard reports whether a server has listed its tools; until
// then, names of unknown tools are no faults. was is the previous Set, or nil: what has not changed is not checked
// again.
func New(tools Tools, overlays map[switchboard.ToolID]switchboard.Overlay, heard func(switchboard.ServerID) bool, above, was *Set) *Set {
	s := &Set{moves: moveTable{}, operatorSet: above}
	for id, o := range overlays {
		if len(o.Equivalents) == 0 {
			continue
		}
		from, ok := tools.Tool(id)
		if !ok {
			continue // the catalog reports the missing tool
		}
		mine := map[switchboard.ToolID]*move{}
		for i := range o.Equivalents {
			d := &o.Equivalents[i]
			if above.move(id, d.Tool) != nil {
				s.addFault(id, d, "the operator has declared it, which takes precedence")
				continue
			}
			to, ok := tools.Tool(d.Tool)
			if !ok {
				if heard(d.Tool.Server) {
					s.addFault(id, d, "there is no such tool")
				}
				continue
			}
			m := was.move(id, d.Tool)
			if m == nil || m.declared != d || m.from != from.Digest || m.to != to.Digest {
				m = newMove(d, from, to)
			}
			mine[d.Tool] = m
			for _, why := range m.faults {
				s.addFault(id, d, why)
			}
		}
		s.moves[id] = mine
	}
	slices.SortFunc(s.faults, func(a, b EquivalentFault) int {
		return cmp.Or(a.Tool.Compare(b.Tool), a.Other.Compare(b.Other), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Why, b.Why))
	})
	return s
}

func (s *Set) addFault(from switchboard.ToolID, d *switchboard.DeclaredEquivalent, why string) {
	s.faults = append(s.faults, EquivalentFault{from, d.Tool, d.Position, why})
}

// move returns the move that this Set declares for the pair, or nil. s may be nil.
func (s *Set) move(from, to switchboard.ToolID) *move {
	if s == nil {
		return nil
	}
	return s.moves[from][to]
}

// Faults returns the mistakes in the declarations of this Set, sorted. The slice is shared; do not modify it.
func (s *Set) Faults() []EquivalentFault { return s.faults }

// A CandidateGroup is a set of tools that calls may move between: the candidates of a requirement.
type CandidateGroup struct {
	set    *Set
	tools  []switchboard.Equivalent
	byID   map[switchboard.ToolID]int
	byName map[string][]int // tools of servers that the operator vouches for, and provided tools, by the names of their keys
}

// Among returns the group of these tools. A call tries them in this order.
func (s *Set) Among(tools []switchboard.Equivalent) *CandidateGroup {
	g := &CandidateGroup{set: s, tools: tools, byName: map[string][]int{}}
	if s.declaresAny() {
		g.byID = make(map[switchboard.ToolID]int, len(tools))
	}
	for i, e := range tools {
		if g.byID != nil {
			g.byID[e.Tool.Key()] = i
		}
		if e.Tool.Provides != nil {
			name := e.Tool.Key().Name
			g.byName[name] = append(g.byName[name], i)
		} else if e.Tool.Trust == switchboard.TrustOperator {
			g.byName[e.Tool.ID.Name] = append(g.byName[e.Tool.ID.Name], i)
		}
	}
	return g
}

func (s *Set) declaresAny() bool {
	return s != nil && (len(s.moves) > 0 || s.operatorSet.declaresAny())
}

// Of returns the equivalents of the tool in the group, in the group's order, with Params set.
func (g *CandidateGroup) Of(tool *switchboard.Tool) []switchboard.Equivalent {
	if g.byID == nil && len(g.byName) == 0 {
		return nil
	}
	found := map[int]*move{}
	if tool.Trust == switchboard.TrustOperator || tool.Provides != nil {
		for _, i := range g.byName[tool.Key().Name] {
			if other := g.tools[i].Tool; sameSchemas(tool, other) {
				found[i] = &move{taker: schemasOf(other)}
			}
		}
	}
	// The operator's declarations come last and overwrite the tenant's, even if they are faulty.
	var declared []map[switchboard.ToolID]*move
	for s := g.set; s != nil; s = s.operatorSet {
		declared = append(declared, s.moves[tool.Key()])
	}
	for _, moves := range declared {
		for to, m := range moves {
			if i, ok := g.byID[to]; ok {
				found[i] = m
			}
		}
	}
	var out []switchboard.Equivalent
	for _, i := range slices.Sorted(maps.Keys(found)) {
		if m := found[i]; len(m.faults) == 0 {
			e := g.tools[i]
			e.Params = m.moveParams
			out = append(out, e)
		}
	}
	return out
}

// sameSchemas reports whether two tools of one name are on two servers and have the same schemas.
func sameSchemas(a, b *switchboard.Tool) bool {
	if a.ID.Server == b.ID.Server {
		return false
	}
	if a.Digest != "" && a.Digest == b.Digest {
		return true
	}
	x, y := schemasOf(a), schemasOf(b)
	return x.shape() != "" && x.shape() == y.shape() && (x.result() == "" || x.result() == y.result())
}

// sortedKeys returns the keys of m, sorted as bytes.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
