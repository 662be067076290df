package app

import (
	"context"
	"os"
	"sync"
	"time"
)

// graceAfterCalls is how much of the grace is kept for what comes after the calls:
// for clients to hear that theirs was cut, and for servers to end.
const graceAfterCalls = 2 * time.Second

// A gracePeriod is how much time is left. It counts from when somebody first asks.
// The zero value is not to be used; see newStopping.
type gracePeriod struct {
	start     func()
	callsOver chan struct{}      // closed when calls under way have had their time
	ctx       context.Context    // ends when everything has
	cancel    context.CancelFunc // of all
}

// newGracePeriod returns a stopping that takes grace, or what is left of it once
// hurry says something.
func newGracePeriod(grace func() time.Duration, hurry <-chan os.Signal) *gracePeriod {
	s := &gracePeriod{callsOver: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.start = sync.OnceFunc(func() {
		all := grace()
		after := min(graceAfterCalls, all/2)
		go func() {
			defer s.cancel()
			timer := time.NewTimer(all - after)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-hurry:
			case <-s.ctx.Done():
			}
			close(s.callsOver)
			timer.Reset(after)
			select {
			case <-timer.C:
			case <-s.ctx.Done():
			}
		}()
	})
	return s
}

// endOfCalls returns what is closed when calls under way have had their time.
func (s *gracePeriod) endOfCalls() <-chan struct{} {
	s.start()
	return s.callsOver
}
