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

// home is where the session was when it had moved so often; "" where nobody knows.
func (k *keptSession) home(moves int64) string {
	back := int64(k.Moves) - moves
	switch {
	case back <= 0:
		return k.Home
	case back > int64(len(k.Before)):
		return ""
	}
	return k.Before[int64(len(k.Before))-back]
}

// elsewhere reports whether that is a replica, and not this one.
func (g *Gateway) elsewhere(home string) bool { return home != "" && home != g.cluster.Self() }

// homes are where what m is of may be under way.
func (k *keptSession) homes(m *wire.Message) []string {
	if m.Kind == wire.Response {
		question, err := strconv.ParseInt(string(m.ID), 10, 64)
		if err != nil {
			return nil
		}
		return []string{k.home(question / questionsEach)}
	}
	all := append(slices.Clone(k.Before), k.Home)
	slices.Reverse(all)
	return all
}

// hears takes a message that is of something under way, and reports whether it is of
// something here.
func (s *session) hears(m *wire.Message) bool {
	if m.Kind == wire.Response {
		return s.client.questions.answered(*m)
	}
	return s.flight.cancelled(m.Params)
}

// overhear takes an answer to a question, or that a request is cancelled, in the session
// of that id. That moves no session: where what it is of is not there any more, neither is
// there anybody who waits for it.
func (x *exchange) overhear(id string) {
	g, m := x.g, &x.message
	all := g.sessions.here(id, x.principal)
	for _, s := range all {
		defer g.sessions.leave(s)
	}
	for _, s := range slices.Backward(all) {
		if f := s.fits(x.target); f != nil {
			x.fail(http.StatusBadRequest, f)
			return
		}
		if s.hears(m) {
			x.w.WriteHeader(http.StatusAccepted)
			return
		}
	}
	if _, hop := cluster.Principal(x.r); hop {
		cluster.NotHere(x.w)
		return
	}
	var k keptSession
	known := len(all) > 0
	who := ownerOf(x.principal)
	if g.store != nil && (!known && g.sessions.minted(who, id) || known && g.cluster.Self() != "") {
		now, version, err := g.kept(x.r.Context(), sessionKey(who, id))
		if err != nil && !known {
			g.refuseSession(x.envelope(), err)
			return
		}
		k, known = now, known || version != 0
	}
	homes := k.homes(m)
	for i, home := range homes {
		if !g.elsewhere(home) || slices.Contains(homes[:i], home) {
			continue
		}
		err := g.cluster.Forward(x.w, x.r, x.body, x.principal, home)
		if m.Kind == wire.Notification && errors.Is(err, cluster.ErrBroken) {
			continue // it may be said to more than one
		}
		if g.answered(x.envelope(), err) {
			return
		}
	}
	switch {
	case !known:
		x.fail(http.StatusNotFound, noSession)
	case m.Kind == wire.Response:
		x.fail(http.StatusBadRequest, unasked)
	default: // a request that is not under way, or never was, is nobody's business
		x.w.WriteHeader(http.StatusAccepted)
	}
}

// begun finds the session of that id, of whose requests e is one, as session does: but as
// it is where the stream was begun that the event is of, if any is.
func (g *Gateway) begun(e envelope, id, event string) *session {
	a, _, _ := strings.Cut(event, "-")
	stream, err := strconv.ParseInt(a, 10, 64)
	if err != nil || stream <= 0 {
		return g.session(e, id)
	}
	moves := stream / streamsEach
	var found *session
	for _, s := range g.sessions.here(id, e.p) {
		if int64(s.moves) != moves {
			g.sessions.leave(s)
			continue
		}
		found = s
	}
	if found != nil {
		return found
	}
	who := ownerOf(e.p)
	if g.store == nil || !g.sessions.minted(who, id) {
		return g.session(e, id)
	}
	k, _, err := g.kept(e.r.Context(), sessionKey(who, id))
	if err != nil || moves >= int64(k.Moves) {
		return g.session(e, id)
	}
	home := k.home(moves) // where it is this one's own, nobody else is asked: a hop ends here
	if !g.elsewhere(home) || !g.answered(e, g.cluster.Forward(e.w, e.r, e.body, e.p, home)) {
		g.writeFailure(e.w, http.StatusBadRequest, nil, errNothingKept)
	}
	return nil
}
