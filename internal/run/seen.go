package run

import (
	"context"
	"errors"
	"math"
	"slices"
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
			c.seen = stored.seenBy(c.id).With(c.seen)
			stored = stored.withLast(c)
		}
	}
	return stored
}

// knownClients returns the clients that r remembers. The slice must not be modified.
func (r *Run) knownClients() shownClients {
	if all := r.shownClients.Load(); all != nil {
		return *all
	}
	return nil
}

// setClients replaces the clients. The caller holds r.bindLock, or r is not shared yet.
func (r *Run) setClients(all shownClients) {
	if more := len(all) - MaxClients; more > 0 {
		for _, c := range all[:more] {
			r.forgetClient(c)
		}
		all = all[more:]
	}
	if len(all) > 0 {
		r.shownClients.Store(&all)
	}
}

// forgetClient notes that c was evicted. A client that was shown only the current list is not lost before that list
// changes.
func (r *Run) forgetClient(c shownClient) {
	if s := r.view.Load(); s != nil {
		for _, modern := range []bool{false, true} {
			if list := s.surface.Table(modern).Digest(); c.seen.Digest() == list {
				r.noteDroppedList(list)
				return
			}
		}
	}
	r.forgotClient.Store(true)
}

// noteDroppedList notes that evicted clients know the list of this digest. If earlier evicted clients know another
// list, they count as lost.
func (r *Run) noteDroppedList(list switchboard.Digest) {
	if was := r.droppedList.Swap(&list); was != nil && *was != list {
		r.forgotClient.Store(true)
	}
}

// Unread reports whether the store could not be read since r was made, so that it is unknown what clients were shown
// before.
func (r *Run) Unread() bool { return r.historyUnread.Load() }

// mayKnowOther reports whether a client that r does not know may have been shown another list than s has.
func (r *Run) mayKnowOther(s *surface.Surface) bool {
	if r.forgotClient.Load() || r.historyUnread.Load() {
		return true
	}
	d := r.droppedList.Load()
	return d != nil && s.Table(true).Digest() != *d && s.Table(false).Digest() != *d
}

// markSaved notes that the store has what the clients were shown. The caller holds r.bindLock, or r is not shared
// yet.
func (r *Run) markSaved() {
	all := slices.Clone(r.knownClients())
	for i := range all {
		all[i].unsaved = false
	}
	r.setClients(all)
}

// clientsToSave returns the clients to save while r shows s. The client of a minted run lists it soon, so the first
// list counts as shown at once.
func (r *Run) clientsToSave(s *view) shownClients {
	all := r.knownClients()
	if len(all) == 0 && r.id != "" {
		return shownClients{{seen: (*surface.Seen)(nil).WithList(s.lastBound.Table(false))}}
	}
	return all
}

// Seen returns what the client of r was shown; nil for nothing. The client of a minted run is "". If the run has
// evicted clients, an unknown client may be one of them.
func (r *Run) Seen(client string) *surface.Seen {
	if seen := r.knownClients().seenBy(client); seen != nil || !r.mayKnowOther(r.view.Load().surface) {
		return seen
	}
	return surface.Lost
}

// UpToDate reports whether each client of r knows the tools as s shows them, or knows none.
func (r *Run) UpToDate(s *surface.Surface) bool {
	if r.mayKnowOther(s) {
		return false
	}
	for _, c := range r.knownClients() {
		if !c.seen.UpToDate(s) {
			return false
		}
	}
	return true
}

// Listed records that the client of r is about to receive the list.
func (g *Registry) Listed(ctx context.Context, r *Run, client string, list *surface.Table) {
	g.rememberShown(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.WithList(list) })
}

// Showed records that the client of r is about to be shown the entries.
func (g *Registry) Showed(ctx context.Context, r *Run, client string, sights ...surface.Sight) {
	if len(sights) > 0 {
		g.rememberShown(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.WithSights(sights...) })
	}
}

// rememberShown records what a client is shown, and saves it. If the store cannot be used, renewRecord saves it
// later.
func (g *Registry) rememberShown(ctx context.Context, r *Run, id string, next func(*surface.Seen) *surface.Seen) {
	all := r.knownClients()
	if was := all.seenBy(id); was != nil && next(was) == was && (len(all) < MaxClients/2 || all[len(all)-1].id == id) {
		return
	}
	_ = r.withBindLock(ctx, func() error {
		saving, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		for {
			all := r.knownClients()
			was := all.seenBy(id)
			now := next(was)
			unsaved := now != was || slices.ContainsFunc(all, func(c shownClient) bool { return c.id == id && c.unsaved })
			r.setClients(all.withLast(shownClient{id, now, unsaved}))
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

// An announcedName is a name that one client is being told is served differently now.
type announcedName struct{ client, name string }

// announceGrace is how long after the announcement a client's calls of the name still count as written before it.
const announceGrace = time.Second

// maxAnnounced limits the announced names of one run.
const maxAnnounced = 1024

// Tell notes that the client is being told that the names are served differently now. Until done is called, and for
// announceGrace after it, the client's calls of these names count as written before it knew.
func (r *Run) Tell(client string, names ...string) (done func()) {
	r.announceNames(client, names, time.Time{})
	return func() { r.announceNames(client, names, time.Now().Add(announceGrace)) }
}

// announceNames sets the time until which calls of the names count as written before the client knew. The zero time
// means that the announcement is still in flight.
func (r *Run) announceNames(client string, names []string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.announced == nil {
		r.announced = map[announcedName]time.Time{}
	}
	now, latest := time.Now(), int64(0)
	for _, name := range names {
		of := announcedName{client, name}
		if _, begun := r.announced[of]; begun || len(r.announced) < maxAnnounced {
			r.announced[of] = until
		}
	}
	for of, end := range r.announced {
		switch {
		case end.IsZero():
			latest = math.MaxInt64
		case end.Before(now):
			delete(r.announced, of)
		default:
			latest = max(latest, end.UnixNano())
		}
	}
	r.announcedUntil.Store(latest)
}

// Tells reports whether a call that arrived at that time may have been written before its client knew that a name is
// served differently. It is a cheap check before Told.
func (r *Run) Tells(arrived time.Time) bool { return arrived.UnixNano() < r.announcedUntil.Load() }

// Told reports whether the client wrote a call of the name, which arrived at that time, before it knew that the name
// is served differently.
func (r *Run) Told(client, name string, arrived time.Time) bool {
	if !r.Tells(arrived) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	end, told := r.announced[announcedName{client, name}]
	return told && (end.IsZero() || arrived.Before(end))
}

// announcedNames returns the names that are being announced to the client.
func (r *Run) announcedNames(client string) (names []string) {
	if !r.Tells(time.Now()) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, end := range r.announced {
		if of.client == client && (end.IsZero() || time.Now().Before(end)) {
			names = append(names, of.name)
		}
	}
	slices.Sort(names)
	return names
}
