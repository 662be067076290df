package health_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A wire is a store that can be disconnected.
type wire struct {
	store.Store
	gone atomic.Bool
}

func (w *wire) check() error {
	if w.gone.Load() {
		return fmt.Errorf("%w: pulled", store.ErrUnavailable)
	}
	return nil
}

func (w *wire) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if err := w.check(); err != nil {
		return store.Value{}, err
	}
	return w.Store.Value(ctx, k)
}

func (w *wire) List(ctx context.Context, group string) ([]store.NamedValue, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	return w.Store.List(ctx, group)
}

func (w *wire) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if err := w.check(); err != nil {
		return 0, err
	}
	return w.Store.Apply(ctx, c)
}

func (w *wire) Publish(ctx context.Context, topic string, data []byte) error {
	if err := w.check(); err != nil {
		return err
	}
	return w.Store.Publish(ctx, topic, data)
}

// replicas returns worlds with one HTTP server, "a", at the same address.
func replicas(t *testing.T, n int) ([]*world, *wire) {
	t.Helper()
	st := &wire{Store: store.NewMemory()}
	t.Cleanup(func() { _ = st.Close() })
	var all []*world
	for i := range n {
		all = append(all, newReplica(t, st, fmt.Sprint("replica-", i)))
	}
	return all, st
}

func newReplica(t *testing.T, st health.Store, self string) *world {
	t.Helper()
	return watch(t, health.Options{Store: st, Replica: self}, switchboard.Server{ID: "a", Transport: switchboard.TransportHTTP, URL: "http://a.test/mcp"})
}

func set(all []*world, err error) {
	for _, w := range all {
		w.set("a", err)
	}
}

// states returns the state of the server at each replica.
func states(all []*world) string {
	synctest.Wait()
	var s []string
	for _, w := range all {
		st, _ := w.Status("a")
		s = append(s, string(st.State))
	}
	return strings.Join(s, " ")
}

func called(all []*world) (n int) {
	for _, w := range all {
		w.mu.Lock()
		n += len(w.calls)
		w.calls = nil
		w.mu.Unlock()
	}
	return n
}

func probed(all []*world) (n int) {
	for _, w := range all {
		w.mu.Lock()
		n += len(w.probes)
		w.probes = nil
		w.mu.Unlock()
	}
	return n
}

// trip makes five calls, each of a tool that has not failed yet.
func trip(t *testing.T, w *world) {
	t.Helper()
	for i := range 5 {
		_ = w.call(t, fmt.Sprintf("a/%d-%d", i, time.Since(w.begun)))
	}
}

func TestAServerThatIsDownForOneReplicaIsDownForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := replicas(t, 6)
		set(all, hung)
		trip(t, all[0])
		if got := states(all); strings.Count(got, "quarantine") != 6 {
			t.Fatalf("at once: %s", got)
		}
		called(all)
		for _, w := range all[1:] {
			err := w.call(t, "a/x")
			if own, _ := errors.AsType[*switchboard.Error](err); own == nil || own.Code != switchboard.CodeNoneHealthy || !own.Unsent {
				t.Errorf("a call ends with %v", err)
			}
			if st, _ := w.Status("a"); st.Cause == nil || st.Cause.Message != "no answer in time" {
				t.Errorf("another replica has no cause: %+v", st.Cause)
			}
			if w.Fit(switchboard.ToolID{Server: "a"}) {
				t.Error("another replica chooses it")
			}
		}
		if n := called(all); n != 0 {
			t.Errorf("replicas with the hint have called it %d times", n)
		}
	})
}

func TestAStatusIsNotChangedByALaterHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := replicas(t, 2)
		set(all, hung)
		trip(t, all[0])
		synctest.Wait()
		st, _ := all[1].Status("a")
		if st.Cause == nil || st.Cause.Message != "no answer in time" {
			t.Fatalf("another replica has no cause: %+v", st.Cause)
		}
		set(all, nil)
		time.Sleep(longest + 10*time.Second)
		if now, _ := all[1].Status("a"); now.State == health.Quarantine {
			t.Fatalf("it is still down: %+v", now)
		}
		if st.Cause.Message != "no answer in time" {
			t.Errorf("the earlier cause has changed to %+v", st.Cause)
		}
	})
}

func TestOneReplicaAtATimeProbesAServerThatIsDownForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := replicas(t, 6)
		set(all, hung)
		trip(t, all[0])
		synctest.Wait()
		probed(all)
		time.Sleep(10 * time.Minute)
		// After the first minutes a quarantine lasts a minute.
		if n := probed(all); n < 8 || n > 20 {
			t.Errorf("it was probed %d times by six replicas in ten minutes", n)
		}
		set(all, nil)
		for range int(longest.Seconds()) {
			time.Sleep(time.Second)
			if strings.Contains(states(all), "probation") {
				break
			}
		}
		if got := states(all); strings.Count(got, "healthy")+strings.Count(got, "probation")+strings.Count(got, "quarantine") != 6 || !strings.Contains(got, "probation") {
			t.Fatalf("after its first answer to a probe: %s", got)
		}
		called(all)
		ended := make(chan error)
		for _, w := range all {
			go func() { ended <- w.call(t, "a/x") }()
		}
		good := 0
		for range all {
			if <-ended == nil {
				good++
			}
		}
		if n := called(all); n != 1 || good != 1 {
			t.Errorf("six replicas made %d trials at once, and %d calls went well", n, good)
		}
		if got := states(all); strings.Count(got, "healthy") != 6 {
			t.Errorf("after the trial: %s", got)
		}
	})
}

func TestAServerThatWorksAgainIsBackForAllWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, calls := range []bool{false, true} {
			all, _ := replicas(t, 3)
			set(all, hung)
			for _, w := range all {
				trip(t, w) // the first writes the hint; the others may see the failure, too
			}
			time.Sleep(time.Minute)
			set(all, nil)
			began := time.Now()
			for states(all) != "healthy healthy healthy" {
				if time.Since(began) > longest {
					t.Fatalf("with calls %v, after %s: %s", calls, time.Since(began), states(all))
				}
				if calls {
					_ = all[2].call(t, "a/y")
				}
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(began); calls && took > 3*time.Second {
				t.Errorf("calls wanted it, and it was back after %s", took)
			}
		}
	})
}

// longest is how long a working server may stay in quarantine without calls: the
// longest quarantine plus the time to the trial.
const longest = 75 * time.Second

func TestAReplicaThatIsCutOffTakesAServerFromTheOthersForAMomentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := replicas(t, 3)
		all[0].set("a", refused) // this replica is cut off
		out := time.Duration(0)
		for range 600 { // ten minutes with calls at all replicas
			began := time.Now()
			for _, w := range all {
				go func() { _ = w.call(t, "a/x") }()
			}
			time.Sleep(time.Second)
			if st, _ := all[1].Status("a"); st.State != health.Healthy {
				out += time.Since(began)
			}
		}
		if out > 5*time.Second {
			t.Errorf("the others were without it for %s of ten minutes", out)
		}
		if st, _ := all[0].Status("a"); st.State == health.Healthy {
			t.Error("the replica that is cut off reports the server as healthy")
		}
		all[0].set("a", nil)
		time.Sleep(longest + 90*time.Second) // enough for a minute of health
		if got := states(all); strings.Count(got, "healthy") != 3 {
			t.Errorf("after the replica is connected again: %s", got)
		}
		// Its hints count again.
		set(all, hung)
		trip(t, all[0])
		if got := states(all); strings.Count(got, "quarantine") != 3 {
			t.Errorf("when the server is gone: %s", got)
		}
	})
}

func TestWithoutTheStoreEachReplicaDecidesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, st := replicas(t, 2)
		st.gone.Store(true)
		all[0].set("a", hung)
		trip(t, all[0])
		if got := states(all); got != "quarantine healthy" {
			t.Errorf("a hint was shared without a store: %s", got)
		}
		all[0].set("a", nil)
		time.Sleep(10 * time.Second)
		if got := states(all); got != "healthy healthy" {
			t.Errorf("after the server works again: %s", got)
		}
		st.gone.Store(false)
		set(all, hung)
		trip(t, all[0])
		if got := states(all); got != "quarantine quarantine" {
			t.Fatalf("with the store: %s", got)
		}
		// Without the store, a hint of another replica does not outlast this replica's own probes.
		st.gone.Store(true)
		set(all, nil)
		time.Sleep(10 * time.Second)
		if got := states(all); got != "healthy healthy" {
			t.Errorf("without the store, after the server works again: %s", got)
		}
		st.gone.Store(false)
		time.Sleep(2 * time.Minute)
		if got := states(all); got != "healthy healthy" {
			t.Errorf("with the store again: %s", got)
		}
	})
}

func TestADisabledServerStaysDisabledForAllReplicasAndInTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, st := replicas(t, 2)
		if err := all[0].Disable(t.Context(), "a", "disabled by bob"); err != nil {
			t.Fatal(err)
		}
		all = append(all, newReplica(t, st, "later"))
		if got := states(all); got != "disabled disabled disabled" {
			t.Errorf("they are %s", got)
		}
		if s, _ := all[2].Status("a"); s.Cause == nil || s.Cause.Message != "disabled by bob" {
			t.Errorf("the next process has no cause: %+v", s.Cause)
		}
		st.gone.Store(true)
		if err := all[1].Enable(t.Context(), "a"); code(err) != switchboard.CodeStoreUnavailable {
			t.Errorf("Enable without the store returns %v", err)
		}
		if got := states(all); got != "disabled disabled disabled" {
			t.Errorf("after a failed Enable they are %s", got)
		}
		st.gone.Store(false)
		if err := all[1].Enable(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if got := states(all); got != "healthy healthy healthy" {
			t.Errorf("after Enable they are %s", got)
		}
	})
}

func TestTheHealthOfAProcessIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		defer st.Close() //nolint:errcheck // only this test uses it
		var all []*world
		for _, self := range []string{"one", "two"} {
			all = append(all, watch(t, health.Options{Store: st, Replica: self}, switchboard.Server{ID: "a", Transport: switchboard.TransportStdio, Command: []string{"x"}}))
		}
		all[0].set("a", hung)
		trip(t, all[0])
		if got := states(all); got != "quarantine healthy" {
			t.Errorf("they are %s", got)
		}
	})
}
