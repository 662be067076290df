package upstream

import "sync"

// A group counts goroutines that must end before something can be closed.
// Unlike a WaitGroup it refuses newcomers once it is closing, from any
// goroutine. The zero group is ready.
type group struct {
	mu      sync.Mutex
	n       int
	closing bool
	idle    chan struct{}
}

// enter counts one more, unless the group is closing.
func (g *group) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return false
	}
	g.n++
	return true
}

func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// run runs f in a goroutine, and reports false when it is too late for that.
func (g *group) run(f func()) bool {
	if !g.enter() {
		return false
	}
	go func() {
		defer g.leave()
		f()
	}()
	return true
}

// close lets nobody in any more. What it returns is closed when all have left.
// It is called once.
func (g *group) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = true
	idle := make(chan struct{})
	if g.n == 0 {
		close(idle)
	} else {
		g.idle = idle
	}
	return idle
}

// size returns how many are in.
func (g *group) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
