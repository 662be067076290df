// Package contract knows which tools are equivalents, so that a call to one may
// move to another, turns the arguments of the one into those of the other, and
// holds results to what their tools promise.
//
// A tool is an equivalent of another only where an overlay declares it, or where
// both have the same name and the same schemas and stand on two servers for
// which the operator vouches. That two tools take the same arguments says
// nothing: one may create what the other deletes.
//
// What is declared is checked against both schemas when the tools are known. A
// pair that cannot be right is a Fault, and is then no equivalent, whatever else
// speaks for it.
//
// It does not decide whether a call moves, nor whether a tool may be called.
package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Tools are those that are known now.
type Tools interface {
	// Tool returns the tool with this id.
	Tool(switchboard.ToolID) (*switchboard.Tool, bool)
}

// A Fault is something wrong with a declared equivalent.
type Fault struct {
	Tool  switchboard.ToolID // whose equivalent it is
	Other switchboard.ToolID
	Where string // file:line:column
	Why   string
}

// Error says all of it on one line.
func (f Fault) Error() string {
	return fmt.Sprintf("%s: server %q, tool %q: equivalent %s: %s", f.Where, f.Tool.Server, f.Tool.Name, f.Other, f.Why)
}

// A Set says which tools are equivalents. It is immutable and safe for
// concurrent use.
type Set struct {
	moves  moves
	faults []Fault
	above  *Set
}

// moves are those that are declared, rightly or wrongly, by the tools that they
// are from and to.
type moves map[switchboard.ToolID]map[switchboard.ToolID]*move

// New returns the equivalents that overlays declare among the tools, besides
// those of above, which is the operator's, or nil where the overlays are. heard
// says whether a server has said which tools it has: until then nobody is blamed
// for naming others. was, where not nil, is the Set before this one: what has
// not changed is not checked again.
func New(tools Tools, overlays map[switchboard.ToolID]switchboard.Overlay, heard func(switchboard.ServerID) bool, above, was *Set) *Set {
	s := &Set{moves: moves{}, above: above}
	for id, o := range overlays {
		if len(o.Equivalents) == 0 {
			continue
		}
		from, ok := tools.Tool(id)
		if !ok {
			continue // the catalog says that there is no such tool
		}
		mine := map[switchboard.ToolID]*move{}
		for i := range o.Equivalents {
			d := &o.Equivalents[i]
			if above.move(id, d.Tool) != nil {
				s.blame(id, d, "the operator has declared it, and that counts")
				continue
			}
			to, ok := tools.Tool(d.Tool)
			if !ok {
				if heard(d.Tool.Server) {
					s.blame(id, d, "there is no such tool")
				}
				continue
			}
			m := was.move(id, d.Tool)
			if m == nil || m.declared != d || m.from != from.Digest || m.to != to.Digest {
				m = newMove(d, from, to)
			}
			mine[d.Tool] = m
			for _, why := range m.wrong {
				s.blame(id, d, why)
			}
		}
		s.moves[id] = mine
	}
	slices.SortFunc(s.faults, func(a, b Fault) int {
		return cmp.Or(a.Tool.Compare(b.Tool), a.Other.Compare(b.Other), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Why, b.Why))
	})
	return s
}

func (s *Set) blame(from switchboard.ToolID, d *switchboard.Declared, why string) {
	s.faults = append(s.faults, Fault{from, d.Tool, d.Where, why})
}

// move finds what is declared here of the pair, or nil. s may be nil.
func (s *Set) move(from, to switchboard.ToolID) *move {
	if s == nil {
		return nil
	}
	return s.moves[from][to]
}

// Faults are what is wrong with what is declared here, sorted. The slice is
// shared; do not modify it.
func (s *Set) Faults() []Fault { return s.faults }

// A Group is tools among which calls may move: the candidates of a requirement.
type Group struct {
	set    *Set
	tools  []switchboard.Equivalent
	byID   map[switchboard.ToolID]int
	byName map[string][]int // those of servers for which the operator vouches
}

// Among returns the group of these tools, which are in the order in which a call
// would try them.
func (s *Set) Among(tools []switchboard.Equivalent) *Group {
	g := &Group{set: s, tools: tools, byName: map[string][]int{}}
	if s.declaresAny() {
		g.byID = make(map[switchboard.ToolID]int, len(tools))
	}
	for i, e := range tools {
		if g.byID != nil {
			g.byID[e.Tool.ID] = i
		}
		if e.Tool.Trust == switchboard.TrustOperator {
			g.byName[e.Tool.ID.Name] = append(g.byName[e.Tool.ID.Name], i)
		}
	}
	return g
}

func (s *Set) declaresAny() bool {
	return s != nil && (len(s.moves) > 0 || s.above.declaresAny())
}

// Of returns those of the group that are equivalents of the tool, in their order,
// with Params.
func (g *Group) Of(tool *switchboard.Tool) []switchboard.Equivalent {
	if g.byID == nil && len(g.byName) == 0 {
		return nil
	}
	found := map[int]*move{}
	if tool.Trust == switchboard.TrustOperator {
		for _, i := range g.byName[tool.ID.Name] {
			if other := g.tools[i].Tool; same(tool, other) {
				found[i] = &move{taker: definitionOf(other)}
			}
		}
	}
	// The operator's come last, since they count more, also where they are wrong.
	var declared []map[switchboard.ToolID]*move
	for s := g.set; s != nil; s = s.above {
		declared = append(declared, s.moves[tool.ID])
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
		if m := found[i]; len(m.wrong) == 0 {
			e := g.tools[i]
			e.Params = m.params
			out = append(out, e)
		}
	}
	return out
}

// same reports whether two tools of one name take and give the same, on two
// servers.
func same(a, b *switchboard.Tool) bool {
	if a.ID.Server == b.ID.Server {
		return false
	}
	if a.Digest != "" && a.Digest == b.Digest {
		return true
	}
	x, y := definitionOf(a), definitionOf(b)
	return x.shape() != "" && x.shape() == y.shape() && (x.result() == "" || x.result() == y.result())
}

// sorted are the names in m, as bytes.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
