package upstream

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/time/rate"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/sent"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of the notifications that wait for the caller of a request.
const (
	maxQueued      = 10_000
	maxQueuedBytes = 4 << 20
)

// A pendingRequest is a request of ours that is not answered yet.
type pendingRequest struct {
	id           []byte // as spelled; also our progress token
	method       string
	body         []byte      // the whole message
	targetHeader string      // the value of Mcp-Name, for a modern server over HTTP; "" means none
	paramHeaders http.Header // further HTTP headers

	ctx       context.Context                // of the caller
	notify    func(switchboard.Notification) // of the caller; nil means that it wants no notifications
	client    *switchboard.Client            // the client that the server may ask; nil for our own requests
	allowance *callAllowance                 // of the call; nil for our own requests

	progressToken []byte // the client's, as spelled; nil means none
	minLogLevel   int    // lowest rank of log messages that the client wants; 0 means none

	sending sent.State

	notifyMu sync.Mutex     // held while notify is called
	delivery sync.WaitGroup // the goroutine that runs deliverQueue

	mu            sync.Mutex
	notifiedBytes int           // bytes of the notifications so far
	notifyLimiter *rate.Limiter // nil before the first notification
	queue         []switchboard.Notification
	queuedBytes   int
	delivering    bool          // deliverQueue is running
	delivered     chan struct{} // closed when deliverQueue ends; nil while nothing waits for that
	finished      bool
	done          chan struct{} // closed when it is finished; nil while nothing waits for that
	answer        wire.Message
	err           error
	status        int          // of the HTTP response
	buffer        frame.Buffer // holds the answer; its last reader may release it, but need not
}

// How many notifications a call may send at once, and then per second.
const (
	notifyBurst = 10_000
	notifyRate  = 1_000
)

// allowNotification reports whether the client gets one more notification of that many bytes. All
// notifications of a call together may have most bytes, as a result may.
func (f *pendingRequest) allowNotification(bytes, most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notifyLimiter == nil {
		f.notifyLimiter = rate.NewLimiter(notifyRate, notifyBurst)
	}
	if f.notifiedBytes+bytes > most || !f.notifyLimiter.Allow() {
		return false
	}
	f.notifiedBytes += bytes
	return true
}

// finish ends the request and reports whether it did. Only the first finish counts.
func (f *pendingRequest) finish(answer wire.Message, status int, err error) bool {
	return f.finishWith(frame.Buffer{}, answer, status, err)
}

// finishWith is finish with an answer at the start of the buffer lent.
func (f *pendingRequest) finishWith(lent frame.Buffer, answer wire.Message, status int, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished {
		return false
	}
	if err == nil && answer.Deep && !isListMethod(f.method) {
		err = exchangeErrorf(kindInvalid, true, "its answer has objects and arrays more than %d deep in each other", wire.MaxDepth)
	}
	f.finished, f.buffer, f.answer, f.status, f.err = true, lent, answer, status, err
	if f.done != nil {
		close(f.done)
	}
	return true
}

// result returns the result that finished the request. The request alone owns the buffer of the
// answer, so that the bytes behind the result are spare room.
func (f *pendingRequest) result() switchboard.Result {
	m := &f.answer
	r := switchboard.Result{JSON: m.Result, Outline: m.Outline, Release: f.buffer.ReleaseOnce()}
	if end := m.At + len(m.Result); end <= len(f.buffer.Bytes) {
		r.JSON, r.Spare = f.buffer.Bytes[m.At:end], len(f.buffer.Bytes)-end
	}
	return r
}

// isFinished reports whether the request is finished.
func (f *pendingRequest) isFinished() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.finished
}

// wait blocks until the request is finished and its caller has taken all earlier notifications.
func (f *pendingRequest) wait() {
	f.mu.Lock()
	if !f.finished && f.done == nil {
		f.done = make(chan struct{})
	}
	done := f.done
	f.mu.Unlock()
	if done != nil {
		<-done
	}
	f.delivery.Wait()
}

// notifyNow calls notify and waits for it.
func (f *pendingRequest) notifyNow(n switchboard.Notification) {
	f.notifyMu.Lock()
	defer f.notifyMu.Unlock()
	if f.notify == nil || f.ctx.Err() != nil {
		return
	}
	if f.allowance != nil {
		f.allowance.setNotifying(true)
		defer f.allowance.setNotifying(false)
	}
	f.notify(n)
}

// enqueue notifies the caller as soon as possible, without waiting. It returns false if too much is
// queued already, and true if n was queued or came after the end.
func (f *pendingRequest) enqueue(n switchboard.Notification) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished {
		return true
	}
	if len(f.queue) >= maxQueued || f.queuedBytes+len(n.Params) > maxQueuedBytes && len(f.queue) > 0 {
		return false
	}
	f.queue = append(f.queue, n)
	f.queuedBytes += len(n.Params)
	if !f.delivering {
		f.delivering = true
		f.delivery.Go(f.deliverQueue)
	}
	return true
}

// deliverQueue delivers queued notifications until the queue is empty.
func (f *pendingRequest) deliverQueue() {
	for {
		f.mu.Lock()
		queue := f.queue
		f.queue, f.queuedBytes = nil, 0
		if len(queue) == 0 {
			f.delivering = false
			if f.delivered != nil {
				close(f.delivered)
				f.delivered = nil
			}
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		for _, n := range queue {
			f.notifyNow(n)
		}
	}
}

// queueDelivered returns a channel that is closed when all notifications so far are delivered.
func (f *pendingRequest) queueDelivered() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delivered == nil {
		f.delivered = make(chan struct{})
	}
	calm := f.delivered
	if !f.delivering {
		close(calm)
		f.delivered = nil
	}
	return calm
}

// isHandshake reports whether the request is part of the handshake. Such requests are not
// cancelled: the protocol forbids it for initialize, and a server that was only probed would not
// understand it.
func (f *pendingRequest) isHandshake() bool {
	return f.method == wire.MethodInitialize || f.method == wire.MethodDiscover
}
