// Package pin keeps the pins of servers' definitions in the store, and passes the offers of servers on as admission judges them.
//
// Package admission decides what a pin and an offer mean together. This package decides when pins are read and written, so that all replicas have the same ones. It keeps a
// definition that it sees first before it passes the definition on. If one replica is offered another definition than the admitted one, that counts on all of them.
//
// The group "pins" has a value for each server, which changes by compare-and-set. The group "pin_reports" has a value for each server and replica. It expires when its
// replica has not renewed it for reportTTL, and is deleted once the replica sees the admitted definitions again.
package pin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	storeTimeout = 2 * time.Second // of one request
	maxAttempts  = 5               // at one change that others make, too
	maxKeepers   = 16              // servers whose pins are written at once
)

// A Store keeps pins. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
	Status() store.Status
}

// Options are the parts that a Board needs.
type Options struct {
	Store Store

	// Self identifies this process among those that share the store.
	Self string

	// Changed is called after other processes have changed what counts here. It must not wait. nil means no call.
	Changed func()

	// Report gets each report of changes that no person has made. Of the processes that share the store, one gets it. nil means that there are no reports.
	Report func(*ChangeReport)

	// Count is called with each such change that this process sees: with the new state, one of States, and the class of the offered definition, or "". nil means no call.
	Count func(id switchboard.ServerID, state, class string)

	// HeldChanged is called when other definitions of a server are held than before, or otherwise. See Held. It must not wait. nil means no call.
	HeldChanged func(switchboard.ServerID)

	Log *slog.Logger
}

// A Board has the pins of all servers. Use New. It is safe for concurrent use.
type Board struct {
	o    Options
	wake chan struct{} // there is something to keep

	changes *changeBook

	mu      sync.Mutex // guards the next fields. It is held while a first sight is written.
	servers map[switchboard.ServerID]*pinnedServer
	failing bool // the last request to the store has failed

	held atomic.Pointer[[]HeldPin] // see Held
}

// A HeldPin is a definition that is frozen, or suspended without a person's word.
type HeldPin struct {
	Server switchboard.ServerID
	admission.PinVerdict
}

// A pinnedServer is what the board knows of one server.
type pinnedServer struct {
	pins    *admission.ServerPins
	version store.Version // of pins in the store; 0 means none
	unkept  bool          // pins differ from those in the store

	own      admission.OtherOffers
	gone     map[admission.PinKey]bool        // see admission.Reports
	reported []byte                           // what the store has of own; nil means nothing
	others   map[string]admission.OtherOffers // by the other replicas
	merged   admission.OtherOffers            // others

	last *lastOffer // nil if there is none
	old  bool       // something has changed since last was judged
}

// A lastOffer is the last offer of a server with its judgment.
type lastOffer struct {
	offer  switchboard.Offer
	terms  admission.OfferTerms
	passed switchboard.Offer
	notes  []admission.PinVerdict // on the definitions that are not plainly as their pins say
}

// New returns a Board that has read nothing. Call Read before Admit.
func New(o Options) *Board {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return &Board{o: o, wake: make(chan struct{}, 1), changes: newChangeBook(&o), servers: map[switchboard.ServerID]*pinnedServer{}}
}

// server returns what is known of a server. The caller holds b.mu.
func (b *Board) server(id switchboard.ServerID) *pinnedServer {
	s := b.servers[id]
	if s == nil {
		s = &pinnedServer{pins: &admission.ServerPins{}, others: map[string]admission.OtherOffers{}}
		b.servers[id] = s
	}
	return s
}

// Admit returns the offers as they are passed on. terms returns the terms for the server of an offer. Admit writes what it sees first to the store, and waits for that. If the
// store is away, it goes on with the pins that it knows, and Run writes them later.
func (b *Board) Admit(ctx context.Context, offers []switchboard.Offer, terms func(*switchboard.Offer) admission.OfferTerms) []switchboard.Offer {
	b.mu.Lock()
	defer b.mu.Unlock()
	passed := make([]switchboard.Offer, len(offers))
	var keeping errgroup.Group
	keeping.SetLimit(maxKeepers)
	var letIn atomic.Int64
	for i := range offers {
		o := &offers[i]
		s, t := b.server(o.Server), terms(o)
		if l := s.last; l != nil && !s.old && l.terms.Rules.Equal(t.Rules) && l.terms.Reports == t.Reports && maps.Equal(l.terms.Entries, t.Entries) && sameOffer(&l.offer, o) {
			passed[i] = l.passed
			continue
		}
		keeping.Go(func() error {
			known := len(s.pins.Pins)
			var notes []admission.PinVerdict
			passed[i], notes = b.admit(ctx, s, o, t)
			letIn.Add(int64(len(s.pins.Pins) - known))
			s.last, s.old = &lastOffer{*o, t, passed[i], notes}, false
			return nil
		})
	}
	_ = keeping.Wait() // no function returns an error
	b.noteHeld(offers)
	if n := letIn.Load(); n > 0 {
		b.o.Log.Info("definitions are let in at first sight; see switchboard pins list", "definitions", n)
	}
	return passed
}

// noteHeld notes which definitions of the servers are held. The caller holds b.mu.
func (b *Board) noteHeld(offers []switchboard.Offer) {
	all := []HeldPin{}
	for i := range offers {
		for _, v := range b.servers[offers[i].Server].last.notes {
			if v.Frozen || v.State == switchboard.LifeSuspended && v.Pin.State != switchboard.LifeSuspended {
				all = append(all, HeldPin{offers[i].Server, v})
			}
		}
	}
	slices.SortFunc(all, func(x, y HeldPin) int {
		return cmp.Or(cmp.Compare(x.Server, y.Server), x.Key.Compare(y.Key))
	})
	was := b.Held()
	b.held.Store(&all)
	if b.o.HeldChanged == nil {
		return
	}
	for i := range offers {
		id := offers[i].Server
		if !slices.EqualFunc(heldOf(was, id), heldOf(all, id), isHeldAlike) {
			b.o.HeldChanged(id)
		}
	}
}

// heldOf returns the held definitions of a server.
func heldOf(all []HeldPin, id switchboard.ServerID) []HeldPin {
	first, _ := slices.BinarySearchFunc(all, id, func(p HeldPin, id switchboard.ServerID) int { return cmp.Compare(p.Server, id) })
	n := 0
	for _, p := range all[first:] {
		if p.Server != id {
			break
		}
		n++
	}
	return all[first : first+n]
}

// isHeldAlike reports whether a person would see the same of two held definitions.
func isHeldAlike(a, b HeldPin) bool {
	offered := func(p HeldPin) string {
		if p.Other == nil {
			return ""
		}
		return p.Other.Digest
	}
	return a.Key == b.Key && a.State == b.State && a.Frozen == b.Frozen && a.Pin.Digest == b.Pin.Digest && offered(a) == offered(b)
}

// Held returns the definitions that are frozen, or suspended without a person's word, as the last Admit has found them, sorted by server, kind and name. It waits for nothing.
func (b *Board) Held() []HeldPin {
	if all := b.held.Load(); all != nil {
		return *all
	}
	return nil
}

// Preview returns the offers as Admit would pass them on by other terms. It keeps nothing.
func (b *Board) Preview(offers []switchboard.Offer, terms func(*switchboard.Offer) admission.OfferTerms) []switchboard.Offer {
	b.mu.Lock()
	defer b.mu.Unlock()
	passed := make([]switchboard.Offer, len(offers))
	for i := range offers {
		s := b.server(offers[i].Server)
		passed[i] = admission.Judge(offers[i], s.pins, s.reports(), terms(&offers[i]), now(), nil).Offer
	}
	return passed
}

// sameOffer reports whether two offers of a server are the same to Judge.
func sameOffer(a, b *switchboard.Offer) bool {
	for _, k := range []switchboard.Kind{switchboard.Tools, switchboard.Resources, switchboard.Templates, switchboard.Prompts} {
		if !slices.EqualFunc(a.List(k), b.List(k), bytes.Equal) {
			return false
		}
	}
	return a.Stale == b.Stale && a.Instructions == b.Instructions && a.Version == b.Version && a.Modern == b.Modern && (a.Tools == nil) == (b.Tools == nil) &&
		bytes.Equal(a.Capabilities, b.Capabilities) && bytes.Equal(a.Beside, b.Beside) && maps.EqualFunc(a.Uncleaned, b.Uncleaned, bytes.Equal) && maps.EqualFunc(a.UncleanedOthers, b.UncleanedOthers, bytes.Equal)
}

// admit judges one offer, and returns the offer that is passed on, with the notes of lastOffer. No other goroutine uses s.
func (b *Board) admit(ctx context.Context, s *pinnedServer, o *switchboard.Offer, t admission.OfferTerms) (passed switchboard.Offer, notes []admission.PinVerdict) {
	for attempt := 1; ; attempt++ {
		before, view := s.pins, newOfferView()
		notes = nil
		j := admission.Judge(*o, before, s.reports(), t, now(), func(v admission.PinVerdict) {
			view.add(v)
			if v.Other != nil || v.State != v.Pin.State || v.Why != "" {
				notes = append(notes, v)
			}
		})
		if j.FirstSeen {
			err := b.keep(ctx, o.Server, s, j.Pins)
			if errors.Is(err, store.ErrConflict) && attempt < maxAttempts { // another replica was first
				if err = b.reread(ctx, o.Server, s); err == nil {
					continue
				}
			}
			if err != nil {
				b.o.Log.Warn("the definitions that a server offers are let in at first sight, and this is not kept yet: the store does not answer", "server", o.Server, "err", err)
				s.pins, s.unkept = j.Pins, true
				b.send()
			}
		} else if j.Pins != s.pins {
			s.pins, s.unkept = j.Pins, true
			b.send()
		}
		s.gone = j.Gone
		if !sameReports(s.own, j.Others) {
			s.own = j.Others
			b.send()
		}
		b.changes.observe(o, before, j.Pins, view)
		return j.Offer, notes
	}
}

func sameReports(a, b admission.OtherOffers) bool {
	return maps.EqualFunc(a, b, func(x, y admission.OtherOffer) bool {
		return x.Digest == y.Digest && x.Admitted == y.Admitted && x.Class == y.Class && x.Rule == y.Rule && x.Since.Equal(y.Since)
	})
}

func (b *Board) send() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// keep writes the pins of a server, and takes them over.
func (b *Board) keep(ctx context.Context, id switchboard.ServerID, s *pinnedServer, pins *admission.ServerPins) error {
	data, err := pack(pins)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := b.o.Store.Apply(ctx, store.Change{Group: groupPins, Durable: true, Writes: []store.Write{{Name: string(id), Was: s.version, Data: data}}})
	if err != nil {
		return err
	}
	s.pins, s.version, s.unkept = pins, v, false
	b.publish(ctx, id)
	return nil
}

// reread reads the pins of a server again.
func (b *Board) reread(ctx context.Context, id switchboard.ServerID, s *pinnedServer) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := b.o.Store.Value(ctx, store.Key{Group: groupPins, Name: string(id)})
	if err != nil {
		return err
	}
	s.gone = nil // a note may be lost
	return s.take(v)
}

// take takes over pins from the store.
func (s *pinnedServer) take(v store.Value) error {
	pins := &admission.ServerPins{}
	if v.Data != nil {
		if err := unpack(v.Data, pins); err != nil {
			return err
		}
	}
	s.pins, s.version, s.unkept, s.old = pins, v.Version, false, true
	return nil
}
