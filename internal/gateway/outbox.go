package gateway

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limits on messages that wait for a client that reads more slowly than servers send.
const (
	maxQueuedMessages = 4096
	maxOutboxBytes    = 4 << 20 // of all messages

	// slowClientWait is how long servers wait for a client that reads nothing, before notifications
	// about its calls are dropped. A client that is only slow loses nothing: its servers are slowed
	// down.
	slowClientWait = 5 * time.Second
)

// An outbox holds the messages that wait to be written to one client. One goroutine writes them in
// their order, as long as there are some. A server waits for the client only while the outbox is
// full, and at most for slowClientWait. Use newOutbox. It is safe for concurrent use.
type outbox struct {
	write     func([]byte) error // not called concurrently
	onFailure func(error)        // called once, when write has failed

	mu       sync.Mutex
	progress sync.Cond // signaled when messages were written, or none will be written any more
	waiting  [][]byte
	bytes    int
	running  bool
	broken   bool
	dropped  int

	abandoned atomic.Bool  // the client reads the stream on another connection
	lastTaken atomic.Int64 // when the last write began, as UnixNano
}

func newOutbox(write func([]byte) error, onFailure func(error)) *outbox {
	o := &outbox{write: write, onFailure: onFailure}
	o.progress.L = &o.mu
	return o
}

// putOrDrop adds a message. It drops the message if the outbox is still full after slowClientWait.
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

// waitForRoom waits for room, for at most slowClientWait after the last write began. The caller
// holds o.mu.
func (o *outbox) waitForRoom() {
	var timer *time.Timer
	for o.full() && !o.broken {
		wait := slowClientWait - time.Since(time.Unix(0, o.lastTaken.Load()))
		if wait <= 0 {
			break
		}
		if timer == nil {
			timer = time.AfterFunc(wait, func() {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.progress.Broadcast()
			})
			defer timer.Stop()
		}
		timer.Reset(wait)
		o.progress.Wait()
	}
}

// idle reports whether no message waits or is being written.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.running
}

// put adds a message that must not be dropped. It waits for room.
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
		o.lastTaken.Store(time.Now().UnixNano()) // the wait begins now, and not in 1970
		go o.run()
	}
}

// run writes until the outbox is empty, or a write fails.
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
			o.onFailure(err)
		}
		o.progress.Broadcast()
	}
	o.running = false
	o.progress.Broadcast()
}

// abandon stops the writing, except for a message that is being written: the client reads the
// stream on another connection.
func (o *outbox) abandon() {
	o.abandoned.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken, o.waiting = true, nil
	o.progress.Broadcast()
}

// flush waits until all is written or a write has failed, and returns how many messages were
// dropped so far.
func (o *outbox) flush() (dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.running {
		o.progress.Wait()
	}
	return o.dropped
}
