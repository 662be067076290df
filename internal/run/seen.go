package run

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxClients limits how many clients of one base run the run remembers. clientInfo identifies them. The client with
// the oldest list is evicted to make room.
const MaxClients = 64

// saveTimeout is how long a client's request waits until the store has saved what the client is shown. If the store
// takes longer, renewRecord saves it later.
const saveTimeout = 300 * time.Millisecond

// A shownClient is one client of a run and the names that it was shown. A minted run has one client, with the id "".
type shownClient struct {
	id   string
	seen *surface.Seen // never nil

	unsaved bool // the store does not have seen yet
}

// shownClients are the clients of one run, ordered by the time of their last list.
type shownClients []shownClient

// seenBy returns what the client was shown; nil for nothing.
func (all shownClients) seenBy(id string) *surface.Seen {
	for i := range all {
		if all[i].id == id {
			return all[i].seen
		}
	}
	return nil
}

// withLast returns the clients with last at the end.
func (all shownClients) withLast(last shownClient) shownClients {
	others := slices.DeleteFunc(slices.Clone(all), func(c shownClient) bool { return c.id == last.id })
	return append(others, last)
}

// mergeUnsaved returns the clients in the store, updated with the unsaved clients of all.
func (all shownClients) mergeUnsaved(stored shownClients) shownClients {
	for _, c := range all {
		if c.unsaved {
			c.seen = stored.seenBy(c.id).Merge(c.seen)
			stored = stored.withLast(c)
		}
	}
	return stored
}

// A history is what the clients of one run were shown. The zero history is empty. It is safe for concurrent use, but set
// must be called with the run's lock held, or before the run is shared.
type history struct {
	clients     atomic.Pointer[shownClients]
	evicted     atomic.Bool                        // a client that was shown something was evicted
	unread      atomic.Bool                        // the store could not be read since the run was made
	evictedList atomic.Pointer[switchboard.Digest] // the list that all other evicted clients know
}

// all returns the remembered clients. The slice must not be modified.
func (h *history) all() shownClients {
	if all := h.clients.Load(); all != nil {
		return *all
	}
	return nil
}

// set replaces the clients, and evicts the oldest beyond MaxClients. now is the run's view; nil for a new run.
func (h *history) set(all shownClients, now *view) {
	if more := len(all) - MaxClients; more > 0 {
		for _, c := range all[:more] {
			h.evict(c, now)
		}
		all = all[more:]
	}
	if len(all) > 0 {
		h.clients.Store(&all)
	}
}

// evict notes that c was evicted. A client that was shown only the current list is not lost before that list changes.
func (h *history) evict(c shownClient, now *view) {
	if now != nil {
		for _, modern := range []bool{false, true} {
			if list := now.surface.Table(modern).Digest(); c.seen.Digest() == list {
				h.evictKnowing(list)
				return
			}
		}
	}
	h.evicted.Store(true)
}

// evictKnowing notes that evicted clients know the list of this digest. If earlier evicted clients know another list,
// they count as lost.
func (h *history) evictKnowing(list switchboard.Digest) {
	if was := h.evictedList.Swap(&list); was != nil && *was != list {
		h.evicted.Store(true)
	}
}

// applyEvicted applies which clients another process has evicted.
func (h *history) applyEvicted(rec *runRecord) {
	if rec.Forgot {
		h.evicted.Store(true)
	}
	if rec.Dropped != "" {
		h.evictKnowing(rec.Dropped)
	}
}

// mayKnowOther reports whether an unknown client may have been shown another list than s has.
func (h *history) mayKnowOther(s *surface.Surface) bool {
	if h.evicted.Load() || h.unread.Load() {
		return true
	}
	d := h.evictedList.Load()
	return d != nil && s.Table(true).Digest() != *d && s.Table(false).Digest() != *d
}

// markSaved notes that the store has what the clients were shown.
func (h *history) markSaved(now *view) {
	all := slices.Clone(h.all())
	for i := range all {
		all[i].unsaved = false
	}
	h.set(all, now)
}

// HistoryUnread reports whether the store could not be read since r was made, so that it is unknown what clients were shown
// before.
func (r *Run) HistoryUnread() bool { return r.history.unread.Load() }

// clientsToSave returns the clients to save while r shows s. The client of a minted run lists it soon, so the first
// list counts as shown at once.
func (r *Run) clientsToSave(s *view) shownClients {
	all := r.history.all()
	if len(all) == 0 && r.id != "" {
		return shownClients{{seen: (*surface.Seen)(nil).WithList(s.lastBound.Table(false))}}
	}
	return all
}

// Seen returns what the client of r was shown; nil for nothing. The client of a minted run is "". If the run has
// evicted clients, an unknown client may be one of them.
func (r *Run) Seen(client string) *surface.Seen {
	if seen := r.history.all().seenBy(client); seen != nil || !r.history.mayKnowOther(r.view.Load().surface) {
		return seen
	}
	return surface.Lost
}

// UpToDate reports whether each client of r knows the tools as s shows them, or knows none.
func (r *Run) UpToDate(s *surface.Surface) bool {
	if r.history.mayKnowOther(s) {
		return false
	}
	for _, c := range r.history.all() {
		if !c.seen.UpToDate(s) {
			return false
		}
	}
	return true
}

// RecordListed records that the client of r is about to receive the list.
func (g *Runs) RecordListed(ctx context.Context, r *Run, client string, list *surface.Table) {
	g.rememberShown(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.WithList(list) })
}

// RecordShown records that the client of r is about to be shown the entries.
func (g *Runs) RecordShown(ctx context.Context, r *Run, client string, sights ...surface.Sight) {
	if len(sights) > 0 {
		g.rememberShown(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.WithSights(sights...) })
	}
}

// rememberShown records what a client is shown, and saves it. If the store cannot be used, renewRecord saves it
// later.
func (g *Runs) rememberShown(ctx context.Context, r *Run, id string, next func(*surface.Seen) *surface.Seen) {
	all := r.history.all()
	if was := all.seenBy(id); was != nil && next(was) == was && (len(all) < MaxClients/2 || all[len(all)-1].id == id) {
		return
	}
	_ = r.withBindLock(ctx, func() error {
		saving, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		for {
			all := r.history.all()
			was := all.seenBy(id)
			now := next(was)
			unsaved := now != was || slices.ContainsFunc(all, func(c shownClient) bool { return c.id == id && c.unsaved })
			r.history.set(all.withLast(shownClient{id, now, unsaved}), r.view.Load())
			if now == was && !unsaved {
				return nil // the client has received the same list again
			}
			s := r.view.Load()
			if !g.records.differsFromSaved(r, s) {
				return nil
			}
			if err := g.records.saveView(saving, r, s); !errors.Is(err, store.ErrConflict) {
				return err
			}
			if err := g.syncWithStore(saving, r); err != nil {
				return err
			}
		}
	})
}
