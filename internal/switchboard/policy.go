package switchboard

import "time"

// A PolicyFile is one file of Rego, or of the data beside it.
type PolicyFile struct {
	Name string // as faults name it
	Path string // in its folder of policies, with slashes
	Data []byte
}

// A Judgment is what policy was asked when a requirement was decided, and what
// it remembers of its answer: so that it can be asked again, of one tool, when
// that is called. It is made by package policy and immutable.
type Judgment struct {
	Requirement *Requirement

	// Candidates are the tools that were judged together.
	Candidates []*Tool

	// Memory is package policy's own.
	Memory any
}

// Obligations are what policy asks of a call that it allows. Those of several
// rules have been put together: of each, the strictest counts. The zero value
// asks for nothing.
type Obligations struct {
	// Approval, where set, is who may approve the call; without a granted
	// approval it is refused.
	Approval *Approval

	// Notify is whom to tell of the call; a call of which nobody can be told is
	// refused.
	Notify []string

	// Timeout bounds the call; 0 means that policy does not.
	Timeout time.Duration

	// Redact are JSON pointers (RFC 6901) into the result, sorted. What they
	// name is not shown.
	Redact []string

	// Detect are the detectors, sorted, whose data is not shown.
	Detect []Detector `json:",omitempty"`

	// Rate bounds how often the tool is called. One of no Every is no bound.
	Rate Rate

	// Log is the level at which the call is logged; "" means that policy does
	// not ask for it.
	Log string
}

// None reports whether nothing is asked for.
func (o *Obligations) None() bool {
	return o.Approval == nil && len(o.Notify) == 0 && o.Timeout == 0 && len(o.Redact) == 0 && len(o.Detect) == 0 && o.Rate.Every == 0 && o.Log == ""
}

// An Approval is an obligation to have a person say yes.
type Approval struct {
	Who     []string      // roles or principals, sorted; none means anybody who may approve
	Expires time.Duration // how long a yes counts; 0 means that policy does not say
}

// A Rate is how often something may happen.
type Rate struct {
	Every time.Duration // one is earned each Every
	Burst int           // at most so many at once; at least 1
}
