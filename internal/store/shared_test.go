package store_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestEachBackendHoldsLeases(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		leaseOf := func(owner string) *lease.Lease {
			return lease.New(s, lease.Options{Key: store.Key{Group: "g", Name: "lease"}, TTL: time.Second, Data: []byte(owner)})
		}
		one, two := leaseOf("one"), leaseOf("two")
		if err := one.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop := one.Keep(t.Context(), nil)
		after(1500 * time.Millisecond)
		if err := two.Take(t.Context()); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Take of a lease that is kept = %v, want ErrConflict", err)
		}
		stop()
		wait.Until(t, "the lease expires", func() bool { return two.Take(t.Context()) == nil })
		if err := one.Renew(t.Context()); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Renew of a lost lease = %v, want ErrConflict", err)
		}
		if err := two.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := one.Renew(t.Context()); err != nil {
			t.Errorf("Renew of a released lease = %v", err)
		}
	})
}

func TestEachBackendFeedsItsSubscribers(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		f := feed.Open(s, feed.Options[string]{Topic: "t", Decode: func(data []byte) (key, from string, err error) {
			err = json.Unmarshal(data, &key)
			return key, "", err
		}})
		defer f.Close()
		if err := s.Publish(t.Context(), "t", []byte(`"a"`)); err != nil {
			t.Fatal(err)
		}
		for seen := false; !seen; {
			changed, all, err := f.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			seen = changed["a"] || all
		}
	})
}
