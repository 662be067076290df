// Package task has the goroutines and the waits of package upstream: groups of goroutines that must end
// before something can be closed, bounded waits, and the wait before something is tried again. It knows
// neither servers nor the protocol.
package task

import (
	"context"
	"sync"
	"time"
)

// A Tracker counts goroutines that must end before something can be closed. Unlike a WaitGroup it
// refuses new ones once Close was called. The zero Tracker is ready.
type Tracker struct {
	mu      sync.Mutex
	count   int
	closing bool
	idle    chan struct{}
}

// Enter counts one more. It returns false if Close was called.
func (g *Tracker) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return false
	}
	g.count++
	return true
}

// Leave counts one less.
func (g *Tracker) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count--; g.count == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Run runs f in a goroutine. It returns false if Close was called.
func (g *Tracker) Run(f func()) bool {
	if !g.Enter() {
		return false
	}
	go func() {
		defer g.Leave()
		f()
	}()
	return true
}

// Close refuses all that enter later. The returned channel is closed when all have left. Close
// must be called only once.
func (g *Tracker) Close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = true
	idle := make(chan struct{})
	if g.count == 0 {
		close(idle)
	} else {
		g.idle = idle
	}
	return idle
}

// Size returns how many are in the tracker.
func (g *Tracker) Size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// Sleep waits for d. It returns the error of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// WaitFor waits until c is closed, but at most d.
func WaitFor(c <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	}
}
