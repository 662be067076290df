package gateway

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
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
	s := x.findSession(id)
	if s == nil {
		return
	}
	defer g.sessions.Release(s)
	if f := checkTarget(s, x.target); f != nil {
		x.refuse(http.StatusBadRequest, f)
		return
	}
	switch {
	case opens:
		x.refuse(http.StatusBadRequest, invalidRequest("this session is open already; to open another, send initialize without Mcp-Session-Id"))
	case m.Kind == wire.Notification:
		g.handleNotification(s.Client, &s.InFlight, *m)
		x.w.WriteHeader(http.StatusAccepted)
	default:
		x.serveInSession(s)
	}
}

// unexpectedResponse answers a response to a question that is not open.
var unexpectedResponse = invalidRequest("this is a response to no open question")

// serveInSession answers a request within s. The request goes on if its connection is lost: in this
// era that cancels nothing. The client can resume the rest of the event stream.
func (x *exchange) serveInSession(s *session.Session) {
	g := x.g
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	defer cancel(nil)
	if err := s.InFlight.Add(x.message.ID, cancel); err != nil {
		status := http.StatusTooManyRequests
		if errors.Is(err, session.ErrIDInUse) {
			status = http.StatusBadRequest
		}
		x.refuse(status, notAdded(err))
		return
	}
	x.streamReply(ctx, cancel, func(error) {}, &clientRequest{
		Message:     &x.message,
		principal:   x.principal,
		client:      s.Client,
		header:      x.r.Header,
		bind:        fixedRun(s.Run()),
		saveSession: func(ctx context.Context) error { return g.replicator.Save(ctx, s) },
	}, func() { s.InFlight.Remove(x.message.ID) }, &s.Replays)
}

// openSession answers initialize and opens a session. The session exists once its run is bound. The
// answer carries its id.
func (x *exchange) openSession() {
	g := x.g
	s, own := g.sessions.Reserve(x.principal, "")
	if s == nil {
		status := http.StatusServiceUnavailable
		if own {
			status = http.StatusTooManyRequests
		}
		x.w.Header().Set("Retry-After", "60")
		x.refuse(status, failureOf(session.TooMany(own)))
		return
	}
	defer g.sessions.Release(s)
	var opened *run.Run
	q := &clientRequest{
		Message:   &x.message,
		principal: x.principal,
		client:    s.Client,
		header:    x.r.Header,
		bind: func(ctx context.Context) (_ *run.Run, err error) {
			if opened == nil {
				opened, err = g.dispatcher.finder.openRun(ctx, x.principal, x.target)
			}
			return opened, err
		},
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	a := g.dispatcher.dispatch(ctx, cancel, q)
	if a.result != nil {
		raw, _ := wire.Field(a.result, "protocolVersion")
		version, _ := wire.String(raw)
		s.Bind(opened, x.target.run == "", version >= wire.LatestLegacy)
		if err := g.replicator.Save(ctx, s); err != nil {
			g.sessions.End(s)
			x.refuseSession(err)
			return
		}
		g.sessions.Publish(s)
		x.w.Header().Set(wire.HeaderSessionID, s.ID())
		g.log.Debug("session opened", "tenant", x.principal.Tenant, "principal", x.principal.ID, "task", opened.Task())
	} else {
		g.sessions.End(s)
		if opened != nil && x.target.run == "" {
			run.Release(opened)
		}
	}
	// No event stream: its headers would be sent before the session id is known.
	p := newHTTPReply(x.w, acceptedForms{json: x.accepts.json}, false, func(error) {}, nil)
	p.sendAnswer(x.message.ID, a)
}

// sessionForStream finds the session of a GET or DELETE, or answers why it does not. The caller
// must release the session.
func (x *exchange) sessionForStream() *session.Session {
	version, id := x.r.Header.Get(wire.HeaderProtocolVersion), sessionID(x.r.Header)
	switch {
	case wire.Modern(version):
		x.w.Header().Set("Allow", http.MethodPost)
		x.refuse(http.StatusMethodNotAllowed, invalidRequest(wire.Latest+" has no "+x.r.Method+"; changes come by "+wire.MethodListen))
		return nil
	case version != "" && !isKnownVersion(version):
		x.refuse(http.StatusBadRequest, unsupportedVersion(version))
		return nil
	case id == "":
		x.refuse(http.StatusBadRequest, invalidRequest(x.r.Method+" needs the Mcp-Session-Id of a session"))
		return nil
	}
	if x.r.Method == http.MethodGet {
		return x.findSessionOfStream(id, x.r.Header.Get(wire.HeaderLastEventID))
	}
	return x.findSession(id)
}

// serveDelete ends a session and cancels its requests in flight, here and at earlier owners.
func (x *exchange) serveDelete() {
	s := x.sessionForStream()
	if s == nil {
		return
	}
	defer x.g.sessions.Release(s)
	if err := x.g.replicator.EndEverywhere(x.r.Context(), s); err != nil {
		x.refuseSession(switchboard.Unavailable("the session has ended here, but may still be found; end it again", err))
		return
	}
	x.w.WriteHeader(http.StatusNoContent)
}

// serveGet opens the notification stream of a session, or resumes the stream of a request after the
// event that Last-Event-ID names. The session's next stream brings the changes that the client
// missed, for every Last-Event-ID.
func (x *exchange) serveGet() {
	g := x.g
	s := x.sessionForStream()
	if s == nil {
		return
	}
	defer g.sessions.Release(s)
	t, f := x.target.withHeaders(x.r.Header)
	if f == nil {
		f = checkTarget(s, t)
	}
	if f != nil {
		x.refuse(http.StatusBadRequest, f)
		return
	}
	if !parseAccept(x.r.Header).events {
		x.refuse(http.StatusNotAcceptable, invalidRequest("Accept must hold text/event-stream"))
		return
	}
	account := g.accounts.accountOf(x.principal)
	if !takeIfBelow(&account.streams, MaxStreamsEach) {
		x.refuseStream()
		return
	}
	defer account.streams.Add(-1)

	k, event, ours := s.Replays.Find(x.r.Header.Get(wire.HeaderLastEventID))
	switch {
	case k != nil && !k.IsOwn(): // also during a drain, which waits for its call
		x.replay(s, k, event)
		return
	case !x.enterOrRefuse():
		return
	}
	g.stop.gate.leave() // a drain does not wait for it
	if k == nil && ours {
		x.refuse(http.StatusBadRequest, errNotResumable)
		return
	}
	ctx, stop := context.WithCancel(x.r.Context())
	defer stop()
	defer context.AfterFunc(s.Context(), stop)()
	s.ReplaceStream(stop)
	e := events{w: x.w, c: *http.NewResponseController(x.w)}
	own := s.Replays.Own()
	begin := own.Primer()
	if k != nil {
		missed, _, _, _ := own.Since(event)
		begin = bytes.Join(missed, nil)
	}
	if e.startWith(begin) != nil {
		return
	}
	closing := g.notifier.followChanges(ctx, s.Client.Queue, changeListener{
		stillAllowed: func() bool { return x.isStillAllowed() },
		write: func(m []byte) error {
			event := own.Append(m)
			err := e.write(event)
			if err != nil {
				own.Forget(event)
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
func (x *exchange) refuseStream() {
	x.w.Header().Set("Retry-After", "60")
	x.refuse(http.StatusTooManyRequests, failureOf(switchboard.Refuse(switchboard.CodeOverloaded, "%d of your streams are open, the limit for one principal; close one", MaxStreamsEach)))
}

// notAdded returns the failure of a request that was not added to the requests in flight.
func notAdded(err error) *failure {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return failureOf(own)
	}
	return invalidRequest(err.Error())
}
