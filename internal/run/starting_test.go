package run_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var errUnmet = switchboard.Refuse(switchboard.CodeUnmet, "no tool")

func TestATaskThatIsUnmetWhileServersStartIsBound(t *testing.T) {
	for name, open := range map[string]func(*run.Runs, context.Context) (*run.Run, error){
		"Open": func(g *run.Runs, ctx context.Context) (*run.Run, error) {
			return g.Open(ctx, alice, "browse", "")
		},
		"Base": func(g *run.Runs, ctx context.Context) (*run.Run, error) { return g.Base(ctx, alice, "browse") },
	} {
		t.Run(name, func(t *testing.T) {
			b := &binder{err: errUnmet}
			b.start("files", "web")
			g := registry(b)
			r, err := open(g, t.Context())
			if err != nil {
				t.Fatalf("it waits for servers, and is refused: %v", err)
			}
			var starting *run.Waiting
			var refused *switchboard.Error
			if !errors.As(r.Err(), &starting) || len(starting.Servers) != 2 || !errors.As(r.Err(), &refused) || refused.Code != switchboard.CodeNoneHealthy {
				t.Errorf("its calls are refused with %v", r.Err())
			}
			changed := &watcher{}
			defer r.Watch(changed, false)()

			b.set(nil, "read")
			b.start("web")
			g.Rebind(t.Context())
			if r.Err() != nil || names(r) != "read " || changed.times.Load() != 0 {
				t.Errorf("once its requirement is met it shows %q, %v, and its client, which has had no list, was told %d times", names(r), r.Err(), changed.times.Load())
			}

			b.set(errUnmet)
			g.Rebind(t.Context())
			again, cancel := context.WithCancel(t.Context())
			cancel()
			g.AwaitOffers(again, r) // it lists
			told := changed.times.Load()
			b.set(nil, "read")
			g.Rebind(t.Context())
			if r.Err() != nil || changed.times.Load() != told+1 {
				t.Errorf("its client had a list, and was told %d times that it has changed", changed.times.Load()-told)
			}

			b.set(errUnmet)
			b.start()
			g.Rebind(t.Context())
			if err := r.Err(); !errors.Is(err, errUnmet) {
				t.Errorf("no server is starting any more, and it is refused with %v", err)
			}
			if _, err := open(g, t.Context()); err == nil {
				t.Error("no server is starting any more, and it is bound")
			}
		})
	}
}

func TestARunThatWaitsForServersThatDoNotStartIsBoundAgainWhenHealthMovesAndWhenItIsUsed(t *testing.T) {
	for name, again := range map[string]func(*run.Runs, *run.Run, context.Context){
		"health moves": func(g *run.Runs, _ *run.Run, ctx context.Context) {
			g.ReplaceServers(ctx, func(*surface.Surface) []switchboard.ServerID { return nil })
		},
		"it is used": func(g *run.Runs, r *run.Run, ctx context.Context) {
			time.Sleep(2 * time.Second)
			g.Refresh(ctx, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &binder{err: errUnmet, waits: true}
				g := registry(b)
				r, err := g.Open(t.Context(), alice, "browse", "")
				if err != nil || !errors.Is(r.Err(), errUnmet) {
					t.Fatalf("it waits for a server, and is refused with %v; its calls with %v", err, r.Err())
				}
				b.set(nil, "read")
				again(g, r, t.Context())
				if r.Err() != nil || names(r) != "read " {
					t.Errorf("it can be met, and shows %q, %v", names(r), r.Err())
				}
			})
		})
	}
}

func TestTheFirstListsOfARunWaitForServersThatStartAndTheOthersDoNot(t *testing.T) {
	for _, tt := range []struct {
		name     string
		answered time.Duration
		first    time.Duration // how long the first list waits
		second   time.Duration // how long one waits that comes 3 s later
	}{
		{"all are there", 0, 0, 0},
		{"they answer in 5 s", 5 * time.Second, 5 * time.Second, 2 * time.Second},
		{"they answer in a minute", time.Minute, run.ListPatience, run.ListPatience - 3*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &binder{}
				g := registry(b)
				if tt.answered > 0 {
					b.start("web")
				}
				r := open(t, g, alice)
				time.AfterFunc(tt.answered, func() { b.start() })
				waits := func() time.Duration {
					began := time.Now()
					g.AwaitOffers(t.Context(), r)
					return time.Since(began)
				}
				first, second := make(chan time.Duration, 1), make(chan time.Duration, 1)
				go func() { first <- waits() }()
				go func() { time.Sleep(3 * time.Second); second <- waits() }()
				if got := <-first; got != tt.first {
					t.Errorf("the first list waits %s, want %s", got, tt.first)
				}
				if got := <-second; got != tt.second {
					t.Errorf("the second list waits %s, want %s", got, tt.second)
				}
				if got := waits(); got != 0 {
					t.Errorf("one list more waits %s", got)
				}
				time.Sleep(tt.answered)
			})
		})
	}
}

func TestACallWaitsForStartingServersUntilTheRunShowsItsTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &binder{}
		b.start("files", "web")
		g := registry(b)
		r := open(t, g, alice)
		time.AfterFunc(2*time.Second, func() { b.set(nil, "read"); g.Rebind(t.Context()); b.start("web") })
		time.AfterFunc(9*time.Second, func() { b.start() })
		for _, tt := range []struct {
			tool string
			want time.Duration
		}{
			{"read ", 2 * time.Second},
			{"fetch ", 7 * time.Second}, // from then on, until none starts any more
		} {
			began := time.Now()
			g.AwaitServers(t.Context(), r, func() bool { return names(r) == tt.tool })
			if got := time.Since(began); got != tt.want {
				t.Errorf("a call of %s waits %s, want %s", tt.tool, got, tt.want)
			}
		}
	})
}
