package store

import (
	"sync"
)

// maxWaitingNotices limits how many notices wait for one subscriber. If there are more, the subscriber is
// told that it has missed some.
const maxWaitingNotices = 1024

// A noticeHub sends notices to the subscribers of this process. The zero value is ready for use.
type noticeHub struct {
	mu     sync.Mutex
	queues map[string]map[*noticeQueue]struct{}
}

// A noticeQueue calls one subscriber on a goroutine of its own, so that publishing never waits for it.
type noticeQueue struct {
	wake chan struct{} // of capacity one

	mu      sync.Mutex
	waiting [][]byte // nil stands where notices are missing
	stopped bool
}

func (h *noticeHub) subscribe(topic string, heard func([]byte)) (stop func()) {
	s := &noticeQueue{wake: make(chan struct{}, 1)}
	h.mu.Lock()
	if h.queues == nil {
		h.queues = map[string]map[*noticeQueue]struct{}{}
	}
	if h.queues[topic] == nil {
		h.queues[topic] = map[*noticeQueue]struct{}{}
	}
	h.queues[topic][s] = struct{}{}
	h.mu.Unlock()
	go s.deliver(heard)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.queues[topic], s)
		if len(h.queues[topic]) == 0 {
			delete(h.queues, topic)
		}
		s.stop()
	}
}

// publish queues data for all subscribers of the topic.
func (h *noticeHub) publish(topic string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.queues[topic] {
		s.enqueue(append([]byte{}, data...)) // never nil, which means missed
	}
}

// reportMissed tells all subscribers that they may have missed notices.
func (h *noticeHub) reportMissed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.queues {
		for s := range of {
			s.enqueue(nil)
		}
	}
}

func (h *noticeHub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.queues {
		for s := range of {
			s.stop()
		}
	}
	h.queues = nil
}

// enqueue queues one notice; nil says that some were missed. The subscriber is told so between the notices that came before and those that come
// after: a subscriber that never empties its queue would not be told at the end. It looks at everything then, so of a full queue nothing stays.
func (s *noticeQueue) enqueue(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(s.waiting); {
	case n >= maxWaitingNotices:
		s.waiting = [][]byte{nil}
	case data != nil || n == 0 || s.waiting[n-1] != nil:
		s.waiting = append(s.waiting, data)
	}
	s.wakeUp()
}

func (s *noticeQueue) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.wakeUp()
}

// wakeUp wakes deliver. The caller holds s.mu.
func (s *noticeQueue) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *noticeQueue) deliver(heard func([]byte)) {
	for range s.wake {
		for {
			data, ok := s.dequeue()
			if !ok {
				break
			}
			heard(data)
		}
		if s.isStopped() {
			return
		}
	}
}

// dequeue takes one notice out of the queue. It returns nil and true where notices were missed.
func (s *noticeQueue) dequeue() (data []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return nil, false
	case len(s.waiting) > 0:
		data, s.waiting = s.waiting[0], s.waiting[1:]
		return data, true
	default:
		s.waiting = nil
		return nil, false
	}
}

func (s *noticeQueue) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}
