package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A request of largeRequest bytes or more is worked on only in its tenant's turn. To parse, judge and record such a request takes milliseconds of a
// processor. Without turns, a tenant that sends many of them at once delays the small requests of all tenants until all of them are done.
const (
	largeRequest = 64 << 10
	// turnTime is the longest turn. A request that waits for something, such as a server that starts, does not delay the tenant's others for longer.
	turnTime = 100 * time.Millisecond
)

// turns is a tenant's queue for its large requests: one of them is worked on at a time. The zero value is ready for use. It is safe for
// concurrent use.
type turns struct {
	mu    sync.Mutex
	place chan struct{}
}

// take waits for a turn, and returns the function that ends it. That may be called more than once. The error is that of ctx.
func (t *turns) take(ctx context.Context) (end func(), err error) {
	t.mu.Lock()
	if t.place == nil {
		t.place = make(chan struct{}, 1)
	}
	place := t.place
	t.mu.Unlock()
	select {
	case place <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-place })
	timer := time.AfterFunc(turnTime, leave)
	return func() { timer.Stop(); leave() }, nil
}

type turnKey struct{}

// EndTurn ends the turn of a large request before the call is sent to its server, so that the tenant's next request need not wait for the server.
func EndTurn(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if len(c.Params) >= largeRequest/2 { // smaller calls are not asked, which saves time; if one has a turn, turnTime ends it
			if end, ok := ctx.Value(turnKey{}).(func()); ok {
				end()
			}
		}
		return next.Call(ctx, c)
	})
}
