package run

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// mintedRuns are the runs with an id. The Runs's mu guards them.
type mintedRuns struct {
	byID  map[switchboard.RunID]*Run
	count map[principalKey]int
}

// Forget removes a minted run from this process, unless somebody watches it: the client may have a new connection before its old
// one has ended. The store keeps the run until it expires, so its id finds it again.
func (r *Run) Forget() {
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	if r.watchers.none() {
		r.registry.minted.drop(r)
	}
}

// Release says that the session for which r was minted has ended. A session does not tell its client the id of its run, so r makes room for a
// new run, unless it is kept.
func Release(r *Run) {
	r.watchers.mu.Lock()
	defer r.watchers.mu.Unlock()
	r.watchers.isReleased = true
}

// Keep says that a client has named r by its id, and may do so again. Then Release has no effect.
func Keep(r *Run) {
	r.watchers.mu.Lock()
	defer r.watchers.mu.Unlock()
	r.watchers.isKept = true
}

func (m *mintedRuns) add(r *Run) {
	m.byID[r.id] = r
	m.count[principalKeyOf(r.principal)]++
}

// deleteEvicted deletes what the store has of a run that was evicted; nil for none. If that fails, it expires.
func deleteEvicted(ctx context.Context, gone *Run) {
	if gone != nil {
		_ = gone.withBindLock(ctx, func() error { return gone.registry.records.deleteRecord(ctx, gone) })
	}
}

// evictIdle reports whether there is room for one more run of the principal. If the principal has MaxRuns, it evicts the longest unused of the
// runs that were released or are idle.
func (m *mintedRuns) evictIdle(o principalKey) (gone *Run, ok bool) {
	if m.count[o] < MaxRuns {
		return nil, true
	}
	idle := time.Now().Add(-Idle)
	for _, r := range m.byID {
		if principalKeyOf(r.principal) == o && (r.idleSince(idle) || r.watchers.released()) && (gone == nil || r.lastUsed.Load() < gone.lastUsed.Load()) {
			gone = r
		}
	}
	if gone != nil {
		m.drop(gone)
	}
	return gone, gone != nil
}

// drop removes r, unless another goroutine has done so.
func (m *mintedRuns) drop(r *Run) {
	if m.byID[r.id] != r {
		return
	}
	o := principalKeyOf(r.principal)
	delete(m.byID, r.id)
	if m.count[o]--; m.count[o] <= 0 {
		delete(m.count, o)
	}
}
