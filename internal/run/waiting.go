package run

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Waiting is the reason why a run shows only our own tools for now: a requirement of its task is unmet, and servers
// that may meet it are starting, need a connection that a person makes, or have failed before they offered anything.
type Waiting struct {
	Task    switchboard.TaskID
	Servers []switchboard.ServerID // that are starting, sorted
	Unmet   *switchboard.Error     // the refusal if no server is starting
}

// Error implements error.
func (w *Waiting) Error() string { return w.refusal().Error() }

// Unwrap returns the refusal of a call that has waited long enough, or that does not wait.
func (w *Waiting) Unwrap() error { return w.refusal() }

func (w *Waiting) refusal() *switchboard.Error {
	if len(w.Servers) == 0 {
		return w.Unmet
	}
	names := make([]string, len(w.Servers))
	for i, id := range w.Servers {
		names[i] = string(id)
	}
	return &switchboard.Error{
		Code:       switchboard.CodeNoneHealthy,
		Text:       "task " + string(w.Task) + " waits for servers that are still starting: " + strings.Join(names, ", "),
		Hint:       "call again in a few seconds; " + "the list of tools changes when they have answered",
		RetryAfter: 5 * time.Second,
		Unsent:     true,
	}
}

// IsStarting reports whether err is, or wraps, a Waiting for servers that are starting.
func IsStarting(err error) bool {
	w, ok := errors.AsType[*Waiting](err)
	return ok && len(w.Servers) > 0
}

// isWaiting reports whether err is, or wraps, a Waiting.
func isWaiting(err error) bool {
	_, ok := errors.AsType[*Waiting](err)
	return ok
}

// waitsLong reports whether the run with this error waits, and no server is starting.
func waitsLong(err error) bool { return isWaiting(err) && !IsStarting(err) }

// ListPatience is how long the first lists of a run wait for servers that are starting. Some clients list once and
// never again. No known client times out within ListPatience.
const ListPatience = 8 * time.Second

// AwaitOffers is called before the run is listed. It waits until no server of the run's tenant is starting, or ctx is
// done. It stops waiting ListPatience after the run's first such wait began, and later lists do not wait.
func (g *Runs) AwaitOffers(ctx context.Context, r *Run) {
	defer r.listed.Store(true) // the caller lists next
	if starting, _ := g.binder.Starting(r.principal.Tenant); len(starting) == 0 {
		return
	}
	r.listDeadline.CompareAndSwap(0, time.Now().Add(ListPatience).UnixNano())
	ctx, cancel := context.WithDeadline(ctx, time.Unix(0, r.listDeadline.Load()))
	defer cancel()
	g.AwaitServers(ctx, r, func() bool { return false })
}

// NextOffers returns a channel that is closed after servers of g have answered, or the configuration has changed, and the runs are bound again.
func NextOffers(g *Runs, tenant switchboard.TenantID) <-chan struct{} {
	_, next := g.binder.Starting(tenant)
	return next
}

// AwaitServers waits until done returns true, no server of the run's tenant is starting, or ctx is done. It calls done
// whenever servers have answered and the run is bound again.
func (g *Runs) AwaitServers(ctx context.Context, r *Run, done func() bool) {
	for {
		starting, next := g.binder.Starting(r.principal.Tenant)
		if done() || len(starting) == 0 {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}
