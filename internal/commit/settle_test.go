package commit

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// A deafStore settles nothing until it is told to.
type deafStore struct {
	store.Store
	hears   chan struct{} // closed: it settles
	settled int
}

func (s *deafStore) Settle(ctx context.Context, _ string, all ...store.Settlement) ([]bool, error) {
	select {
	case <-s.hears:
		s.settled += len(all)
		return make([]bool, len(all)), nil
	case <-ctx.Done():
		return nil, store.ErrUnavailable
	}
}

func TestTheQueueOfSettlementsIsBoundedAlsoWhileTheyAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		st := &deafStore{Store: store.NewMemory(), hears: make(chan struct{})}
		k := New(Options{Store: st, Log: slog.New(slog.NewTextHandler(&log, nil))})
		for range 4 { // each time, the store is being asked
			for range maxQueued/2 + 1 {
				k.later.settle("g", store.Settlement{ID: "h"})
			}
			time.Sleep(2 * time.Second)
		}
		if n := strings.Count(log.String(), "settlements are dropped"); n != 1 {
			t.Errorf("the log says it %d times", n)
		}
		close(st.hears)
		if err := k.Close(t.Context()); err != nil || st.settled != maxQueued {
			t.Errorf("%d settlements were queued, at most %d; %v", st.settled, maxQueued, err)
		}
	})
}

// A memoryFile says that it is a file.
type memoryFile struct{ *store.Memory }

func (memoryFile) Status() store.Status { return store.Status{Kind: "file"} }

// A quietLedger writes one chain.
type quietLedger struct{ Intents }

func (quietLedger) Node() string { return "n" }

func TestTheMarkFollowsAlsoWhileNothingIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memoryFile{store.NewMemory()}
		k := New(Options{Store: st, Intents: quietLedger{}, Log: slog.New(slog.DiscardHandler)})
		defer func() { _ = k.Close(context.Background()) }()
		mark := func() string {
			v, err := st.Value(t.Context(), store.Key{Group: groupMarks, Name: "n"})
			if err != nil {
				t.Fatal(err)
			}
			return string(v.Data)
		}
		add := func(after uint64) {
			if err := st.Append(t.Context(), "receipts/n", after, []byte("a receipt")); err != nil {
				t.Fatal(err)
			}
		}
		add(0)
		time.Sleep(2 * markInterval)
		if got := mark(); got != "" {
			t.Errorf("a chain without a hold has the mark %q", got)
		}
		if err := k.marks.ensure(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		for n := uint64(1); n < 4; n++ {
			add(n)
		}
		time.Sleep(markInterval + time.Second)
		if got := mark(); got != "4" {
			t.Errorf("after 4 receipts and %s the mark is %q", markInterval, got)
		}
	})
}
