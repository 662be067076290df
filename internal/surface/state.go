package surface

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A State is what of a surface does not follow from the decision: what its client has
// done, and which names were given before. It is what outlives a process.
type State struct {
	// Names are of all the servers' tools that have been shown since the task was
	// bound.
	Names map[string]switchboard.ToolID `json:"names,omitempty"`

	Expanded []ExpandedTool       `json:"expanded,omitempty"` // oldest first, but those of servers that are not there
	Withheld []switchboard.ToolID `json:"withheld,omitempty"`
}

// An ExpandedTool is an Expansion as it is kept.
type ExpandedTool struct {
	Tool switchboard.ToolID `json:"tool"`
	Used time.Time          `json:"used"`
}

// State returns what is to be kept of s.
func (s *Surface) State() State {
	st := State{Names: maps.Clone(s.names), Withheld: s.withheld}
	maps.DeleteFunc(st.Names, func(_ string, id switchboard.ToolID) bool { return id.Server == "" }) // ours have theirs by right
	for _, x := range slices.Concat(s.resting, s.expanded) {
		st.Expanded = append(st.Expanded, ExpandedTool{x.Tool, x.Used().UTC()})
	}
	return st
}

// Restore returns a surface that shows nothing, and that others can follow (see
// Input.Prev) as they would have followed the one that st is of.
func Restore(st State) *Surface {
	s := New(Input{})
	s.names, s.of, s.withheld, s.kept = map[string]switchboard.ToolID{}, map[switchboard.ToolID]string{}, st.Withheld, &sync.Map{}
	maps.Copy(s.names, st.Names)
	for name, id := range st.Names {
		s.of[id] = name
	}
	for _, e := range st.Expanded {
		x := &Expansion{Tool: e.Tool}
		x.used.Store(e.Used.UnixNano())
		s.expanded = append(s.expanded, x)
	}
	return s
}
