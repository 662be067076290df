package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxLookups is how often the owner of a session is looked up, if it changes meanwhile.
const maxLookups = 3

// findSession returns the session with the id, which the caller must release. It returns nil if the
// request has been answered: by the owner of the session, or because there is no such session.
func (x *exchange) findSession(id string) *session.Session {
	g := x.g
	if s := g.sessions.Find(id, x.principal); s != nil {
		return s
	}
	if !g.replicator.Keeps() || !g.sessions.IsMinted(session.KeyOf(x.principal), id) {
		x.refuse(http.StatusNotFound, noSuchSession)
		return nil
	}
	_, hop := cluster.Principal(x.r)
	for range maxLookups {
		k, version, err := g.replicator.Lookup(x.r.Context(), session.KeyOf(x.principal), id)
		switch {
		case err != nil:
			x.refuseSession(err)
			return nil
		case version == 0:
			x.refuse(http.StatusNotFound, noSuchSession)
			return nil
		case hop && (k.Owner != g.cluster.Self() || g.stop.begun()):
			cluster.AnswerNotOwner(x.w)
			return nil
		case g.stop.begun():
			x.refuseSession(errStopping)
			return nil
		}
		if g.isOtherReplica(k.Owner) && x.isForwarded(g.cluster.Forward(x.w, x.r, x.body, x.principal, k.Owner)) {
			return nil
		}
		switch s, err := g.replicator.TakeOver(x.r.Context(), x.principal, id, k, version); {
		case err == nil && s != nil:
			return s
		case err == nil:
			x.refuse(http.StatusNotFound, noSuchSession)
			return nil
		case !errors.Is(err, store.ErrConflict):
			x.refuseSession(err)
			return nil
		}
		if s := g.sessions.Find(id, x.principal); s != nil { // another request has taken it over at this replica
			return s
		}
	}
	x.refuseSession(errors.New("the session had another owner at each lookup"))
	return nil
}

// isForwarded reports whether the request has been answered, after cluster.Forward to another replica
// returned err. It returns false if that replica does not have the session, or is gone.
func (x *exchange) isForwarded(err error) bool {
	switch {
	case err == nil:
	case errors.Is(err, cluster.ErrGone):
		return false
	case errors.Is(err, cluster.ErrBroken):
		x.g.log.Warn("the connection to another replica broke", "err", err)
		x.refuse(http.StatusBadGateway, failureOf(connectionLost(err)))
	default:
		x.refuseSession(err)
	}
	return true
}

// connectionLost tells a client that its request was lost with a replica.
func connectionLost(err error) *switchboard.Error {
	return &switchboard.Error{
		Code: switchboard.CodeOutcomeUnknown, Cause: err,
		Text: "the connection to the replica that answered this was lost; a tool that was being called may have been executed: check before you repeat the call",
	}
}

// refuseSession answers that it is unknown now whether the session exists.
func (x *exchange) refuseSession(err error) {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		own = switchboard.Unavailable("the session cannot be looked up, so nothing was done", err)
	}
	x.g.log.Warn("cannot find or open a session", "tenant", x.principal.Tenant, "principal", x.principal.ID, "err", err)
	if own.RetryAfter > 0 {
		x.w.Header().Set("Retry-After", "1")
	}
	x.refuse(http.StatusServiceUnavailable, failureOf(own))
}

// fixedRun is a runBinder that returns r.
func fixedRun(r *run.Run) runBinder {
	return func(context.Context) (*run.Run, error) { return r, nil }
}

// errNotResumable answers an event id without kept events. The status is not 404, which would
// mean that the session has ended.
var errNotResumable = invalidRequest("Last-Event-ID names no event from which a stream can be resumed; open a stream without it")

// replay writes the rest of a request's stream, up to its result.
func (x *exchange) replay(s *session.Session, k *session.Track, event int) {
	ctx, stop := context.WithCancel(x.r.Context())
	defer stop()
	defer context.AfterFunc(s.Context(), stop)()
	k.Attach(stop)
	e := events{w: x.w, c: *http.NewResponseController(x.w)}
	if e.start() != nil {
		return
	}
	tick := time.NewTicker(KeepAlive)
	defer tick.Stop()
	for {
		recheck := x.g.notifier.rechecked.wait()
		all, last, over, grown := k.Since(event)
		for _, text := range all {
			if ctx.Err() != nil || text != nil && e.write(text) != nil {
				return
			}
		}
		if event = last; over {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-grown:
		case <-recheck:
			if !x.isStillAllowed() {
				return
			}
		case <-tick.C:
			if !x.isStillAllowed() || e.comment() != nil {
				return
			}
		}
	}
}

// A request in flight stays where it began when its session moves. Only that replica knows it: an
// earlier owner of the session. Every replica forwards a response or a cancellation to that one,
// which forwards it no further. The numbers of questions and streams show which owner that is.
// Request ids do not, because the client chooses them: so all owners that may have the request are
// tried, the latest first, each once.

// isOtherReplica reports whether owner is another replica than this one.
func (g *Gateway) isOtherReplica(owner string) bool { return owner != "" && owner != g.cluster.Self() }

// serveResponseOrCancel handles a response or notifications/cancelled for the session id. It never
// takes the session over: if the request that the message refers to is gone, no caller waits for
// the message.
func (x *exchange) serveResponseOrCancel(id string) {
	g, m := x.g, &x.message
	all := g.sessions.FindAll(id, x.principal)
	for _, s := range all {
		defer g.sessions.Release(s)
	}
	for _, s := range slices.Backward(all) {
		if f := checkTarget(s, x.target); f != nil {
			x.refuse(http.StatusBadRequest, f)
			return
		}
		if s.Deliver(m) {
			x.w.WriteHeader(http.StatusAccepted)
			return
		}
	}
	if _, hop := cluster.Principal(x.r); hop {
		cluster.AnswerNotOwner(x.w)
		return
	}
	var k session.Stored
	known := len(all) > 0
	who := session.KeyOf(x.principal)
	if g.replicator.Keeps() && (!known && g.sessions.IsMinted(who, id) || known && g.cluster.Self() != "") {
		now, version, err := g.replicator.Lookup(x.r.Context(), who, id)
		if err != nil && !known {
			x.refuseSession(err)
			return
		}
		k, known = now, known || version != 0
	}
	owners := k.PossibleOwners(m)
	for i, owner := range owners {
		if !g.isOtherReplica(owner) || slices.Contains(owners[:i], owner) {
			continue
		}
		err := g.cluster.Forward(x.w, x.r, x.body, x.principal, owner)
		if m.Kind == wire.Notification && errors.Is(err, cluster.ErrBroken) {
			continue // a cancellation may go to several replicas
		}
		if x.isForwarded(err) {
			return
		}
	}
	switch {
	case !known:
		x.refuse(http.StatusNotFound, noSuchSession)
	case m.Kind == wire.Response:
		x.refuse(http.StatusBadRequest, unexpectedResponse)
	default: // it is no error to cancel a request that is not in flight
		x.w.WriteHeader(http.StatusAccepted)
	}
}

// findSessionOfStream is like findSession, but finds the session at the owner where the stream of
// the event began.
func (x *exchange) findSessionOfStream(id, event string) *session.Session {
	g := x.g
	moves, ok := session.StreamMoves(event)
	if !ok {
		return x.findSession(id)
	}
	var found *session.Session
	for _, s := range g.sessions.FindAll(id, x.principal) {
		if int64(s.Moves()) != moves {
			g.sessions.Release(s)
			continue
		}
		found = s
	}
	if found != nil {
		return found
	}
	who := session.KeyOf(x.principal)
	if !g.replicator.Keeps() || !g.sessions.IsMinted(who, id) {
		return x.findSession(id)
	}
	k, _, err := g.replicator.Lookup(x.r.Context(), who, id)
	if err != nil || moves >= int64(k.Moves) {
		return x.findSession(id)
	}
	owner := k.OwnerAfter(moves) // "" or this replica: a forwarded request is not forwarded again
	if !g.isOtherReplica(owner) || !x.isForwarded(g.cluster.Forward(x.w, x.r, x.body, x.principal, owner)) {
		x.refuse(http.StatusBadRequest, errNotResumable)
	}
	return nil
}

// checkTarget refuses a request that names another task or run than the session has.
func checkTarget(s *session.Session, t runTarget) *failure {
	if t.task != "" && t.task != s.Run().Task() || t.run != "" && t.run != s.Run().ID() {
		return invalidRequest("this session is bound to another task or run than the request names; open a session for it")
	}
	return nil
}
