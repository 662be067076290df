package link

import (
	"context"
	"net/http"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/sent"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A Request is a request to the server that may not be answered yet.
type Request struct {
	ID           []byte // as spelled; also our progress token
	Method       string
	Body         []byte      // the whole message
	targetHeader string      // the value of Mcp-Name, for a modern server over HTTP; "" means none
	paramHeaders http.Header // further HTTP headers

	ctx       context.Context        // of the caller; see context
	client    *switchboard.Client    // the client that the server may ask; nil for our own requests
	owner     *switchboard.Principal // whose credential it carries; nil for Switchboard's own
	shown     ShownToken             // the credential that it was sent with
	allowance *slot.Allowance        // of the call; nil for our own requests

	progressToken []byte // the client's, as spelled; nil means none
	minLogLevel   int    // lowest rank of log messages that the client wants; 0 means none

	Sending       sent.SendState
	notifications notificationQueue
	response      response
}

// A response is the answer to a request, or the error instead of it. Its fields are valid when it is
// finished.
type response struct {
	answer wire.Message
	err    error
	status int          // of the HTTP response
	buffer frame.Buffer // holds the answer; its last reader may release it, but need not

	mu       sync.Mutex
	finished bool
	done     chan struct{} // closed when it is finished; nil while nothing waits for that
}

// Finish ends the request and reports whether it did. Only the first finish counts.
func (f *Request) Finish(answer wire.Message, status int, err error) bool {
	return f.finishWith(frame.Buffer{}, answer, status, err)
}

// finishWith is finish with an answer at the start of the buffer lent.
func (f *Request) finishWith(lent frame.Buffer, answer wire.Message, status int, err error) bool {
	r := &f.response
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return false
	}
	if err == nil && answer.Deep && !isListMethod(f.Method) {
		err = Errorf(KindInvalid, true, "its answer has objects and arrays more than %d deep in each other", wire.MaxDepth)
	}
	f.notifications.close()
	r.finished, r.buffer, r.answer, r.status, r.err = true, lent, answer, status, err
	if r.done != nil {
		close(r.done)
	}
	return true
}

// result returns the result in the answer. The request alone owns the buffer of the answer, so that
// the bytes behind the result are spare room.
func (r *response) result() switchboard.Result {
	m := &r.answer
	result := switchboard.Result{JSON: m.Result, Outline: m.Outline, Release: r.buffer.ReleaseOnce()}
	if end := m.At + len(m.Result); end <= len(r.buffer.Bytes) {
		result.JSON, result.Spare = r.buffer.Bytes[m.At:end], len(r.buffer.Bytes)-end
	}
	return result
}

// context returns a context that ends with the request; nil if no caller waits for it.
func (f *Request) context() context.Context {
	if f.allowance != nil {
		return f.allowance.Context()
	}
	return f.ctx
}

// ended reports whether the context of the request has ended.
func (f *Request) ended() bool {
	if f.allowance != nil {
		return f.allowance.Ended()
	}
	return f.ctx.Err() != nil
}

// onEnd calls do when the context of the request ends, at most twice, until stop is called.
func (f *Request) onEnd(do func()) (stop func()) {
	if f.allowance != nil {
		return f.allowance.OnEnd(do)
	}
	forget := context.AfterFunc(f.ctx, do)
	return func() { forget() }
}

// isFinished reports whether the request is finished.
func (f *Request) isFinished() bool {
	f.response.mu.Lock()
	defer f.response.mu.Unlock()
	return f.response.finished
}

// wait blocks until the request is finished and its caller has taken all earlier notifications.
func (f *Request) wait() {
	r := &f.response
	r.mu.Lock()
	if !r.finished && r.done == nil {
		r.done = make(chan struct{})
	}
	done := r.done
	r.mu.Unlock()
	if done != nil {
		<-done
	}
	f.notifications.delivery.Wait()
}

// notifyNow notifies the caller and waits for it. Meanwhile, the call's allowance knows that the
// client is being notified.
func (f *Request) notifyNow(n switchboard.Notification) {
	f.notifications.notifyNow(f.context(), f.allowance, n)
}

// enqueue notifies the caller as soon as possible, without waiting. It returns false if too much is
// queued already, and true if n was queued or came after the end.
func (f *Request) enqueue(n switchboard.Notification) bool {
	return f.notifications.enqueue(n, f.notifyNow)
}

// isHandshake reports whether the request is part of the handshake. Such requests are not
// cancelled: the protocol forbids it for initialize, and a server that was only probed would not
// understand it.
func (f *Request) isHandshake() bool {
	return f.Method == wire.MethodInitialize || f.Method == wire.MethodDiscover
}
