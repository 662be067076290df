package health

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// When a breaker trips.
const (
	window       = 30 * time.Second // the time over which calls are counted
	bucket       = 3 * time.Second
	failsInRow   = 5
	failsShare   = 0.5 // of the calls in the window
	enoughToTell = 20  // calls before the share counts
)

// atOnce is the time within which broken connections count as one failure: a crash cuts off all calls in flight.
const atOnce = 50 * time.Millisecond

// errNothing is reported to a breaker for a call with a result that says nothing about the server.
var errNothing = errors.New("the call says nothing about the server")

// A breaker counts the calls of a server or of a tool, and lets one call at a time through after it has tripped.
// gobreaker does the counting. A breaker does not decide how long no call is sent: see quarantine. Its methods must
// not be called with the lock of a server held, because opened and closed take that lock.
type breaker struct {
	counter *gobreaker.TwoStepCircuitBreaker[struct{}]

	mu      sync.Mutex
	suspect Cause     // the last failure
	absent  bool      // it found no program at the address
	crashed time.Time // when the last counted call was cut off
}

// newBreaker returns a breaker that calls opened with the last failure when it trips, and closed after a successful
// trial.
func newBreaker(opened func(cause Cause, absent bool), closed func()) *breaker {
	b := &breaker{}
	b.counter = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     window,
		BucketPeriod: bucket,
		Timeout:      time.Nanosecond,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			known := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= failsInRow || known >= enoughToTell && float64(c.TotalFailures) >= failsShare*float64(known)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNothing) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			switch to {
			case gobreaker.StateOpen:
				b.mu.Lock()
				cause, absent := b.suspect, b.absent
				b.mu.Unlock()
				opened(cause, absent)
			case gobreaker.StateClosed:
				closed()
			}
		},
	})
	return b
}

// admit counts a call in flight. The caller must report how it ended. The error says that another call is the trial.
func (b *breaker) admit() (report func(error), err error) { return b.counter.Allow() }

// blame records a failure as the cause, before it is reported.
func (b *breaker) blame(cause Cause, absent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.suspect, b.absent = cause, absent
}

// trip reports failures until the breaker is open. Calls in flight that succeed meanwhile may reset its count, so it
// tries several times.
func (b *breaker) trip(err error) {
	for range 100 * failsInRow {
		if b.isOpen() {
			return
		}
		report, refused := b.admit()
		if refused != nil {
			return
		}
		report(err)
	}
}

// isOpen reports whether the breaker has tripped and no trial has succeeded since.
func (b *breaker) isOpen() bool { return b.counter.State() != gobreaker.StateClosed }

// heal reports a successful trial, unless a trial is in flight.
func (b *breaker) heal() {
	if report, refused := b.admit(); refused == nil {
		report(nil)
	}
}

// sameCrash reports whether a call that was cut off now belongs to a crash that was counted already.
func (b *breaker) sameCrash(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.crashed) < atOnce {
		return true
	}
	b.crashed = now
	return false
}

// verdict returns what a call that ended with err says about its server: nil that it works, errNothing nothing, and
// any other error that the server has failed.
//
// An answer of the server is no failure, whatever it says. Neither is a refusal by Switchboard, nor a call that the
// client has ended.
func verdict(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*switchboard.ServerError](err); ok {
		return nil
	}
	own, ok := errors.AsType[*switchboard.Error](err)
	if ok && own.ServerFailed && ctx.Err() == nil {
		return own
	}
	return errNothing
}

// isUnsent reports whether err says that nothing was sent, because no program is at the address.
func isUnsent(err error) bool {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Unsent
	}
	own, ok := errors.AsType[interface {
		error
		Unsent() bool
	}](err)
	return ok && own.Unsent()
}

// failureText returns the text of a failure for operators.
func failureText(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Cause != nil {
		return own.Cause.Error()
	}
	return err.Error()
}
