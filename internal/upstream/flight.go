package upstream

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// What a flight keeps of notifications that its caller has not taken yet.
const (
	maxQueued      = 10_000
	maxQueuedBytes = 4 << 20
)

// Whether a request has been sent.
const (
	unsent    int32 = iota // and may yet be
	sending                // it may have been
	withdrawn              // it will never be
)

// A flight is one request of ours under way.
type flight struct {
	id     []byte // as spelt; also our progress token
	method string
	body   []byte      // the whole message
	header http.Header // what HTTP says of it beside the body

	ctx    context.Context     // of the caller
	client *switchboard.Client // whom the server may ask; nil for requests of our own
	left   *allowance          // the call's

	token []byte // the client's own progress token, as spelt; nil means none
	level int    // least rank of log messages that the client wants; 0 means none

	sent atomic.Int32

	mu     sync.Mutex
	queue  []switchboard.Notification
	taken  bool          // the caller has what was in the queue, and is not done with it
	calm   chan struct{} // closed when all that was said is passed on; nil while nobody waits for that
	bytes  int
	over   bool
	answer wire.Message
	err    error
	status int  // of the HTTP response that brought the answer
	lent   loan // what the answer stands in; repaid by who knows that nothing reads it any more, or by nobody

	wake chan struct{} // holds one signal when queue or over have changed
	room chan struct{} // holds one signal when the queue has been taken

	stop func() // ends what the port does for it; nil where it does nothing
}

func (f *flight) signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// finish ends the flight; the first to do so wins. It reports whether it did.
func (f *flight) finish(answer wire.Message, status int, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	f.over, f.answer, f.status, f.err = true, answer, status, err
	f.signal(f.wake)
	f.signal(f.room)
	return true
}

// ended reports whether the flight is over.
func (f *flight) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// push keeps n for the caller. It reports false when there is no room, and
// true when it was kept or came after the end.
func (f *flight) push(n switchboard.Notification) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return true
	}
	if len(f.queue) >= maxQueued || f.bytes+len(n.Params) > maxQueuedBytes && len(f.queue) > 0 {
		return false
	}
	f.queue = append(f.queue, n)
	f.bytes += len(n.Params)
	f.signal(f.wake)
	return true
}

// take returns what was kept, and whether the flight is over: then nothing
// more will come.
func (f *flight) take() ([]switchboard.Notification, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queue
	f.queue, f.bytes, f.taken = nil, 0, len(f.queue) > 0
	f.signal(f.room)
	f.settle()
	return q, f.over
}

// passed notes that the caller is done with what it has taken.
func (f *flight) passed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = false
	f.settle()
}

// settle tells those who wait for it that all is passed on. f.mu is held.
func (f *flight) settle() {
	if f.calm != nil && !f.taken && len(f.queue) == 0 {
		close(f.calm)
		f.calm = nil
	}
}

// settled returns what is closed when all that was said until now is passed on.
func (f *flight) settled() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm == nil {
		f.calm = make(chan struct{})
	}
	calm := f.calm
	f.settle()
	return calm
}

// opening reports whether the request is one by which the link is made. Those
// are not cancelled: the protocol forbids it for initialize, and a server that
// was only probed would not understand.
func (f *flight) opening() bool {
	return f.method == wire.MethodInitialize || f.method == wire.MethodDiscover
}

// leave claims the bytes for sending. It reports false when the flight has
// been withdrawn.
func (f *flight) leave() bool { return f.sent.CompareAndSwap(unsent, sending) }

// withdraw reports whether the request has provably not been sent, and sees to
// it that it never is.
func (f *flight) withdraw() bool {
	return f.sent.CompareAndSwap(unsent, withdrawn) || f.sent.Load() == withdrawn
}

// maybeSent reports whether the request may have reached the server.
func (f *flight) maybeSent() bool { return f.sent.Load() == sending }
