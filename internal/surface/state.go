package surface

import (
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A State is what of a surface does not follow from the decision: what its client has
// done. It is what outlives a process.
type State struct {
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
	st := State{Withheld: s.withheld}
	for _, x := range slices.Concat(s.resting, s.expanded) {
		st.Expanded = append(st.Expanded, ExpandedTool{x.Tool, x.Used().UTC()})
	}
	return st
}

// Restore returns a surface that shows nothing, and that others can follow (see
// Input.Prev) as they would have followed the one that st is of.
func Restore(st State) *Surface {
	s := New(Input{})
	s.withheld = st.Withheld
	for _, e := range st.Expanded {
		x := &Expansion{Tool: e.Tool}
		x.used.Store(e.Used.UnixNano())
		s.expanded = append(s.expanded, x)
	}
	return s
}
