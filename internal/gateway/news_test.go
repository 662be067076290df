package gateway

import (
	"errors"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestWhatAClientIsAskedOnAStreamThatIsLostItIsAskedOnTheNext(t *testing.T) {
	n := newNotificationQueue(switchboard.AllKinds)
	n.addMessage([]byte("one"))
	n.addMessage([]byte("two"))
	if (changeListener{write: func([]byte) error { return errors.New("it has gone") }}).deliver(t.Context(), n) {
		t.Fatal("it has been told on a stream that is lost")
	}
	var heard []string
	next := changeListener{write: func(m []byte) error { heard = append(heard, string(m)); return nil }}
	select {
	case <-n.ready:
	default:
		t.Fatal("the next stream learns of nothing")
	}
	if !next.deliver(t.Context(), n) || !slices.Equal(heard, []string{"one", "two"}) {
		t.Errorf("on the next it is asked %q", heard)
	}
}

func TestAClientThatDoesNotListenIsNotAskedWithoutEnd(t *testing.T) {
	n := newNotificationQueue(switchboard.AllKinds)
	for range 1000 {
		n.addMessage(make([]byte, 1000))
	}
	if _, _, asked := n.takeAll(); len(asked) != maxQueuedBytes/1000 {
		t.Errorf("%d KB wait for it", len(asked))
	}
}
