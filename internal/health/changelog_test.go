package health_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A keptStore is a store in memory that passes for one that survives the process.
type keptStore struct {
	*store.Memory
	away   atomic.Bool // nothing works
	halved atomic.Bool // changes are made, and nothing is answered

	mu    sync.Mutex
	slow  func(name string) bool // nil: none
	wrote map[string][]time.Time // when, by name
}

func (s *keptStore) Status() store.Status { return store.Status{Kind: "file"} }

func (s *keptStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.away.Load() {
		return store.Value{}, store.ErrUnavailable
	}
	return s.Memory.Value(ctx, k)
}

func (s *keptStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.away.Load() {
		return 0, store.ErrUnavailable
	}
	name := c.Writes[0].Name
	if s.slow != nil && s.slow(name) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	v, err := s.Memory.Apply(ctx, c)
	if err == nil {
		s.mu.Lock()
		if s.wrote == nil {
			s.wrote = map[string][]time.Time{}
		}
		s.wrote[name] = append(s.wrote[name], time.Now())
		s.mu.Unlock()
	}
	if s.halved.Load() {
		return 0, store.ErrUnavailable
	}
	return v, err
}

// watching starts the ChangeLog of a process. stop ends it in good order, kill without a last word.
func watching(t *testing.T, s health.ChangeStore) (l *health.ChangeLog, stop, kill func()) {
	l = health.NewChangeLog(s, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	kill = func() { cancel(); <-done }
	return l, func() { kill(); l.Close(context.Background()) }, kill
}

func note(l *health.ChangeLog, from, to health.State) {
	l.Note(health.Transition{Server: "a", From: from, To: to, Cause: &health.Cause{Stage: "call", Message: "it is " + string(to)}})
}

// bandOf spells the band in whole minutes since an instant.
func bandOf(l *health.ChangeLog, began time.Time) string {
	var all []string
	for _, p := range l.Past(context.Background(), "a", "").Band {
		all = append(all, fmt.Sprintf("%d-%d %s", p.From.Sub(began)/time.Minute, p.To.Sub(began)/time.Minute, p.State))
	}
	return strings.Join(all, ", ")
}

func TestTheStatesOfAServerOutliveTheProcessAndShowWhenNoneHasWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &keptStore{Memory: store.NewMemory()}, time.Now()
		one, stop, _ := watching(t, s)
		note(one, health.Starting, health.Healthy)
		time.Sleep(10 * time.Minute)
		note(one, health.Healthy, health.Quarantine)
		time.Sleep(5 * time.Minute)
		note(one, health.Quarantine, health.Healthy)
		stop()
		time.Sleep(5 * time.Minute) // no process
		two, _, kill := watching(t, s)
		if got, want := bandOf(two, began), "0-10 healthy, 10-15 quarantine"; got != want {
			t.Errorf("after a restart the band is %s, want %s", got, want)
		}
		note(two, health.Starting, health.Healthy)
		time.Sleep(9 * time.Minute)
		kill()
		time.Sleep(11 * time.Minute)
		three, _, _ := watching(t, s)
		time.Sleep(time.Minute)
		note(three, health.Healthy, health.Lost)
		time.Sleep(time.Minute)
		// The second one has said last after five minutes that it watches.
		if got, want := bandOf(three, began), "0-10 healthy, 10-15 quarantine, 20-25 healthy, 40-41 healthy, 41-42 lost"; got != want {
			t.Errorf("after a kill the band is %s, want %s", got, want)
		}
		p := three.Past(t.Context(), "a", "")
		if len(p.Changes) != 5 || p.Changes[1].Cause.Message != "it is quarantine" || p.Changes[1].To != health.Quarantine || !p.Since.Equal(began) || p.StoreAway {
			t.Errorf("%+v", p)
		}
		s.away.Store(true)
		if p := three.Past(t.Context(), "a", ""); len(p.Changes) != 1 || !p.StoreAway || len(p.Band) != 2 {
			t.Errorf("without the store: %+v", p)
		}
		if p := three.Past(t.Context(), "unknown", ""); len(p.Changes)+len(p.Band) != 0 {
			t.Errorf("an unknown server: %+v", p)
		}
		if p := three.Past(t.Context(), "quiet", health.Disabled); len(p.Band) != 1 || p.Band[0].State != health.Disabled || len(p.Changes) != 0 {
			t.Errorf("a server without a change, which is disabled: %+v", p)
		}
	})
}

func TestOfSeveralReplicasTheBandShowsTheWorstState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &keptStore{Memory: store.NewMemory()}, time.Now()
		var logs []*health.ChangeLog
		for range 3 {
			l, _, _ := watching(t, s)
			logs = append(logs, l)
			note(l, health.Starting, health.Healthy)
		}
		time.Sleep(10 * time.Minute)
		note(logs[0], health.Healthy, health.Probation)
		time.Sleep(10 * time.Minute)
		note(logs[1], health.Healthy, health.Quarantine)
		logs[2].Note(health.Transition{Server: "a", Tool: "work", From: health.Healthy, To: health.Lost}) // of a tool
		time.Sleep(10 * time.Minute)
		note(logs[0], health.Probation, health.Healthy)
		note(logs[1], health.Quarantine, health.Healthy)
		time.Sleep(10 * time.Minute)
		for i, l := range logs {
			if got, want := bandOf(l, began), "0-10 healthy, 10-20 probation, 20-30 quarantine, 30-40 healthy"; got != want {
				t.Errorf("at replica %d the band is %s, want %s", i, got, want)
			}
			if p := l.Past(t.Context(), "a", ""); len(p.Changes) != 8 {
				t.Errorf("replica %d knows %d changes", i, len(p.Changes))
			}
		}
		time.Sleep(time.Minute)
		note(logs[1], health.Healthy, health.Lost)
		time.Sleep(2 * time.Minute)
		if got := bandOf(logs[0], began); !strings.HasSuffix(got, ", 30-41 healthy, 41-43 lost") {
			t.Errorf("two minutes after another replica has lost the server, the band is %s", got)
		}
	})
}

func TestTheChangesOfAServerAreBoundedByNumberAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keptStore{Memory: store.NewMemory()}
		one, _, _ := watching(t, s)
		for range 400 {
			note(one, health.Healthy, health.Lost)
			time.Sleep(time.Second)
			note(one, health.Lost, health.Healthy)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		two, _, _ := watching(t, s)
		for _, l := range []*health.ChangeLog{one, two} {
			p := l.Past(t.Context(), "a", "")
			if len(p.Changes) != 500 || !p.Since.After(p.Changes[0].At.Add(-2*time.Second)) || p.Band[0].From.Before(p.Since) || p.Changes[499].To != health.Healthy {
				t.Errorf("%d changes since %s, the first at %s", len(p.Changes), p.Since, p.Changes[0].At)
			}
		}
		s.halved.Store(true)
		note(two, health.Healthy, health.Disabled)
		time.Sleep(3 * time.Minute) // several writes with an unknown outcome
		s.halved.Store(false)
		time.Sleep(2 * time.Minute)
		n := 0
		for _, c := range one.Past(t.Context(), "a", "").Changes {
			if c.To == health.Disabled {
				n++
			}
		}
		if n != 1 {
			t.Errorf("a change with an unknown outcome is there %d times", n)
		}
		time.Sleep(14 * 24 * time.Hour)
		note(two, health.Disabled, health.Healthy)
		if p := one.Past(t.Context(), "a", ""); len(p.Changes) != 0 || time.Since(p.Since) > 14*24*time.Hour {
			t.Errorf("after 14 days: %d changes since %s", len(p.Changes), p.Since)
		}
		time.Sleep(time.Hour)
		if p := one.Past(t.Context(), "a", ""); len(p.Band) == 0 || p.Band[len(p.Band)-1].State != health.Healthy || time.Since(p.Band[len(p.Band)-1].To) > 0 {
			t.Errorf("after 14 days without a change, the band is %+v", p.Band)
		}
	})
}

// changeOf notes a change of a server with a cause of so many bytes.
func changeOf(l *health.ChangeLog, server string, bytes int) {
	l.Note(health.Transition{Server: switchboard.ServerID(server), From: health.Healthy, To: health.Lost, Cause: &health.Cause{Stage: "call", Message: strings.Repeat("x", bytes)}})
}

func TestTheChangesOfAllServersTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keptStore{Memory: store.NewMemory()}
		l, _, _ := watching(t, s)
		name := func(i int) string { return fmt.Sprintf("s%03d", i) }
		for range 40 {
			for i := range 500 {
				changeOf(l, name(i), 490)
			}
			time.Sleep(time.Second)
		}
		for range 80 { // one that changes all the time
			changeOf(l, name(7), 10)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		changes, bytes := 0, 0
		for i := range 500 {
			p := l.Past(t.Context(), switchboard.ServerID(name(i)), "")
			changes += len(p.Changes)
			if n := len(p.Changes); n < 20 || n > 50 || p.Since.Before(p.Changes[0].At.Add(-2*time.Second)) {
				t.Errorf("%s has %d changes since %v", name(i), n, p.Since)
			}
			v, err := s.Memory.Value(t.Context(), store.Key{Group: "server-changes", Name: name(i)})
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(v.Data)
		}
		if changes > 25_000 || bytes > 9<<20 {
			t.Errorf("%d changes, %d bytes", changes, bytes)
		}
	})
}

func TestServersThatCannotBeSavedDoNotKeepTheOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keptStore{Memory: store.NewMemory(), slow: func(name string) bool { return name < "m" && name != "all" }}
		l, stop, _ := watching(t, s)
		for c := 'b'; c <= 'z'; c++ {
			changeOf(l, string(c), 1)
		}
		time.Sleep(6 * time.Minute)
		s.mu.Lock()
		for c := 'm'; c <= 'z'; c++ {
			if len(s.wrote[string(c)]) != 1 {
				t.Errorf("%c was written at %v", c, s.wrote[string(c)])
			}
		}
		if n := len(s.wrote["all"]); n < 2 {
			t.Errorf("the watch was written %d times", n)
		}
		s.mu.Unlock()
		began := time.Now()
		stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the last save took %v", took)
		}
	})
}

func TestReplicasDoNotAllWriteAtOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keptStore{Memory: store.NewMemory()}
		for range 8 {
			l, _, _ := watching(t, s)
			synctest.Wait() // its first save, which has no change
			note(l, health.Starting, health.Healthy)
		}
		time.Sleep(2 * time.Minute)
		instants := map[time.Time]bool{}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, at := range s.wrote["a"] {
			instants[at.Truncate(100*time.Millisecond)] = true
		}
		if len(s.wrote["a"]) != 8 || len(instants) < 4 {
			t.Errorf("8 replicas have written at %v", s.wrote["a"])
		}
	})
}

func TestAProcessThatStartsAgainAndAgainDoesNotPushTheOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &keptStore{Memory: store.NewMemory()}, time.Now()
		one, stop, _ := watching(t, s)
		note(one, health.Starting, health.Healthy)
		time.Sleep(10 * time.Minute)
		stop()
		for range 300 {
			_, _, kill := watching(t, s)
			time.Sleep(time.Second)
			kill()
		}
		last, _, _ := watching(t, s)
		note(last, health.Starting, health.Healthy)
		time.Sleep(10 * time.Minute)
		if got, want := bandOf(last, began), "0-10 healthy, 15-25 healthy"; got != want {
			t.Errorf("the band is %s, want %s", got, want)
		}
	})
}

func TestReplicasThatWatchAreNotPushedOutByLongerWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &keptStore{Memory: store.NewMemory()}, time.Now()
		for range 300 {
			_, stop, _ := watching(t, s)
			time.Sleep(10 * time.Minute)
			stop()
		}
		time.Sleep(10 * time.Minute)
		one, _, _ := watching(t, s)
		note(one, health.Starting, health.Healthy)
		time.Sleep(time.Second)
		two, _, _ := watching(t, s)
		note(two, health.Starting, health.Lost)
		time.Sleep(2 * time.Minute) // both have written that they watch
		if got, want := bandOf(two, began.Add(300*10*time.Minute)), "10-10 healthy, 10-12 lost"; got != want {
			t.Errorf("the band is %s, want %s", got, want)
		}
	})
}
