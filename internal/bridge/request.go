package bridge

import (
	"bytes"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A request is one request of the client that is not answered.
type request struct {
	id      []byte
	key     string // of the id; "" if it has none that can be compared
	method  string
	modern  bool
	message []byte // the whole message; nil if it is not kept
	order   int

	// A request can be sent again without a further effect if Switchboard itself answers it (own), or finds the outcome by the request's
	// idempotency key (keyed).
	own, keyed bool

	link    int  // the number of the last link that it was sent on
	sent    bool // all of it
	begun   bool // the process was told to begin with it
	refused bool // the process does not begin with it, because it is stopping
	resends int

	acknowledged bool // of subscriptions/listen: the client has its acknowledgement
}

// ownMethods are the methods that Switchboard answers itself, without any server.
var ownMethods = []string{
	wire.MethodInitialize, wire.MethodDiscover, wire.MethodPing, wire.MethodToolsList, wire.MethodPromptsList, wire.MethodResourcesList,
	wire.MethodTemplatesList, wire.MethodSubscribe, wire.MethodUnsubscribe, wire.MethodListen, wire.MethodSetLevel,
}

func newRequest(m *wire.Message, line []byte) *request {
	r := &request{id: bytes.Clone(m.ID), method: m.Method, message: line}
	r.key, _ = wire.IDKey(m.ID)
	if raw, ok := m.Meta(wire.MetaProtocolVersion); ok {
		version, _ := wire.String(raw)
		r.modern = wire.Modern(version)
	}
	_, r.keyed = m.Meta(wire.MetaIdempotencyKey)
	r.own = slices.Contains(ownMethods, m.Method)
	return r
}

// mayResend reports whether the request can be sent to another process.
func (r *request) mayResend() bool {
	return (r.own || r.keyed || !r.begun) && r.message != nil && r.resends < maxResends
}

// whyLost returns the answer to a request that is not sent again.
func (r *request) whyLost() *switchboard.Error {
	if r.own || !r.begun {
		return notAnswered
	}
	return outcomeUnknown
}

// requests are the requests of the client that are not answered. The bridge's mu guards them.
type requests struct {
	open map[string]*request
	last int // order of the last one
	kept int // bytes of their messages

	beginning int // requests that have begun, of which the process is being told
}

// add adds a request, and reports whether it did: another one may have the same id.
func (rs *requests) add(r *request) bool {
	if r.key == "" || rs.open[r.key] != nil {
		return false
	}
	rs.last++
	r.order = rs.last
	rs.open[r.key] = r
	rs.kept += len(r.message)
	return true
}

// markBegun notes that a request may be executed from now on. Without an idempotency key it will not be sent again.
func (rs *requests) markBegun(r *request) {
	r.begun = true
	if !r.keyed {
		rs.kept -= len(r.message)
		r.message = nil
	}
}

// anyUnbegun reports whether a process must still be told to begin with a request.
func (rs *requests) anyUnbegun() bool {
	for _, r := range rs.open {
		if !r.own && !r.begun {
			return true
		}
	}
	return false
}

// trim drops the message of a request that has been sent, if too much is kept.
func (rs *requests) trim(r *request) {
	if rs.kept > maxKept && rs.open[r.key] == r {
		rs.kept -= len(r.message)
		r.message = nil
	}
}

func (rs *requests) find(id []byte) *request {
	key, _ := wire.IDKey(id)
	return rs.open[key]
}

func (rs *requests) remove(id []byte) {
	if r := rs.find(id); r != nil {
		rs.kept -= len(r.message)
		delete(rs.open, r.key)
	}
}

// any reports whether a request awaits an answer. Streams do not: they end with the client.
func (rs *requests) any() bool {
	for _, r := range rs.open {
		if r.method != wire.MethodListen {
			return true
		}
	}
	return false
}

// owed reports whether a request that was sent on the link is not answered. Streams owe no answer.
func (rs *requests) owed(link int) bool {
	for _, r := range rs.open {
		if r.link == link && !r.refused && (r.method != wire.MethodListen || !r.acknowledged) {
			return true
		}
	}
	return false
}

// inOrder returns the requests, the oldest first.
func (rs *requests) inOrder() []*request {
	all := make([]*request, 0, len(rs.open))
	for _, r := range rs.open {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *request) int { return a.order - b.order })
	return all
}

// clear removes and returns all requests that have been sent.
func (rs *requests) clear() (all []*request) {
	for _, r := range rs.inOrder() {
		if r.sent {
			rs.remove(r.id)
			all = append(all, r)
		}
	}
	return all
}
