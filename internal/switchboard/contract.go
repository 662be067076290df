package switchboard

import (
	"encoding/json"
	"slices"
	"time"
)

// A Contract is what is known about a tool's calls, besides their purpose. The zero Contract promises nothing.
type Contract struct {
	ReadOnly      Fact `json:",omitzero"` // a call changes nothing
	Idempotent    Fact `json:",omitzero"` // repeating a call changes nothing more
	Stateful      Fact `json:",omitzero"` // a call changes lasting state; never repeated once it may have reached a server
	Deterministic Fact `json:",omitzero"` // the same arguments give the same result

	// Timeout limits one call of the tool; 0 means the server's timeout.
	Timeout time.Duration `json:",omitzero"`

	// Hurried says that a tenant set Timeout, shorter than the others' settings. If a call exceeds it, that is no sign
	// that the server is unwell.
	Hurried bool `json:",omitzero"`

	// CostClass is how calls are paid for; "" means that no overlay states it. See Tool.CostClass.
	CostClass CostClass `json:",omitempty"`

	// Capability is the version of a named capability that the tool provides, as ID@VERSION; "" means none. Accounts are
	// the ids of the accounts that the version requires, sorted.
	Capability string   `json:",omitempty"`
	Accounts   []string `json:",omitempty"`

	SideEffects []string `json:",omitempty"` // such as costs-money, sorted
	RiskLevel   string   `json:",omitempty"` // one of capability.RiskLevels; "" means that no source states it

	// ApprovalRequired says who must approve each call, sorted: one of these roles, offices or persons. None means that the
	// contract asks for no approval.
	ApprovalRequired []string `json:",omitempty"`

	Flow Flow      `json:",omitzero"`  // where data comes from and goes to
	Risk RiskClass `json:",omitempty"` // follows from the other facts, and from what the tool costs
}

// Equal reports whether c and o state the same.
func (c *Contract) Equal(o *Contract) bool {
	return c.ReadOnly == o.ReadOnly && c.Idempotent == o.Idempotent && c.Stateful == o.Stateful && c.Deterministic == o.Deterministic &&
		c.Timeout == o.Timeout && c.Hurried == o.Hurried && c.CostClass == o.CostClass && c.sameBoundaryFacts(o) && c.Flow == o.Flow && c.Risk == o.Risk
}

// sameBoundaryFacts reports whether c and o state the same to boundaries, besides the cost class.
func (c *Contract) sameBoundaryFacts(o *Contract) bool {
	return c.Capability == o.Capability && c.RiskLevel == o.RiskLevel && slices.Equal(c.Accounts, o.Accounts) &&
		slices.Equal(c.SideEffects, o.SideEffects) && slices.Equal(c.ApprovalRequired, o.ApprovalRequired)
}

// A Fact is a statement about a tool, true or false. The zero Fact means that no source states it, which counts as
// false.
type Fact struct {
	Holds  bool
	Source Source // who states it; "" means no source

	// Trusted says that the operator states it, or vouches for the source that does.
	Trusted bool
}

// Stated reports whether any source states the fact.
func (f Fact) Stated() bool { return f.Source != "" }

// FromHint is the source of facts in the annotations of a tool's own definition.
const FromHint Source = "hint"

// Repeatable reports whether calling the tool again is harmless although the first call may have been executed. A fact
// that makes the tool less free counts from any source. That includes "not idempotent", because a call that only reads
// may cost money. A fact that makes the tool more free counts only if it is trusted.
func (c *Contract) Repeatable() bool {
	trusted := func(f Fact) bool { return f.Holds && f.Trusted }
	denied := c.Idempotent.Stated() && !c.Idempotent.Holds
	return !c.Stateful.Holds && !denied && (trusted(c.ReadOnly) || trusted(c.Idempotent))
}

// OnlyReads reports whether a call provably changes nothing: the operator states it, or vouches for the source that does.
func (c *Contract) OnlyReads() bool {
	return c.ReadOnly.Holds && c.ReadOnly.Trusted && !c.Stateful.Holds
}

// A DeclaredEquivalent is an equivalent that an overlay states: calls of the overlay's tool may move to Tool, on another server.
// It says how the arguments are translated.
type DeclaredEquivalent struct {
	Tool ToolID

	// Map renames arguments. Arguments that it does not list keep their names.
	Map map[string]string `json:",omitempty"`

	// Constants are always sent. Defaults are sent if the caller does not set the argument. Both use the argument names
	// of Tool.
	Constants map[string]json.RawMessage `json:",omitempty"`
	Defaults  map[string]json.RawMessage `json:",omitempty"`

	// Drop lists arguments that may be left out.
	Drop []string `json:",omitempty"`

	// Position is the place in the file, as file:line:column.
	Position string `json:"-"`
}

// An Equivalent is a tool of another server that may be called instead.
type Equivalent struct {
	Tool *Tool

	// Judgments are policy's answers about the requirements that the tool is a candidate of.
	Judgments []*Judgment

	// Params translates the params of a call for this tool: it renames and completes the arguments. The error says why
	// the tool does not accept them. Params is safe for concurrent use.
	Params func(params []byte) ([]byte, error)
}

// A Moved says which equivalent served a call, and which tools were tried or passed over before it.
type Moved struct {
	To    ToolID    `json:"served_by"`
	Tried []Attempt `json:"tried"` // in order; the first is the tool that the client called
}

// An Attempt is a tool that did not serve a call.
type Attempt struct {
	Tool ToolID `json:"tool"`

	// Code is the code of the failure; "" if the tool was passed over because it was not fit or does not accept the
	// arguments.
	Code Code `json:"code,omitempty"`
	Sent bool `json:"sent,omitempty"` // the call may have reached its server
}
