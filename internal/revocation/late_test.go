package revocation

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A slow store holds one List after it has read, and fails another one.
type slow struct {
	store.Store
	hold chan struct{}
	n    atomic.Int32
	late int32 // which List is held
	fail int32 // which List fails
	mute bool  // notices are lost
}

func (s *slow) List(ctx context.Context, g string) ([]store.NamedValue, error) {
	n := s.n.Add(1)
	v, err := s.Store.List(ctx, g)
	if n == s.late {
		<-s.hold
	}
	if n == s.fail {
		return nil, fmt.Errorf("%w: away", store.ErrUnavailable)
	}
	return v, err
}

func (s *slow) Publish(ctx context.Context, t string, d []byte) error {
	if s.mute {
		return nil
	}
	return s.Store.Publish(ctx, t, d)
}

func TestAnOlderReadDoesNotUndoARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: store.NewMemory(), hold: make(chan struct{}), late: 2, mute: true}
		l := Open(t.Context(), s, nil, quiet) // List 1
		defer l.Close()
		time.Sleep(sharedInterval + time.Millisecond) // follow: List 2 is held
		synctest.Wait()
		go func() { time.Sleep(time.Second); close(s.hold) }()
		if err := l.Revoke(t.Context(), [][32]byte{lost}, Revocation{ID: "a", When: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if l.CheckKey(lost) == nil {
			t.Fatal("it is not revoked")
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if l.CheckKey(lost) == nil {
			t.Error("after the revocation, the key is valid again")
		}
	})
}

func TestARevocationHoldsHereAlsoIfTheStoreCannotBeReadAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: store.NewMemory(), fail: 2, mute: true}
		l := Open(t.Context(), s, nil, quiet)
		defer l.Close()
		err := l.Revoke(t.Context(), [][32]byte{lost}, Revocation{ID: "a", When: time.Now()})
		if code(l.CheckKey(lost)) != switchboard.CodeNotAuthenticated {
			t.Errorf("the store keeps the revocation, Revoke says %v, and the key is accepted here", err)
		}
	})
}
