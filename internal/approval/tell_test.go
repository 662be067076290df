package approval_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A herald counts how often people are told of each request.
type herald struct {
	mu    sync.Mutex
	told  map[string]int
	fault error
}

func (h *herald) tell(_ context.Context, r *approval.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		return h.fault
	}
	if h.told == nil {
		h.told = map[string]int{}
	}
	h.told[r.ID()]++
	return nil
}

// follow has the keeper tell the herald until the returned function is called.
func (h *herald) follow(t *testing.T, k *approval.Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		k.TellPeople(ctx, func() []switchboard.TenantID { return []switchboard.TenantID{"acme", "beta"} }, h.tell)
	})
	return func() { cancel(); following.Wait() }
}

func askOnce(t *testing.T, k *approval.Keeper, arguments string) {
	t.Helper()
	caller := k.Require(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		t.Error("the call is made")
		return switchboard.Result{}, nil
	}))
	if _, err := caller.Call(t.Context(), callOf(arguments)); codeOf(err) != switchboard.CodeApprovalPending {
		t.Error(err)
	}
}

func TestPeopleAreToldOfARequestAtOnceAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		one, other := newKeeper(t, s, nil), newKeeper(t, s, nil)
		var h herald
		stop, stopOther := h.follow(t, one), h.follow(t, other)
		synctest.Wait()
		began := time.Now()
		for range 3 {
			askOnce(t, one, `{"n":1}`)
		}
		synctest.Wait()
		if len(h.told) != 1 || time.Since(began) != 0 {
			t.Errorf("told after %s: %v", time.Since(began), h.told)
		}
		askOnce(t, other, `{"n":2}`)
		<-time.After(5 * time.Minute)
		stop()
		stopOther()
		for id, n := range h.told {
			if n != 1 {
				t.Errorf("told of %s %d times", id, n)
			}
		}
		if len(h.told) != 2 {
			t.Errorf("told of %v", h.told)
		}
	})
}

func TestANoticeThatCannotBeKeptIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		k := newKeeper(t, s, nil)
		h := herald{fault: errors.New("the mailbox cannot be written")}
		stop := h.follow(t, k)
		defer stop()
		askOnce(t, k, `{}`)
		<-time.After(time.Hour / 2)
		h.mu.Lock()
		h.fault = nil
		h.mu.Unlock()
		<-time.After(time.Minute)
		if id := pendingOf(t, k); h.told[id] != 1 || len(h.told) != 1 {
			t.Errorf("told of %v, and %s is pending", h.told, id)
		}
	})
}

// A mortal store is that of a process that is killed before one of its operations: none of them has an effect from then on.
type mortal struct {
	store.Store
	left   atomic.Int64 // operations until the kill
	killed atomic.Bool
}

func (m *mortal) die() error {
	if m.left.Add(-1) < 0 {
		m.killed.Store(true)
		return fmt.Errorf("killed: %w", store.ErrUnavailable)
	}
	return nil
}

func (m *mortal) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if err := m.die(); err != nil {
		return store.Value{}, err
	}
	return m.Store.Value(ctx, k)
}

func (m *mortal) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if err := m.die(); err != nil {
		return 0, err
	}
	return m.Store.Apply(ctx, c)
}

// A process makes requests, and is killed before each of its operations in turn. The next process tells of every request that there is.
func TestAKillBetweenARequestAndItsNoticeLeavesNoRequestUntold(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	const most = 100
	untoldAtTheKill, n := 0, int64(0)
	for ; n < most; n++ {
		survived := false
		synctest.Test(t, func(t *testing.T) {
			s := store.NewMemory()
			defer func() { _ = s.Close() }()
			m := &mortal{Store: s}
			m.left.Store(n)
			dies := newKeeper(t, m, nil)
			var h herald
			before := herald{}
			stop := before.follow(t, dies)
			for i := range 3 {
				_, _ = dies.Require(same(nil)).Call(t.Context(), callOf(fmt.Sprintf(`{"n":%d}`, i)))
				synctest.Wait()
			}
			survived = !m.killed.Load()
			m.left.Store(0) // it ends in no good order
			stop()
			h.told = before.told
			next := newKeeper(t, s, nil)
			all, err := next.List(t.Context(), "acme")
			if err != nil {
				t.Fatal(err)
			}
			untoldAtTheKill += len(all) - len(h.told)
			stop = h.follow(t, next)
			<-time.After(time.Minute)
			stop()
			for _, r := range all {
				if times := h.told[r.ID()]; times < 1 || times > 2 {
					t.Errorf("killed before operation %d: told of %s %d times", n, r.ID(), times)
				}
			}
			if len(h.told) > len(all) {
				t.Errorf("killed before operation %d: told of %v", n, h.told)
			}
		})
		if survived {
			break
		}
	}
	if n < 10 || n == most || untoldAtTheKill == 0 {
		t.Errorf("%d kills left %d requests untold", n, untoldAtTheKill)
	}
}

func TestARequestThatCannotBeReadDelaysNoNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		dies := newKeeper(t, s, nil)
		for i := range 3 {
			askOnce(t, dies, fmt.Sprintf(`{"n":%d}`, i))
			<-time.After(2 * time.Second)
		}
		all, err := dies.List(t.Context(), "acme")
		if err != nil || len(all) != 3 {
			t.Fatal(len(all), err)
		}
		damage := store.Write{Name: all[1].Binding[:16], Was: store.Any, Data: []byte("{")}
		if _, err := s.Apply(t.Context(), store.Change{Group: "approval/acme", Writes: []store.Write{damage}}); err != nil {
			t.Fatal(err)
		}
		var h herald
		stop := h.follow(t, newKeeper(t, s, nil))
		<-time.After(10 * time.Minute)
		stop()
		if h.told[all[0].ID()] != 1 || h.told[all[2].ID()] != 1 || len(h.told) != 2 {
			t.Errorf("told of %v", h.told)
		}
	})
}

func TestPeopleAreNotToldOfARequestThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		dies := newKeeper(t, s, nil)
		askOnce(t, dies, `{"n":1}`)
		decide(t, dies, pendingOf(t, dies), approval.Saying{})
		askOnce(t, dies, `{"n":2}`)
		<-time.After(approval.MaxUntil)
		var h herald
		stop := h.follow(t, newKeeper(t, s, nil))
		<-time.After(time.Minute)
		stop()
		if len(h.told) != 0 {
			t.Errorf("told of %v", h.told)
		}
	})
}

// A stuckStore makes no change from some time on, and does not say so.
type stuckStore struct {
	store.Store
	stuck atomic.Bool
}

func (s *stuckStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.stuck.Load() {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	return s.Store.Apply(ctx, c)
}

func TestACallerWaitsNoLongerThanItsDeadlineWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckStore{Store: store.NewMemory()}
		defer func() { _ = s.Close() }()
		k := newKeeper(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() {
			k.TellPeople(ctx, func() []switchboard.TenantID { return nil }, func(context.Context, *approval.Request) error {
				s.stuck.Store(true)
				return nil
			})
		})
		defer following.Wait()
		defer cancel()
		askOnce(t, k, `{"n":1}`)
		synctest.Wait()
		began := time.Now()
		var asking sync.WaitGroup
		for i := range 10 {
			asking.Go(func() {
				own, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				if _, err := k.Require(same(nil)).Call(own, callOf(fmt.Sprintf(`{"n":%d}`, 2+i))); codeOf(err) != switchboard.CodeStoreUnavailable {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("they have waited %v", took)
		}
	})
}
