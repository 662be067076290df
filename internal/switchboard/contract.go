package switchboard

import (
	"encoding/json"
	"time"
)

// A Contract is what is said of a tool's calls besides what they are for. The
// zero Contract promises nothing.
type Contract struct {
	ReadOnly      Fact `json:",omitzero"` // it changes nothing
	Idempotent    Fact `json:",omitzero"` // doing it again changes nothing more
	Stateful      Fact `json:",omitzero"` // it changes what lasts; never repeated once it may have reached a server
	Deterministic Fact `json:",omitzero"` // the same arguments give the same result

	// Timeout bounds one call of the tool; 0 leaves it to the server's.
	Timeout time.Duration `json:",omitzero"`

	// Hurried says that Timeout is a tenant's, and shorter than others have set:
	// that it is over says nothing of the server.
	Hurried bool `json:",omitzero"`
}

// A Fact is something that is said of a tool: that it holds, or that it does
// not. The zero Fact is that nobody says anything, which counts as no.
type Fact struct {
	Holds  bool
	Source Source // who says so; "" means nobody

	// Trusted says that the operator says so, or vouches for who does.
	Trusted bool
}

// Said reports whether anybody says anything.
func (f Fact) Said() bool { return f.Source != "" }

// FromHint is the source of facts that stand in the annotations of a tool's own
// definition.
const FromHint Source = "hint"

// Repeatable reports whether calling the tool again is harmless, though the
// first call may have been executed. What makes a tool less free counts whoever
// says it, also that it is not idempotent: a call that reads may cost money.
// What makes it more so counts where it is trusted.
func (c *Contract) Repeatable() bool {
	trusted := func(f Fact) bool { return f.Holds && f.Trusted }
	denied := c.Idempotent.Said() && !c.Idempotent.Holds
	return !c.Stateful.Holds && !denied && (trusted(c.ReadOnly) || trusted(c.Idempotent))
}

// A Declared is a tool of another server of which an overlay says that calls of
// its own tool may move there, and how the arguments turn into that tool's.
type Declared struct {
	Tool ToolID

	// Map gives arguments another name; those that it does not name keep theirs.
	Map map[string]string `json:",omitempty"`

	// Constants are sent always, and Defaults where the caller gives none. Both
	// are by the names that the other tool has for them.
	Constants map[string]json.RawMessage `json:",omitempty"`
	Defaults  map[string]json.RawMessage `json:",omitempty"`

	// Drop are arguments that may be left out.
	Drop []string `json:",omitempty"`

	// Where it stands, as file:line:column.
	Where string `json:"-"`
}

// An Equivalent is a tool of another server that is declared to do the same, so
// that calls may move to it.
type Equivalent struct {
	Tool *Tool

	// Judgments are policy's, of the requirements by which it is a candidate.
	Judgments []*Judgment

	// Params gives the params of a call as this tool takes them: renamed and
	// completed as its map says. The error says why it does not take them. It is
	// safe for concurrent use.
	Params func(params []byte) ([]byte, error)
}

// Moved says which equivalent has served a call, and which tools had been tried
// before it, or passed over.
type Moved struct {
	To    ToolID `json:"served_by"`
	Tried []Try  `json:"tried"` // in order; the first is the tool that was meant
}

// A Try is a tool that did not serve a call.
type Try struct {
	Tool ToolID `json:"tool"`

	// Code is how it failed; "" where it was passed over, since it was not fit or
	// does not take the arguments.
	Code Code `json:"code,omitempty"`
	Sent bool `json:"sent,omitempty"` // the call may have reached its server
}
