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

// What is under way in a session stays where it began when the session moves, and only
// that replica knows it: a home before. A message that is of it is passed there, by
// whoever gets it, and that one passes nothing on. The numbers of questions and of streams
// say where they began. The ids of requests are their client's and say nothing, so that
// all who may know one are asked, the latest first, and no further than it is known.

// ownerAfter is where the session was when it had moved so often; "" where nobody knows.
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

// isOtherReplica reports whether that is a replica, and not this one.
func (g *Gateway) isOtherReplica(home string) bool { return home != "" && home != g.cluster.Self() }

// possibleOwners are where what m is of may be under way.
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

// deliver takes a message that is of something under way, and reports whether it is of
// something here.
func (s *session) deliver(m *wire.Message) bool {
	if m.Kind == wire.Response {
		return s.client.questions.resolve(*m)
	}
	return s.inFlight.cancel(m.Params)
}

// serveResponseOrCancel takes an answer to a question, or that a request is cancelled, in the session
// of that id. That moves no session: where what it is of is not there any more, neither is
// there anybody who waits for it.
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
			continue // it may be said to more than one
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
	default: // a request that is not under way, or never was, is nobody's business
		x.w.WriteHeader(http.StatusAccepted)
	}
}

// findSessionOfStream finds the session of that id, of whose requests e is one, as session does: but as
// it is where the stream was begun that the event is of, if any is.
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
	home := k.ownerAfter(moves) // where it is this one's own, nobody else is asked: a hop ends here
	if !g.isOtherReplica(home) || !g.isForwarded(e, g.cluster.Forward(e.w, e.r, e.body, e.p, home)) {
		g.writeFailure(e.w, http.StatusBadRequest, nil, errNotResumable)
	}
	return nil
}
