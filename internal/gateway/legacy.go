package gateway

import (
	"bytes"
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// noSuchSession answers an id that was never issued, has expired, or belongs to somebody else. All
// three look the same.
var noSuchSession = invalidRequest("there is no such session; send initialize to open one")

// sessionID returns the session id of a request; "" for none.
func sessionID(h http.Header) string {
	ids := h.Values(wire.HeaderSessionID)
	switch len(ids) {
	case 0:
		return ""
	case 1:
		if ids[0] != "" {
			return ids[0]
		}
	}
	return "more than one, or none" // matches no id
}

// serveLegacy answers a message of a client that has, or opens, a session.
func (x *exchange) serveLegacy(version string) {
	if version != "" && !isKnownVersion(version) {
		x.refuse(http.StatusBadRequest, unsupportedVersion(version))
		return
	}
	m, id := &x.message, sessionID(x.r.Header)
	opens := m.Kind == wire.Request && m.Method == wire.MethodInitialize
	if id == "" {
		if !opens {
			x.refuse(http.StatusBadRequest, invalidRequest("there is no session: send initialize first, and then the Mcp-Session-Id of its answer with every request; or speak "+wire.Latest+", which has none"))
			return
		}
		x.openSession()
		return
	}
	if m.Kind == wire.Response || m.Kind == wire.Notification && m.Method == wire.MethodCancelled {
		x.serveResponseOrCancel(id)
		return
	}
	g := x.g
	s := g.findSession(x.envelope(), id)
	if s == nil {
		return
	}
	defer g.sessions.release(s)
	if f := s.checkTarget(x.target); f != nil {
		x.refuse(http.StatusBadRequest, f)
		return
	}
	switch {
	case opens:
		x.refuse(http.StatusBadRequest, invalidRequest("this session is open already; to open another, send initialize without Mcp-Session-Id"))
	case m.Kind == wire.Notification:
		g.handleNotification(s.client, &s.inFlight, *m)
		x.w.WriteHeader(http.StatusAccepted)
	default:
		x.serveInSession(s)
	}
}

// unexpectedResponse answers a response to a question that is not open.
var unexpectedResponse = invalidRequest("this is a response to no open question")

// serveInSession answers a request within s. The request goes on if its connection is lost: in this
// era that cancels nothing. The client can resume the rest of the event stream.
func (x *exchange) serveInSession(s *session) {
	g := x.g
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	defer cancel(nil)
	if f := s.inFlight.add(x.message.ID, cancel); f != nil {
		status := http.StatusBadRequest
		if f.code != wire.CodeInvalidRequest {
			status = http.StatusTooManyRequests
		}
		x.refuse(status, f)
		return
	}
	x.streamReply(ctx, cancel, func(error) {}, &clientRequest{
		Message:     &x.message,
		principal:   x.principal,
		client:      s.client,
		header:      x.r.Header,
		bind:        fixedRun(s.run),
		saveSession: func(ctx context.Context) error { return g.saveSession(ctx, s) },
	}, func() { s.inFlight.remove(x.message.ID) }, &s.replays)
}

// openSession answers initialize and opens a session. The session exists once its run is bound. The
// answer carries its id.
func (x *exchange) openSession() {
	g := x.g
	s, own := g.sessions.reserve(x.principal, "")
	if s == nil {
		status := http.StatusServiceUnavailable
		if own {
			status = http.StatusTooManyRequests
		}
		x.w.Header().Set("Retry-After", "60")
		x.refuse(status, failureOf(tooManySessions(own)))
		return
	}
	defer g.sessions.release(s)
	var opened *run.Run
	q := &clientRequest{
		Message:   &x.message,
		principal: x.principal,
		client:    s.client,
		header:    x.r.Header,
		bind: func(ctx context.Context) (_ *run.Run, err error) {
			if opened == nil {
				opened, err = g.openRun(ctx, x.principal, x.target)
			}
			return opened, err
		},
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	a := g.dispatch(ctx, cancel, q)
	if a.result != nil {
		raw, _ := wire.Field(a.result, "protocolVersion")
		version, _ := wire.String(raw)
		s.replays.sendsPrimers = version >= wire.LatestLegacy
		s.run = opened
		if err := g.saveSession(ctx, s); err != nil {
			g.sessions.end(s)
			g.refuseSession(x.envelope(), err)
			return
		}
		g.sessions.publish(s, opened)
		x.w.Header().Set(wire.HeaderSessionID, s.id)
		g.log.Debug("session opened", "tenant", x.principal.Tenant, "principal", x.principal.ID, "task", opened.Task())
	} else {
		g.sessions.end(s)
	}
	// No event stream: its headers would be sent before the session id is known.
	p := newHTTPReply(x.w, acceptedForms{json: x.accepts.json}, false, func(error) {}, nil)
	p.sendAnswer(x.message.ID, a)
}

// tooManySessions says why no session is opened. own means that the principal has reached its limit.
func tooManySessions(own bool) *switchboard.Error {
	if own {
		return switchboard.Refuse(switchboard.CodeOverloaded, "%d of your sessions are open, the limit for one principal; end one with DELETE, or try again once one has been idle for a minute", MaxSessionsEach)
	}
	return switchboard.Refuse(switchboard.CodeOverloaded, "the limit of open sessions is reached; try again later")
}

// sessionForStream finds the session of a GET or DELETE, or answers why it does not. The caller
// must release the session.
func (g *Gateway) sessionForStream(w http.ResponseWriter, r *http.Request, p switchboard.Principal) *session {
	version, id := r.Header.Get(wire.HeaderProtocolVersion), sessionID(r.Header)
	switch {
	case wire.Modern(version):
		w.Header().Set("Allow", http.MethodPost)
		g.writeFailure(w, http.StatusMethodNotAllowed, nil, invalidRequest(wire.Latest+" has no "+r.Method+"; changes are heard of by "+wire.MethodListen))
		return nil
	case version != "" && !isKnownVersion(version):
		g.writeFailure(w, http.StatusBadRequest, nil, unsupportedVersion(version))
		return nil
	case id == "":
		g.writeFailure(w, http.StatusBadRequest, nil, invalidRequest(r.Method+" needs the Mcp-Session-Id of a session"))
		return nil
	}
	if r.Method == http.MethodGet {
		return g.findSessionOfStream(httpRequest{w: w, r: r, p: p}, id, r.Header.Get(wire.HeaderLastEventID))
	}
	return g.findSession(httpRequest{w: w, r: r, p: p}, id)
}

// serveDelete ends a session and cancels its requests in flight.
func (g *Gateway) serveDelete(w http.ResponseWriter, r *http.Request, p switchboard.Principal) {
	s := g.sessionForStream(w, r, p)
	if s == nil {
		return
	}
	defer g.sessions.release(s)
	g.sessions.end(s)
	if err := g.deleteStoredSession(s); err != nil {
		g.refuseSession(httpRequest{w: w, r: r, p: p}, switchboard.Unavailable("the session has ended here, but may still be found; end it again", err))
		return
	}
	if s.moves > 0 { // requests may still run at earlier owners
		g.publishMove(r.Context(), moveNotice{Key: s.key, Ended: true})
	}
	w.WriteHeader(http.StatusNoContent)
}

// serveGet opens the notification stream of a session, or resumes the stream of a request after the
// event that Last-Event-ID names. The session's next stream brings the changes that the client
// missed, for every Last-Event-ID.
func (g *Gateway) serveGet(w http.ResponseWriter, r *http.Request, p switchboard.Principal, t runTarget) {
	s := g.sessionForStream(w, r, p)
	if s == nil {
		return
	}
	defer g.sessions.release(s)
	t, f := t.withHeaders(r.Header)
	if f == nil {
		f = s.checkTarget(t)
	}
	if f != nil {
		g.writeFailure(w, http.StatusBadRequest, nil, f)
		return
	}
	if !parseAccept(r.Header).events {
		g.writeFailure(w, http.StatusNotAcceptable, nil, invalidRequest("Accept must hold text/event-stream"))
		return
	}
	account := g.accountOf(p)
	if !takeIfBelow(&account.streams, MaxStreamsEach) {
		g.refuseStream(w, nil)
		return
	}
	defer account.streams.Add(-1)

	k, event, ours := s.replays.findEvent(r.Header.Get(wire.HeaderLastEventID))
	switch {
	case k != nil && k.number != 0: // also during a drain, which waits for its call
		g.replay(w, r, p, s, k, event)
		return
	case !g.enterOrRefuse(w, r, endpointMCP, nil):
		return
	}
	g.gate.leave() // a drain does not wait for it
	switch {
	case k == nil && ours:
		g.writeFailure(w, http.StatusBadRequest, nil, errNotResumable)
		return
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()
	s.replaceStream(stop)
	e := events{w: w, c: http.NewResponseController(w)}
	own := s.replays.ownTrack()
	begin := own.primer()
	if k != nil {
		missed, _, _, _ := own.eventsSince(event)
		begin = bytes.Join(missed, nil)
	}
	if e.startWith(begin) != nil {
		return
	}
	closing := g.followChanges(ctx, s.client.queue, changeListener{
		stillAllowed: func() bool { return g.isStillAllowed(r, p) },
		write: func(m []byte) error {
			event := own.appendMessage(m)
			err := e.write(event)
			if err != nil {
				own.forgetEvent(event)
			}
			return err
		},
		keepAlive: e.comment,
	})
	if closing {
		_ = e.write(reconnectEvent) // if this write fails, the client is gone
	}
}

// reconnectEvent tells the client after how many milliseconds to open the next stream.
var reconnectEvent = []byte("retry: 1000\n\n")

// refuseStream answers that the principal has too many streams.
func (g *Gateway) refuseStream(w http.ResponseWriter, id []byte) {
	w.Header().Set("Retry-After", "60")
	g.writeFailure(w, http.StatusTooManyRequests, id, failureOf(switchboard.Refuse(switchboard.CodeOverloaded, "%d of your streams are open, the limit for one principal; close one", MaxStreamsEach)))
}
