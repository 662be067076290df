package gateway

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A request in flight stays where it began when its session moves. Only that replica knows it: an
// earlier owner of the session. Every replica forwards a response or a cancellation to that one,
// which forwards it no further. The numbers of questions and streams show which owner that is.
// Request ids do not, because the client chooses them: so all owners that may have the request are
// tried, the latest first, each once.

// ownerAfter returns the owner of the session after so many moves; "" if it is not remembered.
func (k *storedSession) ownerAfter(moves int64) string {
	back := int64(k.Moves) - moves
	switch {
	case back <= 0:
		return k.Owner
	case back > int64(len(k.EarlierOwners)):
		return ""
	}
	return k.EarlierOwners[int64(len(k.EarlierOwners))-back]
}

// isOtherReplica reports whether owner is another replica than this one.
func (g *Gateway) isOtherReplica(home string) bool { return home != "" && home != g.cluster.Self() }

// possibleOwners returns the owners that may have the request in flight that m refers to.
func (k *storedSession) possibleOwners(m *wire.Message) []string {
	if m.Kind == wire.Response {
		question, err := strconv.ParseInt(string(m.ID), 10, 64)
		if err != nil {
			return nil
		}
		return []string{k.ownerAfter(question / questionsPerOwner)}
	}
	all := append(slices.Clone(k.EarlierOwners), k.Owner)
	slices.Reverse(all)
	return all
}

// deliver handles a response or a cancellation, and reports whether it refers to something here.
func (s *session) deliver(m *wire.Message) bool {
	if m.Kind == wire.Response {
		return s.client.questions.resolve(*m)
	}
	return s.inFlight.cancel(m.Params)
}

// serveResponseOrCancel handles a response or notifications/cancelled for the session id. It never
// takes the session over: if the request that the message refers to is gone, no caller waits for
// the message.
func (x *exchange) serveResponseOrCancel(id string) {
	g, m := x.g, &x.message
	all := g.sessions.findAll(id, x.principal)
	for _, s := range all {
		defer g.sessions.release(s)
	}
	for _, s := range slices.Backward(all) {
		if f := s.checkTarget(x.target); f != nil {
			x.refuse(http.StatusBadRequest, f)
			return
		}
		if s.deliver(m) {
			x.w.WriteHeader(http.StatusAccepted)
			return
		}
	}
	if _, hop := cluster.Principal(x.r); hop {
		cluster.NotHere(x.w)
		return
	}
	var k storedSession
	known := len(all) > 0
	who := principalKeyOf(x.principal)
	if g.store != nil && (!known && g.sessions.isMinted(who, id) || known && g.cluster.Self() != "") {
		now, version, err := g.readStoredSession(x.r.Context(), sessionKey(who, id))
		if err != nil && !known {
			g.refuseSession(x.envelope(), err)
			return
		}
		k, known = now, known || version != 0
	}
	homes := k.possibleOwners(m)
	for i, home := range homes {
		if !g.isOtherReplica(home) || slices.Contains(homes[:i], home) {
			continue
		}
		err := g.cluster.Forward(x.w, x.r, x.body, x.principal, home)
		if m.Kind == wire.Notification && errors.Is(err, cluster.ErrBroken) {
			continue // a cancellation may go to several replicas
		}
		if g.isForwarded(x.envelope(), err) {
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
func (g *Gateway) findSessionOfStream(e httpRequest, id, event string) *session {
	a, _, _ := strings.Cut(event, "-")
	stream, err := strconv.ParseInt(a, 10, 64)
	if err != nil || stream <= 0 {
		return g.findSession(e, id)
	}
	moves := stream / streamsPerOwner
	var found *session
	for _, s := range g.sessions.findAll(id, e.p) {
		if int64(s.moves) != moves {
			g.sessions.release(s)
			continue
		}
		found = s
	}
	if found != nil {
		return found
	}
	who := principalKeyOf(e.p)
	if g.store == nil || !g.sessions.isMinted(who, id) {
		return g.findSession(e, id)
	}
	k, _, err := g.readStoredSession(e.r.Context(), sessionKey(who, id))
	if err != nil || moves >= int64(k.Moves) {
		return g.findSession(e, id)
	}
	home := k.ownerAfter(moves) // "" or this replica: a forwarded request is not forwarded again
	if !g.isOtherReplica(home) || !g.isForwarded(e, g.cluster.Forward(e.w, e.r, e.body, e.p, home)) {
		g.writeFailure(e.w, http.StatusBadRequest, nil, errNotResumable)
	}
	return nil
}
