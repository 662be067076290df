package surface

import (
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A State is the part of a surface that does not follow from the decision: the client's own actions. It is saved and
// outlives the process.
type State struct {
	Expanded []ExpandedTool       `json:"expanded,omitempty"` // first those on servers without an offer; then oldest first
	Withheld []switchboard.ToolID `json:"withheld,omitempty"`
}

// An ExpandedTool is the saved form of an Expansion.
type ExpandedTool struct {
	Tool switchboard.ToolID `json:"tool"`
	Used time.Time          `json:"used"`
}

// State returns the part of s to save.
func (s *Surface) State() State {
	st := State{Withheld: s.withheld}
	for _, x := range slices.Concat(s.absent, s.expanded) {
		st.Expanded = append(st.Expanded, ExpandedTool{x.Tool, x.Used().UTC()})
	}
	return st
}

// Restore returns a surface that shows nothing. Used as Input.Prev, it has the same effect as the surface that st was
// saved from.
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
