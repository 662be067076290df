// Package bind decides what a run shows: principal and task in, surface out.
//
// A State is the immutable snapshot that decisions read. It resolves the task that a principal
// means, runs the stages of package decide, and makes the surface of the decision, with the
// equivalents that calls may move to. It is a pure function of its inputs: it reads no clock, no
// store and no connection. A Binder is the thin shell around it. It takes the present State and the
// present health of servers, and passes each decision on to be recorded.
//
// It leaves to others when runs are bound (package run), how a decision is recorded (package
// replay), and when there is a new State (package app).
//
// Package run calls a Binder through the interface run.Binder, which run declares. A direct import
// is not possible: a surface needs the stubs of package lazyexpand, whose desk needs runs. So the
// arrows of imports all go from bind to run, and no call reaches package app.
package bind

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// RecordDecision records a decision of the tenant. refused is the error that refused it, or nil.
// The function that it returns waits for the record and returns it.
type RecordDecision func(t *Tenant, d *decide.Decision, refused error) func() Record

// A Record says where a decision was recorded. The zero Record says that it was not.
type Record struct {
	Decision, Basis switchboard.Digest
	Receipt         string // the id of its receipt, if it has one of its own
}

// Options are the dependencies of a Binder.
type Options struct {
	State      func() *State                              // the present one
	Unfit      func() map[switchboard.ToolID]health.State // see health.Monitor
	Atoms      AtomSource                                 // nil means that no atom is known
	Fit        func(switchboard.ToolID) bool              // see health.Monitor
	Record     RecordDecision
	Bound      func() // called after each decision; nil means that nothing is called
	ServerInfo []byte // which server answers, for modern clients
	Log        *slog.Logger
}

// A Binder binds runs by the present State. It implements run.Binder. Use New. It is safe for
// concurrent use.
type Binder struct {
	o        Options
	starting atomic.Pointer[startingServers]
	ties     tieLog
}

// startingServers are the servers that runs wait for.
type startingServers struct {
	servers  []switchboard.ServerID
	replaced chan struct{} // closed when a newer startingServers has replaced this one
}

// New returns a Binder. These servers are starting.
func New(o Options, starting []switchboard.ServerID) *Binder {
	b := &Binder{o: o}
	b.starting.Store(&startingServers{starting, make(chan struct{})})
	return b
}

// Resolve implements run.Binder.
func (b *Binder) Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return b.o.State().ResolveTask(p, task)
}

// Bind implements run.Binder. It does not wait for servers.
func (b *Binder) Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	st, asked := b.o.State(), task
	switch {
	case was.Declared != nil:
		task = was.Declared.ID
	case task == "" && len(was.Added) == 0:
		return st.unboundSurface(p, b.o.ServerInfo), nil
	}
	s, err := st.bindTask(ctx, p, task, was, b.Observe(was), b.o.Unfit(), b.o.ServerInfo, func(t *Tenant, d *decide.Decision, refused error) func() Record {
		if len(t.OwnServers(st.Starting)) == 0 { // otherwise another tool may still rank first
			b.ties.log(b.o.Log, d)
			b.ties.logFlows(b.o.Log, d)
		}
		if b.o.Atoms != nil {
			b.o.Atoms.Want(t.dueAtoms(d)...)
		}
		return b.o.Record(t, d, refused)
	})
	if b.o.Bound != nil {
		b.o.Bound()
	}
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeOverBudget && len(was.Added) > 0 {
		// What people have added must not stop a task that fits without it.
		b.o.Log.Warn("what people have added does not fit into the token budget, so it is left out", "tenant", p.Tenant, "principal", p.ID, "task", task, "err", err)
		was.Added = nil
		return b.Bind(ctx, p, asked, was)
	}
	if err != nil && !run.IsStarting(err) {
		b.o.Log.Warn("task not bound", "tenant", p.Tenant, "principal", p.ID, "task", task, "err", err)
	}
	return s, err
}

// Starting implements run.Binder.
func (b *Binder) Starting(id switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	w := b.starting.Load()
	t := b.o.State().Tenants[id]
	if len(w.servers) == 0 || t == nil {
		return nil, w.replaced
	}
	return t.OwnServers(w.servers), w.replaced
}

// Started says which servers are starting now, and wakes the runs that wait for others. Call it
// after all runs are bound again.
func (b *Binder) Started(starting []switchboard.ServerID) {
	close(b.starting.Swap(&startingServers{starting, make(chan struct{})}).replaced)
}

// Reconfigured makes the Binder log ties again that it has logged, because the configuration has
// changed.
func (b *Binder) Reconfigured() { b.ties.clear() }

// Lasts implements run.Binder.
func (b *Binder) Lasts(id switchboard.TenantID) bool {
	t := b.o.State().Tenants[id]
	return t == nil || !t.Rules.ReadsClock()
}

// Observe returns what a decision for a run that showed was reads of the world now; see UnfitTools and stateOfAtoms.
func (b *Binder) Observe(was run.Before) decide.Observed {
	return decide.Observed{Unfit: UnfitTools(b.o.Unfit(), was), Atoms: stateOfAtoms(b.o.State(), b.o.Atoms, was)}
}

// Lost returns the servers on the surface that cannot serve now; see LostServers.
func (b *Binder) Lost(s *surface.Surface) []switchboard.ServerID {
	return LostServers(b.o.Unfit(), b.o.Fit, s)
}

// Permit asks policy whether tools of groups may be found or expanded now. It is a
// lazyexpand.Permit.
func (b *Binder) Permit(ctx context.Context, p switchboard.Principal, phase string, entries []surface.Entry) []error {
	p, rules, err := b.o.State().CurrentPolicy(p)
	if err != nil {
		errs := make([]error, len(entries))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return PermitEntries(ctx, rules, phase, p, entries)
}

// CurrentPolicy returns the principal by the present configuration, and the policy that decides
// about its calls.
func (s *State) CurrentPolicy(p switchboard.Principal) (switchboard.Principal, *policy.Policy, error) {
	p, err := s.CurrentPrincipal(p)
	if err != nil {
		return p, nil, err
	}
	t, err := s.ServedTenant(p.Tenant)
	if err != nil {
		return p, nil, err
	}
	return p, t.Rules, nil
}
