package switchboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Verb is the kind of action that a capability allows. The set is closed.
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

// Verbs lists all verbs, in the order of the documentation.
var Verbs = []Verb{Search, Read, Write, Execute, Reason, Notify}

// A Resource is what a verb acts on. A Taxonomy lists the resources that exist.
type Resource string

// A Constraint is a tag that limits scope or risk. A Taxonomy lists the constraints that exist.
type Constraint string

// The constraints that Switchboard itself acts on.
const (
	ReadOnly       Constraint = "readonly"
	HumanInTheLoop Constraint = "human_in_the_loop" // a call needs a granted approval
	PIISafe        Constraint = "pii_safe"
	RateLimited    Constraint = "rate_limited" // calls are counted against a limit
)

// Restricts reports whether c only ever makes a tool less free. Such a constraint also counts if only a weaker source
// states it.
func (c Constraint) Restricts() bool { return c == HumanInTheLoop || c == RateLimited }

// A Capability is one thing that a tool says it can do. Constraints are sorted as bytes and have no duplicates.
type Capability struct {
	Verb        Verb
	Resource    Resource
	Constraints []Constraint
	Source      Source
}

// Carries reports whether c has the constraint want.
func (c Capability) Carries(want Constraint) bool { return slices.Contains(c.Constraints, want) }

// String returns, for example, "search internet [readonly]".
func (c Capability) String() string {
	s := string(c.Verb) + " " + string(c.Resource)
	if len(c.Constraints) > 0 {
		s += " " + formatConstraints(c.Constraints)
	}
	return s
}

func formatConstraints(cs []Constraint) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = string(c)
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// A Source is the place where a capability of a tool is stated.
type Source string

// The sources, strongest first. The strongest source that states anything about a tool decides for that tool.
const (
	FromOverlay       Source = "overlay"        // the operator's file
	FromManifest      Source = "manifest"       // a file or URL named in the server's configuration
	FromHandshake     Source = "handshake"      // the result of initialize or server/discover
	FromTool          Source = "tool"           // the tool's own definition
	FromTenantOverlay Source = "tenant_overlay" // the tenant's file, for tools that no other source has labelled
)

// Sources lists all sources, strongest first.
var Sources = []Source{FromOverlay, FromManifest, FromHandshake, FromTool, FromTenantOverlay}

// Trust says how far Switchboard believes what a server says about itself.
type Trust string

// The levels of trust. The zero value means TrustDeclared.
const (
	TrustOperator Trust = "operator" // the operator vouches for what the server says about itself
	TrustDeclared Trust = "declared" // only the server itself says so
)

// Vouched reports whether a person vouches for what source s says about the tool: the author of an overlay, or the
// operator for all that the server says about itself. A manifest is the word of the server's makers, so it does not
// count.
func (t *Tool) Vouched(s Source) bool {
	return t.Trust == TrustOperator || s == FromOverlay || s == FromTenantOverlay
}

// A Tool is one tool of one server, as one tenant sees it in the catalog.
type Tool struct {
	ID ToolID

	// Definition is the tool's object in tools/list, byte for byte as its server sent it when it was let in.
	Definition []byte

	// Digest is the digest of Definition in canonical form.
	Digest Digest

	// Capabilities are stated by the strongest source that mentions the tool. A tool without capabilities is never
	// selected for a capability.
	Capabilities []Capability

	// Kept is what weaker sources add to make the tool less free: further capabilities, and constraints that restrict.
	// It counts in pruning, never in filtering.
	Kept []Capability

	Class string
	Trust Trust

	// Version is the version that the server reports of itself.
	Version string

	Contract Contract `json:",omitzero"`

	// Price is what a call costs; nil means nothing.
	Price *Price `json:",omitempty"`

	// Budget, if set, is the tool's own budget, from the operator's overlay. No decision reads budgets, so no digest covers them.
	Budget *Budget `json:"-"`

	// Redact lists the detectors that the operator has set for the tool's results, sorted; see Enforces.
	Redact []Detector `json:",omitempty"`

	// Structured says that Definition has an output schema, so that results are checked against it. Digest covers it.
	Structured bool `json:"-"`

	ToolStanding

	// Provides, if set, says that this is a tool of a named capability: Definition is the contract's, and a tool of the server
	// provides it.
	Provides *Provision `json:",omitempty"`
}

// A ToolStanding is how a tool stands now.
type ToolStanding struct {
	// Admission is set if the tool is not plainly active: it is suspended, or its server offers another definition, for instance.
	Admission *Admission `json:",omitempty"`

	// Evidence is what else admission knows about the tool; nil means nothing.
	Evidence *ToolEvidence `json:",omitempty"`

	// Stale is set while the server is away and this is its last known definition. No digest covers it.
	Stale bool
}

// A Provision says which tool of a server provides a tool of a named capability.
type Provision struct {
	Capability string // its id and version, such as io.fs.read@1.2.0
	Name       string // of the contract's tool

	// Own is the server's tool, with the facts of the contract. Calls go to it.
	Own *Tool

	// Params translates the params of a call for Own. The error says why the contract does not accept them. It is safe for
	// concurrent use; nil in a replayed decision, which makes no calls.
	Params func(params []byte) ([]byte, error) `json:"-"`
}

// Name returns the name that clients know the tool by, unless a task gives it another: the contract's, or the server's own.
func (t *Tool) Name() string {
	if t.Provides != nil {
		return t.Provides.Name
	}
	return t.ID.Name
}

// Key identifies the tool among those that a client is shown. One tool of a server may provide several tools of contracts, and
// be shown as itself too. They all have its ID, and each has a Key of its own.
func (t *Tool) Key() ToolID {
	if t.Provides != nil {
		return ToolID{Server: t.ID.Server, Name: t.Provides.Capability + "*" + t.Provides.Name} // no server's tool has a * in its name
	}
	return t.ID
}

// Called returns the tool that calls of t go to, and that policies judge: Own of a provided tool, else t.
func (t *Tool) Called() *Tool {
	if t != nil && t.Provides != nil {
		return t.Provides.Own
	}
	return t
}

// Demands reports whether any source says that calls of the tool carry the constraint. For a nil Tool it is false.
func (t *Tool) Demands(c Constraint) bool {
	if t == nil {
		return false
	}
	has := func(k Capability) bool { return k.Carries(c) }
	return slices.ContainsFunc(t.Capabilities, has) || slices.ContainsFunc(t.Kept, has)
}

// AsksPerson reports whether each call of the tool needs a person's approval, whatever policy says. For a nil Tool it is false.
func (t *Tool) AsksPerson() bool {
	return t.Demands(HumanInTheLoop) || t != nil && len(t.Contract.ApprovalRequired) > 0
}

// A Requirement is one thing that a task needs: a capability with at least these constraints, or tools by name.
type Requirement struct {
	Verb        Verb
	Resource    Resource
	Constraints []Constraint // sorted as bytes, without duplicates

	// Capability, if set, is a version or a range of versions of a named capability, such as io.fs.read@^1. Verb and Resource are
	// then those of the capability, for rankings and policies.
	Capability string `json:",omitempty"`

	// Tools, if set, are patterns "server/tool". In the server part * matches any characters except a slash; in the
	// tool part it matches any characters. Verb and Resource are then empty.
	Tools []string

	Select   Select
	Optional bool // an unmet optional requirement does not fail the task

	// As is the exposed name of the single tool that Select: tool selects.
	As string

	// OnDemand says that clients see a stub instead of the selected tools, and expand it when they need the tools.
	// Select is then SelectServer. Group is the id of the stub's group, which several requirements may share. Stub is
	// the stub's exposed name. Both are then set.
	OnDemand bool   `json:",omitzero"`
	Group    string `json:",omitzero"`
	Stub     string `json:",omitzero"`

	// Request is the id of the request that a person approved: the requirement is in the task as long as that yes
	// counts. It is "" for a requirement of the task's own.
	Request string `json:",omitzero"`
}

// ByName reports whether r names tools, not a capability.
func (r *Requirement) ByName() bool { return len(r.Tools) > 0 }

// String returns, for example, "search internet [readonly]", "capability io.fs.read@^1" or "tools files/*".
func (r *Requirement) String() string {
	if r.Capability != "" {
		return "capability " + r.Capability
	}
	if r.ByName() {
		return "tools " + strings.Join(r.Tools, ", ")
	}
	return Capability{Verb: r.Verb, Resource: r.Resource, Constraints: r.Constraints}.String()
}

// Select says how many tools of the top candidate's server a requirement takes.
type Select string

// The selections. The zero value means SelectServer.
const (
	SelectServer Select = "server" // every remaining tool of the top candidate's server
	SelectTool   Select = "tool"   // the top candidate alone
)

// DeclaredTask is the id of a task that a client has declared itself. No other task has this id.
const DeclaredTask TaskID = "declared"

// A Task is a list of the requirements that a client needs tools for.
type Task struct {
	ID           TaskID
	Requirements []Requirement
	Mode         Mode // narrows the principal's mode; "" does not narrow it

	// TokenBudget lowers the tenant's budget; 0 does not lower it. See Tenant.Budget.
	TokenBudget int `json:",omitzero"`

	// ResultBytes lowers the tenant's limit; 0 does not lower it. See Tenant.ResultBound.
	ResultBytes int `json:",omitzero"`

	Budgets []*Budget `json:"-"` // see Tenant.Budgets
}

// Amended reports whether the task is not as configured: a client has declared it, or people have added to it.
func (t *Task) Amended() bool {
	return t.ID == DeclaredTask || slices.ContainsFunc(t.Requirements, func(r Requirement) bool { return r.Request != "" })
}

// A Taxonomy lists the resources and constraints that exist. It is immutable.
type Taxonomy struct {
	parent      map[Resource]Resource
	constraints map[Constraint]bool
}

// The built-in resources and constraints.
var (
	BuiltinResources   = []Resource{"aws", "codebase", "fs", "internet", "knowledge_graph", "slack"}
	BuiltinConstraints = []Constraint{HumanInTheLoop, PIISafe, RateLimited, ReadOnly}
)

// MaxResourceDepth limits how many ancestors a resource can have.
const MaxResourceDepth = 8

// NewTaxonomy returns a taxonomy of the built-in terms and the given ones. parents maps each further resource to its
// parent, or to "" if it has none; a built-in resource may also get a parent. NewTaxonomy refuses a parent that is not
// a resource, a cycle of parents, and a chain of parents longer than MaxResourceDepth.
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

// Ancestors returns r's parent, the parent's parent and so on, at most MaxResourceDepth+1 of them. A capability on r
// meets a requirement for each of them.
func (t *Taxonomy) Ancestors(r Resource) []Resource {
	var up []Resource
	for p := t.parent[r]; p != "" && len(up) <= MaxResourceDepth; p = t.parent[p] {
		up = append(up, p)
	}
	return up
}

// Parent returns r's parent, or "" if it has none.
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
