package switchboard

import (
	"slices"
	"time"
)

// A LifeState is where a tool, prompt or template is in its life (design part 14, The life of a tool).
type LifeState string

// The states.
const (
	LifeTesting    LifeState = "testing"    // a candidate only where a tenant tries its server; see Tenant.Trial
	LifeActive     LifeState = "active"     // a candidate
	LifeDeprecated LifeState = "deprecated" // a candidate that has a successor
	LifeRetired    LifeState = "retired"    // no candidate, and it cannot come back as new
	LifeSuspended  LifeState = "suspended"  // no candidate until its definition is accepted, or the admitted one is offered again
	LifeNew        LifeState = "new"        // no candidate: no person has let it in, and strict trust asks for that, or the operator's rules keep it out
)

// A PinKind is the kind of thing that a pin is for.
type PinKind string

// The kinds of pins.
const (
	PinTool         PinKind = "tool"
	PinPrompt       PinKind = "prompt"
	PinTemplate     PinKind = "template"
	PinInstructions PinKind = "instructions" // of a server; it has no name
	PinHandshake    PinKind = "handshake"    // what a server says about the capabilities of its tools when it is connected; it has no name
)

// OfServer reports whether pins of the kind are about a server as a whole, and have no name.
func (k PinKind) OfServer() bool { return k == PinInstructions || k == PinHandshake }

// A PinID names what a pin is for: a tool or prompt by its name, a template by its URI template, and what is of a server without a name.
type PinID struct {
	Server ServerID
	Kind   PinKind
	Name   string `json:",omitempty"`
}

// String returns the form of messages: brave/search, or brave prompt review, or brave instructions.
func (id PinID) String() string {
	switch {
	case id.Kind == PinTool:
		return string(id.Server) + "/" + id.Name
	case id.Kind.OfServer():
		return string(id.Server) + " " + string(id.Kind)
	}
	return string(id.Server) + " " + string(id.Kind) + " " + id.Name
}

// An AdmittedPin is one entry of the file admitted.lock: a definition that a person has let in, or took out.
type AdmittedPin struct {
	PinID

	// Digest is the digest of the definition: see DefinitionDigest and admission.DigestOf.
	Digest string

	State LifeState // any but LifeNew

	// Successor is the tool, as SERVER/TOOL, that a deprecated one names; "" means none.
	Successor string `json:",omitempty"`

	By string    // the person
	At time.Time // in UTC, to the second
}

// The values of AdmissionRules.Trust.
const (
	TrustFirstUse = "first_use" // what a server offers first is let in
	TrustStrict   = "strict"    // only what admitted.lock names is let in
)

// The values of AdmissionRules.Changed.
const (
	ChangedFreeze  = "freeze"  // a harmless change is held back, and the admitted definition stays in use
	ChangedSuspend = "suspend" // each change suspends
)

// AdmissionRules say what is let in of a server's offer without a person. The zero value is first_use with freeze.
type AdmissionRules struct {
	Trust   string // "" means TrustFirstUse
	Changed string // "" means ChangedFreeze

	// Volatile are keys of _meta whose values the server changes all the time, sorted. They are left out of the digests of definitions, and of their comparison. nil means
	// that nothing is said; an empty list means none.
	Volatile []string `json:",omitempty"`
}

// Equal reports whether r and o say the same.
func (r AdmissionRules) Equal(o AdmissionRules) bool {
	return r.Trust == o.Trust && r.Changed == o.Changed && (r.Volatile == nil) == (o.Volatile == nil) && slices.Equal(r.Volatile, o.Volatile)
}

// Strict reports whether only admitted.lock lets in.
func (r AdmissionRules) Strict() bool { return r.Trust == TrustStrict }

// Suspends reports whether a change suspends that would freeze otherwise.
func (r AdmissionRules) Suspends() bool { return r.Changed == ChangedSuspend || r.Strict() }

// A ToolEvidence is what admission and the scan of words know about a tool, beside its state. The zero value says that nothing is known. Do not modify it.
type ToolEvidence struct {
	// Diff is the class of the difference between the admitted definition and the one that the server offers, such as "words"; "" means that it offers the admitted one.
	Diff string `json:",omitempty"`

	// Read says that the words of the admitted definition were read. Findings are the rules that have found something in them, sorted by their ids. They
	// depend on the definition alone, so that they are the same on every replica.
	Read     bool          `json:",omitempty"`
	Findings []RuleFinding `json:",omitempty"`

	// Person says that a person has let the admitted definition in. Otherwise the first sight has.
	Person bool `json:",omitempty"`

	// Report is what the tool was seen to do; nil if it was not verified with the admitted definition.
	Report *ReportFacts `json:",omitempty"`
}

// ReportFacts are what the report of a verification says. Do not modify them.
type ReportFacts struct {
	Score    int      // in thousandths
	Leave    string   // why the tool was exercised: walls, readonly or test
	Walls    []string `json:",omitempty"` // that its program had then, as its guard has reported them
	Verified bool     `json:",omitempty"`
	Failed   []string `json:",omitempty"` // the tests that it must pass and has failed, in the order of reports

	// At is when the tool was verified. A person's later yes counts more than a failed test. No decision reads it, and Equal leaves it out.
	At time.Time `json:"-"`
}

// Equal reports whether f and o say the same. Each may be nil.
func (f *ReportFacts) Equal(o *ReportFacts) bool {
	if f == nil || o == nil {
		return f == o
	}
	return f.Score == o.Score && f.Leave == o.Leave && f.Verified == o.Verified && slices.Equal(f.Failed, o.Failed) && slices.Equal(f.Walls, o.Walls)
}

// A RuleFinding is a rule about words that has found something in a definition. See package suspect.
type RuleFinding struct {
	Rule string `json:"rule"`
	Tier string `json:"tier"` // looking or blocking
}

// Equal reports whether e and o know the same. Each may be nil, which is the zero value.
func (e *ToolEvidence) Equal(o *ToolEvidence) bool {
	if e == nil || o == nil {
		return e.empty() && o.empty()
	}
	return e.Diff == o.Diff && e.Person == o.Person && e.Read == o.Read && slices.Equal(e.Findings, o.Findings) && e.Report.Equal(o.Report)
}

func (e *ToolEvidence) empty() bool {
	return e == nil || e.Diff == "" && !e.Person && !e.Read && len(e.Findings) == 0 && e.Report == nil
}

// An Admission is the state of a tool that is not plainly active. Decisions read it. Do not modify it.
type Admission struct {
	State LifeState

	// Frozen says that the server offers another definition than the admitted one, which stays in use. A call then may have only the arguments that
	// the admitted input schema names.
	Frozen bool `json:",omitempty"`

	// Why is the reason in words, equal on all replicas; "" for an active tool that is not frozen.
	Why string `json:",omitempty"`

	Successor string `json:",omitempty"` // as in AdmittedPin

	// KeptOut says that the state is LifeNew because the operator's rules of the phase admit keep the tool out. Otherwise is the state that it would have without them; records
	// of older versions do not have it.
	KeptOut   bool      `json:",omitempty"`
	Otherwise LifeState `json:",omitempty"`
}
