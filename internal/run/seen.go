package run

import (
	"context"
	"errors"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
)

// MaxClients bounds how many clients of one base run the run remembers. clientInfo tells them apart. The
// client with the oldest list makes room.
const MaxClients = 64

// A client is one client of a run. A minted run has one client, with the id "".
type client struct {
	id   string
	seen *surface.Seen // never nil
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

// with adds the other clients, but those that are in all already.
func (all clients) with(others clients) clients {
	for _, c := range others {
		if all.of(c.id) == nil {
			all = append(slices.Clip(all), c)
		}
	}
	return all[max(0, len(all)-MaxClients):]
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
	if len(all) > 0 {
		r.seen.Store(&all)
	}
}

// seenWith returns the clients to keep in the store while r shows s. A client lists a minted run soon after it
// is minted, so the first list counts as shown at once.
func (r *Run) seenWith(s *shown) clients {
	all := r.clients()
	if len(all) == 0 && r.id != "" {
		return clients{{seen: (*surface.Seen)(nil).Listed(s.named.Table(false))}}
	}
	return all
}

// Seen returns what the client of r was shown; nil for nothing. A minted run has one client, "".
func (r *Run) Seen(client string) *surface.Seen { return r.clients().of(client) }

// UpToDate reports whether all clients of r know the tools as s shows them, or know none.
func (r *Run) UpToDate(s *surface.Surface) bool {
	for _, c := range r.clients() {
		if !c.seen.UpToDate(s) {
			return false
		}
	}
	return true
}

// Listed notes that the client of r is about to be shown the list.
func (g *Registry) Listed(ctx context.Context, r *Run, client string, list *surface.Table) {
	g.note(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.Listed(list) })
}

// Showed notes that the client of r is about to be shown the entries.
func (g *Registry) Showed(ctx context.Context, r *Run, client string, sights ...surface.Sight) {
	if len(sights) > 0 {
		g.note(ctx, r, client, func(seen *surface.Seen) *surface.Seen { return seen.Shown(sights...) })
	}
}

// note remembers what a client is shown, and keeps it in the store. If the store cannot be used, touch keeps it
// later, and the client does not wait.
func (g *Registry) note(ctx context.Context, r *Run, id string, next func(*surface.Seen) *surface.Seen) {
	if was := r.Seen(id); was != nil && next(was) == was {
		return
	}
	_ = r.hold(ctx, func() error {
		for {
			others := slices.DeleteFunc(slices.Clone(r.clients()), func(c client) bool { return c.id == id })
			all := append(others, client{id, next(r.Seen(id))})
			r.setClients(all[max(0, len(all)-MaxClients):])
			s := r.shown.Load()
			if !g.keep.changed(r, s) {
				return nil
			}
			if err := g.keep.save(ctx, r, s); !errors.Is(err, store.ErrConflict) {
				return err
			}
			if err := g.sync(ctx, r); err != nil {
				return err
			}
		}
	})
}
