package admin

import (
	"context"
	"maps"
	"slices"
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

	// Starting are the tenant's servers that are starting and have no known offer. A capability that they provide has no
	// provider yet.
	Starting []switchboard.ServerID `json:"starting,omitempty"`
}

// Resolve returns the verdicts on capabilities. It does not wait for servers: see Resolution.Starting. For the
// error see bind.State.ResolveCapabilities.
func Resolve(ctx context.Context, r *Reader, q bind.ResolveQuery) (*Resolution, error) {
	starting, _ := r.o.Binder.Starting(q.Tenant) // read before the state, which may hold more answers
	all, err := r.o.Configuration().ResolveCapabilities(ctx, q, r.o.Atoms)
	if err != nil {
		return nil, err
	}
	return &Resolution{all, starting}, nil
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
