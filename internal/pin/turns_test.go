package pin

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// countingStore counts the writes of pins.
type countingStore struct {
	store.Store
	writes atomic.Int64
}

func (*countingStore) Status() store.Status { return store.Status{Kind: "redis"} }

func (s *countingStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if c.Group == groupPins {
		s.writes.Add(1)
	}
	return s.Store.Apply(ctx, c)
}

// One replica is offered a tool that the other one is not offered. Neither changes its mind because of the other one.
func TestReplicasThatAreOfferedDifferentListsDoNotWriteInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &countingStore{Store: store.NewMemory()}
		offers := map[string][]switchboard.Offer{"a": offerOf(work, late), "b": offerOf(work)}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for name, offer := range offers {
			changed := make(chan struct{}, 1)
			p := New(Options{Store: st, Self: name, Log: slog.New(slog.DiscardHandler), Changed: func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			}})
			p.Read(ctx)
			p.Admit(ctx, offer, firstUse)
			go p.Run(ctx)
			go func() {
				for {
					select {
					case <-ctx.Done():
						return
					case <-changed:
						p.Admit(ctx, offer, firstUse)
					}
				}
			}()
		}
		time.Sleep(10 * time.Minute)
		if n := st.writes.Load(); n > 5 {
			t.Errorf("the pins are written %d times in ten minutes", n)
		}
		stop()
		synctest.Wait()
	})
}

// Two replicas are offered handshakes about different tools, and the third one is offered none. All have the same tools left.
func TestEachOfTwoReportedHandshakesSuspendsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &countingStore{Store: store.NewMemory()}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		offer := func(about string) []switchboard.Offer {
			o := offerOf(work, late)
			if about != "" {
				o[0].Capabilities = []byte(`{"tools":{"` + about + `":{"x-summit-capabilities":[{"verb":"read","resource":"fs"}]}}}`)
			}
			return o
		}
		var boards []*Board
		abouts := []string{"", "work", "late"}
		for i := range abouts {
			p := New(Options{Store: st, Self: string(rune('a' + i)), Log: slog.New(slog.DiscardHandler), Changed: func() {}})
			p.Read(ctx)
			p.Admit(ctx, offer(""), firstUse)
			go p.Run(ctx)
			boards = append(boards, p)
		}
		for range 2 {
			for i, about := range abouts {
				boards[i].Admit(ctx, offer(about), firstUse)
			}
			time.Sleep(time.Minute)
		}
		for i, about := range abouts {
			all := boards[i].Admit(ctx, offer(about), firstUse)[0].Admissions
			for _, name := range []string{"work", "late"} {
				if a := all[name]; a == nil || a.State != switchboard.LifeSuspended {
					t.Errorf("replica %d has %s as %+v, want suspended", i, name, a)
				}
			}
		}
		stop()
		synctest.Wait()
	})
}
