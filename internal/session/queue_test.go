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
	if q.Deliver(true, nil, func([]byte) error { return errors.New("it has gone") }) {
		t.Fatal("the question was delivered on a lost stream")
	}
	var heard []string
	select {
	case <-q.Ready():
	default:
		t.Fatal("the next stream gets nothing")
	}
	if !q.Deliver(true, nil, func(m []byte) error { heard = append(heard, string(m)); return nil }) || !slices.Equal(heard, []string{"one", "two"}) {
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
