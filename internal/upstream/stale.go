package upstream

import (
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// staleKinds are the kinds that must be listed again. Use newStaleKinds.
type staleKinds struct {
	ready chan struct{} // holds one signal when kinds are requested
	kinds *atomic.Uint32
}

func newStaleKinds() staleKinds { return staleKinds{make(chan struct{}, 1), &atomic.Uint32{}} }

// record adds kinds for the next takeAll.
func (c staleKinds) record(ks switchboard.Kinds) { c.kinds.Or(uint32(ks)) }

// request adds kinds and signals ready.
func (c staleKinds) request(ks switchboard.Kinds) {
	c.record(ks)
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// takeAll returns the kinds and forgets them.
func (c staleKinds) takeAll() switchboard.Kinds {
	select {
	case <-c.ready:
	default:
	}
	return switchboard.Kinds(c.kinds.Swap(0))
}
