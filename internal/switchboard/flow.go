package switchboard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// FlowBits say what calls of a tool do with data: any of Brings, Sees and Carries. A run that has all three can be made to
// carry private data out, by text that a stranger wrote.
type FlowBits uint8

// The bits.
const (
	Brings  FlowBits = 1 << iota // results hold text that strangers wrote
	Sees                         // results hold private data, or the call reads it
	Carries                      // a call carries data out

	// AllFlows are all bits: the toxic combination.
	AllFlows = Brings | Sees | Carries

	// Touches are the bits that a run remembers.
	Touches = Brings | Sees
)

// flowNames are the names of the bits, in the order of the bits.
var flowNames = []string{"brings", "sees", "carries"}

// FlowNames returns the names of all bits.
func FlowNames() []string { return slices.Clone(flowNames) }

// Has reports whether all bits of want are set.
func (b FlowBits) Has(want FlowBits) bool { return b&want == want }

// Names returns the names of the bits that are set.
func (b FlowBits) Names() []string {
	names := []string{}
	for i, name := range flowNames {
		if b&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the names of the bits that are set, or "none".
func (b FlowBits) String() string {
	if b == 0 {
		return "none"
	}
	return strings.Join(b.Names(), ", ")
}

// ReadFlowBits returns the bits with these names. It refuses a name that it does not know.
func ReadFlowBits(names []string) (b FlowBits, err error) {
	for _, name := range names {
		i := slices.Index(flowNames, name)
		if i < 0 {
			return 0, fmt.Errorf("flow %q: it is none of %s", name, strings.Join(flowNames, ", "))
		}
		b |= 1 << i
	}
	return b, nil
}

// MarshalJSON implements json.Marshaler: a list of names.
func (b FlowBits) MarshalJSON() ([]byte, error) { return json.Marshal(b.Names()) }

// UnmarshalJSON implements json.Unmarshaler.
func (b *FlowBits) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	read, err := ReadFlowBits(names)
	*b = read
	return err
}

// A Flow is what is known about where the data of a tool's calls comes from and goes to. The zero Flow has no bits.
type Flow struct {
	Bits FlowBits `json:",omitempty"`

	// Source is the overlay that states the bits, or a part of them. "" means that they follow from the capabilities and
	// the annotations of the tool, or from the lack of them.
	Source Source `json:",omitempty"`
}

// A Touched is what a run has touched before a call: bits of Touches.
type Touched struct {
	Bits FlowBits

	// Known says that Bits are all that any replica has set. Policy is told nothing else.
	Known bool
}

// RunFlows remembers for one run what its calls have touched. It is safe for concurrent use, and all replicas that have the run
// share what it remembers.
type RunFlows interface {
	// Has reports whether this process knows that every replica knows the bits. It costs nothing.
	Has(bits FlowBits) bool

	// Known returns everything that the run has touched, on any replica. If it cannot be known now, the error is a *Error. Without
	// must there is no error: what this process knows may be returned, which can be a second old. Then Known is not set.
	Known(ctx context.Context, must bool) (Touched, error)

	// Touch remembers the bits. When it returns nil, Known returns them on every replica. If they cannot be remembered so, the error is
	// a *Error. Without must there is no error: this process remembers them, and tells the others when it can.
	Touch(ctx context.Context, bits FlowBits, must bool) error
}

// Flow returns what the call does with data. A call of an item that is not a tool may do what any selected tool of its server does.
func (c *Call) Flow() (b FlowBits) {
	if c.Tool != nil {
		return c.Tool.Contract.Flow.Bits
	}
	for _, j := range c.Judgments {
		for _, t := range j.Candidates {
			if t.ID.Server == c.Server {
				b |= t.Contract.Flow.Bits
			}
		}
	}
	return b
}

// Flows is what happens to a call that carries data out, in a run that has touched private data and text of strangers.
type Flows string

// The values, the freest first. The zero value means FlowsRecord.
const (
	FlowsRecord Flows = "record" // the mode decides; the receipt says it in every mode
	FlowsAsk    Flows = "ask"    // a person is asked in every mode
	FlowsNever  Flows = "never"  // it is denied
)

// AllFlowsSettings lists the values of Flows, the freest first.
var AllFlowsSettings = []Flows{FlowsRecord, FlowsAsk, FlowsNever}

// OrDefault returns f, or FlowsRecord for the zero value.
func (f Flows) OrDefault() Flows {
	if f == "" {
		return FlowsRecord
	}
	return f
}

// StricterThan reports whether f is stricter than o.
func (f Flows) StricterThan(o Flows) bool {
	return slices.Index(AllFlowsSettings, f.OrDefault()) > slices.Index(AllFlowsSettings, o.OrDefault())
}

// A ToxicCombination names the tools that together bring text of strangers, see private data and carry data out. A run that shows all
// of them can be made to carry private data out.
type ToxicCombination struct {
	Brings  []string `json:"brings"`
	Sees    []string `json:"sees"`
	Carries []string `json:"carries"`

	// Unlabelled are the tools that count as all three only because nothing says what they do. They are in no other list.
	Unlabelled []string `json:"unlabelled,omitempty"`
}

// CombineFlows returns the toxic combination of the tools, in their order; nil if one of the three bits is missing.
func CombineFlows(tools []*Tool) *ToxicCombination {
	c := ToxicCombination{Brings: []string{}, Sees: []string{}, Carries: []string{}} // lists in the API are never null
	var all FlowBits
	for _, t := range tools {
		f, id := t.Contract.Flow, t.ID.String()
		all |= f.Bits
		if f.Bits == AllFlows && f.Source == "" && len(t.Capabilities)+len(t.Kept) == 0 {
			c.Unlabelled = append(c.Unlabelled, id)
			continue
		}
		for i, list := range []*[]string{&c.Brings, &c.Sees, &c.Carries} {
			if f.Bits&(1<<i) != 0 && !slices.Contains(*list, id) {
				*list = append(*list, id)
			}
		}
	}
	if all != AllFlows {
		return nil
	}
	return &c
}

// Certain reports whether the tools are toxic together even if those without labels do nothing.
func (c *ToxicCombination) Certain() bool {
	return len(c.Brings) > 0 && len(c.Sees) > 0 && len(c.Carries) > 0
}

// maxFlowTools limits the tools that String names for each bit.
const maxFlowTools = 5

// String returns the combination in words.
func (c *ToxicCombination) String() string {
	var parts []string
	for _, one := range []struct {
		what  string
		tools []string
	}{{"bring text of strangers", c.Brings}, {"see private data", c.Sees}, {"carry data out", c.Carries}, {"have no labels, and count as all three", c.Unlabelled}} {
		if len(one.tools) == 0 {
			continue
		}
		named := strings.Join(one.tools[:min(len(one.tools), maxFlowTools)], ", ")
		if more := len(one.tools) - maxFlowTools; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, named+" "+one.what)
	}
	return strings.Join(parts, "; ")
}
