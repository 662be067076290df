package bind

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// A ResolveQuery asks whether capabilities may be used now.
type ResolveQuery struct {
	Tenant switchboard.TenantID

	// Capabilities are references such as io.fs.read@^1. None means each capability that exists for the tenant.
	Capabilities []string

	Probe bool // first probe those of their atoms that are not fresh, and wait for the results for 5 s at most
}

// maxResolved is the largest number of references of a ResolveQuery.
const maxResolved = 256

// ResolveCapabilities returns the verdicts on capabilities, in the order of the query. A reference means the version that a task would
// bind. The verdict on a capability with tools is No if no server of the tenant provides it; else it is about the tools that provide it,
// as their own facts make them. The error is SB-CAP-005 for a
// reference that means no version for the tenant; it does not depend on whether the version exists for other tenants. Any other
// error means that no capability may be used.
func (s *State) ResolveCapabilities(ctx context.Context, q ResolveQuery, atoms AtomSource) ([]verdict.Verdict, error) {
	t, err := s.ServedTenant(q.Tenant)
	if err != nil {
		return nil, err
	}
	refs, err := t.readRefs(q.Capabilities)
	if err != nil {
		return nil, err
	}
	registry := t.Providers.Registry()
	versions, lacking := make([]*capability.ContractVersion, len(refs)), make([]bool, len(refs))
	for i, ref := range refs {
		versions[i] = t.findVersion(ref)
		if versions[i] == nil {
			err := switchboard.Refuse(switchboard.CodeMalformed, "there is no capability %s for tenant %s", ref, t.ID)
			err.Hint = t.existing()
			return nil, err
		}
		lacking[i] = len(versions[i].Tools) > 0 && t.Providers.Version(ref) == nil
	}
	var states boundary.AtomStates
	if atoms != nil {
		states = atoms.StatesWithin
		if q.Probe {
			probeUnfresh(ctx, registry, versions, atoms)
		}
	}
	all, err := t.answers.Judge(ctx, versions, states)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if lacking[i] {
			all[i].Block(versions[i].Name() + ": no server provides it")
		}
	}
	return all, nil
}

// probeUnfresh probes the atoms of the versions that are not fresh, and waits for the results.
func probeUnfresh(ctx context.Context, r *capability.Registry, versions []*capability.ContractVersion, atoms AtomSource) {
	var ids []string
	for _, v := range versions {
		needs := verdict.Needs(r, v)
		states := atoms.StatesWithin(needs.FreshFor, needs.Atoms...)
		ids = append(ids, slices.DeleteFunc(needs.Atoms, func(id string) bool { return states[id] == capability.Fresh })...)
	}
	slices.Sort(ids)
	atoms.Due(ctx, slices.Compact(ids)...)
}

// readRefs parses the references. None means one for each capability that exists for the tenant.
func (t *Tenant) readRefs(texts []string) ([]capability.Ref, error) {
	if len(texts) > maxResolved {
		return nil, switchboard.Refuse(switchboard.CodeMalformed, "these are %d capabilities; ask for %d at most at once", len(texts), maxResolved)
	}
	var refs []capability.Ref
	for _, text := range texts {
		ref, err := capability.ParseRef(text)
		if err != nil {
			return nil, switchboard.Refuse(switchboard.CodeMalformed, "%v", err)
		}
		refs = append(refs, ref)
	}
	if len(texts) == 0 {
		refs = slices.Collect(t.capabilities())
	}
	return refs, nil
}

// capabilities returns the capabilities that exist for the tenant, sorted by id.
func (t *Tenant) capabilities() iter.Seq[capability.Ref] {
	return func(yield func(capability.Ref) bool) {
		registry := t.Providers.Registry()
		for _, id := range registry.IDs() {
			if ref := (capability.Ref{ID: id}); registry.Find(ref, grantedTo(t.Tenant)) != nil && !yield(ref) {
				return
			}
		}
	}
}

// HasCapabilities reports whether a named capability exists for the tenant.
func (t *Tenant) HasCapabilities() bool {
	for range t.capabilities() {
		return true
	}
	return false
}

// CapabilityWith returns the first id of a capability that exists for the tenant and requires the atom, itself or by a capability that it
// requires; "" if there is none.
func (t *Tenant) CapabilityWith(atom string) string {
	registry := t.Providers.Registry()
	for ref := range t.capabilities() {
		if v := t.findVersion(ref); v != nil && slices.Contains(verdict.Needs(registry, v).Atoms, atom) {
			return ref.ID
		}
	}
	return ""
}

// HasCapability reports whether the text refers to a named capability that exists for the tenant.
func (t *Tenant) HasCapability(text string) bool {
	ref, err := capability.ParseRef(text)
	return err == nil && t.findVersion(ref) != nil
}

// findVersion returns the version that a task would bind, or else one that no server provides; nil if none exists for the tenant.
func (t *Tenant) findVersion(ref capability.Ref) *capability.ContractVersion {
	if v := t.Providers.Version(ref); v != nil {
		return v
	}
	return t.Providers.Registry().Find(ref, grantedTo(t.Tenant))
}

// existing lists the capabilities that exist for the tenant, for people and models.
func (t *Tenant) existing() string {
	const most = 20
	var ids []string
	for ref := range t.capabilities() {
		if len(ids) == most {
			ids = append(ids, "and more")
			break
		}
		ids = append(ids, ref.ID)
	}
	if ids == nil {
		return "no capability exists for this tenant"
	}
	return "these exist: " + strings.Join(ids, ", ")
}

// grantedTo returns a function that reports whether a version exists for the tenant.
func grantedTo(t *switchboard.Tenant) func(*capability.ContractVersion) bool {
	return func(v *capability.ContractVersion) bool { return v.GrantedTo(t.Permissions, t.Models) }
}
