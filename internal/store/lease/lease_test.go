package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
)

const ttl = 6 * time.Second

var key = store.Key{Group: "g", Name: "lease"}

func of(s lease.Store, owner string) *lease.Lease {
	return lease.New(s, lease.Options{Key: key, TTL: ttl, Data: []byte(owner)})
}

// ownerOf returns the data of the lease in the store; "" if there is none.
func ownerOf(t *testing.T, s store.Store) string {
	t.Helper()
	v, err := s.Value(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(v.Data)
}

func take(t *testing.T, l *lease.Lease) {
	t.Helper()
	if err := l.Take(t.Context()); err != nil || !l.Held() {
		t.Fatalf("Take = %v, held %v", err, l.Held())
	}
}

func refused(t *testing.T, l *lease.Lease) {
	t.Helper()
	if err := l.Take(t.Context()); !errors.Is(err, store.ErrConflict) || l.Held() {
		t.Fatalf("Take = %v, held %v; want ErrConflict", err, l.Held())
	}
}

func TestOneOfManyTakesALease(t *testing.T) {
	s := store.NewMemory()
	var taken atomic.Int32
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			switch err := of(s, fmt.Sprint(i)).Take(t.Context()); {
			case err == nil:
				taken.Add(1)
			case !errors.Is(err, store.ErrConflict):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 {
		t.Errorf("%d owners have the lease", taken.Load())
	}
}

func TestALeaseLastsWhileItIsKeptAndThenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		one, two := of(s, "one"), of(s, "two")
		take(t, one)
		stop := one.Keep(t.Context(), func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * ttl)
		refused(t, two)
		stop() // as if it had died
		stop()
		time.Sleep(ttl - time.Millisecond)
		if one.Held() != (ownerOf(t, s) == "one") {
			t.Errorf("held %v, and the owner is %q", one.Held(), ownerOf(t, s))
		}
		time.Sleep(time.Millisecond)
		if one.Held() {
			t.Error("held after its expiry")
		}
		take(t, two)
		refused(t, one)
	})
}

func TestAReleasedLeaseIsFreeAtOnce(t *testing.T) {
	s := store.NewMemory()
	one, two := of(s, "one"), of(s, "two")
	take(t, one)
	if err := one.Release(t.Context(), store.Write{Name: "result", Was: store.Any, Data: []byte("42")}); err != nil || one.Held() {
		t.Fatalf("Release = %v, held %v", err, one.Held())
	}
	if v, err := s.Value(t.Context(), store.Key{Group: "g", Name: "result"}); err != nil || string(v.Data) != "42" {
		t.Errorf("the write beside it: %s, %v", v.Data, err)
	}
	take(t, two)
}

// An away store is the store as one owner sees it. While away is set, that owner cannot reach it; while mute is set, it
// makes changes and loses the answer.
type away struct {
	*store.Memory
	away, mute atomic.Bool
}

func (s *away) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.away.Load() {
		return store.Value{}, store.ErrUnavailable
	}
	return s.Memory.Value(ctx, k)
}

func (s *away) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.away.Load() {
		return 0, store.ErrUnavailable
	}
	v, err := s.Memory.Apply(ctx, c)
	if s.mute.Load() && err == nil {
		return 0, store.ErrUnavailable
	}
	return v, err
}

func TestALeaseThatExpiredIsTakenAgainIfItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &away{Memory: store.NewMemory()}
		one := of(s, "one")
		take(t, one)
		defer one.Keep(t.Context(), nil)()
		s.away.Store(true)
		time.Sleep(2 * ttl)
		if one.Held() || ownerOf(t, s.Memory) != "" {
			t.Errorf("held %v without a store", one.Held())
		}
		s.away.Store(false)
		time.Sleep(ttl)
		if !one.Held() || ownerOf(t, s.Memory) != "one" {
			t.Errorf("held %v, the owner is %q", one.Held(), ownerOf(t, s.Memory))
		}
	})
}

func TestALostLeaseIsLeftToItsNewOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &away{Memory: store.NewMemory()}
		one, two := of(s, "one"), of(s.Memory, "two")
		take(t, one)
		var last atomic.Value
		stop := one.Keep(t.Context(), func(err error) { last.Store(fmt.Sprint(err)) })
		s.away.Store(true)
		time.Sleep(ttl)
		take(t, two)
		defer two.Keep(t.Context(), nil)()
		s.away.Store(false)
		time.Sleep(2 * ttl)
		if one.Held() || ownerOf(t, s.Memory) != "two" || last.Load() != store.ErrConflict.Error() {
			t.Errorf("held %v, the owner is %q, the last renewal: %v", one.Held(), ownerOf(t, s.Memory), last.Load())
		}
		stop()
		if err := one.Release(t.Context(), store.Write{Name: "result", Was: store.Any, Data: []byte("42")}); err != nil {
			t.Errorf("Release = %v", err)
		}
		if v, err := s.Memory.Value(t.Context(), store.Key{Group: "g", Name: "result"}); err != nil || string(v.Data) != "42" || ownerOf(t, s.Memory) != "two" {
			t.Errorf("the write beside it: %s, %v; the owner is %q", v.Data, err, ownerOf(t, s.Memory))
		}
	})
}

func TestALostAnswerDoesNotLoseTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &away{Memory: store.NewMemory()}
		one := of(s, "one")
		s.mute.Store(true)
		if err := one.Take(t.Context()); !errors.Is(err, store.ErrUnavailable) || one.Held() {
			t.Fatalf("Take = %v, held %v", err, one.Held())
		}
		s.mute.Store(false)
		take(t, one)
		for _, data := range []string{"one", "one, busy", "one"} { // also if the lost answer is about other data
			s.mute.Store(true)
			one.Set([]byte(data))
			if err := one.Renew(t.Context()); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("Renew = %v", err)
			}
			s.mute.Store(false)
			if err := one.Renew(t.Context()); err != nil || ownerOf(t, s.Memory) != data {
				t.Fatalf("Renew = %v, the data is %q", err, ownerOf(t, s.Memory))
			}
		}
		s.mute.Store(true)
		one.Set([]byte("one, busy"))
		_ = one.Renew(t.Context()) // it is made
		s.away.Store(true)
		one.Set([]byte("one"))
		_ = one.Renew(t.Context()) // it is not
		s.away.Store(false)
		s.mute.Store(false)
		if err := one.Release(t.Context()); err != nil || ownerOf(t, s.Memory) != "" {
			t.Errorf("Release = %v, the owner is %q", err, ownerOf(t, s.Memory))
		}
	})
}

func TestNewDataIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		one := of(s, "one")
		take(t, one)
		defer one.Keep(t.Context(), nil)()
		one.Set([]byte("one, busy"))
		synctest.Wait()
		if got := ownerOf(t, s); got != "one, busy" {
			t.Errorf("the data is %q", got)
		}
	})
}

func TestALeaseCanBeAPartOfALargerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		one := of(s, "one")
		began := time.Now()
		v, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "claim", Data: []byte("x")}, one.Claim()}})
		if err != nil {
			t.Fatal(err)
		}
		if one.Taken(v, began); !one.Held() {
			t.Error("not held")
		}
		defer one.Keep(t.Context(), nil)()
		time.Sleep(3 * ttl)
		refused(t, of(s, "two"))
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "claim", Was: store.Any}, one.Withdrawal()}}); err != nil || ownerOf(t, s) != "" {
			t.Errorf("%v; the owner is %q", err, ownerOf(t, s))
		}
	})
}

// A stuck store does not answer before the context of a call ends.
type stuck struct{ *store.Memory }

func (s *stuck) Apply(ctx context.Context, _ store.Change) (store.Version, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestARenewalEndsInTimeAndWithItsKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals atomic.Int32
		stop := of(&stuck{store.NewMemory()}, "one").Keep(t.Context(), func(err error) {
			renewals.Add(1)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a renewal ends with %v", err)
			}
		})
		time.Sleep(ttl + ttl/2)
		if renewals.Load() < 2 {
			t.Errorf("%d renewals ended", renewals.Load())
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took != 0 {
			t.Errorf("stop waits %s for a renewal", took)
		}
	})
}

func TestTheSoleOwnerReplacesAnyValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		one := lease.New(s, lease.Options{Key: key, TTL: ttl, Data: []byte("one"), Sole: true})
		stop := one.Keep(t.Context(), nil)
		one.Wake()
		synctest.Wait()
		if got := ownerOf(t, s); got != "one" {
			t.Errorf("after Wake the owner is %q", got)
		}
		if _, err := s.Apply(t.Context(), store.Change{Group: key.Group, Writes: []store.Write{{Name: key.Name, Was: store.Any, Data: []byte("garbage")}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if got := ownerOf(t, s); got != "one" {
			t.Errorf("after a renewal the owner is %q", got)
		}
		stop()
		if err := one.Release(t.Context()); err != nil || ownerOf(t, s) != "" {
			t.Errorf("Release = %v, the owner is %q", err, ownerOf(t, s))
		}
	})
}

// An unreadable store holds a value that does not open, as store.Sealed returns it.
type unreadable struct{ *store.Memory }

func (s *unreadable) Value(ctx context.Context, k store.Key) (store.Value, error) {
	v, err := s.Memory.Value(ctx, k)
	if string(v.Data) == "garbage" {
		return store.Value{Version: v.Version}, store.ErrUnopened
	}
	return v, err
}

func TestAValueThatDoesNotOpenIsNoLease(t *testing.T) {
	s := &unreadable{store.NewMemory()}
	if _, err := s.Apply(t.Context(), store.Change{Group: key.Group, Writes: []store.Write{{Name: key.Name, Data: []byte("garbage")}}}); err != nil {
		t.Fatal(err)
	}
	take(t, of(s, "one"))
	refused(t, of(s, "two"))
}
