package link

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A RequestTable has the pending requests of a link by id, and the end of the link.
type RequestTable struct {
	lastID atomic.Int64
	Done   chan struct{} // closed when the link has ended

	// endsPending says that pending requests end with the link. Over Streamable HTTP each exchange
	// ends by itself.
	endsPending bool

	mu        sync.Mutex
	pending   map[string]*Request // by id, as spelled
	abandoned map[string]struct{} // ids of requests that were sent and then abandoned
	err       error               // why the link ended
	endedAt   time.Time
}

func newRequestTable() RequestTable {
	return RequestTable{Done: make(chan struct{}), pending: map[string]*Request{}, abandoned: map[string]struct{}{}}
}

// newID returns a fresh id.
func (t *RequestTable) newID() []byte { return strconv.AppendInt(nil, t.lastID.Add(1), 10) }

// add makes f findable for its response. The error is an *ExchangeError if the link has ended.
func (t *RequestTable) add(f *Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return AsUnsent(t.err)
	}
	t.pending[string(f.ID)] = f
	return nil
}

func (t *RequestTable) remove(f *Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, string(f.ID))
}

// find returns the pending request with the id, or nil.
func (t *RequestTable) find(id []byte) *Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[string(id)]
}

// recordAbandoned records that f was sent and then abandoned.
func (t *RequestTable) recordAbandoned(f *Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.abandoned) >= maxAbandoned {
		clear(t.abandoned)
	}
	t.abandoned[string(f.ID)] = struct{}{}
}

// takeAbandoned reports whether the request with that id was sent, then abandoned, and is still
// unanswered. It returns true once per request.
func (t *RequestTable) takeAbandoned(id []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.abandoned[string(id)]
	delete(t.abandoned, string(id))
	return ok
}

// endLink ends the link because of err, unless it has ended before. If endsPending is set, it also finishes
// all pending requests.
func (t *RequestTable) endLink(err error) {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err, t.endedAt = err, time.Now()
	var pending []*Request
	if t.endsPending {
		pending = slices.Collect(maps.Values(t.pending))
	}
	t.mu.Unlock()
	close(t.Done)
	for _, f := range pending {
		gone := *AsError(err)
		gone.Sent = !f.Sending.Withdraw()
		f.Finish(wire.Message{}, 0, &gone)
	}
}

// Ended returns when and why the link ended, or nil while it is open.
func (t *RequestTable) Ended() (at time.Time, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endedAt, t.err
}

// InFlight returns how many calls were sent and are not answered.
func (t *RequestTable) InFlight() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.pending {
		if f.client != nil && f.Sending.MayBeSent() {
			n++
		}
	}
	return n
}

// Halt stops the port's work for all pending requests.
func (t *RequestTable) Halt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.pending {
		f.Sending.Halt()
	}
}

// HaltOf stops the port's work for the pending requests that carry the token of the principal.
func (t *RequestTable) HaltOf(p *switchboard.Principal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.pending {
		if f.owner != nil && f.owner.Tenant == p.Tenant && f.owner.ID == p.ID {
			f.Sending.Halt()
		}
	}
}

// onlyCall returns the only call in flight, or nil if there is none or more than one.
func (t *RequestTable) onlyCall() *Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	var one *Request
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
func (t *RequestTable) callOfOneClient() (one *Request, sure bool) {
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
