// Package capability holds the registry of named capabilities: their versions, the promises and dependencies of each
// version, and the boundaries. Only the operator writes the registry.
//
// A named capability gives tools of any server one contract: the same names, descriptions and schemas. A version never
// changes once it is published. A Ref names a version or a range of versions.
//
// The package decides which version a Ref means. It does no I/O: package config reads the files. Package verdict decides
// whether a capability may be used now. Package contract finds the tools that provide it.
package capability

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Status is a step in the life of a version.
type Status string

// The steps. Only an active version is bound, or a deprecated one where no active version fits.
const (
	Researching Status = "researching"
	Developing  Status = "developing"
	Testing     Status = "testing"
	Active      Status = "active"
	Deprecated  Status = "deprecated"
	Retired     Status = "retired"
)

// Statuses lists the steps in their order.
var Statuses = []Status{Researching, Developing, Testing, Active, Deprecated, Retired}

// RiskLevels lists the levels of risk, the lowest first.
var RiskLevels = []string{"low", "medium", "high", "critical"}

// SideEffects lists the built-in side effects, sorted. taxonomy.yaml may name more. The set is closed, because a boundary
// with a mistyped side effect would never fire.
var SideEffects = []string{
	"attacks-accounts", "changes-rights", "contacts-people", "costs-money", "deletes", "mass-messages", "reads", "writes-external", "writes-local", "writes-switchboard",
}

// CostsMoney is the side effect of a capability that costs money.
const CostsMoney = "costs-money"

// Kinds lists the kinds of atoms, sorted.
var Kinds = []string{"account", "channel", "key", "party", "server"}

// KindAccount is the kind of the atoms that DenyUnlessAccount looks at.
const KindAccount = "account"

// A ContractVersion is one version of a named capability. It is immutable.
type ContractVersion struct {
	ID          string // such as io.fs.read
	Number      *semver.Version
	Description string
	Status      Status

	Verb        switchboard.Verb
	Resource    switchboard.Resource
	Constraints []switchboard.Constraint // sorted, without duplicates

	Tools       []ContractTool // required_tools, sorted by name; none means that the capability is only a description
	Permissions []string       // that a tenant needs, sorted
	Models      []string       // sorted; a tenant must use one of them; none means any

	Atoms        []string // requires.resources, sorted: ids of atoms
	Capabilities []Ref    // requires.capabilities, sorted by text

	Facts Facts

	// Digest covers all of the file's content in canonical form, and nothing about its layout. Status is not in it,
	// because a published version is deprecated and retired later.
	Digest switchboard.Digest

	Position string `json:"-"` // file:line:column
}

// Name returns ID@NUMBER.
func (v *ContractVersion) Name() string { return v.ID + "@" + v.Number.String() }

// Bindable reports whether the version can be bound: it is active or deprecated.
func (v *ContractVersion) Bindable() bool { return v.Status == Active || v.Status == Deprecated }

// GrantedTo reports whether the version exists in a tenant with these permissions and models: the tenant has each permission
// that the version needs, and one of its models, if it names any.
func (v *ContractVersion) GrantedTo(permissions, models []string) bool {
	for _, p := range v.Permissions {
		if !slices.Contains(permissions, p) {
			return false
		}
	}
	return len(v.Models) == 0 || slices.ContainsFunc(v.Models, func(m string) bool { return slices.Contains(models, m) })
}

// CostClass returns the stated cost class, or metered if none is stated and calls have a price; else "".
func (v *ContractVersion) CostClass() switchboard.CostClass {
	if v.Facts.CostClass == "" && v.Facts.Price != nil && !v.Facts.Price.Free() {
		return switchboard.CostMetered
	}
	return v.Facts.CostClass
}

// Costs reports whether the use of the version costs money: it says so, or it has a price.
func (v *ContractVersion) Costs() bool {
	class := v.CostClass()
	return class == switchboard.CostMetered || class == switchboard.CostPaid || slices.Contains(v.Facts.SideEffects, CostsMoney)
}

// A ContractTool is one tool of a contract.
type ContractTool struct {
	Name string

	// Definition is the tool's object as clients see it in tools/list: name, description, inputSchema, outputSchema and
	// annotations. It is the same for all providers.
	Definition []byte
}

// Facts are what a capability, or an overlay of a tool, states for policy and for calls. A nil pointer or empty value
// states nothing.
type Facts struct {
	SideEffects   []string              // sorted, such as costs-money
	RiskLevel     string                // one of RiskLevels
	CostClass     switchboard.CostClass //
	Approval      []string              // approval_required: who, sorted; see ApprovalRequired
	ApprovalAsked bool                  // approval_required is true or names somebody
	Price         *switchboard.Price    // cost_per_call
	Budget        *switchboard.Budget   //
	Deterministic *bool                 //
	Stateful      *bool                 //
	Idempotent    *bool                 // idempotency: natural or none
	FreshFor      time.Duration         // freshness_budget_hours; 0 means that the atoms' own times count
}

// An Atom is a thing that capabilities depend on: an account, a key, a channel, a server.
type Atom struct {
	ID       string        // such as acc.brian.fb_page
	Kind     string        // such as account, key, channel, server
	Critical bool          // it must have a probe
	FreshFor time.Duration // how long a result counts; 0 means Every, twice
	Every    time.Duration // how often it is probed; 0 means only when it is due at a use
	Probe    AtomProbe
	Position string `json:"-"` // file:line:column
}

// An AtomProbe finds out whether an atom is well. Exactly one of the first seven fields is set; the zero AtomProbe is none.
type AtomProbe struct {
	Server switchboard.ServerID // well when the server's health says so
	Tool   switchboard.ToolID   `json:",omitzero"` // well when this tool, which reads only, answers without isError; "/" would not be read back
	HTTP   string               // well when a GET of the URL answers 200 to 299
	TCP    string               // well when a connection to host:port opens
	Env    string               // well when the variable is set and not empty
	File   string               // well when the file within the folder of the configuration exists and is not empty
	OAuth  switchboard.ServerID `json:",omitzero"` // well when the connection that Switchboard's own requests to this server use is valid or can be renewed; without it, digests stay

	Headers   map[string]switchboard.Secret `json:"-"` // of HTTP
	Arguments json.RawMessage               // of Tool
	Is        map[string]json.RawMessage    // of Tool: JSON pointers into the structured result, and the value there
}

// None reports whether p is the zero AtomProbe.
func (p *AtomProbe) None() bool {
	return p.Server == "" && p.Tool == (switchboard.ToolID{}) && p.HTTP == "" && p.TCP == "" && p.Env == "" && p.File == "" && p.OAuth == ""
}

// A Severity says whether a boundary stops calls.
type Severity string

// The severities.
const (
	Hard Severity = "hard"
	Soft Severity = "soft" // it only warns
)

// A RowDecision is the decision of a boundary that fires.
type RowDecision string

// The decisions. DenyUnlessAccount is followed by the name of an account.
const (
	Deny              RowDecision = "deny"
	RequireApproval   RowDecision = "require_approval"
	Advise            RowDecision = "advise"
	DenyUnlessAccount RowDecision = "deny_unless_account:"
)

// Account returns the name after DenyUnlessAccount, or "".
func (d RowDecision) Account() string {
	name, ok := strings.CutPrefix(string(d), string(DenyUnlessAccount))
	if !ok {
		return ""
	}
	return name
}

// A Boundary is one row of boundaries.yaml. It fires if all of its clauses hold: those that are not empty. It has at least
// one. A capability in Exceptions skips the row.
type Boundary struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`

	SideEffectsAny []string                `json:"side_effects_any,omitempty"` // any of them
	CostClasses    []switchboard.CostClass `json:"cost_class,omitempty"`       // any of them
	RiskLevels     []string                `json:"risk_level,omitempty"`       // any of them
	IDMatches      string                  `json:"id_matches,omitempty"`       // RE2, for the whole id

	Exceptions []string    `json:"exceptions,omitempty"` // ids of capabilities, sorted
	Decision   RowDecision `json:"decision"`
	Who        []string    `json:"who,omitempty"` // of RequireApproval, sorted

	File string `json:"file"`
	Line int    `json:"line"`
}

// A Party is one row of parties.yaml: From acts for To on Account, an atom.
type Party struct {
	From, To, Account string // ids of atoms
	Position          string
}

// A ProviderRow says that tools of a server provide a capability: an element of provides in an operator's overlay.
type ProviderRow struct {
	Server   switchboard.ServerID
	Ref      Ref
	Tools    map[string]*switchboard.DeclaredEquivalent // by the name of the contract's tool; Tool is the server's own tool
	Position string                                     `json:"-"` // file:line:column
}

// A Ref names a version or a range of versions of a capability.
type Ref struct {
	ID    string
	Range string // as it is written: 1.2.0, ^1.2, ~1.2.3; "" means the newest
}

// String returns ID@RANGE, or ID.
func (r Ref) String() string {
	if r.Range == "" {
		return r.ID
	}
	return r.ID + "@" + r.Range
}

// A Registry is one consistent state of the operator's folder capabilities/. It is immutable and safe for concurrent use.
// The zero Registry is empty.
type Registry struct {
	versions   map[string][]*ContractVersion // by id, the newest first
	Atoms      map[string]*Atom
	Boundaries []Boundary // sorted by id
	Parties    []Party
	digest     switchboard.Digest
}

// IDs returns the ids of the capabilities, sorted.
func (r *Registry) IDs() []string {
	ids := make([]string, 0, len(r.versions))
	for id := range r.versions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Versions returns the versions of a capability, the newest first. Do not modify the slice.
func (r *Registry) Versions(id string) []*ContractVersion { return r.versions[id] }

// Permissions returns the permissions that some version needs, sorted.
func (r *Registry) Permissions() []string {
	return r.collect(func(v *ContractVersion) []string { return v.Permissions })
}

// Models returns the models that some version names, sorted.
func (r *Registry) Models() []string {
	return r.collect(func(v *ContractVersion) []string { return v.Models })
}

func (r *Registry) collect(of func(*ContractVersion) []string) (all []string) {
	for _, list := range r.versions {
		for _, v := range list {
			all = append(all, of(v)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Digest covers all that a decision or verdict reads. The digest of an empty Registry is "".
func (r *Registry) Digest() switchboard.Digest { return r.digest }
