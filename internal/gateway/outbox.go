package gateway

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what waits for a client that reads slower than servers speak.
const (
	maxQueuedMessages = 4096    // messages
	maxOutboxBytes    = 4 << 20 // in all

	// slowClientWait is how long servers wait for a client that takes nothing, before
	// what they say about its calls is dropped. One that is only slow loses
	// nothing: its servers are as slow.
	slowClientWait = 5 * time.Second
)

// An outbox is the messages that wait to be written to one client. They are
// written in their order, by one goroutine that is there while some wait: a
// server that says something about a call waits for the client only while very
// much waits already, and not for long. Use newOutbox. It is safe for concurrent
// use.
type outbox struct {
	write func([]byte) error // not called concurrently
	lost  func(error)        // called once, when write has failed

	mu       sync.Mutex
	progress sync.Cond // some have been written, or none will be
	waiting  [][]byte
	bytes    int
	running  bool
	broken   bool
	dropped  int

	abandoned atomic.Bool  // the client hears it elsewhere
	lastTaken atomic.Int64 // when the client last took something, or began to, as UnixNano
}

func newOutbox(write func([]byte) error, lost func(error)) *outbox {
	o := &outbox{write: write, lost: lost}
	o.progress.L = &o.mu
	return o
}

// putOrDrop adds a message that may be dropped: it is where too many wait, and there
// is no patience left.
func (o *outbox) putOrDrop(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waitForRoom()
	if o.full() {
		o.dropped++
		return
	}
	o.add(message)
}

// waitForRoom waits for room, as long as there is patience. The caller holds o.mu.
func (o *outbox) waitForRoom() {
	var timer *time.Timer
	for o.full() && !o.broken {
		left := slowClientWait - time.Since(time.Unix(0, o.lastTaken.Load()))
		if left <= 0 {
			break
		}
		if timer == nil {
			timer = time.AfterFunc(left, func() {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.progress.Broadcast()
			})
			defer timer.Stop()
		}
		timer.Reset(left)
		o.progress.Wait()
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
		o.progress.Wait()
	}
	o.add(message)
}

func (o *outbox) full() bool { return len(o.waiting) >= maxQueuedMessages || o.bytes >= maxOutboxBytes }

// add adds a message. The caller holds o.mu.
func (o *outbox) add(message []byte) {
	if o.broken {
		return
	}
	o.waiting = append(o.waiting, message)
	o.bytes += len(message)
	if !o.running {
		o.running = true
		o.lastTaken.Store(time.Now().UnixNano()) // it is waited for from now on, not since 1970
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
			if o.abandoned.Load() {
				break
			}
			o.lastTaken.Store(time.Now().UnixNano())
			if err = o.write(m); err != nil {
				break
			}
		}
		o.mu.Lock()
		if err != nil {
			o.broken, o.waiting = true, nil
			o.lost(err)
		}
		o.progress.Broadcast()
	}
	o.running = false
	o.progress.Broadcast()
}

// abandon makes sure that nothing is written any more but what just is: its
// client hears it elsewhere.
func (o *outbox) abandon() {
	o.abandoned.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken, o.waiting = true, nil
	o.progress.Broadcast()
}

// flush waits until all is written, or the client is lost, and says how many
// messages were dropped so far.
func (o *outbox) flush() (dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.running {
		o.progress.Wait()
	}
	return o.dropped
}
