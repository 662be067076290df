package upstream

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The default times of a call.
const (
	progressFactor = 10 // a call that makes progress gets that many timeouts
	defaultMaxTime = time.Hour
)

// A timeLimit is a limit on the time of a call, and the error when it has passed.
type timeLimit struct {
	name         string
	limit        time.Duration
	blamesServer bool // when it passes, the server was too slow
}

func (e *timeLimit) Error() string { return e.name + " of " + e.limit.String() + " is over" }

// limitsOf returns how long the call may be silent, and how long it may take in all.
func limitsOf(c *switchboard.Call, cfg *switchboard.Server) (quiet, all timeLimit) {
	quiet = timeLimit{"its server's timeout", cmp.Or(cfg.Timeout, switchboard.DefaultTimeout), true}
	if c.Tool != nil && c.Tool.Contract.Timeout > 0 {
		quiet = timeLimit{"its timeout", c.Tool.Contract.Timeout, !c.Tool.Contract.Hurried || c.Tool.Contract.Timeout >= quiet.limit}
	}
	most := cmp.Or(cfg.MaxTimeout, min(progressFactor*quiet.limit, defaultMaxTime))
	all = timeLimit{"its server's max_timeout", max(most, quiet.limit), true}
	if t := c.Obligations.Timeout; t > 0 && t < all.limit {
		all = timeLimit{"the time limit that policy sets", t, false}
	}
	return quiet, all
}

// A callAllowance is the time that one call may take, and its slot at the server. While the client
// is being asked, the time stops, and the slot is free for other calls.
type callAllowance struct {
	cancel  context.CancelCauseFunc
	gate    *callGate
	caller  callerKey
	silence timeLimit // starts again with each sign of life
	total   timeLimit // never starts again

	mu             sync.Mutex
	timer          *time.Timer
	silenceLeft    time.Duration // left of silence at countedAt
	totalLeft      time.Duration // left of total at countedAt
	countedAt      time.Time
	openQuestions  int       // number of questions that the client is being asked
	notifyingSince time.Time // when the running notification of the client began; zero while none runs
	hasSlot        bool
	ended          bool // the call takes no slot any more
}

// errNotTaken ends a call if its client does not take the notifications.
var errNotTaken = errors.New("the client does not read the notifications of the call")

// newAllowance limits the time of a call of c that counts in g.
func newAllowance(ctx context.Context, quiet, all timeLimit, g *callGate, c callerKey) (context.Context, *callAllowance) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &callAllowance{cancel: cancel, gate: g, caller: c, silence: quiet, total: all, silenceLeft: quiet.limit, totalLeft: all.limit, countedAt: time.Now()}
	a.timer = time.AfterFunc(min(a.silenceLeft, a.totalLeft), a.checkExpiry)
	return ctx, a
}

// checkExpiry ends the call if one of its times has passed.
func (a *callAllowance) checkExpiry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.countDown()
	switch due := min(a.silenceLeft, a.totalLeft); {
	case a.openQuestions > 0:
	case due > 0: // there were signs of life
		a.timer.Reset(due)
	case a.totalLeft <= 0:
		a.cancel(&a.total)
	case !a.notifyingSince.IsZero() && time.Since(a.notifyingSince) >= a.silence.limit/2: // one notification blocks; a server that sends many without end does not count
		a.cancel(errNotTaken)
	default:
		a.cancel(&a.silence)
	}
}

// countDown subtracts the time since countedAt. The caller holds a.mu.
func (a *callAllowance) countDown() {
	now := time.Now()
	if a.openQuestions == 0 {
		passed := now.Sub(a.countedAt)
		a.silenceLeft -= passed
		a.totalLeft -= passed
	}
	a.countedAt = now
}

// resetSilence records a sign of life of the server.
func (a *callAllowance) resetSilence() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.countDown()
	a.silenceLeft = a.silence.limit
}

// setNotifying records that a notification of the client begins or ends. They do not overlap.
func (a *callAllowance) setNotifying(begins bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyingSince = time.Time{}
	if begins {
		a.notifyingSince = time.Now()
	}
}

// takeSlot records that the call has got its slot.
func (a *callAllowance) takeSlot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hasSlot = true
}

// freeSlot releases the slot for good.
func (a *callAllowance) freeSlot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.freeSlotLocked()
}

// freeSlotLocked releases the slot. The caller holds a.mu.
func (a *callAllowance) freeSlotLocked() {
	if a.hasSlot {
		a.hasSlot = false
		a.gate.leave(a.caller)
	}
}

// close releases the context and the slot of the call.
func (a *callAllowance) close() {
	a.timer.Stop()
	a.cancel(nil)
	a.freeSlot()
}

// pause stops the time until resume is called.
func (a *callAllowance) pause() (resume func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.openQuestions == 0 {
		a.timer.Stop()
		a.countDown()
		a.freeSlotLocked()
	}
	a.openQuestions++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.openQuestions--; a.openQuestions > 0 {
			return
		}
		a.countedAt = time.Now()
		if !a.ended {
			a.timer.Reset(max(min(a.silenceLeft, a.totalLeft), 0))
			a.hasSlot = true
			a.gate.reenter(a.caller)
		}
	})
}
