package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Rebind binds every run again, and notifies the watchers of each run that shows another list. If the task of a run
// can no longer be met, the run shows nothing, and Err returns the reason, until a later Rebind can meet it.
func (g *Runs) Rebind(ctx context.Context) {
	g.rebindLock.Lock()
	defer g.rebindLock.Unlock()
	rebinding{registry: g}.bindAll(ctx, g.beginGeneration())
}

// Reconfigure is Runs.Rebind after the configuration has changed. The runs of a tenant that has changed may return to servers that
// they have given up: what serves them now is what the tenant's new configuration prefers.
func Reconfigure(ctx context.Context, g *Runs, changed func(switchboard.TenantID) bool) {
	g.rebindLock.Lock()
	defer g.rebindLock.Unlock()
	rebinding{registry: g, anew: changed}.bindAll(ctx, g.beginGeneration())
}

// beginGeneration starts a new generation, so that every later bind decides anew, and returns all runs.
func (g *Runs) beginGeneration() []*Run {
	g.mu.Lock()
	g.generation++
	clear(g.freshSurfaces)
	g.mu.Unlock()
	return g.All()
}

// ReplaceServers binds runs again that show lost servers. lost returns the lost servers of a surface. Other servers replace
// them if possible, and the run stays with those. It also binds runs again that wait long, since another reason may hold
// now. It notifies the watchers as Rebind does.
func (g *Runs) ReplaceServers(ctx context.Context, lost func(*surface.Surface) []switchboard.ServerID) {
	g.rebindLock.Lock()
	defer g.rebindLock.Unlock()
	rebinding{registry: g, abandon: lost, pick: keepUnchanged}.bindAll(ctx, g.beginGeneration())
}

// A rebinding binds runs again. The zero options bind all of them.
type rebinding struct {
	registry *Runs

	skip    func(*Run) bool                               // reports whether the run needs no bind; called with the run's lock held
	abandon func(*surface.Surface) []switchboard.ServerID // returns the servers that the run gives up; without any the run stays as it is, unless it waits long
	pick    func(was, now view) view                      // returns the view to show
	anew    func(switchboard.TenantID) bool               // reports whether the tenant's runs may return to servers that they have given up
}

// judgeAgain is the pause between two binds of a run that waits long, or lacks tools that policy could not judge. A policy
// that fails each time costs one bind in that time.
const judgeAgain = time.Second

// Refresh binds those runs again that may show another list although nothing else has changed: their tenant's policy
// reads the clock, or could not be evaluated at the last bind, or they wait long. It notifies the watchers as Rebind
// does. It is cheap for all other runs.
func (g *Runs) Refresh(ctx context.Context, runs ...*Run) {
	now := time.Now()
	rebinding{registry: g, skip: func(r *Run) bool {
		err, _ := errors.AsType[*switchboard.Error](r.Err())
		failed := err != nil && err.Code == switchboard.CodePolicyFailed ||
			(r.PeekSurface().HasUnjudged() || waitsLong(r.Err())) && now.Sub(r.binding.at) > judgeAgain
		return !failed && !r.AdditionEnded(now) && g.binder.Lasts(r.principal.Tenant) ||
			r.binding.at.After(now) // a concurrent Refresh has bound it
	}, pick: keepUnchanged}.bindAll(ctx, runs)
}

// keepUnchanged returns the old view if the new one shows the same, because other runs share the old surface and its
// lists are finished.
func keepUnchanged(was, now view) view {
	if was.err == nil && now.err == nil && sameTools(was.surface, now.surface) {
		was.added = now.added
		return was
	}
	return now
}

// sameTools reports whether both surfaces show the same things, each selected for the same reason.
func sameTools(a, b *surface.Surface) bool {
	why := func(i, j *switchboard.Judgment) bool { return i.Requirement == j.Requirement }
	where := func(i, j switchboard.Equivalent) bool {
		return i.Tool == j.Tool && slices.EqualFunc(i.Judgments, j.Judgments, why)
	}
	return a.Differs(b, false)|a.Differs(b, true) == 0 && a.SameMissing(b) && slices.EqualFunc(a.Entries(), b.Entries(), func(x, y surface.Entry) bool {
		return x.Tool.Key() == y.Tool.Key() && slices.EqualFunc(x.Judgments, y.Judgments, why) && slices.EqualFunc(x.Equivalents, y.Equivalents, where)
	})
}

// bindAll binds runs again. If ctx ends first, the remaining runs stay as they are. Tenants do not wait for each
// other: a slow policy delays only its own tenant.
func (b rebinding) bindAll(ctx context.Context, runs []*Run) {
	of := map[switchboard.TenantID][]*Run{}
	for _, r := range runs {
		of[r.principal.Tenant] = append(of[r.principal.Tenant], r)
	}
	var work sync.WaitGroup
	defer work.Wait()
	for _, runs := range of {
		all := func() { b.bindTenant(ctx, runs) }
		if len(of) == 1 {
			all()
			return
		}
		work.Go(all)
	}
}

// bindTenant binds runs of one tenant again.
func (b rebinding) bindTenant(ctx context.Context, runs []*Run) {
	g := b.registry
	// Runs that shared a surface for the same principal share the next one, too.
	type from struct {
		key      taskKey
		prev     *surface.Surface
		left     string
		declared *switchboard.Task
		added    string
	}
	done := map[from]view{}
	one := func(r *Run) {
		select {
		case r.binding.lock <- struct{}{}:
			defer func() { <-r.binding.lock }()
		case <-ctx.Done():
			return
		}
		began, was := time.Now(), *r.view.Load()
		left := was.abandoned
		if b.abandon != nil {
			lost := b.abandon(was.surface)
			if len(lost) == 0 && !waitsLong(was.err) {
				return
			}
			left = slices.Compact(slices.Sorted(slices.Values(slices.Concat(left, lost))))
		}
		if b.skip != nil && b.skip(r) {
			return
		}
		added := g.additions.to(ctx, r.principal, r.Task(), r.id)
		f := from{taskKey{principalKeyOf(r.principal), r.task}, was.lastBound, fmt.Sprint(left), was.declared, requestsOf(added)}
		s, ok := done[f]
		if !ok {
			before := Before{was.lastBound, left, was.declared, added}
			anew := b.anew != nil && b.anew(r.principal.Tenant)
			if anew {
				before.Abandoned = nil
			}
			if s = g.decideView(ctx, r, before); ctx.Err() != nil {
				return
			}
			if anew {
				s.abandoned = notShown(left, s.surface)
			}
			if b.pick != nil {
				s = b.pick(was, s)
			}
			done[f] = s
		}
		r.showView(s)
		r.binding.at = began
		if g.records.differsFromSaved(r, &s) {
			if err := g.records.saveView(ctx, r, &s); errors.Is(err, store.ErrConflict) {
				_ = g.syncWithStore(ctx, r) // if it fails, the next Sweep tries again
			}
		}
	}
	for _, r := range runs {
		one(r)
	}
}
