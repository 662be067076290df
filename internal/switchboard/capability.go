package switchboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Verb is what a capability does. The set is closed.
type Verb string

// The verbs.
const (
	Search  Verb = "search"
	Read    Verb = "read"
	Write   Verb = "write"
	Execute Verb = "execute"
	Reason  Verb = "reason"
	Notify  Verb = "notify"
)

// Verbs are all verbs, in the order of the documentation.
var Verbs = []Verb{Search, Read, Write, Execute, Reason, Notify}

// A Resource is what a verb acts on; a Taxonomy says which exist.
type Resource string

// A Constraint is a tag that limits scope or risk; a Taxonomy says which exist.
type Constraint string

// The constraints that Switchboard itself acts on.
const (
	ReadOnly       Constraint = "readonly"
	HumanInTheLoop Constraint = "human_in_the_loop" // a call needs a granted approval
	PIISafe        Constraint = "pii_safe"
	RateLimited    Constraint = "rate_limited" // calls are counted against a limit
)

// Restricts reports whether c makes a tool less free whoever says it, so that
// it is kept from a weaker source too.
func (c Constraint) Restricts() bool { return c == HumanInTheLoop || c == RateLimited }

// A Capability is what a tool says that it can do. Constraints are sorted as
// bytes and have no duplicates.
type Capability struct {
	Verb        Verb
	Resource    Resource
	Constraints []Constraint
	Source      Source
}

// Carries reports whether c has the constraint.
func (c Capability) Carries(want Constraint) bool { return slices.Contains(c.Constraints, want) }

// String gives "search internet [readonly]".
func (c Capability) String() string {
	s := string(c.Verb) + " " + string(c.Resource)
	if len(c.Constraints) > 0 {
		s += " " + constraintList(c.Constraints)
	}
	return s
}

func constraintList(cs []Constraint) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = string(c)
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// A Source says who stated a capability.
type Source string

// The sources, strongest first: the first that says anything about a tool wins
// for that tool.
const (
	FromOverlay       Source = "overlay"        // the operator's file
	FromManifest      Source = "manifest"       // a file or URL named in the server's configuration
	FromHandshake     Source = "handshake"      // the result of initialize or server/discover
	FromTool          Source = "tool"           // the tool's own definition
	FromTenantOverlay Source = "tenant_overlay" // the tenant's file, for what nobody above has labelled
)

// Sources are all sources, strongest first.
var Sources = []Source{FromOverlay, FromManifest, FromHandshake, FromTool, FromTenantOverlay}

// Trust says how far a server's own word goes.
type Trust string

// The trusts. The zero value means TrustDeclared.
const (
	TrustOperator Trust = "operator" // the operator vouches for what the server says of itself
	TrustDeclared Trust = "declared" // self-declared only
)

// Vouched reports whether a person vouches for what the source says of the tool: whoever wrote the overlay, or the operator, for all
// that the server says of itself. What a manifest says is the word of the server's makers.
func (t *Tool) Vouched(s Source) bool {
	return t.Trust == TrustOperator || s == FromOverlay || s == FromTenantOverlay
}

// A Tool is one tool of one server, as the catalog knows it for one tenant.
type Tool struct {
	ID ToolID

	// Definition is the tool's object in tools/list, byte for byte as its
	// server sent it.
	Definition []byte

	// Digest is of Definition in canonical form.
	Digest Digest

	// Capabilities are those of the strongest source that speaks of the tool.
	// None means that the tool is never selected for a capability.
	Capabilities []Capability

	// Kept is what weaker sources add that makes the tool less free: further
	// capabilities, and the constraints that restrict. It counts when pruning,
	// never when filtering.
	Kept []Capability

	Class string
	Trust Trust

	// Version is what the server says of its own.
	Version string

	Contract Contract `json:",omitzero"`

	// Redact are the detectors by which the operator has the tool's results redacted, sorted; see Enforces.
	Redact []Detector `json:",omitempty"`

	// Structured says that Definition has an output schema, so that results are
	// held to it. It is part of Digest.
	Structured bool `json:"-"`

	// Stale is set while the server is away and this is its last known word.
	// It is no part of any digest.
	Stale bool
}

// Demands reports whether any source says that calls of the tool carry the
// constraint. A nil Tool demands nothing.
func (t *Tool) Demands(c Constraint) bool {
	if t == nil {
		return false
	}
	has := func(k Capability) bool { return k.Carries(c) }
	return slices.ContainsFunc(t.Capabilities, has) || slices.ContainsFunc(t.Kept, has)
}

// A Requirement is what a task needs: a capability, with the constraints as a
// minimum; or tools by name.
type Requirement struct {
	Verb        Verb
	Resource    Resource
	Constraints []Constraint // sorted as bytes, without duplicates

	// Tools, where set, are patterns "server/tool" in which * stands for any
	// run of characters without a slash in the server, and any run in the
	// tool. Verb and Resource are then empty.
	Tools []string

	Select   Select
	Optional bool // an unmet optional requirement does not fail the task

	// As is the exposed name of the one tool that Select: tool selects.
	As string

	// OnDemand says that what is selected is not shown, but a stub in its place,
	// through which clients have it when they need it. Select is then
	// SelectServer. Group is the id of the group that the stub stands for, which
	// requirements may share, and Stub the stub's exposed name; both are set.
	OnDemand bool   `json:",omitzero"`
	Group    string `json:",omitzero"`
	Stub     string `json:",omitzero"`
}

// ByName reports whether r names tools rather than a capability.
func (r *Requirement) ByName() bool { return len(r.Tools) > 0 }

// String gives "search internet [readonly]" or "tools files/*".
func (r *Requirement) String() string {
	if r.ByName() {
		return "tools " + strings.Join(r.Tools, ", ")
	}
	return Capability{Verb: r.Verb, Resource: r.Resource, Constraints: r.Constraints}.String()
}

// Select says how much of the top candidate's server a requirement takes.
type Select string

// The selections. The zero value means SelectServer.
const (
	SelectServer Select = "server" // every remaining tool of the top candidate's server
	SelectTool   Select = "tool"   // the top candidate alone
)

// DeclaredTask is the task that a client has declared itself. No other is called so.
const DeclaredTask TaskID = "declared"

// A Task is what a client asks Switchboard to equip it for.
type Task struct {
	ID           TaskID
	Requirements []Requirement
	Mode         Mode // narrows the principal's; "" leaves it

	// TokenBudget narrows the tenant's; 0 leaves it. See Tenant.Budget.
	TokenBudget int `json:",omitzero"`

	// ResultBytes narrows the tenant's; 0 leaves it. See Tenant.ResultBound.
	ResultBytes int `json:",omitzero"`
}

// A Taxonomy says which resources and constraints exist. It is immutable.
type Taxonomy struct {
	parent      map[Resource]Resource
	constraints map[Constraint]bool
}

// Built-in terms.
var (
	BuiltinResources   = []Resource{"aws", "codebase", "fs", "internet", "knowledge_graph", "slack"}
	BuiltinConstraints = []Constraint{HumanInTheLoop, PIISafe, RateLimited, ReadOnly}
)

// MaxResourceDepth bounds the chain of parents above a resource.
const MaxResourceDepth = 8

// NewTaxonomy returns the built-in terms and those given. parents maps each
// further resource to its parent, or to "" where it has none; a built-in may
// be given a parent. It is an error when a parent is no known resource, or a
// chain of parents has a cycle or is longer than MaxResourceDepth.
func NewTaxonomy(parents map[Resource]Resource, constraints []Constraint) (*Taxonomy, error) {
	t := &Taxonomy{parent: map[Resource]Resource{}, constraints: map[Constraint]bool{}}
	for _, r := range BuiltinResources {
		t.parent[r] = ""
	}
	for _, c := range slices.Concat(BuiltinConstraints, constraints) {
		t.constraints[c] = true
	}
	maps.Copy(t.parent, parents)
	for _, r := range t.Resources() {
		if p := t.parent[r]; p != "" && !t.HasResource(p) {
			return nil, fmt.Errorf("resource %q: its parent %q is no resource here", r, p)
		}
		if len(t.Ancestors(r)) > MaxResourceDepth {
			return nil, fmt.Errorf("resource %q: its parents form a cycle, or more than %d levels", r, MaxResourceDepth)
		}
	}
	return t, nil
}

// HasResource reports whether r is a resource.
func (t *Taxonomy) HasResource(r Resource) bool { _, ok := t.parent[r]; return ok }

// HasConstraint reports whether c is a constraint.
func (t *Taxonomy) HasConstraint(c Constraint) bool { return t.constraints[c] }

// Ancestors returns r's parent, the parent's parent and so on, at most
// MaxResourceDepth+1 of them: a capability on r meets a requirement for each.
func (t *Taxonomy) Ancestors(r Resource) []Resource {
	var up []Resource
	for p := t.parent[r]; p != "" && len(up) <= MaxResourceDepth; p = t.parent[p] {
		up = append(up, p)
	}
	return up
}

// Parent returns r's parent, or "".
func (t *Taxonomy) Parent(r Resource) Resource { return t.parent[r] }

// Resources returns all resources, sorted as bytes.
func (t *Taxonomy) Resources() []Resource {
	rs := make([]Resource, 0, len(t.parent))
	for r := range t.parent {
		rs = append(rs, r)
	}
	slices.Sort(rs)
	return rs
}

// Constraints returns all constraints, sorted as bytes.
func (t *Taxonomy) Constraints() []Constraint {
	cs := make([]Constraint, 0, len(t.constraints))
	for c := range t.constraints {
		cs = append(cs, c)
	}
	slices.Sort(cs)
	return cs
}
