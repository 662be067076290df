package app

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsGetTheGraceWithoutItsLastPart(t *testing.T) {
	for _, tt := range []struct {
		grace, hurry, calls, all time.Duration
	}{
		{grace: 10 * time.Second, calls: 8 * time.Second, all: 10 * time.Second},
		{grace: time.Second, calls: 500 * time.Millisecond, all: time.Second},
		{grace: time.Hour, hurry: time.Minute, calls: time.Minute, all: time.Minute + 2*time.Second},
	} {
		t.Run(tt.grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hurry := make(chan struct{})
				s := newGracePeriod(func() time.Duration { return tt.grace }, hurry)
				time.Sleep(time.Minute) // stopping has not begun
				start := time.Now()
				over := s.endOfCalls()
				if tt.hurry > 0 {
					time.AfterFunc(tt.hurry, func() { close(hurry) })
				}
				<-over
				calls := time.Since(start)
				<-s.endOfCalls()
				<-s.ctx.Done()
				if all := time.Since(start); calls != tt.calls || all != tt.all {
					t.Errorf("the calls got %v, and everything %v; want %v and %v", calls, all, tt.calls, tt.all)
				}
			})
		})
	}
}

func TestAnEndedGracePeriodLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := newGracePeriod(func() time.Duration { return time.Hour }, nil)
		s.start()
		s.cancel()
		<-s.endOfCalls() // and the bubble has no goroutine left
	})
}
