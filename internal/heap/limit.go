package heap

import (
	"context"
	"errors"
	"runtime/metrics"
	"time"
)

// ErrGrown is the cause of the end of a context that Limit has ended.
var ErrGrown = errors.New("it needs too much memory, or the process needs much for other work")

// limitInterval is how often Limit looks at the heap. A loop that allocates fills some 20 MB in that time.
const limitInterval = 20 * time.Millisecond

// Limit returns a context that ends, with the cause ErrGrown, when the heap of the process has grown by more than most bytes. It is for work that
// stops at the end of its context. It cannot tell this work from other work. stop ends the watch, and the context.
func Limit(ctx context.Context, most uint64) (limited context.Context, stop context.CancelFunc) {
	limited, cancel := context.WithCancelCause(ctx)
	begin := size()
	go func() {
		tick := time.NewTicker(limitInterval)
		defer tick.Stop()
		for {
			select {
			case <-limited.Done():
				return
			case <-tick.C:
				if size() > begin+most {
					cancel(ErrGrown)
					return
				}
			}
		}
	}()
	return limited, func() { cancel(nil) }
}

// size returns the bytes of all objects in the heap, with those that are not collected yet.
func size() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
