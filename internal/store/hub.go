package store

import (
	"sync"
)

// maxUnheard is how many notices wait for one subscriber. Where there are more, it is
// told that it has missed some.
const maxUnheard = 1024

// A hub gives notices to the subscribers of this process. The zero hub is empty.
type hub struct {
	mu     sync.Mutex
	topics map[string]map[*subscriber]struct{}
}

// A subscriber hears on a goroutine of its own, so that nobody waits for it.
type subscriber struct {
	wake chan struct{} // takes one

	mu     sync.Mutex
	queue  [][]byte
	missed bool
	ended  bool
}

func (h *hub) subscribe(topic string, heard func([]byte)) (stop func()) {
	s := &subscriber{wake: make(chan struct{}, 1)}
	h.mu.Lock()
	if h.topics == nil {
		h.topics = map[string]map[*subscriber]struct{}{}
	}
	if h.topics[topic] == nil {
		h.topics[topic] = map[*subscriber]struct{}{}
	}
	h.topics[topic][s] = struct{}{}
	h.mu.Unlock()
	go s.run(heard)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.topics[topic], s)
		if len(h.topics[topic]) == 0 {
			delete(h.topics, topic)
		}
		s.end()
	}
}

// publish queues data for all who subscribe to the topic.
func (h *hub) publish(topic string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.topics[topic] {
		s.push(append([]byte{}, data...)) // never nil
	}
}

// missed tells everybody that something may have been missed.
func (h *hub) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.topics {
		for s := range of {
			s.push(nil)
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.topics {
		for s := range of {
			s.end()
		}
	}
	h.topics = nil
}

// push queues one notice; nil says that some were missed.
func (s *subscriber) push(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case data == nil || len(s.queue) >= maxUnheard:
		s.missed = true
	default:
		s.queue = append(s.queue, data)
	}
	s.rouse()
}

func (s *subscriber) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.rouse()
}

// rouse wakes the subscriber. The caller holds s.mu.
func (s *subscriber) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) run(heard func([]byte)) {
	for range s.wake {
		for {
			data, ok := s.next()
			if !ok {
				break
			}
			heard(data)
		}
		if s.over() {
			return
		}
	}
}

// next takes one notice out of the queue: nil where the queue is at its end, and some
// were missed.
func (s *subscriber) next() (data []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return nil, false
	case len(s.queue) > 0:
		data, s.queue = s.queue[0], s.queue[1:]
		return data, true
	case s.missed:
		s.missed = false
		return nil, true
	default:
		s.queue = nil
		return nil, false
	}
}

func (s *subscriber) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
