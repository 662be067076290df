package bind

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// An AtomSource knows the states of atoms; see atom.Prober. It is safe for concurrent use.
type AtomSource interface {
	// StatesWithin returns the states of the atoms now. within is a freshness budget; 0 means none.
	StatesWithin(within time.Duration, ids ...string) map[string]capability.State

	// Due probes the atoms and waits for the results, for 5 s at most.
	Due(ctx context.Context, ids ...string)

	// Want begins to probe the atoms that are due, and does not wait.
	Want(ids ...string)
}

// stateOfAtoms returns the states of all atoms of the registry, for a run that showed was. The tools of a capability that the run
// shows stay on its list while an atom is red, so that the list does not flap: the red atoms of such a capability are left out,
// and its calls are refused.
func stateOfAtoms(s *State, source AtomSource, was run.Before) decide.Atoms {
	registry := s.Config.Registry
	if source == nil || len(registry.Atoms) == 0 {
		return nil
	}
	atoms := decide.Atoms(source.StatesWithin(0, slices.Sorted(maps.Keys(registry.Atoms))...))
	if was.Surface == nil {
		return atoms
	}
	shown := map[string]bool{}
	for _, e := range was.Surface.Entries() {
		if e.Tool.Provides != nil {
			shown[e.Tool.Provides.Capability] = true
		}
	}
	for name := range shown {
		if v := registry.Version(name); v != nil {
			maps.DeleteFunc(atoms, func(id string, state capability.State) bool {
				return state == capability.Red && slices.Contains(verdict.Needs(registry, v).Atoms, id)
			})
		}
	}
	return atoms
}

// ownAtoms returns the states of the atoms that the task's capabilities depend on, or nil if there are none.
func (t *Tenant) ownAtoms(task *switchboard.Task, atoms decide.Atoms) decide.Atoms {
	var own decide.Atoms
	for _, id := range t.atomsOf(task) {
		if state, known := atoms[id]; known {
			if own == nil {
				own = decide.Atoms{}
			}
			own[id] = state
		}
	}
	return own
}

// dueAtoms returns the ids of the atoms that a probe should look at before the tools of the decision are called.
func (t *Tenant) dueAtoms(d *decide.Decision) []string {
	return slices.DeleteFunc(t.atomsOf(d.Task), func(id string) bool { return d.Atoms[id] == capability.Fresh || d.Atoms[id] == capability.Red })
}

// atomsOf returns the ids of the atoms that the task's capabilities depend on.
func (t *Tenant) atomsOf(task *switchboard.Task) (ids []string) {
	for i := range task.Requirements {
		ref, err := capability.ParseRef(task.Requirements[i].Capability)
		if err != nil {
			continue
		}
		if v := t.Providers.Version(ref); v != nil {
			ids = append(ids, verdict.Needs(t.Providers.Registry(), v).Atoms...)
		}
	}
	return ids
}
