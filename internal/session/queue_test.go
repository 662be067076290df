package session

import (
	"errors"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAQuestionOnALostStreamIsAskedOnTheNext(t *testing.T) {
	q := NewQueue(switchboard.AllKinds)
	q.AddMessage([]byte("one"))
	q.AddMessage([]byte("two"))
	if q.Deliver(yes, nil, func([]byte) error { return errors.New("it has gone") }) {
		t.Fatal("the question was delivered on a lost stream")
	}
	var heard []string
	select {
	case <-q.Ready():
	default:
		t.Fatal("the next stream gets nothing")
	}
	if !q.Deliver(yes, nil, func(m []byte) error { heard = append(heard, string(m)); return nil }) || !slices.Equal(heard, []string{"one", "two"}) {
		t.Errorf("the next stream gets %q", heard)
	}
}

func TestQuestionsToAClientThatDoesNotListenAreLimited(t *testing.T) {
	q := NewQueue(switchboard.AllKinds)
	for range 1000 {
		q.AddMessage(make([]byte, 1000))
	}
	if _, _, asked := q.takeAll(); len(asked) != maxQueuedBytes/1000 {
		t.Errorf("%d KB wait for the client", len(asked))
	}
}

func yes() bool { return true }

// A client whose key is revoked while a delivery is checked gets nothing that was queued after the check.
func TestDeliverAsksForPermissionAfterItHasEmptiedTheQueue(t *testing.T) {
	q := NewQueue(switchboard.Kinds(0))
	q.AddMessage([]byte("queued before"))
	delivered := 0
	q.Deliver(func() bool { q.AddMessage([]byte("queued after")); return true }, nil, func([]byte) error { delivered++; return nil })
	if delivered != 1 {
		t.Errorf("%d messages were delivered, want only the one from before the check", delivered)
	}
}
