package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// An AtomReporter knows the states of atoms, and describes them; see atom.Prober. It is safe for concurrent use.
type AtomReporter interface {
	bind.AtomSource

	// Report describes all atoms, sorted by id.
	Report(now time.Time) []atom.Summary
}

// A Resolution says whether capabilities may be used now.
type Resolution struct {
	Verdicts []verdict.Verdict `json:"verdicts"` // in the order of the question

	// Contracts say what the capabilities promise, in the same order. They are there only if they were asked for.
	Contracts []ContractDetail `json:"contracts,omitempty"`

	// Starting are the tenant's servers that are starting and have no known offer. A capability that they provide has no
	// provider yet.
	Starting []switchboard.ServerID `json:"starting,omitempty"`
}

// A ContractDetail says what a version of a named capability promises to a tenant, what it needs, and which tools provide it.
type ContractDetail struct {
	Description string            `json:"description,omitempty"`
	Status      capability.Status `json:"status"`
	Digest      string            `json:"digest"`
	At          string            `json:"at,omitempty"` // file:line:column; only for the operator
	Needs       string            `json:"needs"`        // such as "read fs [readonly]"
	Permissions []string          `json:"permissions,omitempty"`
	Models      []string          `json:"models,omitempty"`
	Requires    []string          `json:"requires,omitempty"` // other capabilities

	SideEffects []string              `json:"side_effects,omitempty"`
	RiskLevel   string                `json:"risk_level,omitempty"`
	CostClass   switchboard.CostClass `json:"cost_class,omitempty"`

	Atoms []atom.Summary  `json:"atoms,omitempty"` // with reasons only for the operator
	Tools []DescribedTool `json:"tools,omitempty"`
}

// A DescribedTool is a tool of a contract, with the tools of servers that provide it.
type DescribedTool struct {
	Name       string          `json:"name"`
	Definition json.RawMessage `json:"definition"`
	Providers  []string        `json:"providers"` // SERVER/TOOL, sorted
}

// mostProbing is how many answers may wait for probes at once. Each may begin the probes of all atoms.
const mostProbing = 4

// Resolve returns the verdicts on capabilities. It does not wait for servers: see Resolution.Starting. For the
// error see bind.State.ResolveCapabilities. A query that would probe is refused with SB-ROUT-003 while mostProbing others wait for probes.
func Resolve(ctx context.Context, r *Reader, q bind.ResolveQuery) (*Resolution, error) {
	if q.Probe {
		select {
		case r.probing <- struct{}{}:
			defer func() { <-r.probing }()
		default:
			e := switchboard.Refuse(switchboard.CodeOverloaded, "%d questions that probe are being answered, the most that there may be at once", mostProbing)
			e.Hint, e.RetryAfter = "ask again in 5s, or without a probe", 5*time.Second // an answer waits that long at most
			return nil, e
		}
	}
	starting, _ := r.o.Binder.Starting(q.Tenant) // read before the state, which may hold more answers
	all, err := r.o.Configuration().ResolveCapabilities(ctx, q, r.o.Atoms)
	if err != nil {
		return nil, err
	}
	return &Resolution{Verdicts: all, Starting: starting}, nil
}

// DescribeContracts adds to an answer of Resolve what its capabilities promise. A capability that the tenant has lost meanwhile has the zero ContractDetail.
func DescribeContracts(r *Reader, x *Resolution, tenant switchboard.TenantID, operator bool) {
	atoms := map[string]atom.Summary{}
	for _, a := range r.o.Atoms.Report(time.Now()) {
		if !operator {
			a.Reason = "" // it can name addresses and files of the operator
		}
		atoms[a.ID] = a
	}
	t := r.o.Configuration().Tenants[tenant]
	for i := range x.Verdicts {
		x.Contracts = append(x.Contracts, describeContract(t, x.Verdicts[i].Capability, atoms, operator))
	}
}

// describeContract describes the version of a verdict.
func describeContract(t *bind.Tenant, name string, atoms map[string]atom.Summary, operator bool) ContractDetail {
	if t == nil {
		return ContractDetail{}
	}
	registry := t.Providers.Registry()
	v := registry.Version(name)
	if v == nil {
		return ContractDetail{}
	}
	d := ContractDetail{
		Description: v.Description, Status: v.Status, Digest: string(v.Digest), Needs: strings.TrimSuffix(fmt.Sprintf("%s %s %s", v.Verb, v.Resource, v.Constraints), " []"),
		Permissions: v.Permissions, Models: v.Models, SideEffects: v.Facts.SideEffects, RiskLevel: v.Facts.RiskLevel, CostClass: v.CostClass(),
	}
	if operator {
		d.At = v.Position
	}
	for _, ref := range v.Capabilities {
		d.Requires = append(d.Requires, ref.String())
	}
	for _, id := range verdict.Needs(registry, v).Atoms {
		d.Atoms = append(d.Atoms, atoms[id])
	}
	provided := t.Providers.Tools()[name]
	for i := range v.Tools {
		tool := DescribedTool{Name: v.Tools[i].Name, Definition: v.Tools[i].Definition, Providers: []string{}}
		for _, p := range provided {
			if p.Provides != nil && p.Provides.Name == tool.Name {
				tool.Providers = append(tool.Providers, p.ID.String())
			}
		}
		d.Tools = append(d.Tools, tool)
	}
	return d
}

// A RedAtom is a red atom with a capability of a tenant that depends on it. Both are "" if there is none.
type RedAtom struct {
	atom.Summary
	Tenant     switchboard.TenantID
	Capability string
}

// RedAtoms returns the red atoms that capabilities of the tenant depend on, sorted by id; for the empty tenant all red atoms.
func RedAtoms(r *Reader, id switchboard.TenantID) (red []RedAtom) {
	c := r.o.Configuration()
	for _, a := range r.o.Atoms.Report(time.Now()) {
		if a.State != capability.Red {
			continue
		}
		one := RedAtom{Summary: a}
		for _, of := range slices.Sorted(maps.Keys(c.Tenants)) {
			if one.Capability == "" && (id == "" || id == of) {
				one.Tenant, one.Capability = of, c.Tenants[of].CapabilityWith(a.ID)
			}
		}
		switch {
		case one.Capability != "":
		case id == "":
			one.Tenant = ""
		default:
			continue
		}
		red = append(red, one)
	}
	return red
}
