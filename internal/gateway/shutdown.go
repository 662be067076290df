package gateway

import (
	"context"
	"sync"
	"sync/atomic"
)

// A shutdown says whether the gateway is stopping, and counts the HTTP requests that it waits for.
type shutdown struct {
	closing chan struct{} // closed by begin
	gate    *drainGate    // of requests over HTTP
	once    sync.Once
}

func newShutdown() *shutdown { return &shutdown{closing: make(chan struct{}), gate: newGate()} }

// begin refuses new requests from now on.
func (s *shutdown) begin() {
	s.once.Do(func() {
		close(s.closing)
		s.gate.shut()
	})
}

// begun reports whether the gateway is stopping.
func (s *shutdown) begun() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// An openRequests holds the cancel functions of the requests in flight. To derive each context from
// a common one would cost several times as much. The zero value is empty.
type openRequests struct {
	mu      sync.Mutex
	cancels map[*clientRequest]context.CancelCauseFunc
	ended   error
}

func (o *openRequests) add(q *clientRequest, cancel context.CancelCauseFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cancels == nil {
		o.cancels = map[*clientRequest]context.CancelCauseFunc{}
	}
	o.cancels[q] = cancel
	if o.ended != nil {
		cancel(o.ended)
	}
}

func (o *openRequests) remove(q *clientRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.cancels, q)
}

// cancelAll cancels the requests in flight, and all that are added later.
func (o *openRequests) cancelAll(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = why
	for _, cancel := range o.cancels {
		cancel(why)
	}
}

// A drainGate counts the requests in flight, and admits none once it is shut. Every request passes
// it, so it has no lock. Use newGate.
type drainGate struct {
	entered atomic.Int64
	closed  atomic.Bool
	once    sync.Once
	idle    chan struct{} // closed when the gate is shut and all requests have left
}

func newGate() *drainGate { return &drainGate{idle: make(chan struct{})} }

// enter admits a request, unless the gate is shut. After true, the caller must call leave.
func (g *drainGate) enter() bool {
	g.entered.Add(1) // first count, then look: shut does it in the other order
	if g.closed.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *drainGate) leave() {
	if g.entered.Add(-1) == 0 && g.closed.Load() {
		g.once.Do(func() { close(g.idle) })
	}
}

func (g *drainGate) shut() {
	g.entered.Add(1)
	g.closed.Store(true)
	g.leave()
}
