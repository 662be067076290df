// Package revocation keeps the keys that were revoked and the persons who were blocked, by their hash.
//
// A revocation takes effect without an edit of a file, at every process that shares the store, and holds as long as its row exists.
// The package decides whether a key may still be used. Package identity knows the holder of a key, and package admin decides about the right to revoke it.
package revocation

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Group is the group of all values of this package in the store.
const Group = "revoked"

const (
	topic = "revoked"

	// maxRows is less than one read of the store returns, so that no revocation is overlooked.
	maxRows = 8192

	// keptFor is how long the row of a key stays after no file names the key any more.
	keptFor = 30 * 24 * time.Hour

	fileInterval   = 500 * time.Millisecond // other processes that share a file send no notices
	sharedInterval = 5 * time.Second        // for notices that were lost
	readTimeout    = 2 * time.Second
)

// A Store keeps revocations. See store.Store.
type Store interface {
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
	Status() store.Status
}

// A Revocation says which key was revoked, when and why.
type Revocation struct {
	Tenant switchboard.TenantID `json:"tenant,omitempty"` // "" for an operator
	ID     string               `json:"id"`
	Person bool                 `json:"person,omitempty"` // it is the block of a person who signs in at an issuer: ID is ISSUER/SUBJECT
	By     string               `json:"by"`
	When   time.Time            `json:"when"`
	Reason string               `json:"reason,omitempty"`
}

// RevokedKeys knows the revoked keys. Use Open. It is safe for concurrent use.
type RevokedKeys struct {
	store   Store
	changed func()
	log     *slog.Logger
	reading chan struct{}                           // has one element from a read of the store until known has its result, so that no older read replaces a newer one
	known   atomic.Pointer[map[[32]byte]Revocation] // nil until the first read of the store
	stop    context.CancelFunc
	done    chan struct{}
}

// Open reads the revocations and follows the store until Close. changed, if not nil, is called after keys have been revoked; it must not
// wait. If the store cannot be read now, no key counts until it can.
func Open(ctx context.Context, s Store, changed func(), log *slog.Logger) *RevokedKeys {
	if changed == nil {
		changed = func() {}
	}
	l := &RevokedKeys{store: s, changed: changed, log: log, reading: make(chan struct{}, 1), done: make(chan struct{})}
	every := sharedInterval
	if s.Status().Kind == "file" {
		every = fileInterval
	}
	changes := feed.Watch(s, topic, every)
	if err := l.read(ctx); err != nil {
		log.Warn("the revoked keys cannot be read; until they can, no key is accepted", "err", err)
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go l.follow(ctx, changes)
	return l
}

func (l *RevokedKeys) follow(ctx context.Context, changes *feed.Feed[struct{}]) {
	defer close(l.done)
	defer changes.Close()
	for failed := false; ; {
		if _, _, err := changes.Next(ctx); err != nil {
			return
		}
		err := l.read(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			l.log.Warn("the revoked keys cannot be read; those that are known stay revoked", "err", err)
		}
		failed = err != nil
	}
}

// Close ends the following. What is known stays known.
func (l *RevokedKeys) Close() {
	l.stop()
	<-l.done
}

// CatchUp reads the revocations of other processes now. If the store cannot be read, what is known stays, and follow
// logs it and reads again.
func (l *RevokedKeys) CatchUp(ctx context.Context) { _ = l.read(ctx) }

// read reads all revocations.
func (l *RevokedKeys) read(ctx context.Context) error {
	l.reading <- struct{}{} // a read ends within readTimeout
	defer func() { <-l.reading }()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	known, err := readRows(ctx, l.store)
	if err != nil {
		return err
	}
	was := l.known.Load()
	fresh := was == nil
	for hash := range known {
		if was != nil {
			_, had := (*was)[hash]
			fresh = fresh || !had
		}
	}
	if was != nil && !fresh && len(*was) == len(known) {
		return nil
	}
	l.known.Store(&known)
	if fresh {
		l.changed()
	}
	return nil
}

// readRows reads all revocations of a store.
func readRows(ctx context.Context, s Store) (map[[32]byte]Revocation, error) {
	rows, err := s.List(ctx, Group)
	if err != nil {
		return nil, err
	}
	known := make(map[[32]byte]Revocation, len(rows))
	for _, row := range rows {
		raw, err := hex.DecodeString(row.Name)
		if err != nil || len(raw) != 32 {
			continue
		}
		var r Revocation
		_ = json.Unmarshal(row.Data, &r) // the key is revoked even if the rest is unreadable
		known[[32]byte(raw)] = r
	}
	return known, nil
}

// ReadOnce returns the revocations that a store holds now. It does not follow the store, and the result revokes nothing.
func ReadOnce(ctx context.Context, s Store) (*RevokedKeys, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	known, err := readRows(ctx, s)
	if err != nil {
		return nil, err
	}
	l := &RevokedKeys{}
	l.known.Store(&known)
	return l, nil
}

// CheckKey returns why the key with the hash may not be used, or nil. The error is a *switchboard.Error: SB-AUTH-001 if the key is
// revoked, and SB-ROUT-004 while this process has never read which keys are.
func (l *RevokedKeys) CheckKey(hash [32]byte) error {
	known := l.known.Load()
	if known == nil {
		return switchboard.Refuse(switchboard.CodeStoreUnavailable, "which keys are revoked is not known yet, so no key is accepted")
	}
	switch r, revoked := (*known)[hash]; {
	case r.Person:
		return switchboard.Refuse(switchboard.CodeNotAuthorized, "an operator has blocked you")
	case revoked:
		e := switchboard.Refuse(switchboard.CodeNotAuthenticated, "this key was revoked")
		e.Hint = "ask the person who gave it to you for a new one"
		return e
	}
	return nil
}

// Of returns the revocation of the key with the hash, if it is revoked.
func (l *RevokedKeys) Of(hash [32]byte) (r Revocation, revoked bool) {
	if known := l.known.Load(); known != nil {
		r, revoked = (*known)[hash]
	}
	return r, revoked
}

// Revoke revokes the keys with the hashes, durably. They are revoked at this process when Revoke returns, and at the others soon after. A
// key that was revoked before keeps its first revocation. The error is a *switchboard.Error.
func (l *RevokedKeys) Revoke(ctx context.Context, hashes [][32]byte, r Revocation) error {
	known := l.known.Load()
	if known == nil {
		return l.CheckKey([32]byte{})
	}
	if len(*known)+len(hashes) > maxRows {
		return switchboard.Refuse(switchboard.CodeStoreUnavailable, "%d keys are revoked, the most that there may be; remove the row of the key from its file instead, and the rows of other revoked keys", len(*known))
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for _, hash := range hashes {
		_, err := l.store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: hex.EncodeToString(hash[:]), Data: text}}, Durable: true})
		if err != nil && !errors.Is(err, store.ErrConflict) { // it is revoked already
			return switchboard.Unavailable("the revocation cannot be kept, so the key is not revoked", err)
		}
		l.add(hash, r)
	}
	_ = l.store.Publish(ctx, topic, nil) // a replica that misses the notice reads the store soon
	_ = l.read(ctx)                      // what was written counts here without it
	return nil
}

// add makes a key count as revoked here, also if the store cannot be read any more.
func (l *RevokedKeys) add(hash [32]byte, r Revocation) {
	l.reading <- struct{}{}
	defer func() { <-l.reading }()
	known := maps.Clone(*l.known.Load())
	if _, had := known[hash]; had {
		return
	}
	known[hash] = r
	l.known.Store(&known)
	l.changed()
}

// Persons returns the blocks of persons, in no order.
func (l *RevokedKeys) Persons() (all []Revocation) {
	if known := l.known.Load(); known != nil {
		for _, r := range *known {
			if r.Person {
				all = append(all, r)
			}
		}
	}
	return all
}

// Keys returns the revocations of keys, in no order.
func (l *RevokedKeys) Keys() (all []Revocation) {
	if known := l.known.Load(); known != nil {
		for _, r := range *known {
			if !r.Person {
				all = append(all, r)
			}
		}
	}
	return all
}

// Restore lifts the block of a person, durably. It is lifted at this process when Restore returns, and at the others soon after. The error is a
// *switchboard.Error.
func (l *RevokedKeys) Restore(ctx context.Context, hash [32]byte) error {
	_, err := l.store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: hex.EncodeToString(hash[:]), Was: store.Any}}, Durable: true})
	if err == nil {
		_ = l.store.Publish(ctx, topic, nil)
		err = l.read(ctx)
	}
	if err != nil {
		return switchboard.Unavailable("the block cannot be lifted now", err)
	}
	return nil
}

// Forget deletes the revocations of keys that no file names and that were revoked long ago, so that their number stays bounded. Blocks of persons stay. named reports
// whether a file names the key.
func (l *RevokedKeys) Forget(ctx context.Context, named func(hash [32]byte) bool) error {
	known := l.known.Load()
	if known == nil {
		return nil
	}
	for hash, r := range *known {
		if named(hash) || r.Person || time.Since(r.When) < keptFor {
			continue
		}
		if _, err := l.store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: hex.EncodeToString(hash[:]), Was: store.Any}}}); err != nil {
			return fmt.Errorf("forget a revoked key: %w", err)
		}
	}
	return l.read(ctx)
}
