package gateway

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what waits for a client that reads slower than servers speak.
const (
	maxWaiting      = 4096    // messages
	maxWaitingBytes = 4 << 20 // in all

	// patience is how long servers wait for a client that takes nothing, before
	// what they say about its calls is dropped. One that is only slow loses
	// nothing: its servers are as slow.
	patience = 5 * time.Second
)

// An outbox is the messages that wait to be written to one client. They are
// written in their order, by one goroutine that is there while some wait: a
// server that says something about a call waits for the client only while very
// much waits already, and not for long. Use newOutbox. It is safe for concurrent
// use.
type outbox struct {
	write func([]byte) error // not called concurrently
	lost  func(error)        // called once, when write has failed

	mu      sync.Mutex
	turn    sync.Cond // some have been written, or none will be
	waiting [][]byte
	bytes   int
	running bool
	broken  bool
	dropped int

	gone atomic.Bool  // the client hears it elsewhere
	took atomic.Int64 // when the client last took something, or began to, as UnixNano
}

func newOutbox(write func([]byte) error, lost func(error)) *outbox {
	o := &outbox{write: write, lost: lost}
	o.turn.L = &o.mu
	return o
}

// offer adds a message that may be dropped: it is where too many wait, and there
// is no patience left.
func (o *outbox) offer(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wait()
	if o.full() {
		o.dropped++
		return
	}
	o.add(message)
}

// wait waits for room, as long as there is patience. The caller holds o.mu.
func (o *outbox) wait() {
	var timer *time.Timer
	for o.full() && !o.broken {
		left := patience - time.Since(time.Unix(0, o.took.Load()))
		if left <= 0 {
			break
		}
		if timer == nil {
			timer = time.AfterFunc(left, func() {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.turn.Broadcast()
			})
			defer timer.Stop()
		}
		timer.Reset(left)
		o.turn.Wait()
	}
}

// idle reports whether nothing waits.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.running
}

// put adds a message that may not be dropped. It waits for room.
func (o *outbox) put(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.full() && !o.broken {
		o.turn.Wait()
	}
	o.add(message)
}

func (o *outbox) full() bool { return len(o.waiting) >= maxWaiting || o.bytes >= maxWaitingBytes }

// add adds a message. The caller holds o.mu.
func (o *outbox) add(message []byte) {
	if o.broken {
		return
	}
	o.waiting = append(o.waiting, message)
	o.bytes += len(message)
	if !o.running {
		o.running = true
		o.took.Store(time.Now().UnixNano()) // it is waited for from now on, not since 1970
		go o.run()
	}
}

// run writes until nothing waits, or the client is lost.
func (o *outbox) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.waiting) > 0 && !o.broken {
		batch := o.waiting
		o.waiting, o.bytes = nil, 0
		o.mu.Unlock()
		var err error
		for _, m := range batch {
			if o.gone.Load() {
				break
			}
			o.took.Store(time.Now().UnixNano())
			if err = o.write(m); err != nil {
				break
			}
		}
		o.mu.Lock()
		if err != nil {
			o.broken, o.waiting = true, nil
			o.lost(err)
		}
		o.turn.Broadcast()
	}
	o.running = false
	o.turn.Broadcast()
}

// abandon makes sure that nothing is written any more but what just is: its
// client hears it elsewhere.
func (o *outbox) abandon() {
	o.gone.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken, o.waiting = true, nil
	o.turn.Broadcast()
}

// flush waits until all is written, or the client is lost, and says how many
// messages were dropped so far.
func (o *outbox) flush() (dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.running {
		o.turn.Wait()
	}
	return o.dropped
}
