// Package constraint enforces the constraints that ask for it, around calls: a
// tool that is human_in_the_loop is not called without a granted approval, and
// one that is rate_limited not more often than its tenant allows.
//
// The constraint counts whichever source states it: see Tool.Demands.
package constraint

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Approve returns a Caller that refuses every call of a human_in_the_loop tool,
// and every one that policy obliges to have an approval, with SB-APPR-001: there is
// nobody yet who could grant an approval.
func Approve(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Tool.Demands(switchboard.HumanInTheLoop) || c.Obligations.Approval != nil {
			return switchboard.Result{}, &switchboard.Error{
				Code:   switchboard.CodeApprovalPending,
				Text:   "this tool needs a person's approval for each call, and this Switchboard has no way to ask for one yet",
				Hint:   "do this step another way, or ask the person whom you work for to do it",
				Unsent: true,
			}
		}
		return next.Call(ctx, c)
	})
}

// DefaultLimit bounds calls of rate_limited tools where the tenant sets none.
var DefaultLimit = switchboard.Limit{Constraint: switchboard.RateLimited, Every: time.Second, Burst: 10}

// byPolicy stands for the limit that policy sets, among those of constraints. It
// cannot be the name of one.
const byPolicy switchboard.Constraint = "(policy)"

// A Store is where calls are counted: for all processes that share it.
type Store interface {
	Take(ctx context.Context, group string, want store.Want, limits ...store.Limit) (got int, wait time.Duration, err error)
}

// A Limiter counts calls, by tenant and tool. Use NewLimiter. It is safe for
// concurrent use.
type Limiter struct {
	counter  batchedCounter
	limits func(switchboard.TenantID) []switchboard.Limit
}

// NewLimiter returns a Limiter that counts in s, and asks limits for a tenant's
// limits at every call, so that a reload takes effect at once. What has been
// counted stays: where a limit has changed, the time until it is whole again
// does, but is never more than that of the new limit. What was taken ahead under
// another limit is spent under that one only.
func NewLimiter(s Store, limits func(switchboard.TenantID) []switchboard.Limit) *Limiter {
	return &Limiter{batchedCounter{store: s, queues: map[string]*limitQueue{}}, limits}
}

// Limit returns a Caller that refuses a call with SB-ROUT-002 where the tool
// carries a constraint whose limit is used up, and with SB-ROUT-004 where that
// cannot be told. A refused call counts nothing. One that no limit applies to
// does not ask the store.
func (l *Limiter) Limit(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if err := l.takePermit(ctx, c); err != nil {
			return switchboard.Result{}, err
		}
		return next.Call(ctx, c)
	})
}

// takePermit counts one call against every limit that applies; or against none of
// them, and says why.
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
		return switchboard.Unavailable("whether this tool may be called again now cannot be told, so the call was not made", err)
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

// limitedSubject is what the calls of a limit have in common: a tool, or all that a server offers of one kind.
func limitedSubject(c *switchboard.Call) string {
	if c.Tool == nil {
		return string(c.Server) + "/" + string(c.Item.Kind) + ":"
	}
	return c.Tool.ID.String()
}

// applicableLimits returns the limits that the call meets, each by the name of what sets it.
func (l *Limiter) applicableLimits(c *switchboard.Call) (limits []store.Limit) {
	add := func(by switchboard.Constraint, every time.Duration, burst int) {
		limits = append(limits, store.Limit{Name: string(by), Every: every, Burst: max(burst, 1)})
	}
	own := false // whether the tenant says how often rate_limited tools may be called
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
