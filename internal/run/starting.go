package run

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Starting is why a run shows only our own tools for now: a requirement of its task is
// unmet, and servers that may meet it have not answered since they were started.
type Starting struct {
	Task    switchboard.TaskID
	Servers []switchboard.ServerID // never empty, sorted
}

// Error implements error.
func (s *Starting) Error() string { return s.refusal().Error() }

// Unwrap returns what a call is refused with that has waited long enough.
func (s *Starting) Unwrap() error { return s.refusal() }

func (s *Starting) refusal() *switchboard.Error {
	names := make([]string, len(s.Servers))
	for i, id := range s.Servers {
		names[i] = string(id)
	}
	return &switchboard.Error{
		Code:       switchboard.CodeNoneHealthy,
		Text:       "task " + string(s.Task) + " waits for servers that are still starting: " + strings.Join(names, ", "),
		Hint:       "call again in a few seconds; " + "the list of tools changes when they have answered",
		RetryAfter: 5 * time.Second,
		Unsent:     true,
	}
}

// isStarting reports whether err is, or wraps, a Starting.
func isStarting(err error) bool {
	_, ok := errors.AsType[*Starting](err)
	return ok
}

// ListPatience is how long the first lists of a run wait for servers that are starting.
// Some clients list once and never again, and no client that is known gives up as soon.
const ListPatience = 8 * time.Second

// AwaitOffers waits until the servers of the run's tenant have answered since they were
// started, or ListPatience is over since it was first called for the run while they had
// not, or ctx is done.
func (g *Registry) AwaitOffers(ctx context.Context, r *Run) {
	starting, next := g.binder.Starting(r.principal.Tenant)
	if len(starting) == 0 {
		return
	}
	r.patience.CompareAndSwap(0, time.Now().Add(ListPatience).UnixNano())
	ctx, cancel := context.WithDeadline(ctx, time.Unix(0, r.patience.Load()))
	defer cancel()
	for len(starting) > 0 {
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
		starting, next = g.binder.Starting(r.principal.Tenant)
	}
}

// Await waits until done, as long as servers of the run's tenant have not answered since
// they were started, or ctx is done. What the run shows only changes in between.
func (g *Registry) Await(ctx context.Context, r *Run, done func() bool) {
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
