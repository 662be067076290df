package upstream

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A requestTable has the pending requests of a link by id, and the end of the link.
type requestTable struct {
	lastID atomic.Int64
	done   chan struct{} // closed when the link has ended

	// endsPending says that pending requests end with the link. Over Streamable HTTP each exchange
	// ends by itself.
	endsPending bool

	mu        sync.Mutex
	pending   map[string]*pendingRequest // by id, as spelled
	abandoned map[string]struct{}        // ids of requests that were sent and then abandoned
	err       error                      // why the link ended
	endedAt   time.Time
}

func newRequestTable() requestTable {
	return requestTable{done: make(chan struct{}), pending: map[string]*pendingRequest{}, abandoned: map[string]struct{}{}}
}

// newID returns a fresh id.
func (t *requestTable) newID() []byte { return strconv.AppendInt(nil, t.lastID.Add(1), 10) }

// add makes f findable for its response. The error is an *exchangeError if the link has ended.
func (t *requestTable) add(f *pendingRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return asUnsent(t.err)
	}
	t.pending[string(f.id)] = f
	return nil
}

func (t *requestTable) remove(f *pendingRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, string(f.id))
}

// find returns the pending request with the id, or nil.
func (t *requestTable) find(id []byte) *pendingRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[string(id)]
}

// recordAbandoned records that f was sent and then abandoned.
func (t *requestTable) recordAbandoned(f *pendingRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.abandoned) >= maxAbandoned {
		clear(t.abandoned)
	}
	t.abandoned[string(f.id)] = struct{}{}
}

// takeAbandoned reports whether the request with that id was sent, then abandoned, and is still
// unanswered. It returns true once per request.
func (t *requestTable) takeAbandoned(id []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.abandoned[string(id)]
	delete(t.abandoned, string(id))
	return ok
}

// end ends the link because of err, unless it has ended before. If endsPending is set, it also finishes
// all pending requests.
func (t *requestTable) end(err error) {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err, t.endedAt = err, time.Now()
	var pending []*pendingRequest
	if t.endsPending {
		pending = slices.Collect(maps.Values(t.pending))
	}
	t.mu.Unlock()
	close(t.done)
	for _, f := range pending {
		gone := *asExchangeError(err)
		gone.sent = !f.sending.Withdraw()
		f.finish(wire.Message{}, 0, &gone)
	}
}

// failure returns why the link ended, and when, or nil while it is open.
func (t *requestTable) failure() (error, time.Time) { //nolint:revive // the time belongs to the error
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err, t.endedAt
}

// halt stops the port's work for all pending requests.
func (t *requestTable) halt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.pending {
		f.sending.Halt()
	}
}

// onlyCall returns the only call in flight, or nil if there is none or more than one.
func (t *requestTable) onlyCall() *pendingRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	var one *pendingRequest
	for _, f := range t.pending {
		if f.client == nil {
			continue
		}
		if one != nil {
			return nil
		}
		one = f
	}
	return one
}

// callOfOneClient returns a call in flight if all calls belong to one client. sure is false if they
// do not.
func (t *requestTable) callOfOneClient() (one *pendingRequest, sure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.pending {
		if f.client == nil {
			continue
		}
		if one != nil && (f.client.Session == "" || f.client.Session != one.client.Session) {
			return nil, false
		}
		one = f
	}
	return one, true
}
