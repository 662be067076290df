// Package constraint enforces the constraint rate_limited around calls: a tool is not called more often than its tenant allows.
//
// A constraint counts from any source. See Tool.Demands.
package constraint

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// DefaultLimit limits calls of rate_limited tools if the tenant sets no limit.
var DefaultLimit = switchboard.Limit{Constraint: switchboard.RateLimited, Every: time.Second, Burst: 10}

// byPolicy names the limit that policy sets, among the names of constraints. No constraint has this name.
const byPolicy switchboard.Constraint = "(policy)"

// A Store counts calls for all replicas that share it. See store.Store.
type Store interface {
	Take(ctx context.Context, group string, want store.Want, limits ...store.Limit) (got int, wait time.Duration, err error)
}

// A Limiter counts calls by tenant and tool. Use NewLimiter. It is safe for concurrent use.
type Limiter struct {
	counter batchedCounter
	limits  func(switchboard.TenantID) []switchboard.Limit
}

// NewLimiter returns a Limiter that counts in s. It asks limits for a tenant's limits at each call, so a
// reload takes effect at once. Calls that were counted before a limit changed still count. The time until a
// limit is fully available again is never longer than the new limit needs. Permits that were taken ahead
// under one limit are used under that limit only.
func NewLimiter(s Store, limits func(switchboard.TenantID) []switchboard.Limit) *Limiter {
	return &Limiter{batchedCounter{store: s, queues: map[string]*limitQueue{}}, limits}
}

// Limit returns a Caller that refuses a call with SB-ROUT-002 if a limit of the tool is used up, and with
// SB-ROUT-004 if the store cannot say whether it is. A refused call uses no permit. A call without a limit
// does not use the store.
func (l *Limiter) Limit(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if err := l.takePermit(ctx, c); err != nil {
			return switchboard.Result{}, err
		}
		return next.Call(ctx, c)
	})
}

// takePermit takes one permit of each limit that applies, or of none of them and returns the refusal.
func (l *Limiter) takePermit(ctx context.Context, c *switchboard.Call) error {
	limits := l.applicableLimits(c)
	if len(limits) == 0 {
		return nil
	}
	wait, err := l.counter.countCall(ctx, "limit/"+string(c.Principal.Tenant)+"/"+limitedSubject(c), limits)
	switch {
	case ctx.Err() != nil:
		return &switchboard.Error{
			Code:   switchboard.CodeNotExecuted,
			Text:   "the call was cancelled before it could be sent, so it was not executed",
			Unsent: true,
			Cause:  errors.Join(context.Cause(ctx), err),
		}
	case err != nil:
		return switchboard.Unavailable("the store cannot say whether this tool may be called again now, so the call was not made", err)
	case wait > 0:
		wait = wait.Truncate(time.Second) + time.Second
		return &switchboard.Error{
			Code:       switchboard.CodeRateLimit,
			Text:       "this tool has been called as often as its limit allows; try again in " + wait.String(),
			RetryAfter: wait,
			Unsent:     true,
		}
	}
	return nil
}

// limitedSubject names the tool that has the limit, or all items of one kind that a server offers.
func limitedSubject(c *switchboard.Call) string {
	if c.Tool == nil {
		return string(c.Server) + "/" + string(c.Item.Kind) + ":"
	}
	return c.Tool.ID.String()
}

// applicableLimits returns the limits of the call. A limit has the name of the constraint, or of byPolicy.
func (l *Limiter) applicableLimits(c *switchboard.Call) (limits []store.Limit) {
	add := func(by switchboard.Constraint, every time.Duration, burst int) {
		limits = append(limits, store.Limit{Name: string(by), Every: every, Burst: max(burst, 1)})
	}
	own := false // whether the tenant sets a limit for rate_limited tools
	for _, limit := range l.limits(c.Principal.Tenant) {
		own = own || limit.Constraint == switchboard.RateLimited
		if c.Tool.Demands(limit.Constraint) {
			add(limit.Constraint, limit.Every, limit.Burst)
		}
	}
	if !own && c.Tool.Demands(switchboard.RateLimited) {
		add(switchboard.RateLimited, DefaultLimit.Every, DefaultLimit.Burst)
	}
	if r := c.Obligations.Rate; r.Every > 0 {
		add(byPolicy, r.Every, r.Burst)
	}
	return limits
}
