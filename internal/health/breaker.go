package health

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// When a breaker trips.
const (
	window       = 30 * time.Second // of which calls are counted
	bucket       = 3 * time.Second
	failsInRow   = 5
	failsShare   = 0.5 // of the calls of the window
	enoughToTell = 20  // calls, before the share counts
)

// atOnce is within which connections that break are one failure: a crash cuts off
// all calls that are under way.
const atOnce = 50 * time.Millisecond

// How long a quarantine is.
const (
	firstQuarantine   = time.Second
	longestQuarantine = time.Minute

	// wantedQuarantine is the longest where somebody has asked for the server.
	wantedQuarantine = time.Second

	// firstLook is how soon a server is looked for where nobody is there, which costs
	// next to nothing, and somebody has asked for it. Each look is a third later
	// than the one before, up to the longest quarantine of who is asked for.
	firstLook = 50 * time.Millisecond

	// steadyAfter is how long something must have been healthy for its next
	// quarantine to be as short as the first.
	steadyAfter = time.Minute
)

// quarantine returns how long the nth quarantine in a row is: it doubles, and a
// quarter of it is left to chance, so that what failed together does not come back
// together.
func quarantine(n int) time.Duration {
	d := longestQuarantine
	if n <= 6 {
		d = min(firstQuarantine<<max(n-1, 0), longestQuarantine)
	}
	return d - d/8 + rand.N(d/4)
}

// lookout returns how long after the nth look the next one is.
func lookout(n int) time.Duration {
	d := firstLook
	for ; n > 0 && d < wantedQuarantine; n-- {
		d += d / 3
	}
	return min(d, wantedQuarantine)
}

// errNothing is what a breaker is told of a call that says nothing about the
// server.
var errNothing = errors.New("it says nothing about the server")

// newBreaker returns a breaker that counts calls and lets one at a time through
// once it has tripped. How long nobody may try is not its to say: see server.
func newBreaker(changed func(to gobreaker.State)) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     window,
		BucketPeriod: bucket,
		Timeout:      time.Nanosecond,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			known := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= failsInRow || known >= enoughToTell && float64(c.TotalFailures) >= failsShare*float64(known)
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, errNothing) },
		OnStateChange: func(_ string, _, to gobreaker.State) { changed(to) },
	})
}

// verdict is what a call that ended with err says about its server: nil that it
// works, errNothing nothing, and anything else is the server's failure.
//
// Its answers are no failures, whatever they say; nor are refusals of ours, nor
// what the client has ended itself.
func verdict(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, answered := errors.AsType[*switchboard.ServerError](err); answered {
		return nil
	}
	own, ok := errors.AsType[*switchboard.Error](err)
	if ok && own.ServerFailed && ctx.Err() == nil {
		return own
	}
	return errNothing
}
