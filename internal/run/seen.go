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

// MaxClients bounds how many clients of one base run the run remembers. clientInfo tells them apart. The
// client that listed longest ago makes room.
const MaxClients = 64

// noteTime is how long a client waits until the store has what it is shown. If the store takes longer, touch keeps
// it later.
const noteTime = 300 * time.Millisecond

// A client is one client of a run. A minted run has one client, with the id "".
type client struct {
	id   string
	seen *surface.Seen // never nil

	unsaved bool // the store does not have it yet
}

// clients are the clients of one run, in the order of their last lists.
type clients []client

// of returns what the client was shown; nil for nothing.
func (all clients) of(id string) *surface.Seen {
	for i := range all {
		if all[i].id == id {
			return all[i].seen
		}
	}
	return nil
}

// with returns the clients with one of them last.
func (all clients) with(last client) clients {
	others := slices.DeleteFunc(slices.Clone(all), func(c client) bool { return c.id == last.id })
	return append(others, last)
}

// merged returns the clients that the store has, and those of all that it does not have yet.
func (all clients) merged(stored clients) clients {
	for _, c := range all {
		if c.unsaved {
			c.seen = stored.of(c.id).With(c.seen)
			stored = stored.with(c)
		}
	}
	return stored
}

// clients returns the clients that r remembers. The slice must not be modified.
func (r *Run) clients() clients {
	if all := r.seen.Load(); all != nil {
		return *all
	}
	return nil
}

// setClients replaces them. The caller holds r.binding, or is alone with r.
func (r *Run) setClients(all clients) {
	if more := len(all) - MaxClients; more > 0 {
		for _, c := range all[:more] {
			r.forget(c)
		}
		all = all[more:]
	}
	if len(all) > 0 {
		r.seen.Store(&all)
	}
}

// forget makes room of a client. One that was shown nothing but the list, as it is now, is not lost before that changes.
func (r *Run) forget(c client) {
	if s := r.shown.Load(); s != nil {
		for _, modern := range []bool{false, true} {
			if list := s.surface.Table(modern).Digest(); c.seen.Digest() == list {
				r.drop(list)
				return
			}
		}
	}
	r.forgot.Store(true)
}

// drop notes that clients were forgotten that know the list of this digest. The lists of others that were forgotten are
// the same, or these are lost.
func (r *Run) drop(list switchboard.Digest) {
	if was := r.dropped.Swap(&list); was != nil && *was != list {
		r.forgot.Store(true)
	}
}

// Unread reports whether the store could not be read since r was made: so nobody knows what clients were shown before.
func (r *Run) Unread() bool { return r.unread.Load() }

// lost reports whether a client that r does not know may have been shown something else than s.
func (r *Run) lost(s *surface.Surface) bool {
	if r.forgot.Load() || r.unread.Load() {
		return true
	}
	d := r.dropped.Load()
	return d != nil && s.Table(true).Digest() != *d && s.Table(false).Digest() != *d
}

// saved notes that the store has what the clients were shown. The caller holds r.binding, or is alone with r.
func (r *Run) saved() {
	all := slices.Clone(r.clients())
	for i := range all {
		all[i].unsaved = false
	}
	r.setClients(all)
}

// seenWith returns the clients to keep in the store while r shows s. A client lists a minted run soon after it
// is minted, so the first list counts as shown at once.
func (r *Run) seenWith(s *shown) clients {
	all := r.clients()
	if len(all) == 0 && r.id != "" {
		return clients{{seen: (*surface.Seen)(nil).WithList(s.named.Table(false))}}
	}
	return all
}

// Seen returns what the client of r was shown; nil for nothing. A minted run has one client, "". A client that the run
// has forgotten may be any that it does not know.
func (r *Run) Seen(client string) *surface.Seen {
	if seen := r.clients().of(client); seen != nil || !r.lost(r.shown.Load().surface) {
		return seen
	}
	return surface.Lost
}

// UpToDate reports whether all clients of r know the tools as s shows them, or know none.
func (r *Run) UpToDate(s *surface.Surface) bool {
	if r.lost(s) {
		return false
	}
	for _, c := range r.clients() {
		if !c.seen.UpToDate(s) {
			return false
		}
	}
	return true
}

// Listed notes that the client of r is about to be shown the list.
func (g *Registry) Listed(ctx context.Context, r *Run, client string, list *surface.Table) {
	g.noteShown(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.WithList(list) })
}

// Showed notes that the client of r is about to be shown the entries.
func (g *Registry) Showed(ctx context.Context, r *Run, client string, sights ...surface.Sight) {
	if len(sights) > 0 {
		g.noteShown(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.WithSights(sights...) })
	}
}

// noteShown remembers what a client is shown, and keeps it in the store. If the store cannot be used, touch keeps it
// later.
func (g *Registry) noteShown(ctx context.Context, r *Run, id string, next func(*surface.Seen) *surface.Seen) {
	all := r.clients()
	if was := all.of(id); was != nil && next(was) == was && (len(all) < MaxClients/2 || all[len(all)-1].id == id) {
		return
	}
	_ = r.hold(ctx, func() error {
		saving, cancel := context.WithTimeout(ctx, noteTime)
		defer cancel()
		for {
			all := r.clients()
			was := all.of(id)
			now := next(was)
			unsaved := now != was || slices.ContainsFunc(all, func(c client) bool { return c.id == id && c.unsaved })
			r.setClients(all.with(client{id, now, unsaved}))
			if now == was && !unsaved {
				return nil // it has only listed again
			}
			s := r.shown.Load()
			if !g.keep.changed(r, s) {
				return nil
			}
			if err := g.keep.save(saving, r, s); !errors.Is(err, store.ErrConflict) {
				return err
			}
			if err := g.sync(saving, r); err != nil {
				return err
			}
		}
	})
}

// A telling is a name of which a client is being told that it is served differently now.
type telling struct{ client, name string }

// toldFor is for how long after it was told so a client's calls of a name count as written before.
const toldFor = time.Second

// maxTold bounds the names of one run that its clients are being told of.
const maxTold = 1024

// Tell notes that the client is being told that the names are served differently now. Until done is called, and for a
// second more, its calls of them were written before it knew.
func (r *Run) Tell(client string, names ...string) (done func()) {
	r.tellAll(client, names, time.Time{})
	return func() { r.tellAll(client, names, time.Now().Add(toldFor)) }
}

// tellAll notes until when calls of the names were written before the client knew; zero means that it has not ended.
func (r *Run) tellAll(client string, names []string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[telling]time.Time{}
	}
	now, latest := time.Now(), int64(0)
	for _, name := range names {
		of := telling{client, name}
		if _, begun := r.told[of]; begun || len(r.told) < maxTold {
			r.told[of] = until
		}
	}
	for of, end := range r.told {
		switch {
		case end.IsZero():
			latest = math.MaxInt64
		case end.Before(now):
			delete(r.told, of)
		default:
			latest = max(latest, end.UnixNano())
		}
	}
	r.tells.Store(latest)
}

// Tells reports whether a call that arrived then may have been written before its client knew that a name is served
// differently.
func (r *Run) Tells(arrived time.Time) bool { return arrived.UnixNano() < r.tells.Load() }

// Told reports whether the client wrote a call of the name that arrived then before it knew that the name is served
// differently.
func (r *Run) Told(client, name string, arrived time.Time) bool {
	if !r.Tells(arrived) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	end, told := r.told[telling{client, name}]
	return told && (end.IsZero() || arrived.Before(end))
}

// toldNames are the names that the client is being told of.
func (r *Run) toldNames(client string) (names []string) {
	if !r.Tells(time.Now()) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, end := range r.told {
		if of.client == client && (end.IsZero() || time.Now().Before(end)) {
			names = append(names, of.name)
		}
	}
	slices.Sort(names)
	return names
}
