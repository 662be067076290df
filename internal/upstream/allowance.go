package upstream

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The time of a call, where the server's configuration says nothing.
const (
	maxTimes    = 10 // the timeout, for a call that makes progress
	defaultMost = time.Hour
)

// A timeUp is why a call ends: a time is over that it had.
type timeUp struct {
	what   string
	d      time.Duration
	theirs bool // it was the server's own, and enough
}

func (e *timeUp) Error() string { return e.what + " of " + e.d.String() + " is over" }

// timesOf returns how long nothing may be heard of the call, and how long it may
// take in all.
func timesOf(c *switchboard.Call, cfg *switchboard.Server) (quiet, all timeUp) {
	quiet = timeUp{"its server's timeout", cmp.Or(cfg.Timeout, switchboard.DefaultTimeout), true}
	if c.Tool != nil && c.Tool.Contract.Timeout > 0 {
		quiet = timeUp{"its timeout", c.Tool.Contract.Timeout, !c.Tool.Contract.Hurried || c.Tool.Contract.Timeout >= quiet.d}
	}
	most := cmp.Or(cfg.MaxTimeout, min(maxTimes*quiet.d, defaultMost))
	all = timeUp{"its server's max_timeout", max(most, quiet.d), true}
	if t := c.Obligations.Timeout; t > 0 && t < all.d {
		all = timeUp{"the time limit that policy sets", t, false}
	}
	return quiet, all
}

// An allowance is how long a call may take, and its place at the server. The time
// stands still, and the place is free for others, while somebody is being asked.
type allowance struct {
	cancel context.CancelCauseFunc
	gate   *gate
	caller caller
	quiet  timeUp // begins anew with each sign of life
	all    timeUp // does not

	mu    sync.Mutex
	timer *time.Timer
	lull  time.Duration // of quiet, that was left at the time of since
	left  time.Duration // of all
	since time.Time
	asked int       // how many questions there are
	told  time.Time // since when the client is being told something; zero while it is not
	holds bool      // a place
	over  bool      // and takes none again
}

// errUntaken is why a call ends whose client does not take what it is told.
var errUntaken = errors.New("the client does not take what it is told of the call")

// newAllowance bounds a call of c, which has a place within g.
func newAllowance(ctx context.Context, quiet, all timeUp, g *gate, c caller) (context.Context, *allowance) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &allowance{cancel: cancel, gate: g, caller: c, quiet: quiet, all: all, lull: quiet.d, left: all.d, since: time.Now()}
	a.timer = time.AfterFunc(min(a.lull, a.left), a.check)
	return ctx, a
}

// check ends the call if a time of its is over.
func (a *allowance) check() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count()
	switch due := min(a.lull, a.left); {
	case a.asked > 0:
	case due > 0: // there were signs of life
		a.timer.Reset(due)
	case a.left <= 0:
		a.cancel(&a.all)
	case !a.told.IsZero() && time.Since(a.told) >= a.quiet.d/2: // and not one of many things, told by a server that talks without end
		a.cancel(errUntaken)
	default:
		a.cancel(&a.quiet)
	}
}

// count takes off the time that has passed. The caller holds a.mu.
func (a *allowance) count() {
	now := time.Now()
	if a.asked == 0 {
		passed := now.Sub(a.since)
		a.lull -= passed
		a.left -= passed
	}
	a.since = now
}

// alive notes a sign of life.
func (a *allowance) alive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count()
	a.lull = a.quiet.d
}

// tell notes that the client begins to be told something, or was told. That is one
// thing at a time.
func (a *allowance) tell(begins bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = time.Time{}
	if begins {
		a.told = time.Now()
	}
}

// enter notes that the call has its place.
func (a *allowance) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holds = true
}

// free gives the place back for good.
func (a *allowance) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.leave()
}

// leave gives the place back. The caller holds a.mu.
func (a *allowance) leave() {
	if a.holds {
		a.holds = false
		a.gate.leave(a.caller)
	}
}

// end lets go of the call's context and its place.
func (a *allowance) end() {
	a.timer.Stop()
	a.cancel(nil)
	a.free()
}

// pause stops the clock until the function that it returns is called.
func (a *allowance) pause() (resume func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == 0 {
		a.timer.Stop()
		a.count()
		a.leave()
	}
	a.asked++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asked--; a.asked > 0 {
			return
		}
		a.since = time.Now()
		if !a.over {
			a.timer.Reset(max(min(a.lull, a.left), 0))
			a.holds = true
			a.gate.back(a.caller)
		}
	})
}
