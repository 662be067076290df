// Package wait lets a test wait for an event. If the event does not come in time, the test
// is late. Every other failure is wrong.
//
// A busy machine can delay every event, so a late test proves no defect. The runner of
// `make test` runs a late test once more, alone, if nothing else failed in it. A test of a
// law may be late. A broken law is never late: the test states it with t.Error.
package wait

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bound is how long an event may take on a busy machine before it is late.
const Bound = 15 * time.Second

const (
	// Env is set by the runner. It tells a test binary that the runner understands Attr.
	Env = "SWITCHBOARD_TEST_LATE"
	// Attr is the attribute of a late test. Its value is empty.
	Attr = "late"
)

// Late ends the test as late.
//
// Under the runner, Late skips the test with the attribute Attr. The test still fails if
// anything else fails in it, before or later. Then the test is wrong. Without the runner
// Late fails the test. It also does so in a synctest bubble, because the machine cannot
// delay an event there.
//
// Only the goroutine of a test can skip it. On any other goroutine Late fails the test and
// ends the goroutine. Lateness takes what such a goroutine has to say.
func Late(t testing.TB, format string, args ...any) {
	t.Helper()
	why := "late: " + fmt.Sprintf(format, args...)
	if os.Getenv(Env) == "" || t.Failed() || inBubble() || !onTest() {
		end(t, why)
	}
	t.Attr(Attr, "")
	t.Skip(why)
}

// end fails the test and ends the goroutine.
func end(t testing.TB, why string) {
	t.Helper()
	t.Error(why)
	if onTest() {
		t.FailNow()
	}
	runtime.Goexit()
}

// inBubble reports whether the clock is the clock of a synctest bubble, which begins in
// the year 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// onTest reports whether the caller runs on the goroutine of a test or a benchmark.
func onTest() bool {
	callers := make([]uintptr, 256)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for {
		frame, more := frames.Next()
		switch frame.Function {
		case "testing.tRunner", "testing.fRunner", "testing.(*B).runN":
			return true
		}
		if !more {
			return false
		}
	}
}

// A Lateness collects late events on any goroutine, so that the test can go on and judge
// the rest. The zero Lateness is empty.
type Lateness struct {
	mu  sync.Mutex
	all []string
}

// Add adds a late event.
func (l *Lateness) Add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

// Any reports whether there is a late event.
func (l *Lateness) Any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) > 0
}

// State ends the test as late if there is a late event. A test calls it last.
func (l *Lateness) State(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	all := strings.Join(l.all, "\n")
	l.mu.Unlock()
	if all != "" {
		Late(t, "%s", all)
	}
}

// Until waits until done returns true. The test is late after Bound.
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

// UntilNil waits until try returns nil. The test is late after Bound, with the last error.
func UntilNil(t testing.TB, what string, try func() error) {
	t.Helper()
	For(t, Bound, what, try)
}

// For is UntilNil with another bound.
func For(t testing.TB, bound time.Duration, what string, try func() error) {
	t.Helper()
	began := time.Now()
	for {
		tried := time.Now()
		err := try()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > bound {
			Late(t, "%s: after %s: %v", what, bound, err)
		}
		<-time.After(Pause(waited, time.Since(tried)))
	}
}

// Pause returns how long a test that waits does nothing before its next try: a twentieth of the time
// that it has waited, and three times as long as its last try took. So a try that starts a program
// takes no processor from what it waits for.
func Pause(waited, took time.Duration) time.Duration {
	return min(max(waited/20, 3*took, 2*time.Millisecond), time.Second/2)
}

// Receive returns the next value of the channel, or the zero value if the channel is
// closed. The test is late after Bound.
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
	ctx, cancel := context.WithTimeout(t.Context(), Bound)
	t.Cleanup(cancel)
	return ctx
}

// Answered ends the test if err is not nil: as late if Overdue(ctx, err), and as wrong if
// not.
func Answered(t testing.TB, ctx context.Context, what string, err error) {
	t.Helper()
	ended(t, what, err, Overdue(ctx, err))
}

// Read is Answered for a connection or a pipe with a deadline and no context.
func Read(t testing.TB, what string, err error) {
	t.Helper()
	ended(t, what, err, TimedOut(err))
}

func ended(t testing.TB, what string, err error, late bool) {
	t.Helper()
	switch {
	case err == nil:
	case late:
		Late(t, "%s: %v", what, err)
	default:
		end(t, fmt.Sprintf("%s: %v", what, err))
	}
}

// Overdue reports whether err came because the deadline of ctx is over. The clock alone
// does not decide: after the deadline a wrong answer is still wrong. A program that ctx has
// killed is overdue too.
func Overdue(ctx context.Context, err error) bool {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	exit, is := errors.AsType[*exec.ExitError](err)
	return TimedOut(err) || errors.Is(err, exec.ErrWaitDelay) || is && exit.ExitCode() == -1
}

// TimedOut reports whether err is the error of a deadline.
func TimedOut(err error) bool {
	slow, is := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || is && slow.Timeout()
}
