package revocation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A failing store reads nothing, and sends no notices, while away is set.
type failing struct {
	store.Store
	away atomic.Bool
}

func (f *failing) List(ctx context.Context, group string) ([]store.NamedValue, error) {
	if f.away.Load() {
		return nil, fmt.Errorf("%w: away", store.ErrUnavailable)
	}
	return f.Store.List(ctx, group)
}

func (f *failing) Publish(ctx context.Context, topic string, data []byte) error {
	if f.away.Load() {
		return fmt.Errorf("%w: away", store.ErrUnavailable)
	}
	return f.Store.Publish(ctx, topic, data)
}

func code(err error) switchboard.Code {
	if e, ok := errors.AsType[*switchboard.Error](err); ok {
		return e.Code
	}
	return ""
}

var (
	lost  = [32]byte{1}
	other = [32]byte{2}
	quiet = slog.New(slog.DiscardHandler)
)

func TestARevocationHoldsHereAtOnceAndSoonElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		var told atomic.Int32
		here, there := Open(t.Context(), s, nil, quiet), Open(t.Context(), s, func() { told.Add(1) }, quiet)
		defer here.Close()
		defer there.Close()
		if err := here.CheckKey(lost); err != nil {
			t.Fatal(err)
		}
		before := told.Load()
		if err := here.Revoke(t.Context(), [][32]byte{lost}, Revocation{ID: "alice", By: "ops", When: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if code(here.CheckKey(lost)) != switchboard.CodeNotAuthenticated || here.CheckKey(other) != nil {
			t.Errorf("here: %v, and another key: %v", here.CheckKey(lost), here.CheckKey(other))
		}
		synctest.Wait()
		if code(there.CheckKey(lost)) != switchboard.CodeNotAuthenticated || told.Load() != before+1 {
			t.Errorf("there: %v; told %d times", there.CheckKey(lost), told.Load()-before)
		}
		if r, ok := there.Of(lost); !ok || r.ID != "alice" || r.By != "ops" {
			t.Errorf("%+v %v", r, ok)
		}
		again := Revocation{ID: "alice", By: "mallory", When: time.Now()}
		if err := there.Revoke(t.Context(), [][32]byte{lost}, again); err != nil {
			t.Fatal(err)
		}
		if r, _ := here.Of(lost); r.By != "ops" {
			t.Errorf("revoked again, it was revoked by %s", r.By)
		}
	})
}

func TestALostNoticeDelaysARevocationByFiveSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{Store: store.NewMemory()}
		defer s.Close() //nolint:errcheck // in memory
		there := Open(t.Context(), s, nil, quiet)
		defer there.Close()
		if _, err := s.Apply(t.Context(), store.Change{Group: Group, Writes: []store.Write{{Name: fmt.Sprintf("%x", lost), Data: []byte("{}")}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sharedInterval + time.Millisecond)
		synctest.Wait()
		if code(there.CheckKey(lost)) != switchboard.CodeNotAuthenticated {
			t.Errorf("%v", there.CheckKey(lost))
		}
	})
}

// Law 2: a process that does not know which keys are revoked accepts none; one that knows some refuses these, whatever becomes of the store.
func TestWhileTheStoreIsAwayKnownRevocationsHoldAndUnknownOnesStopEveryKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{Store: store.NewMemory()}
		defer s.Close() //nolint:errcheck // in memory
		knows := Open(t.Context(), s, nil, quiet)
		defer knows.Close()
		if err := knows.Revoke(t.Context(), [][32]byte{lost}, Revocation{ID: "alice", When: time.Now()}); err != nil {
			t.Fatal(err)
		}
		s.away.Store(true)
		fresh := Open(t.Context(), s, nil, quiet)
		defer fresh.Close()
		time.Sleep(time.Minute)
		if code(knows.CheckKey(lost)) != switchboard.CodeNotAuthenticated || knows.CheckKey(other) != nil {
			t.Errorf("the one that knows: %v, %v", knows.CheckKey(lost), knows.CheckKey(other))
		}
		if code(fresh.CheckKey(other)) != switchboard.CodeStoreUnavailable || code(fresh.Revoke(t.Context(), [][32]byte{other}, Revocation{})) != switchboard.CodeStoreUnavailable {
			t.Errorf("the one that does not: %v", fresh.CheckKey(other))
		}
		s.away.Store(false)
		time.Sleep(sharedInterval + time.Millisecond)
		synctest.Wait()
		if code(fresh.CheckKey(lost)) != switchboard.CodeNotAuthenticated || fresh.CheckKey(other) != nil {
			t.Errorf("when the store is back: %v, %v", fresh.CheckKey(lost), fresh.CheckKey(other))
		}
	})
}

func TestARevocationIsForgottenWhenNoFileNamesTheKeyForAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		l := Open(t.Context(), s, nil, quiet)
		defer l.Close()
		if err := l.Revoke(t.Context(), [][32]byte{lost, other}, Revocation{ID: "alice", When: time.Now().Add(-keptFor + 2*time.Second)}); err != nil {
			t.Fatal(err)
		}
		named := func(hash [32]byte) bool { return hash == other }
		for _, tt := range []struct {
			after time.Duration
			kept  bool
		}{{time.Second, true}, {2 * time.Second, false}} {
			time.Sleep(tt.after)
			if err := l.Forget(t.Context(), named); err != nil {
				t.Fatal(err)
			}
			if _, kept := l.Of(lost); kept != tt.kept {
				t.Errorf("kept %v, want %v", kept, tt.kept)
			}
			if _, kept := l.Of(other); !kept {
				t.Error("the key that a file names is forgotten")
			}
		}
	})
}

func TestTheNumberOfRevocationsIsBounded(t *testing.T) {
	known := map[[32]byte]Revocation{}
	for i := range maxRows {
		known[[32]byte{byte(i), byte(i >> 8), 3}] = Revocation{}
	}
	l := &RevokedKeys{}
	l.known.Store(&known)
	if err := l.Revoke(t.Context(), [][32]byte{lost}, Revocation{}); code(err) != switchboard.CodeStoreUnavailable {
		t.Errorf("%v", err)
	}
}

func BenchmarkCheckKey(b *testing.B) {
	known := map[[32]byte]Revocation{}
	for i := range 1000 {
		known[[32]byte{byte(i), byte(i >> 8), 3}] = Revocation{}
	}
	l := &RevokedKeys{}
	l.known.Store(&known)
	b.ReportAllocs()
	for b.Loop() {
		if l.CheckKey(other) != nil {
			b.Fatal("it is revoked")
		}
	}
}

func TestABlockHoldsUntilItIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		here, there := Open(t.Context(), s, nil, quiet), Open(t.Context(), s, nil, quiet)
		defer here.Close()
		defer there.Close()
		block := Revocation{ID: "idp/ann", Person: true, By: "ops", When: time.Now().Add(-2 * keptFor)}
		if err := here.Revoke(t.Context(), [][32]byte{lost}, block); err != nil {
			t.Fatal(err)
		}
		if err := here.Forget(t.Context(), func([32]byte) bool { return false }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, l := range []*RevokedKeys{here, there} {
			if code(l.CheckKey(lost)) != switchboard.CodeNotAuthorized || len(l.Persons()) != 1 || l.Persons()[0].ID != "idp/ann" {
				t.Errorf("%v, %v", l.CheckKey(lost), l.Persons())
			}
		}
		if err := there.Restore(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, l := range []*RevokedKeys{here, there} {
			if err := l.CheckKey(lost); err != nil || len(l.Persons()) != 0 {
				t.Errorf("after it is lifted: %v, %v", err, l.Persons())
			}
		}
	})
}
