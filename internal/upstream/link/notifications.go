package link

import (
	"context"
	"sync"

	"golang.org/x/time/rate"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
)

// Limits of the notifications of one request.
const (
	maxQueued      = 10_000 // that wait for the caller
	maxQueuedBytes = 4 << 20

	notifyBurst = 10_000 // that may come at once, and then per second
	notifyRate  = 1_000
)

// A notificationQueue passes notifications on to the caller of a request, one at a time and in order. The zero
// notificationQueue has a caller that wants none.
type notificationQueue struct {
	notify   func(switchboard.Notification) // of the caller; nil means that it wants no notifications
	notifyMu sync.Mutex                     // held while notify is called
	delivery sync.WaitGroup                 // the goroutine that runs deliver

	mu          sync.Mutex
	bytes       int           // of the notifications so far
	limiter     *rate.Limiter // nil before the first notification
	queue       []switchboard.Notification
	queuedBytes int
	delivering  bool          // deliver is running
	delivered   chan struct{} // closed when deliver ends; nil while nothing waits for that
	closed      bool
}

// allowMore reports whether the client gets one more notification of that many bytes. All notifications of
// a request together may have most bytes, as a result may.
func (q *notificationQueue) allowMore(bytes, most int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limiter == nil {
		q.limiter = rate.NewLimiter(notifyRate, notifyBurst)
	}
	if q.bytes+bytes > most || !q.limiter.Allow() {
		return false
	}
	q.bytes += bytes
	return true
}

// notifyNow calls notify and waits for it. allowance may be nil.
func (q *notificationQueue) notifyNow(ctx context.Context, allowance *slot.Allowance, n switchboard.Notification) {
	q.notifyMu.Lock()
	defer q.notifyMu.Unlock()
	if q.notify == nil || ctx.Err() != nil {
		return
	}
	if allowance != nil {
		allowance.SetNotifying(true)
		defer allowance.SetNotifying(false)
	}
	q.notify(n)
}

// enqueue queues n for now. It returns false if too much is queued already, and true if n was queued
// or the notifier is closed.
func (q *notificationQueue) enqueue(n switchboard.Notification, now func(switchboard.Notification)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return true
	}
	if len(q.queue) >= maxQueued || q.queuedBytes+len(n.Params) > maxQueuedBytes && len(q.queue) > 0 {
		return false
	}
	q.queue = append(q.queue, n)
	q.queuedBytes += len(n.Params)
	if !q.delivering {
		q.delivering = true
		q.delivery.Go(func() { q.deliver(now) })
	}
	return true
}

// deliver delivers queued notifications until the queue is empty.
func (q *notificationQueue) deliver(now func(switchboard.Notification)) {
	for {
		q.mu.Lock()
		queue := q.queue
		q.queue, q.queuedBytes = nil, 0
		if len(queue) == 0 {
			q.delivering = false
			if q.delivered != nil {
				close(q.delivered)
				q.delivered = nil
			}
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, n := range queue {
			now(n)
		}
	}
}

// allDelivered returns a channel that is closed when all notifications so far are delivered.
func (q *notificationQueue) allDelivered() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.delivered == nil {
		q.delivered = make(chan struct{})
	}
	delivered := q.delivered
	if !q.delivering {
		close(delivered)
		q.delivered = nil
	}
	return delivered
}

// close ignores all that is enqueued later. What is queued is still delivered.
func (q *notificationQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
