package admin

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/bind"
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
	return &Resolution{all, starting}, nil
}
