package verdict

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An AtomProber knows and probes atoms; see atom.Prober. It is safe for concurrent use.
type AtomProber interface {
	// StatesWithin returns the states of the atoms now. within is the freshness budget; 0 means none.
	StatesWithin(within time.Duration, ids ...string) map[string]capability.State

	// Due probes the atoms and waits for the results, for 5 s at most.
	Due(ctx context.Context, ids ...string)
}

// Admit refuses calls of the tools of a capability while one of its atoms is not well, with SB-CAP-007. An atom that is stale or
// unknown is probed first: the call waits for the result. registry returns the present registry.
func Admit(registry func() *capability.Registry, atoms AtomProber, next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Tool == nil || c.Tool.Contract.Capability == "" {
			return next.Call(ctx, c)
		}
		if err := admit(ctx, registry(), atoms, c.Tool.Contract.Capability); err != nil {
			return switchboard.Result{}, err
		}
		return next.Call(ctx, c)
	})
}

// admit returns nil if all atoms that the version, ID@VERSION, depends on are well.
func admit(ctx context.Context, r *capability.Registry, atoms AtomProber, version string) error {
	v := r.Version(version)
	if v == nil {
		return notNow(version, []string{version + " is not in the registry any more"})
	}
	needs := Needs(r, v)
	if len(needs.Lacking) > 0 {
		return notNow(version, needs.Lacking)
	}
	if len(needs.Atoms) == 0 {
		return nil
	}
	judge := func() (bad, due []string) {
		states := atoms.StatesWithin(needs.FreshFor, needs.Atoms...)
		for _, id := range needs.Atoms {
			switch states[id] {
			case capability.Fresh:
			case capability.Red:
				bad = append(bad, id+": red")
			case capability.Stale:
				due = append(due, id)
			default:
				if mustBeKnown(r.Atoms[id]) {
					due = append(due, id)
				}
			}
		}
		return bad, due
	}
	bad, due := judge()
	if len(bad) == 0 && len(due) > 0 {
		atoms.Due(ctx, due...)
		if bad, due = judge(); len(bad) == 0 {
			for _, id := range due {
				bad = append(bad, id+": no probe has said in time that it is well")
			}
		}
	}
	if len(bad) > 0 {
		return notNow(version, bad)
	}
	return nil
}

// notNow refuses a call of a tool of the version. Its text is short, because a model needs the list of reasons only to plan: the tool
// switchboard_status gives it.
func notNow(version string, why []string) error {
	e := switchboard.Refuse(switchboard.CodeNotNow, "%s may not be used now, because something that it depends on is not well; nothing was sent", version)
	e.Hint = "try again later; to see what is wrong, call switchboard_status with the capability " + version
	e.Unsent, e.Stage = true, StageName
	e.Cause = errors.New(strings.Join(why, "; "))
	return e
}
