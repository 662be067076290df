package gateway

import (
	"context"
	"strconv"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Questions are what a legacy client has been asked and has not answered yet, by
// the id under which it was asked. The zero value is empty. They are safe for
// concurrent use.
type openQuestions struct {
	mu   sync.Mutex
	last int64
	open map[string]chan<- wire.Message
}

// ask asks the client by send, and waits for its answer, for ParkedFor at most:
// a client that has gone does not say so. Where nobody waits for it any more, the
// client is told.
func (qs *openQuestions) ask(ctx context.Context, send func([]byte), method string, params []byte) ([]byte, error) {
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
		send(wire.AppendNotification(nil, wire.MethodCancelled, []byte(`{"requestId":`+id+`,"reason":"nobody waits for the answer any more"}`)))
		return nil, context.Cause(ctx)
	}
}

// askOutsideCall asks a legacy client something that is of none of its calls: on the stream
// on which it hears of changes, once it has one.
func (c *clientState) askOutsideCall(ctx context.Context, method string, params []byte) ([]byte, error) {
	return c.questions.ask(ctx, c.queue.addMessage, method, cleanParams(params))
}

// resolve takes a response of the client's, and reports whether it was waited
// for.
func (qs *openQuestions) resolve(m wire.Message) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	answer, ok := qs.open[string(m.ID)]
	if !ok {
		return false
	}
	delete(qs.open, string(m.ID)) // whatever else comes under this id answers nothing
	answer <- m
	return true
}

// switchboardClient is what servers can ask the client of q for, while c is under way.
func (q *clientRequest) switchboardClient() switchboard.Client {
	who := switchboard.Client{Capabilities: q.capabilities(), TakesQuestions: q.modern}
	if q.modern || q.sendKept == nil || !canBeAsked(who.Capabilities) {
		return who
	}
	who.Session = q.client.publicID
	who.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
		return q.client.questions.ask(ctx, q.sendKept, method, params)
	}
	return who
}
