package app

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
)

// A meteredStore counts the operations of a store, their outcomes and their durations.
type meteredStore struct {
	store.Store
	counts *telemetry.Recorder
}

// count counts one operation that began at the given time. Use it in a defer.
func (m *meteredStore) count(operation string, began time.Time, err *error) {
	outcome := "ok"
	switch {
	case *err == nil:
	case errors.Is(*err, store.ErrConflict):
		outcome = "conflict"
	case errors.Is(*err, store.ErrUnavailable):
		outcome = "unavailable"
	case errors.Is(*err, store.ErrInvalid):
		outcome = "invalid"
	case errors.Is(*err, store.ErrUnopened):
		outcome = "unopened"
	default:
		outcome = "cancelled"
	}
	m.counts.CountStoreOperation(operation, outcome, time.Since(began))
}

// Value implements store.Store.
func (m *meteredStore) Value(ctx context.Context, k store.Key) (v store.Value, err error) {
	defer m.count("value", time.Now(), &err)
	return m.Store.Value(ctx, k)
}

// List implements store.Store.
func (m *meteredStore) List(ctx context.Context, group string) (all []store.NamedValue, err error) {
	defer m.count("list", time.Now(), &err)
	return m.Store.List(ctx, group)
}

// Apply implements store.Store.
func (m *meteredStore) Apply(ctx context.Context, c store.Change) (v store.Version, err error) {
	defer m.count("apply", time.Now(), &err)
	return m.Store.Apply(ctx, c)
}

// Take implements store.Store.
func (m *meteredStore) Take(ctx context.Context, group string, want store.Want, limits ...store.Limit) (got int, wait time.Duration, err error) {
	defer m.count("take", time.Now(), &err)
	return m.Store.Take(ctx, group, want, limits...)
}

// Hold implements store.Store.
func (m *meteredStore) Hold(ctx context.Context, group, id string, terms store.HoldTerms, accounts ...store.Account) (sums []store.AccountState, held bool, err error) {
	defer m.count("hold", time.Now(), &err)
	return m.Store.Hold(ctx, group, id, terms, accounts...)
}

// Settle implements store.Store.
func (m *meteredStore) Settle(ctx context.Context, group string, settlements ...store.Settlement) (settled []bool, err error) {
	defer m.count("settle", time.Now(), &err)
	return m.Store.Settle(ctx, group, settlements...)
}

// Accounts implements store.Store.
func (m *meteredStore) Accounts(ctx context.Context, group string, names ...string) (all []store.AccountState, err error) {
	defer m.count("accounts", time.Now(), &err)
	return m.Store.Accounts(ctx, group, names...)
}

// Append implements store.Store.
func (m *meteredStore) Append(ctx context.Context, log string, after uint64, entries ...[]byte) (err error) {
	defer m.count("append", time.Now(), &err)
	return m.Store.Append(ctx, log, after, entries...)
}

// Read implements store.Store.
func (m *meteredStore) Read(ctx context.Context, log string, after uint64, limit int) (all []store.Entry, err error) {
	defer m.count("read", time.Now(), &err)
	return m.Store.Read(ctx, log, after, limit)
}

// Publish implements store.Store.
func (m *meteredStore) Publish(ctx context.Context, topic string, data []byte) (err error) {
	defer m.count("publish", time.Now(), &err)
	return m.Store.Publish(ctx, topic, data)
}
