package health_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// A keptStore is a store in memory that passes for one that survives the process.
type keptStore struct {
	*store.Memory
	away   atomic.Bool // nothing works
	halved atomic.Bool // changes are made, and nothing is answered
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
	v, err := s.Memory.Apply(ctx, c)
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

// bandOf spells the band in minutes since an instant.
func bandOf(l *health.ChangeLog, began time.Time) string {
	var all []string
	for _, p := range l.Past(context.Background(), "a", "").Band {
		all = append(all, fmt.Sprintf("%v-%v %s", p.From.Sub(began).Minutes(), p.To.Sub(began).Minutes(), p.State))
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
