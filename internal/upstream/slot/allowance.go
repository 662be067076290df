package slot

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

// A TimeLimit is a limit on the time of a call, and the error when it has passed.
type TimeLimit struct {
	Name         string // "its timeout"
	Time         time.Duration
	BlamesServer bool // when it passes, the server was too slow
}

// Error says that the limit has passed.
func (e *TimeLimit) Error() string { return e.Name + " of " + e.Time.String() + " is over" }

// LimitsOf returns how long the call may be silent, and how long it may take in all.
func LimitsOf(c *switchboard.Call, cfg *switchboard.Server) (quiet, all TimeLimit) {
	quiet = TimeLimit{"its server's timeout", cmp.Or(cfg.Timeout, switchboard.DefaultTimeout), true}
	if c.Tool != nil && c.Tool.Contract.Timeout > 0 {
		quiet = TimeLimit{"its timeout", c.Tool.Contract.Timeout, !c.Tool.Contract.Hurried || c.Tool.Contract.Timeout >= quiet.Time}
	}
	most := cmp.Or(cfg.MaxTimeout, min(progressFactor*quiet.Time, defaultMaxTime))
	all = TimeLimit{"its server's max_timeout", max(most, quiet.Time), true}
	if t := c.Obligations.Timeout; t > 0 && t < all.Time {
		all = TimeLimit{"the time limit that policy sets", t, false}
	}
	return quiet, all
}

// An Allowance is the time that one call may take, and its slot at the server. While the client
// is being asked, the time stops, and the slot is free for other calls.
type Allowance struct {
	end     end
	gate    *Gate
	caller  CallKey
	silence TimeLimit // starts again with each sign of life
	total   TimeLimit // never starts again

	mu             sync.Mutex
	timer          *time.Timer   // nil until the call is watched
	silenceLeft    time.Duration // left of silence at countedAt
	totalLeft      time.Duration // left of total at countedAt
	countedAt      time.Time
	openQuestions  int       // number of questions that the client is being asked
	notifyingSince time.Time // when the running notification of the client began; zero while none runs
	hasSlot        bool
	ended          bool // the call takes no slot any more
}

// An end is the end of a call's time: when the call is cancelled or its allowance is closed, or when a limit has passed. Its fields,
// except parent, are guarded by Allowance.mu.
type end struct {
	parent context.Context // of the call
	why    error           // set once the time has ended for another reason than parent
	call   func()          // what OnEnd was given
	forget func() bool     // stops the watch of parent for call; nil while there is none

	// ctx and cancel are nil until Context is called. Most calls need no context of their own, and it costs as much as
	// the rest of the allowance.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// ErrNotTaken ends a call if its client does not take the notifications.
var ErrNotTaken = errors.New("the client does not read the notifications of the call")

// NewAllowance limits the time of a call of c that counts in g. The call ends with ctx too. OnEnd may tell that late, but
// less than 2*watchAge after the call began.
func NewAllowance(ctx context.Context, quiet, all TimeLimit, g *Gate, c CallKey) *Allowance {
	a := &Allowance{end: end{parent: ctx}, gate: g, caller: c, silence: quiet, total: all, silenceLeft: quiet.Time, totalLeft: all.Time, countedAt: time.Now()}
	if min(quiet.Time, all.Time) < 2*watchAge {
		a.watch()
	} else {
		g.young.add(a)
	}
	return a
}

// watch starts the timer of the call and the watch for the end of its client, unless the call is over.
func (a *Allowance) watch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchLocked()
}

// watchLocked is watch for a caller that holds a.mu.
func (a *Allowance) watchLocked() {
	if a.timer != nil || a.end.why != nil {
		return
	}
	a.countDown()
	a.timer = time.AfterFunc(max(min(a.silenceLeft, a.totalLeft), 0), a.checkExpiry)
	a.end.watchParent()
}

// watchParent calls e.call when the parent ends. The caller holds the Allowance's mu.
func (e *end) watchParent() {
	if e.call != nil && e.forget == nil {
		e.forget = context.AfterFunc(e.parent, e.call)
	}
}

// forgetCall forgets what OnEnd was given. The caller holds the Allowance's mu.
func (e *end) forgetCall() {
	if e.forget != nil {
		e.forget()
	}
	e.call, e.forget = nil, nil
}

// Context returns a context that ends with the time of the call. Its cause says why.
func (a *Allowance) Context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end.ctx == nil {
		a.end.ctx, a.end.cancel = context.WithCancelCause(a.end.parent)
		if a.end.why != nil {
			a.end.cancel(a.end.why)
		}
	}
	return a.end.ctx
}

// Ended reports whether the time of the call has ended.
func (a *Allowance) Ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.end.why != nil || a.end.parent.Err() != nil
}

// OnEnd calls f on a goroutine of its own when the time of the call ends, at most twice. It replaces an earlier f.
// After stop it does not begin to call f.
func (a *Allowance) OnEnd(f func()) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end.forgetCall()
	a.end.call = f
	if a.timer != nil || a.end.parent.Err() != nil {
		a.end.watchParent()
	}
	if a.end.why != nil {
		go f()
	}
	return a.stopOnEnd
}

func (a *Allowance) stopOnEnd() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end.forgetCall()
}

// checkExpiry ends the call if one of its times has passed.
func (a *Allowance) checkExpiry() {
	a.mu.Lock()
	why := a.whyExpired()
	var call func()
	if why != nil {
		call = a.endLocked(why)
	}
	a.mu.Unlock()
	if call != nil {
		call()
	}
}

// whyExpired returns why the call must end now; nil if it need not. The caller holds a.mu.
func (a *Allowance) whyExpired() error {
	a.countDown()
	switch due := min(a.silenceLeft, a.totalLeft); {
	case a.openQuestions > 0:
		return nil
	case due > 0: // there were signs of life
		a.timer.Reset(due)
		return nil
	case a.totalLeft <= 0:
		return &a.total
	case !a.notifyingSince.IsZero() && time.Since(a.notifyingSince) >= a.silence.Time/2: // one notification blocks; a server that sends many without end does not count
		return ErrNotTaken
	}
	return &a.silence
}

// endLocked ends the time of the call, and returns what is to be called then, without a.mu. The caller holds a.mu.
func (a *Allowance) endLocked(why error) (call func()) {
	if a.end.why != nil {
		return nil
	}
	a.end.why = why
	if a.end.cancel != nil {
		a.end.cancel(why)
	}
	return a.end.call
}

// countDown subtracts the time since countedAt. The caller holds a.mu.
func (a *Allowance) countDown() {
	now := time.Now()
	if a.openQuestions == 0 {
		passed := now.Sub(a.countedAt)
		a.silenceLeft -= passed
		a.totalLeft -= passed
	}
	a.countedAt = now
}

// ResetSilence records a sign of life of the server.
func (a *Allowance) ResetSilence() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.countDown()
	a.silenceLeft = a.silence.Time
}

// SetNotifying records that a notification of the client begins or ends. They do not overlap.
func (a *Allowance) SetNotifying(begins bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyingSince = time.Time{}
	if begins {
		a.notifyingSince = time.Now()
	}
}

// TakeSlot records that the call has got its slot.
func (a *Allowance) TakeSlot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hasSlot = true
}

// FreeSlot releases the slot for good.
func (a *Allowance) FreeSlot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.freeSlotLocked()
}

// freeSlotLocked releases the slot. The caller holds a.mu.
func (a *Allowance) freeSlotLocked() {
	if a.hasSlot {
		a.hasSlot = false
		a.gate.Leave(a.caller)
	}
}

// Close releases the context and the slot of the call.
func (a *Allowance) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	a.endLocked(context.Canceled) // nothing waits for the end any more
	a.ended = true
	a.freeSlotLocked()
}

// Pause stops the time until resume is called.
func (a *Allowance) Pause() (resume func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.openQuestions == 0 {
		if a.watchLocked(); a.timer != nil {
			a.timer.Stop()
		}
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
