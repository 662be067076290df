package gateway

import (
	"errors"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestWhatAClientIsAskedOnAStreamThatIsLostItIsAskedOnTheNext(t *testing.T) {
	n := newNews(switchboard.AllKinds)
	n.say([]byte("one"))
	n.say([]byte("two"))
	if (listener{say: func([]byte) error { return errors.New("it has gone") }}).tell(t.Context(), n) {
		t.Fatal("it has been told on a stream that is lost")
	}
	var heard []string
	next := listener{say: func(m []byte) error { heard = append(heard, string(m)); return nil }}
	select {
	case <-n.ready:
	default:
		t.Fatal("the next stream learns of nothing")
	}
	if !next.tell(t.Context(), n) || !slices.Equal(heard, []string{"one", "two"}) {
		t.Errorf("on the next it is asked %q", heard)
	}
}

func TestAClientThatDoesNotListenIsNotAskedWithoutEnd(t *testing.T) {
	n := newNews(switchboard.AllKinds)
	for range 1000 {
		n.say(make([]byte, 1000))
	}
	if _, _, asked := n.take(); len(asked) != maxAsked/1000 {
		t.Errorf("%d KB wait for it", len(asked))
	}
}
