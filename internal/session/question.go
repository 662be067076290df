package session

import (
	"context"
	"strconv"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Questions holds what a legacy client was asked and has not answered yet, by the id of the
// question. The zero value is empty. It is safe for concurrent use.
type Questions struct {
	mu   sync.Mutex
	last int64
	open map[string]chan<- wire.Message
}

// StartAfter numbers the questions so that they differ from those on earlier connections of the client. n is 1 for
// its first connection. Call it before the first question.
func (qs *Questions) StartAfter(n int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.last = int64(max(n-1, 0)) * questionsPerOwner
}

// Ask sends the client a question and waits for the answer, for at most ParkedFor: a client that
// has disconnected does not say so. If Ask stops waiting, it sends the client
// notifications/cancelled.
func (qs *Questions) Ask(ctx context.Context, send func([]byte), method string, params []byte) ([]byte, error) {
	answer := make(chan wire.Message, 1)
	qs.mu.Lock()
	qs.last++
	id := strconv.FormatInt(qs.last, 10)
	if qs.open == nil {
		qs.open = map[string]chan<- wire.Message{}
	}
	qs.open[id] = answer
	qs.mu.Unlock()
	defer func() {
		qs.mu.Lock()
		defer qs.mu.Unlock()
		delete(qs.open, id)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, ParkedFor, errParkedTooLong)
	defer cancel()
	send(wire.AppendRequest(nil, []byte(id), method, params))
	select {
	case m := <-answer:
		if m.ErrorObject != nil {
			return nil, &switchboard.ClientError{Object: m.ErrorObject}
		}
		return m.Result, nil
	case <-ctx.Done():
		send(wire.AppendNotification(nil, wire.MethodCancelled, []byte(`{"requestId":`+id+`,"reason":"the answer is no longer needed"}`)))
		return nil, context.Cause(ctx)
	}
}

// Resolve hands a response to the question that it answers, and reports whether there is one.
func (qs *Questions) Resolve(m wire.Message) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	answer, ok := qs.open[string(m.ID)]
	if !ok {
		return false
	}
	delete(qs.open, string(m.ID)) // a second response with this id answers nothing
	answer <- m
	return true
}
