package session

import (
	"context"
	"errors"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Requests holds the requests in flight of one client, by id. The zero value is empty.
type Requests struct {
	mu    sync.Mutex
	m     map[string]context.CancelCauseFunc
	ended error
}

// MaxInFlight limits the requests in flight of one session, or of stdio.
const MaxInFlight = 256

// ErrIDInUse refuses a request because another one with the same id is in flight.
var ErrIDInUse = errors.New("a request with this id is still in flight; use another id")

// Add adds a request. It returns ErrIDInUse, or a *switchboard.Error if too many are in flight.
func (rs *Requests) Add(id []byte, cancel context.CancelCauseFunc) error {
	key, _ := wire.IDKey(id)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, ok := rs.m[key]; ok {
		return ErrIDInUse
	}
	if len(rs.m) >= MaxInFlight {
		return switchboard.Refuse(switchboard.CodeOverloaded, "%d requests of this session are in flight, its limit; wait for some to end", MaxInFlight)
	}
	if rs.m == nil {
		rs.m = map[string]context.CancelCauseFunc{}
	}
	rs.m[key] = cancel
	if rs.ended != nil {
		cancel(rs.ended)
	}
	return nil
}

// CancelAll cancels the requests in flight, and all that are added later.
func (rs *Requests) CancelAll(why error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.ended = why
	for _, cancel := range rs.m {
		cancel(why)
	}
}

// Len returns the number of requests in flight.
func (rs *Requests) Len() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return len(rs.m)
}

// Remove removes a request that has been answered.
func (rs *Requests) Remove(id []byte) {
	key, _ := wire.IDKey(id)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.m, key)
}

// Cancel cancels the request that the params of notifications/cancelled name, and reports whether
// it is in flight.
func (rs *Requests) Cancel(params []byte) bool {
	if params == nil {
		return false
	}
	id, _ := wire.Field(params, "requestId")
	key, ok := wire.IDKey(id)
	if !ok {
		return false
	}
	rs.mu.Lock()
	cancel := rs.m[key]
	rs.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel(ErrCancelled)
	return true
}
