package app

import (
	"context"
	"os"
	"sync"
	"time"
)

// afterwords is how much of the grace is kept for what comes after the calls:
// for clients to hear that theirs was cut, and for servers to end.
const afterwords = 2 * time.Second

// A stopping is how much time is left. It counts from when somebody first asks.
// The zero value is not to be used; see newStopping.
type stopping struct {
	begin func()
	calls chan struct{}      // closed when calls under way have had their time
	all   context.Context    // ends when everything has
	end   context.CancelFunc // of all
}

// newStopping returns a stopping that takes grace, or what is left of it once
// hurry says something.
func newStopping(grace func() time.Duration, hurry <-chan os.Signal) *stopping {
	s := &stopping{calls: make(chan struct{})}
	s.all, s.end = context.WithCancel(context.Background())
	s.begin = sync.OnceFunc(func() {
		all := grace()
		after := min(afterwords, all/2)
		go func() {
			defer s.end()
			timer := time.NewTimer(all - after)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-hurry:
			case <-s.all.Done():
			}
			close(s.calls)
			timer.Reset(after)
			select {
			case <-timer.C:
			case <-s.all.Done():
			}
		}()
	})
	return s
}

// over returns what is closed when calls under way have had their time.
func (s *stopping) over() <-chan struct{} {
	s.begin()
	return s.calls
}
