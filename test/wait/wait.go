// Package wait lets a test wait for an event, and states the kind of the failure when
// the event does not come: the event is late. Any other failure is wrong.
//
// The two differ because a busy machine delivers late whatever it delivers. The runner
// of `make test` runs a test once more, alone, if being late is all that failed in it.
// Claims about the laws never fail through this package.
package wait

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// Bound is how long an event may take on a busy machine before it is late.
const Bound = 30 * time.Second

const (
	// Env is the variable by which the runner tells a test binary that it understands
	// late tests.
	Env = "SWITCHBOARD_TEST_LATE"
	// Attr is the attribute of a test that was late. Its value is empty.
	Attr = "late"
)

// Late ends the test, because an event did not come within its bound. It is called from
// the goroutine of the test.
//
// Under the runner the test is skipped with the attribute Attr, so that it still fails if
// anything else fails in it, before or later: then it is wrong. Without the runner the
// test fails. So it does in a synctest bubble, where the machine cannot delay an event.
func Late(t testing.TB, format string, args ...any) {
	t.Helper()
	why := "late: " + fmt.Sprintf(format, args...)
	if os.Getenv(Env) == "" || t.Failed() || inBubble() {
		t.Fatal(why)
	}
	t.Attr(Attr, "")
	t.Skip(why)
}

// inBubble reports whether the clock is that of a synctest bubble, which begins in 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// Until waits until done returns true. The test is late if that takes longer than Bound.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	For(t, Bound, what, func() error {
		if !done() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")

// UntilNil waits until try returns nil. The test is late, with the last error, if that
// takes longer than Bound.
func UntilNil(t testing.TB, what string, try func() error) {
	t.Helper()
	For(t, Bound, what, try)
}

// For is UntilNil with another bound.
func For(t testing.TB, bound time.Duration, what string, try func() error) {
	t.Helper()
	over := time.Now().Add(bound)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(over) {
			Late(t, "%s: after %s: %v", what, bound, err)
		}
		<-tick.C
	}
}

// Receive returns what comes from the channel, or its zero value once the channel is
// closed. The test is late if neither happens within Bound.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	late := time.NewTimer(Bound)
	defer late.Stop()
	select {
	case v := <-from:
		return v
	case <-late.C:
		Late(t, "%s: nothing after %s", what, Bound)
		panic("unreachable")
	}
}

// Context returns a context that ends with the test, or after Bound.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Bound, errBound)
	t.Cleanup(cancel)
	return ctx
}

var errBound = errors.New("the bound of the test is over")

// Answered fails the test if err is not nil: as late if the deadline of ctx is over, and
// as wrong for any other reason.
func Answered(t testing.TB, ctx context.Context, what string, err error) { //nolint:revive // t comes first in tests
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		Late(t, "%s: %v", what, err)
	default:
		t.Fatalf("%s: %v", what, err)
	}
}
