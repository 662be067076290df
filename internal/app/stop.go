package app

import (
	"context"
	"sync"
	"time"
)

// graceAfterCalls is the part of the grace that is left after the calls, for clients to read that
// their calls were cut and for servers to end.
const graceAfterCalls = 2 * time.Second

// A gracePeriod limits the time of stopping. It starts when stopping starts. Use newGracePeriod;
// the zero value does not work.
type gracePeriod struct {
	start       func()
	callsOver   chan struct{}      // closed when the time of calls in flight is over
	serversOver chan struct{}      // closed when half of the rest is over: the records need the other half, also if servers have not ended
	ctx         context.Context    // done when the whole grace is over
	cancel      context.CancelFunc // of ctx
}

// newGracePeriod returns a gracePeriod of the given length. The time of the calls ends at once when
// hurry is closed.
func newGracePeriod(grace func() time.Duration, hurry <-chan struct{}) *gracePeriod {
	s := &gracePeriod{callsOver: make(chan struct{}), serversOver: make(chan struct{})}
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
			for _, over := range []chan struct{}{s.callsOver, s.serversOver} {
				close(over)
				timer.Reset(after / 2)
				select {
				case <-timer.C:
				case <-s.ctx.Done():
				}
			}
		}()
	})
	return s
}

// endOfCalls starts the grace, and returns a channel that is closed when the time of calls in
// flight is over.
func (s *gracePeriod) endOfCalls() <-chan struct{} {
	s.start()
	return s.callsOver
}
