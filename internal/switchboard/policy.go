package switchboard

import (
	"slices"
	"strconv"
	"time"
)

// A PolicyFile is one file of Rego, or of the data next to it.
type PolicyFile struct {
	Name string // the name that faults use
	Path string // its path in the folder of policies, with slashes
	Data []byte
}

// A Judgment is one question to policy when a requirement was decided, with the parts of the answer that policy
// remembers. With it, policy can judge one tool again when that tool is called. Package policy makes it; it is
// immutable.
type Judgment struct {
	Requirement *Requirement

	// Candidates are the tools that were judged together.
	Candidates []*Tool

	// Memory belongs to package policy.
	Memory any
}

// Obligations are the conditions that policy sets for a call that it allows. They combine those of several rules: of
// each kind, the strictest counts. The zero value sets none.
type Obligations struct {
	// Approval, if set, says who may approve the call. Without a granted approval the call is refused.
	Approval *Approval

	// Notify lists who must be notified of the call. If no notification can be delivered, the call is refused.
	Notify []string

	// Timeout limits the call; 0 means that policy sets no timeout.
	Timeout time.Duration

	// Redact lists JSON pointers (RFC 6901) into the result, sorted. The values that they name are removed.
	Redact []string

	// Detect lists detectors, sorted. The data that they find is removed.
	Detect []Detector `json:",omitempty"`

	// Rate limits how often the tool is called. An Every of 0 means no limit.
	Rate Rate

	// Log is the log level for the call; "" means that policy does not ask for it.
	Log string
}

// Empty reports whether there are no obligations.
func (o *Obligations) Empty() bool {
	return o.Approval == nil && len(o.Notify) == 0 && o.Timeout == 0 && len(o.Redact) == 0 && len(o.Detect) == 0 && o.Rate.Every == 0 && o.Log == ""
}

// An Approval is the obligation to get a person's approval.
type Approval struct {
	Who        []string      // roles or persons, sorted; empty means anyone who may approve
	Expires    time.Duration // how long a request is valid; 0 means that policy does not say
	Quorum     int           `json:",omitzero"` // how many persons must say yes; 0 means 1
	NoStanding bool          `json:",omitzero"` // no standing yes is possible

	// Rules are the rules that asked, sorted. A decision does not record them.
	Rules []AskingRule `json:"-"`
}

// ApproversOfBoth returns who may give an approval that two sources require, each from one of the persons it names. An
// empty list names everyone who may approve, and so does OfficeApprover. [""] is returned if no person may give both.
func ApproversOfBoth(a, b []string) []string {
	everyone := func(who []string) bool { return len(who) == 0 || slices.Contains(who, string(OfficeApprover)) }
	switch {
	case len(a) == 0 || everyone(a) && len(b) > 0:
		return b
	case everyone(b):
		return a
	}
	both := slices.DeleteFunc(slices.Clone(a), func(w string) bool { return !slices.Contains(b, w) })
	if len(both) == 0 {
		return []string{""}
	}
	return both
}

// An AskingRule is a rule that asks for a person's approval, or the capability or contract that does.
type AskingRule struct {
	Layer  string `json:"layer"`            // boundaries, operator, tenant, constraint for a capability, or contract
	File   string `json:"file,omitempty"`   // of the rule
	Line   int    `json:"line,omitempty"`   // of the rule
	Reason string `json:"reason,omitempty"` // the rule's words, or the capability

	// Digest is that of the rule's text: an edited rule is another rule.
	Digest Digest `json:"digest,omitempty"`
}

// String returns the rule as people look it up.
func (r *AskingRule) String() string {
	s := r.Layer
	if r.File != "" {
		s += " " + r.File + ":" + strconv.Itoa(r.Line)
	}
	if r.Reason != "" {
		s += " (" + r.Reason + ")"
	}
	return s
}

// ApprovalSettings say how the people of a tenant are asked.
type ApprovalSettings struct {
	Wait      time.Duration // how long a call waits for a person; 0 means 45s
	Until     time.Duration // the longest time that a request is good; 0 means what its rule says, or 1h
	Self      bool          // the principal that asked may decide itself
	AskClient bool          // a form at the agent's own client may decide, with Self
	Standing  time.Duration // the longest standing yes; 0 means that there is none
}

// A Rate is a rate limit.
type Rate struct {
	Every time.Duration // one permit is earned each Every
	Burst int           // the most permits that can be saved up; at least 1
}
