package approval

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Scopes of a yes to a capability.
const (
	ScopeRun  = "run"  // the run that asked
	ScopeTask = "task" // all runs of the principal with the task that asked
)

// How long a yes to a capability is good.
const (
	DefaultFor = 8 * time.Hour
	MaxFor     = 30 * 24 * time.Hour
)

// complete returns the grant of a yes that is given now: with the scope and the end that are meant if none are said. The error is a *switchboard.Error.
func (g Grant) complete(now time.Time) (Grant, error) {
	if g.Scope == "" {
		g.Scope = ScopeRun
	}
	if g.Until.IsZero() {
		g.Until = now.Add(DefaultFor)
	}
	g.Until = g.Until.UTC()
	switch {
	case g.Scope != ScopeRun && g.Scope != ScopeTask:
		return g, switchboard.Refuse(switchboard.CodeBadArguments, "the scope of a yes is %s or %s", ScopeRun, ScopeTask)
	case !g.Until.After(now):
		return g, switchboard.Refuse(switchboard.CodeBadArguments, "the yes would end before it is given")
	case g.Until.After(now.Add(MaxFor + time.Minute)): // the caller's clock may be a little ahead
		return g, switchboard.Refuse(switchboard.CodeBadArguments, "a yes to a capability is good for %d days at most", MaxFor/(24*time.Hour))
	}
	return g, nil
}

// Counts reports whether the yes to a capability still counts: the persons who said it may still decide.
func Counts(ctx context.Context, k *Keeper, r *Request) bool {
	tenant := r.Asker.Tenant
	for i := range r.Votes {
		v := &r.Votes[i]
		if !v.Yes {
			continue
		}
		by, err := k.o.Officer(tenant, v)
		if err != nil || MayDecide(&by, r, k.o.Rules(tenant)) != nil {
			return false
		}
		if k.o.Veto != nil && k.o.Veto(ctx, &by, r, nil, nil) != nil {
			return false
		}
	}
	return true
}
