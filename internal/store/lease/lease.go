// Package lease gives one owner a right until an instant, by a value in a store that expires.
//
// An owner takes a lease by compare-and-set, renews it while it needs the right, and releases it. If the owner
// dies, the lease expires by itself. If the owner cannot reach the store for longer than the lease lasts, another
// owner may have taken it: then a renewal fails and leaves the other owner's lease alone.
//
// The package decides who owns a lease. What the right means, and what an owner does when it has lost it, is decided
// by the packages that use it. A lease is no lock: an owner that was paused does not know that its lease has expired.
// A write that must not happen twice needs compare-and-set on its own value as well.
package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// A Store holds leases. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// Options describe a lease.
type Options struct {
	Key store.Key

	// TTL is how long the lease lasts after it was taken or renewed.
	TTL time.Duration

	// Every is the time between two renewals by Keep; 0 means a third of TTL. A renewal may take as long.
	Every time.Duration

	// Data is the value of the lease. It must identify the owner, unless Sole is set.
	Data []byte

	// Sole says that the key has only this owner ever. Each write then replaces any value.
	Sole bool
}

// A Lease is one owner's lease. Use New. It is safe for concurrent use.
type Lease struct {
	store Store
	o     Options
	wake  chan struct{} // of capacity one: renew at once

	writing chan struct{}   // of capacity one: full during a write to the store, which guards version and written
	version store.Version   // of our value; 0 if we have none, as far as we know
	written map[string]bool // the data that our value may have: more than one after a lost answer

	mu   sync.Mutex
	data []byte
	held time.Time // the lease lasts at least until then, by our own clock
}

// New returns a lease that is not taken yet. It does not use the store.
func New(s Store, o Options) *Lease {
	if o.Every == 0 {
		o.Every = o.TTL / 3
	}
	return &Lease{
		store: s, o: o, data: clone(o.Data), written: map[string]bool{},
		wake: make(chan struct{}, 1), writing: make(chan struct{}, 1),
	}
}

// Take takes the lease. The error is store.ErrConflict if another owner has it. After any other error the lease may
// be taken all the same: Take finds that out if it is called again, and Release deletes it.
func (l *Lease) Take(ctx context.Context) error { return l.Renew(ctx) }

// Renew makes the lease last for another TTL. It takes the lease again if it has expired and no other owner has it;
// the error is store.ErrConflict if another owner has it. An owner that must not act after a gap looks at Held.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	l.mu.Lock()
	data := l.data
	l.mu.Unlock()
	began := time.Now()
	l.written[string(data)] = true
	version, err := l.apply(ctx, store.Change{Group: l.o.Key.Group}, store.Write{Name: l.o.Key.Name, Data: data, TTL: l.o.TTL})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.version, l.written, l.held = version, map[string]bool{string(data): true}, began.Add(l.o.TTL)
	case errors.Is(err, store.ErrConflict):
		l.version, l.held = 0, time.Time{}
	}
	return err
}

// Claim returns the write that takes the lease as a part of a larger change of its group. It replaces the lease of any
// owner: the other writes of that change must decide who the owner is. Call Taken when the change was made.
func (l *Lease) Claim() store.Write {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.Write{Name: l.o.Key.Name, Was: store.Any, Data: l.data, TTL: l.o.TTL}
}

// Taken says that a change with the write of Claim was made, began at that instant, and gave the lease that version.
func (l *Lease) Taken(version store.Version, began time.Time) {
	l.writing <- struct{}{}
	defer l.unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version, l.written, l.held = version, map[string]bool{string(l.data): true}, began.Add(l.o.TTL)
}

// Withdrawal returns the write that deletes the lease, of any owner, as a part of a larger change of its group.
func (l *Lease) Withdrawal() store.Write { return store.Write{Name: l.o.Key.Name, Was: store.Any} }

// Release deletes the lease if it is ours, and makes the other writes of its group in the same change. It makes these
// also if another owner has the lease. They have to replace any version (store.Any). Call it after the function that
// Keep returned.
func (l *Lease) Release(ctx context.Context, beside ...store.Write) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	l.mu.Lock()
	l.held = time.Time{}
	l.mu.Unlock()
	change := store.Change{Group: l.o.Key.Group, Writes: beside}
	_, err := l.apply(ctx, change, store.Write{Name: l.o.Key.Name})
	if errors.Is(err, store.ErrConflict) { // another owner's lease stays
		err = nil
		if len(beside) > 0 {
			_, err = l.store.Apply(ctx, change)
		}
	}
	if err == nil {
		l.version = 0
	}
	return err
}

// apply makes the change with the write of the lease, which replaces our value or none.
func (l *Lease) apply(ctx context.Context, c store.Change, w store.Write) (store.Version, error) {
	others := c.Writes
	for {
		if w.Was = l.version; l.o.Sole {
			w.Was = store.Any
		}
		c.Writes = append(slices.Clone(others), w)
		version, err := l.store.Apply(ctx, c)
		if !errors.Is(err, store.ErrConflict) {
			return version, err
		}
		// Our value may have expired, or an earlier write whose answer was lost may have changed its version.
		now, err := l.store.Value(ctx, l.o.Key)
		switch {
		case errors.Is(err, store.ErrUnopened): // no replica with our secret wrote it
		case err != nil:
			return 0, err
		case now.Version != 0 && !l.written[string(now.Data)]:
			return 0, store.ErrConflict
		}
		if now.Version == l.version { // another owner had it just now, or it is about a write beside the lease
			return 0, store.ErrConflict
		}
		l.version = now.Version
	}
}

// clone returns a copy that is never nil, which would delete the lease.
func clone(data []byte) []byte { return append([]byte{}, data...) }

func (l *Lease) lock(ctx context.Context) error {
	select {
	case l.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lease) unlock() { <-l.writing }

// Set changes the data of the lease. Keep then renews it at once.
func (l *Lease) Set(data []byte) {
	l.mu.Lock()
	l.data = clone(data)
	l.mu.Unlock()
	l.Wake()
}

// Wake makes Keep renew the lease at once.
func (l *Lease) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Held reports whether the lease is ours for certain: by our own clock, from before it was renewed last.
func (l *Lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.held)
}

// Keep renews the lease each Every, and after each Set and Wake, until ctx is done or stop is called. stop waits for the
// renewal in flight, which it cancels, and may be called more than once. renewed, if it is not nil, is called after
// each renewal with its error. Keep itself does not take the lease: it is renewed for the first time after Every.
func (l *Lease) Keep(ctx context.Context, renewed func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(l.o.Every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-l.wake:
			}
			err := l.renewInTime(ctx)
			if ctx.Err() != nil {
				return
			}
			if renewed != nil {
				renewed(err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (l *Lease) renewInTime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.Every)
	defer cancel()
	return l.Renew(ctx)
}
