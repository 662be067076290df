package event

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// Ten thousand events, and readers that come, go, and are slow: without a resync no event is missed, and none arrives twice.
func TestNoEventIsMissedWithoutAResyncAndNoneArrivesTwice(t *testing.T) {
	const total = 10_000
	l := NewRecent("")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 20 {
		readers.Go(func() {
			cursor, next, resyncs := l.End(), -1, 0
			for {
				events, more := l.Read(cursor)
				for _, e := range events {
					cursor = e.ID
					var n int
					_, err := fmt.Sscan(e.Subject, &n)
					switch {
					case e.Type == Resync:
						next, resyncs = -1, resyncs+1
					case err != nil:
						t.Error(err)
					case next >= 0 && n != next:
						t.Errorf("reader %d gets %d, and %d was next", i, n, next)
						next = n + 1
					default:
						next = n + 1
					}
					if n == total-1 {
						return
					}
				}
				if rand.IntN(50) == 0 { // it connects again
					next = max(next, -1)
				}
				if len(events) > 0 && i%5 != 0 {
					continue
				}
				select {
				case <-more:
				case <-done:
					if events, _ := l.Read(cursor); len(events) == 0 {
						return
					}
				}
			}
		})
	}
	for n := range total {
		l.Add(Occurrence{Type: Server, Subject: fmt.Sprint(n)})
	}
	close(done)
	readers.Wait()
}

func TestAReaderThatIsTooSlowOrFromAnotherProcessIsToldToLookAgain(t *testing.T) {
	l := NewRecent("")
	start := l.End()
	for n := range maxKept {
		l.Add(Occurrence{Type: Server, Subject: fmt.Sprint(n)})
	}
	if events, _ := l.Read(start); len(events) != maxKept || events[0].Subject != "0" {
		t.Errorf("all that are kept: %d", len(events))
	}
	l.Add(Occurrence{Type: Server})
	for name, after := range map[string]string{"too slow": start, "another process": NewRecent("").End(), "rubbish": "x", "nothing": "", "the future": l.boot + "-99999"} {
		events, _ := l.Read(after)
		if len(events) != 1 || events[0].Type != Resync {
			t.Fatalf("%s: %+v", name, events)
		}
		if rest, _ := l.Read(events[0].ID); len(rest) != 0 {
			t.Errorf("%s: after the resync there are %+v", name, rest)
		}
	}
}

func TestReplicasHearOfEachOthersEventsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		a, b := NewRecent("a"), NewRecent("b")
		go a.Share(t.Context(), s, nil)
		go b.Share(t.Context(), s, nil)
		synctest.Wait()
		from := map[*Recent]string{a: a.End(), b: b.End()}
		a.Add(Occurrence{Type: Key, Subject: "0123"})
		synctest.Wait()
		for l, after := range from {
			if events, _ := l.Read(after); len(events) != 1 || events[0].Subject != "0123" || (events[0].Replica == "a") != (l == b) {
				t.Errorf("%s: %+v", l.self, events)
			}
		}
	})
}

// A reader who is told of a key looks at once, and must find it revoked here.
func TestAReplicaKnowsWhatItsReadersAreToldOf(t *testing.T) {
	for _, kind := range []string{Key, Person, Resync} {
		synctest.Test(t, func(t *testing.T) {
			s := store.NewMemory()
			defer s.Close() //nolint:errcheck // in memory
			a, b := NewRecent("a"), NewRecent("b")
			after, early := b.End(), 0
			go a.Share(t.Context(), s, nil)
			go b.Share(t.Context(), s, func(context.Context) {
				time.Sleep(time.Second) // it reads the store
				if events, _ := b.Read(after); len(events) > 0 {
					early++
				}
			})
			synctest.Wait()
			a.Add(Occurrence{Type: kind, Subject: "0123"})
			time.Sleep(2 * time.Second)
			if events, _ := b.Read(after); len(events) != 1 || events[0].Type != kind || early != 0 || time.Since(events[0].Time) < 2*time.Second {
				t.Errorf("%s: %+v; %d too early", kind, events, early)
			}
		})
	}
}

// A failing store refuses the next notices.
type failingStore struct {
	*store.Memory
	refuse atomic.Int32
}

func (s *failingStore) Publish(ctx context.Context, topic string, data []byte) error {
	if s.refuse.Add(-1) >= 0 {
		return store.ErrUnavailable
	}
	return s.Memory.Publish(ctx, topic, data)
}

func TestAnEventThatCannotBePublishedIsAResyncForTheOthersWithoutAnotherEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failingStore{Memory: store.NewMemory()}
		defer s.Close() //nolint:errcheck // in memory
		a, b := NewRecent("a"), NewRecent("b")
		go a.Share(t.Context(), s, nil)
		go b.Share(t.Context(), s, nil)
		synctest.Wait()
		after := b.End()
		s.refuse.Store(3)
		a.Add(Occurrence{Type: Key, Subject: "0123"})
		time.Sleep(5 * publishRetry)
		if events, _ := b.Read(after); len(events) != 1 || events[0].Type != Resync {
			t.Errorf("the other is told %+v", events)
		}
		after = b.End()
		a.Add(Occurrence{Type: Key, Subject: "4567"})
		time.Sleep(5 * publishRetry)
		if events, _ := b.Read(after); len(events) != 1 || events[0].Subject != "4567" {
			t.Errorf("afterwards the other is told %+v", events)
		}
	})
}
