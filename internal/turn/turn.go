// Package turn shares the processors between tenants: it decides which of a tenant's large calls is processed
// now.
//
// To judge and record a call with long parameters takes milliseconds of a processor. Without turns, a tenant
// that makes many of them at once delays the small calls of all tenants until all of them are done. With
// turns, the large calls of one tenant begin one after the other.
package turn

import (
	"context"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// Large is the length of parameters, in bytes, that makes a call wait for its turn.
	Large = 32 << 10
	// MaxTurn is the longest turn. A call that waits for something, or is still being processed then, continues
	// without a turn, so that it does not delay the next call.
	MaxTurn = 100 * time.Millisecond
	// Patience is how long a call waits for its turn before it is refused with SB-ROUT-003.
	Patience = 5 * time.Second
)

// Turns are the queues of all tenants. The zero value is ready for use. It is safe for concurrent use.
type Turns struct {
	tenants sync.Map // from switchboard.TenantID to chan struct{}, which is full during a turn
}

// Take returns a Caller that makes each large call in its tenant's turn.
func (t *Turns) Take(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if len(c.Params) < Large {
			return next.Call(ctx, c)
		}
		end, err := t.waitForTurn(ctx, c.Principal.Tenant)
		if err != nil {
			return switchboard.Result{}, err
		}
		defer end()
		return next.Call(context.WithValue(ctx, endTurnKey{}, end), c)
	})
}

// End returns a Caller that ends the turn of a call. Put it where the call is sent to its server, so that the
// tenant's next call does not wait for that server.
func End(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if len(c.Params) >= Large {
			if end, ok := ctx.Value(endTurnKey{}).(func()); ok {
				end()
			}
		}
		return next.Call(ctx, c)
	})
}

type endTurnKey struct{}

// waitForTurn waits for a turn and returns the function that ends it. That function may be called more than
// once.
func (t *Turns) waitForTurn(ctx context.Context, tenant switchboard.TenantID) (end func(), err error) {
	queue, ok := t.tenants.Load(tenant)
	if !ok {
		queue, _ = t.tenants.LoadOrStore(tenant, make(chan struct{}, 1))
	}
	turn := queue.(chan struct{})
	select {
	case turn <- struct{}{}:
	default:
		patience := time.NewTimer(Patience)
		defer patience.Stop()
		select {
		case turn <- struct{}{}:
		case <-patience.C:
			e := switchboard.Refuse(switchboard.CodeOverloaded, "too many large calls of your tenant are waiting for their turn; try again later, or send less at once")
			e.RetryAfter, e.Unsent = time.Second, true
			return nil, e
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	leave := sync.OnceFunc(func() { <-turn })
	timer := time.AfterFunc(MaxTurn, leave)
	return func() { timer.Stop(); leave() }, nil
}
