// Package constraint enforces the constraints that ask for it, around calls: a
// tool that is human_in_the_loop is not called without a granted approval, and
// one that is rate_limited not more often than its tenant allows.
//
// The constraint counts whichever source states it: see Tool.Demands.
package constraint

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Approve returns a Caller that refuses every call of a human_in_the_loop tool,
// and every one that policy obliges to have an approval, with SB-APPR-001: there is nobody yet who could grant an approval.
func Approve(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Tool.Demands(switchboard.HumanInTheLoop) || c.Obligations.Approval != nil {
			return switchboard.Result{}, &switchboard.Error{
				Code: switchboard.CodeApprovalPending,
				Text: "this tool needs a person's approval for each call, and this Switchboard has no way to ask for one yet",
				Hint: "do this step another way, or ask the person whom you work for to do it",
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

// maxMeters bounds the memory of a Limiter. Past it, meters that are full are
// let go: a new one would be full too.
const maxMeters = 1 << 16

// A Limiter counts calls, by tenant and tool, in this process. Use NewLimiter.
// It is safe for concurrent use.
type Limiter struct {
	limits func(switchboard.TenantID) []switchboard.Limit

	mu     sync.RWMutex // guards the map; each meter has its own lock
	meters map[meterKey]*meter
}

type meterKey struct {
	tenant switchboard.TenantID
	tool   switchboard.ToolID
}

// A meter holds one bucket for each limit that applies to a tool.
type meter struct {
	mu      sync.Mutex
	buckets map[switchboard.Constraint]*rate.Limiter
}

// NewLimiter returns a Limiter that asks limits for a tenant's limits at every
// call, so that a reload takes effect at once. What has been counted stays.
func NewLimiter(limits func(switchboard.TenantID) []switchboard.Limit) *Limiter {
	return &Limiter{limits: limits, meters: map[meterKey]*meter{}}
}

// Limit returns a Caller that refuses a call with SB-ROUT-002 where the tool
// carries a constraint whose limit is used up. A refused call counts nothing.
func (l *Limiter) Limit(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if wait := l.take(c, time.Now()); wait > 0 {
			wait = wait.Truncate(time.Second) + time.Second
			return switchboard.Result{}, &switchboard.Error{
				Code:       switchboard.CodeRateLimit,
				Text:       "this tool has been called as often as its limit allows; try again in " + wait.String(),
				RetryAfter: wait,
			}
		}
		return next.Call(ctx, c)
	})
}

// take counts one call at now against every limit that applies; or against
// none of them, and says how long to wait.
func (l *Limiter) take(c *switchboard.Call, now time.Time) (wait time.Duration) {
	limits := l.apply(c)
	if len(limits) == 0 {
		return 0
	}
	m := l.meter(meterKey{c.Principal.Tenant, c.Tool.ID}, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, limit := range limits {
		if short := 1 - m.bucket(limit, now).TokensAt(now); short > 0 {
			wait = max(wait, time.Duration(short*float64(limit.Every)))
		}
	}
	if wait > 0 {
		return wait
	}
	for _, limit := range limits {
		m.bucket(limit, now).AllowN(now, 1)
	}
	return 0
}

// apply returns the limits that the call meets.
func (l *Limiter) apply(c *switchboard.Call) (limits []switchboard.Limit) {
	own := false // whether the tenant says how often rate_limited tools may be called
	for _, limit := range l.limits(c.Principal.Tenant) {
		own = own || limit.Constraint == switchboard.RateLimited
		if c.Tool.Demands(limit.Constraint) {
			limits = append(limits, limit)
		}
	}
	if !own && c.Tool.Demands(switchboard.RateLimited) {
		limits = append(limits, DefaultLimit)
	}
	if r := c.Obligations.Rate; r.Every > 0 {
		limits = append(limits, switchboard.Limit{Constraint: byPolicy, Every: r.Every, Burst: max(r.Burst, 1)})
	}
	return limits
}

func (l *Limiter) meter(key meterKey, now time.Time) *meter {
	l.mu.RLock()
	m := l.meters[key]
	l.mu.RUnlock()
	if m != nil {
		return m
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.meters[key]; m != nil {
		return m
	}
	if len(l.meters) >= maxMeters {
		for k, m := range l.meters {
			if m.full(now) {
				delete(l.meters, k)
			}
		}
	}
	m = &meter{buckets: map[switchboard.Constraint]*rate.Limiter{}}
	l.meters[key] = m
	return m
}

// bucket returns the bucket of the limit, as a reload may have changed it. The
// caller holds m.mu.
func (m *meter) bucket(limit switchboard.Limit, now time.Time) *rate.Limiter {
	every := rate.Every(limit.Every)
	b := m.buckets[limit.Constraint]
	switch {
	case b == nil:
		b = rate.NewLimiter(every, limit.Burst)
		m.buckets[limit.Constraint] = b
	case b.Limit() != every || b.Burst() != limit.Burst:
		b.SetLimitAt(now, every)
		b.SetBurstAt(now, limit.Burst)
	}
	return b
}

func (m *meter) full(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.buckets {
		if b.TokensAt(now) < float64(b.Burst()) {
			return false
		}
	}
	return true
}
