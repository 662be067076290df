package archive_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
)

func TestATextIsWrittenOnceAndReadByItsDigest(t *testing.T) {
	st := store.NewMemory()
	a := archive.New(st, time.Hour, nil)
	text := archive.TextOf([]byte(strings.Repeat("what was decided ", 1000)))
	for range 3 {
		a.Put(text)
	}
	a.Close()
	if s := a.Status(); s.Written != 1 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	got, err := archive.Read(t.Context(), st, text.Digest)
	if err != nil || string(got) != string(text.Data()) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := archive.Read(t.Context(), st, canonical.Sum(nil)); !errors.Is(err, archive.ErrNotArchived) {
		t.Errorf("reading a text that was never written: %v", err)
	}
}

func TestATextIsKeptAsLongAsItIsReferredTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		a := archive.New(st, time.Hour, nil)
		defer a.Close()
		used, unused := archive.TextOf([]byte("used")), archive.TextOf([]byte("unused"))
		a.Put(used, unused)
		for range 30 {
			time.Sleep(2 * time.Hour)
			a.Put(used)
			synctest.Wait()
		}
		if _, err := archive.Read(t.Context(), st, used.Digest); err != nil {
			t.Error(err)
		}
		if _, err := archive.Read(t.Context(), st, unused.Digest); !errors.Is(err, archive.ErrNotArchived) {
			t.Errorf("reading a text that is not referred to any more: %v", err)
		}
	})
}

// A broken store refuses all writes while now is set.
type broken struct {
	*store.Memory
	now atomic.Bool
}

func newBroken() *broken {
	b := &broken{Memory: store.NewMemory()}
	b.now.Store(true)
	return b
}

func (b *broken) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if b.now.Load() {
		return 0, store.ErrUnavailable
	}
	return b.Memory.Apply(ctx, c)
}

func TestATextThatTheStoreDoesNotTakeIsWrittenWhenTheStoreWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newBroken()
		a := archive.New(st, time.Hour, nil)
		defer a.Close()
		texts := []archive.Text{archive.TextOf([]byte("x")), archive.TextOf([]byte("y"))}
		a.Put(texts...)
		synctest.Wait()
		if s := a.Status(); s.Lost != 0 || s.Fault == "" {
			t.Errorf("while the store is unavailable: %+v", s)
		}
		began := time.Now()
		a.Settle(t.Context())
		if took := time.Since(began); took != 0 {
			t.Errorf("while the store is unavailable, Settle took %s", took)
		}
		time.Sleep(time.Minute)
		st.now.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := a.Status(); s != (archive.Status{Written: 2}) {
			t.Errorf("when it works again: %+v", s)
		}
		for _, text := range texts {
			if _, err := archive.Read(t.Context(), st, text.Digest); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestATextThatTheStoreNeverTakesIsLostAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newBroken()
		a := archive.New(st, time.Hour, nil)
		defer a.Close()
		text := archive.TextOf([]byte("x"))
		a.Put(text)
		time.Sleep(11 * time.Minute)
		if s := a.Status(); s != (archive.Status{Lost: 1}) {
			t.Errorf("%+v", s)
		}
		st.now.Store(false)
		a.Put(text)
		synctest.Wait()
		if s := a.Status(); s != (archive.Status{Written: 1, Lost: 1}) {
			t.Errorf("when it is put again: %+v", s)
		}
	})
}

func TestCloseDoesNotWaitForAStoreThatIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archive.New(newBroken(), time.Hour, nil)
		a.Put(archive.TextOf([]byte("x")), archive.TextOf([]byte("y")))
		synctest.Wait()
		began := time.Now()
		a.Close()
		if took := time.Since(began); took != 0 || a.Status().Lost != 2 {
			t.Errorf("it took %s, %+v", took, a.Status())
		}
	})
}

func TestATextWithAnotherDigestIsNotReturned(t *testing.T) {
	st := store.NewMemory()
	a := archive.New(st, time.Hour, nil)
	lie := archive.TextOf([]byte("what was said"))
	lie.Data = func() []byte { return []byte("something else") }
	a.Put(lie)
	a.Close()
	if text, err := archive.Read(t.Context(), st, lie.Digest); err == nil {
		t.Errorf("%s", text)
	}
}

// A slow store takes a second for each write.
type slow struct{ *store.Memory }

func (s slow) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	select {
	case <-time.After(time.Second):
		return s.Memory.Apply(ctx, c)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestSettleWaitsForTheTextsThatWerePutBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := slow{store.NewMemory()}
		a := archive.New(st, time.Hour, nil)
		defer a.Close()
		texts := make([]archive.Text, 10)
		for i := range texts {
			texts[i] = archive.TextOf([]byte{byte(i)})
		}
		a.Put(texts[:3]...)
		began := time.Now()
		time.AfterFunc(time.Second/2, func() { a.Put(texts[3:]...) }) // Settle does not wait for these
		a.Settle(t.Context())
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %s", took)
		}
		for _, text := range texts[:3] {
			if _, err := archive.Read(t.Context(), st, text.Digest); err != nil {
				t.Error(err)
			}
		}
		began = time.Now()
		a.Settle(t.Context())
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("with a store that is too slow, it took %s", took)
		}
	})
}
