package run

import (
	"context"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Additions returns what people have added to a run of p, sorted by request. id is "" for a base run.
type Additions func(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, id switchboard.RunID) []switchboard.Addition

// A freshKey says which new runs share a surface: those of one task with the same additions.
type freshKey struct {
	taskKey
	added string
}

// UseAdditions makes g ask f for what people have added to runs. Call it before any run is bound.
func UseAdditions(g *Runs, f Additions) { g.additions = f }

// to returns the additions; none if f is nil.
func (f Additions) to(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, id switchboard.RunID) []switchboard.Addition {
	if f == nil {
		return nil
	}
	return f(ctx, p, task, id)
}

// requestsOf returns the requests that the additions come from, as one text.
func requestsOf(added []switchboard.Addition) string {
	var b strings.Builder
	for i := range added {
		b.WriteString(added[i].Request + " ")
	}
	return b.String()
}

// taskOr returns the declared task, or else the given one.
func (b *Before) taskOr(task switchboard.TaskID) switchboard.TaskID {
	if b.Declared != nil {
		return b.Declared.ID
	}
	return task
}

// AdditionEnded reports whether r still shows what a person has added until a time before now. Refresh removes it.
func (r *Run) AdditionEnded(now time.Time) bool {
	for _, a := range r.view.Load().added {
		if !now.Before(a.Until) {
			return true
		}
	}
	return false
}

// RebindOf binds the runs of one principal again, as Rebind does, because what people have added to them has changed.
func RebindOf(ctx context.Context, g *Runs, tenant switchboard.TenantID, principal string) {
	g.rebindLock.Lock()
	defer g.rebindLock.Unlock()
	var runs []*Run
	for _, r := range g.beginGeneration() {
		if r.principal.Tenant == tenant && r.principal.ID == principal {
			runs = append(runs, r)
		}
	}
	rebinding{registry: g, pick: keepUnchanged}.bindAll(ctx, runs)
}
