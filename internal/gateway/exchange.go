package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An exchange is one authenticated HTTP request and its answer.
type exchange struct {
	g         *Gateway
	w         http.ResponseWriter
	r         *http.Request
	where     endpoint
	principal switchboard.Principal
	target    runTarget
	accepts   acceptedForms
	message   wire.Message
	body      []byte     // the message's bytes
	memory    memoryHold // reserved for the message and for its answer
}

// serve answers the request at its endpoint.
func (x *exchange) serve() {
	if x.where == endpointRuns {
		if x.enterOrRefuse() {
			defer x.g.stop.gate.leave()
			serveRuns(x)
		}
		return
	}
	switch x.r.Method {
	case http.MethodPost:
		x.servePost()
	case http.MethodGet:
		x.serveGet()
	case http.MethodDelete:
		x.serveDelete()
	}
}

// enterOrRefuse admits the request to the gate, or answers that Switchboard is stopping. After true,
// the caller must call gate.leave.
func (x *exchange) enterOrRefuse() bool {
	if x.g.stop.gate.enter() {
		return true
	}
	if _, hop := cluster.Principal(x.r); hop {
		cluster.AnswerNotOwner(x.w) // the replica that forwarded it takes over
		return false
	}
	x.w.Header().Set("Retry-After", "1")
	x.w.Header().Set("Connection", "close")
	x.refuseWith(http.StatusServiceUnavailable, errStopping)
	return false
}

// isStillAllowed reports whether the request would still be authenticated as the same principal. It
// returns false for a revoked key.
func (x *exchange) isStillAllowed() bool {
	now, err := x.g.callers.authenticator.Authenticate(x.r)
	return err == nil && session.KeyOf(now) == session.KeyOf(x.principal)
}

// refuse answers with a failure. The id of a response is not repeated: it is no id of a request.
func (x *exchange) refuse(status int, f *failure) {
	id := x.message.ID
	if x.message.Kind == wire.Response {
		id = nil
	}
	x.g.writeFailure(x.w, status, id, f)
}

// refuseWith answers with e in the form of the endpoint: JSON-RPC, or problem details.
func (x *exchange) refuseWith(status int, e *switchboard.Error) {
	if x.where == endpointMCP {
		x.refuse(status, failureOf(e))
		return
	}
	x.g.refuse(x.w, x.where, status, nil, e)
}

// firstRead is how many bytes of a message are read before more memory is reserved for it.
const firstRead = 64 << 10

// readBody reads the whole body into reserved memory, or answers with the reason why not. A request
// is forwarded only when its body has been read: net/http cuts some answers otherwise
// (golang/go#40747).
func (x *exchange) readBody() ([]byte, bool) {
	tooLong := func() ([]byte, bool) {
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestEntityTooLarge, invalidRequest("the message is longer than 4 MiB"))
		return nil, false
	}
	if x.r.ContentLength > MaxMessage {
		return tooLong()
	}
	c := http.NewResponseController(x.w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer c.SetReadDeadline(time.Time{}) //nolint:errcheck // a connection without deadlines needs no reset
	// Content-Length is only a promise: memory grows with the bytes that arrive.
	whole := int64(MaxMessage + 1)
	if x.r.ContentLength >= 0 {
		whole = x.r.ContentLength + 1 // one more, to see the end
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			room := min(max(4*int64(cap(body)), firstRead), whole)
			if ok, full := x.memory.tryGrow(room - int64(cap(body))); !ok {
				x.refuseMemory(full)
				return nil, false
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := x.r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > MaxMessage:
			return tooLong()
		case err == nil:
		case err == io.EOF:
			return body, true
		case errors.Is(err, os.ErrDeadlineExceeded):
			x.w.Header().Set("Connection", "close")
			x.refuse(http.StatusRequestTimeout, invalidRequest("the message did not arrive within "+bodyTimeout.String()))
			return nil, false
		default:
			x.w.Header().Set("Connection", "close")
			x.refuse(http.StatusBadRequest, invalidRequest("the message could not be read to its end"))
			return nil, false
		}
	}
}

// servePost answers one message.
func (x *exchange) servePost() {
	if why := access.NotJSON(x.w, x.r); why != "" {
		x.refuse(http.StatusUnsupportedMediaType, invalidRequest(why))
		return
	}
	x.accepts = parseAccept(x.r.Header)
	if !x.accepts.json && !x.accepts.events {
		x.refuse(http.StatusNotAcceptable, invalidRequest("Accept must hold application/json, text/event-stream, or better both"))
		return
	}
	x.memory = x.g.accounts.newHold(x.principal)
	defer x.memory.release()
	var ok bool
	if x.body, ok = x.readBody(); !ok {
		return
	}
	m, err := wire.Parse(x.body)
	if err != nil {
		f, id := parseFailure(err)
		x.g.writeFailure(x.w, http.StatusBadRequest, id, f)
		return
	}
	x.message = m
	var f *failure
	if x.target, f = x.target.withHeaders(x.r.Header); f != nil {
		x.refuse(http.StatusBadRequest, f)
		return
	}
	if m.Kind == wire.Request { // other messages concern requests in flight
		if !x.enterOrRefuse() {
			return
		}
		if m.Method == wire.MethodListen {
			x.g.stop.gate.leave() // a drain does not wait for streams of changes
		} else {
			defer x.g.stop.gate.leave()
		}
	}
	header := x.r.Header.Get(wire.HeaderProtocolVersion)
	if wire.Modern(header) || wire.Modern(metaVersion(&m)) {
		x.serveModern(header)
		return
	}
	x.serveLegacy(header)
}

// An acceptedForms says which forms of an answer a client can read.
type acceptedForms struct{ json, events bool }

// parseAccept reads the Accept headers. A client without one gets no event stream: it may be unable
// to read one.
func parseAccept(h http.Header) (a acceptedForms) {
	values := h.Values("Accept")
	if len(values) == 0 {
		return acceptedForms{json: true}
	}
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			kind, params, _ := strings.Cut(part, ";")
			if params != "" && strings.Contains(strings.ReplaceAll(params, " ", "")+";", "q=0;") {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "*/*":
				a.json, a.events = true, true
			case "application/json", "application/*":
				a.json = true
			case "text/event-stream", "text/*":
				a.events = true
			}
		}
	}
	return a
}

// streamReply answers q and sends what servers say meanwhile as notifications. cancel cancels ctx
// and so the work. done is called before the answer is sent, onFailure when a write to the client fails.
// rs keeps the events that a client can resume; nil keeps none.
func (x *exchange) streamReply(ctx context.Context, cancel context.CancelCauseFunc, onFailure func(error), q *clientRequest, done func(), rs *session.Replays) {
	p := newHTTPReply(x.w, x.accepts, q.modern, onFailure, rs)
	if x.accepts.events {
		q.sender = p
	}
	a := x.g.dispatcher.dispatch(ctx, cancel, q)
	done()
	if n := p.stopNotifying(); n > 0 {
		x.g.log.Warn("a client reads too slowly; notifications were dropped", "count", n, "tenant", q.principal.Tenant, "principal", q.principal.ID)
	}
	a = x.g.accounts.holdAnswer(&x.memory, a)
	p.sendAnswer(q.ID, a)
	a.done()
}
