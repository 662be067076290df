package upstream

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

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
	name   string      // whom it calls, as HTTP says it of a modern one; "" for nobody
	header http.Header // what HTTP says of it besides

	ctx    context.Context                // of the caller
	notify func(switchboard.Notification) // the caller's; nil where that wants to hear nothing
	client *switchboard.Client            // whom the server may ask; nil for requests of our own
	left   *allowance                     // the call's

	token []byte // the client's own progress token, as spelt; nil means none
	level int    // least rank of log messages that the client wants; 0 means none

	sent atomic.Int32

	saying sync.Mutex     // held while notify is called
	behind sync.WaitGroup // the goroutine that hands on what the queue holds

	mu      sync.Mutex
	told    int           // bytes of notifications
	pace    *rate.Limiter // of notifications; nil until there is one
	queue   []switchboard.Notification
	bytes   int
	passing bool          // somebody hands on what the queue holds
	calm    chan struct{} // closed when nobody does any more; nil while nobody waits for that
	over    bool
	done    chan struct{} // closed when it is over; nil until somebody waits for that
	answer  wire.Message
	err     error
	status  int  // of the HTTP response that brought the answer
	lent    loan // what the answer stands in; repaid by who knows that nothing reads it any more, or by nobody

	stop    func() // ends what the port does for it now; nil where it does nothing
	stopped bool
}

// How many notifications a call may send at once, and then each second.
const (
	toldAtOnce = 10_000
	toldEach   = 1_000
)

// mayTell reports whether the client of the call is told one more notification of so many bytes: all of them together have most
// bytes, as a result has.
func (f *flight) mayTell(bytes, most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pace == nil {
		f.pace = rate.NewLimiter(toldEach, toldAtOnce)
	}
	if f.told+bytes > most || !f.pace.Allow() {
		return false
	}
	f.told += bytes
	return true
}

// finish ends the flight; the first to do so wins. It reports whether it did.
func (f *flight) finish(answer wire.Message, status int, err error) bool {
	return f.finishIn(loan{}, answer, status, err)
}

// finishIn is finish with an answer that stands at the start of lent.
func (f *flight) finishIn(lent loan, answer wire.Message, status int, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	if err == nil && answer.Deep && !listing(f.method) {
		err = faultf(kindInvalid, true, "its answer has objects and arrays more than %d deep in each other", wire.MaxDepth)
	}
	f.over, f.lent, f.answer, f.status, f.err = true, lent, answer, status, err
	if f.done != nil {
		close(f.done)
	}
	return true
}

// result is the result that has ended the flight. What the answer stands in is
// nobody else's, so that all behind the result is spare.
func (f *flight) result() switchboard.Result {
	m := &f.answer
	r := switchboard.Result{JSON: m.Result, Outline: m.Outline, Release: f.lent.repayment()}
	if end := m.At + len(m.Result); end <= len(f.lent.room) {
		r.JSON, r.Spare = f.lent.room[m.At:end], len(f.lent.room)-end
	}
	return r
}

// ended reports whether the flight is over.
func (f *flight) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// wait waits until the flight is over, and the caller has heard all that was said
// before.
func (f *flight) wait() {
	f.mu.Lock()
	if !f.over && f.done == nil {
		f.done = make(chan struct{})
	}
	done := f.done
	f.mu.Unlock()
	if done != nil {
		<-done
	}
	f.behind.Wait()
}

// say tells the caller at once, and waits for it.
func (f *flight) say(n switchboard.Notification) {
	f.saying.Lock()
	defer f.saying.Unlock()
	if f.notify == nil || f.ctx.Err() != nil {
		return
	}
	if f.left != nil {
		f.left.tell(true)
		defer f.left.tell(false)
	}
	f.notify(n)
}

// push tells the caller as soon as it can, and waits for nothing. It reports
// false when too much waits already, and true when n was kept or came after the
// end.
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
	if !f.passing {
		f.passing = true
		f.behind.Go(f.pass)
	}
	return true
}

// pass hands on what was pushed, until there is no more.
func (f *flight) pass() {
	for {
		f.mu.Lock()
		queue := f.queue
		f.queue, f.bytes = nil, 0
		if len(queue) == 0 {
			f.passing = false
			if f.calm != nil {
				close(f.calm)
				f.calm = nil
			}
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		for _, n := range queue {
			f.say(n)
		}
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
	if !f.passing {
		close(calm)
		f.calm = nil
	}
	return calm
}

// under says how to end what the port does for the flight from now on; nil means
// that it does nothing. It reports false where the flight has been halted.
func (f *flight) under(stop func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = stop
	return !f.stopped
}

// halt ends what the port does for the flight, now and later.
func (f *flight) halt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.stop != nil {
		f.stop()
	}
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
