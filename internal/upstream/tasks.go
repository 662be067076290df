package upstream

import "sync"

// A taskGroup counts goroutines that must end before something can be closed. Unlike a WaitGroup it
// refuses new ones once close was called. The zero taskGroup is ready.
type taskGroup struct {
	mu      sync.Mutex
	count   int
	closing bool
	idle    chan struct{}
}

// enter counts one more. It returns false if close was called.
func (g *taskGroup) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return false
	}
	g.count++
	return true
}

func (g *taskGroup) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count--; g.count == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// run runs f in a goroutine. It returns false if close was called.
func (g *taskGroup) run(f func()) bool {
	if !g.enter() {
		return false
	}
	go func() {
		defer g.leave()
		f()
	}()
	return true
}

// close refuses all that enter later. The returned channel is closed when all have left. close must
// be called only once.
func (g *taskGroup) close() <-chan struct{} {
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

// size returns how many are in the group.
func (g *taskGroup) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}
