package upstream

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// staleKinds are the kinds that must be listed again. Use newStaleKinds.
type staleKinds struct {
	ready chan struct{} // holds one signal when kinds are requested
	now   chan struct{} // holds one signal when somebody waits for the list
	kinds *atomic.Uint32
}

func newStaleKinds() staleKinds {
	return staleKinds{make(chan struct{}, 1), make(chan struct{}, 1), &atomic.Uint32{}}
}

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

// requestNow adds all kinds, and ends pause.
func (c staleKinds) requestNow() {
	c.record(switchboard.AllKinds)
	select {
	case c.now <- struct{}{}:
	default:
	}
}

// pause waits, unless somebody waits for the list. The error is that of ctx.
func (c staleKinds) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	case <-c.now:
	}
	return nil
}

// takeAll returns the kinds and forgets them.
func (c staleKinds) takeAll() switchboard.Kinds {
	for _, signal := range []chan struct{}{c.ready, c.now} {
		select {
		case <-signal:
		default:
		}
	}
	return switchboard.Kinds(c.kinds.Swap(0))
}
