package cache

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

const (
	storeTimeout = 250 * time.Millisecond // for one use of the store
	storeRest    = time.Second            // how long the store is not used after it failed
)

// A restingStore is a Store that costs calls little time when it fails: each use has a short timeout, and it is not
// used for a while after a failure.
type restingStore struct {
	Store
	restsUntil atomic.Int64 // in unix nanoseconds
}

var errResting = errors.New("the store failed a moment ago")

// use runs one use of the store.
func (s *restingStore) use(ctx context.Context, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if time.Now().UnixNano() < s.restsUntil.Load() {
		return errResting
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := do(ctx)
	switch {
	case err == nil, errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrUnopened), errors.Is(err, context.Canceled):
	default:
		s.restsUntil.Store(time.Now().Add(storeRest).UnixNano())
	}
	return err
}

// Value implements Store.
func (s *restingStore) Value(ctx context.Context, k store.Key) (v store.Value, err error) {
	err = s.use(ctx, func(ctx context.Context) (err error) {
		v, err = s.Store.Value(ctx, k)
		return err
	})
	return v, err
}

// Apply implements Store.
func (s *restingStore) Apply(ctx context.Context, c store.Change) (v store.Version, err error) {
	err = s.use(ctx, func(ctx context.Context) (err error) {
		v, err = s.Store.Apply(ctx, c)
		return err
	})
	return v, err
}

// Publish implements Store.
func (s *restingStore) Publish(ctx context.Context, topic string, data []byte) error {
	return s.use(ctx, func(ctx context.Context) error { return s.Store.Publish(ctx, topic, data) })
}
