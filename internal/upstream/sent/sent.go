// Package sent records whether a request may have reached its server.
//
// It decides one thing: whether a request may be sent again. Before a sender gives the first byte to
// the kernel, it claims the request. A request can be withdrawn only before that. The senders are
// elsewhere: package http1, and the pipes of package upstream. So is the decision to send again.
package sent

import (
	"sync"
	"sync/atomic"
)

const (
	unsent    int32 = iota // and still can be sent
	claimed                // some byte may have left
	withdrawn              // no byte has left, and none will
)

// A SendState belongs to one request. The zero SendState belongs to an unsent request. Its methods are safe
// for concurrent use.
type SendState struct {
	state atomic.Int32

	mu     sync.Mutex
	stop   func() // stops the current work; nil means that there is none
	halted bool
}

// Claim must be called before the first byte is sent. It returns false if the request was withdrawn.
func (s *SendState) Claim() bool { return s.state.CompareAndSwap(unsent, claimed) }

// Withdraw makes sure that an unsent request is never sent. It reports whether the request has
// provably not been sent.
func (s *SendState) Withdraw() bool {
	return s.state.CompareAndSwap(unsent, withdrawn) || s.state.Load() == withdrawn
}

// NothingLeft records that the kernel has taken no byte of a claimed request, and that none will
// follow.
func (s *SendState) NothingLeft() { s.state.Store(withdrawn) }

// MayBeSent reports whether any byte of the request may have left.
func (s *SendState) MayBeSent() bool { return s.state.Load() == claimed }

// SetStop sets the function that stops the current work for the request; nil means that there is
// none. It returns false if the request was halted already.
func (s *SendState) SetStop(stop func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	return !s.halted
}

// Halt stops the work for the request, now and later.
func (s *SendState) Halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	if s.stop != nil {
		s.stop()
	}
}
