package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
)

// Call implements switchboard.Caller.
//
// The request is sent at most once. It is sent again only while it is certain that no server has
// seen it.
func (f *Fleet) Call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	s := f.server(c.Server)
	for s != nil && !s.calls.Enter() {
		was := s
		if s = f.server(c.Server); s == was {
			s = nil
		}
	}
	if s == nil {
		e := switchboard.Refuse(switchboard.CodeServerUnknown, "the tool's server is no longer here")
		e.Unsent = true
		return switchboard.Result{}, e
	}
	defer s.calls.Leave()
	from := f.callerOf(c.Principal)
	turn, err := s.gate.Enter(from, !c.NoWait)
	switch {
	case errors.Is(err, slot.ErrShareUsed):
		return switchboard.Result{}, overloadedError("has as many calls of yours in flight as one caller may have there: the other slots are for other callers")
	case err != nil:
		return switchboard.Result{}, overloadedError("has as many calls in flight as it may have")
	}
	cfg := s.config()
	quiet, all := slot.LimitsOf(c, &cfg)
	left := slot.NewAllowance(ctx, quiet, all, &s.gate, from)
	defer left.Close()
	if turn != nil {
		// At least half of the call's time is for the server.
		switch err := s.gate.WaitTurn(left.Context(), turn, min(slot.TurnTimeout, quiet.Time/2, all.Time/2)); {
		case errors.Is(err, slot.ErrTurnTimeout):
			return switchboard.Result{}, overloadedError("has as many calls in flight as it may have, and none has ended in time")
		case err != nil:
			return switchboard.Result{}, link.CallError(left.Context(), link.OwnError(link.KindSilent, false, "it waited for its turn"))
		}
	}
	left.TakeSlot()
	params := c.Params
	reached := false // a server may have seen the request
	for again := false; ; again = true {
		result, err := s.sendCall(ctx, c, &params, &cfg, left, &reached)
		if err == nil {
			return result, nil
		}
		if answered, ok := errors.AsType[*switchboard.ServerError](err); ok {
			return switchboard.Result{}, answered
		}
		if refused, ok := errors.AsType[*switchboard.Error](err); ok {
			refused.Unsent = !reached
			return switchboard.Result{}, refused
		}
		e := link.AsError(err)
		if again || e.Sent || left.Ended() || e.Kind != link.KindGone && e.Kind != link.KindLost && e.Kind != link.KindUnauthorized {
			if reached && !e.Sent && e.Kind != link.KindGone { // an earlier attempt may have reached the server
				e = &link.ExchangeError{Kind: e.Kind, Text: e.Text, Sent: true, Ours: e.Ours, After: e.After}
			}
			refused := link.CallError(left.Context(), e)
			refused.Unsent = !reached
			if e.Kind == link.KindUnauthorized && !left.Ended() {
				s.advise(left.Context(), c, refused)
			}
			return switchboard.Result{}, refused
		}
	}
}

// advise adds a hint to the error of a call with a refused token: the credentials know by now what has to happen.
func (s *server) advise(ctx context.Context, c *switchboard.Call, refused *switchboard.Error) {
	_, err := s.opener.Credentials.Get(ctx, &c.Principal)
	if why, ok := errors.AsType[*switchboard.Error](err); ok && why.Hint != "" {
		refused.Code, refused.Hint, refused.RetryAfter = why.Code, why.Hint, why.RetryAfter
	}
}

// callerOf returns the tenant and the principal that a call of p counts for.
func (f *Fleet) callerOf(p switchboard.Principal) slot.CallKey {
	c := slot.CallKey{Tenant: p.Tenant, Principal: p.ID}
	if f.opts.Neighbors != nil {
		c.Among = f.opts.Neighbors(p)
	}
	return c
}

// overloadedError is the error of a call that gets no slot at its server.
func overloadedError(why string) *switchboard.Error {
	e := switchboard.Refuse(switchboard.CodeOverloaded, "the tool's server %s; try again later", why)
	e.RetryAfter, e.Unsent = time.Second, true
	return e
}

// sendCall sends the call over the client's link. left is its allowance. reached is set when any byte
// may have reached a server. The error is a *link.ExchangeError or the final error for the caller.
func (s *server) sendCall(ctx context.Context, c *switchboard.Call, params *[]byte, cfg *switchboard.Server, left *slot.Allowance, reached *bool) (switchboard.Result, error) {
	if all := s.opener.Credentials; all != nil {
		if _, held := all.Held(&c.Principal); !held { // without one, no connection is opened
			if _, err := all.Get(left.Context(), &c.Principal); err != nil {
				if _, ok := errors.AsType[*switchboard.Error](err); !ok { // the call has ended
					err = link.OwnError(link.KindSilent, false, "it waited for its token")
				}
				return switchboard.Result{}, err
			}
		}
	}
	l, cn, endTurn, err := s.linkForCall(left, c, cfg)
	if err != nil {
		return switchboard.Result{}, err
	}
	defer func() { endTurn(); cn.release() }()
	a := link.Attempt{Call: c, Params: params, Allowance: left, Reached: reached, SaysUnknown: saysToolUnknown}
	r, err := a.Make(ctx, l)
	if a.Unknown {
		if gone := s.confirmWithdrawn(left.Context(), c); gone != nil {
			*reached = false
			return switchboard.Result{}, gone
		}
	}
	return r, err
}

// linkForCall returns the link for the call. After the call, its turn must be ended and its connector released.
func (s *server) linkForCall(left *slot.Allowance, c *switchboard.Call, cfg *switchboard.Server) (l *link.Link, cn *connector, endTurn func(), err error) {
	for o := s.scopeOf(cfg, c); ; o.lane++ {
		cn, err := s.connectors.get(o)
		if err != nil {
			return nil, nil, nil, err
		}
		l, err := cn.current(), error(nil)
		if l == nil {
			if l, err = s.waitForLink(left.Context(), cn, c.NoWait); err != nil && o.asks != "" && cfg.Transport == switchboard.TransportStdio {
				if well, _ := s.facts.ready(); well {
					second := *link.AsError(err)
					second.Second, err = true, &second
				}
			}
		}
		var done func()
		if err == nil {
			done, err = l.Questions.TakeTurn(left, c)
		}
		if err == nil {
			return l, cn, done, nil
		}
		cn.release()
		if !errors.Is(err, link.ErrOtherAsking) {
			return nil, nil, nil, err
		}
	}
}

// waitForLink returns the link of a connector that has none yet. With hurried it opens one only if
// the server is ready, and tries once.
func (s *server) waitForLink(ctx context.Context, cn *connector, hurried bool) (*link.Link, error) {
	how := waitForPause
	if hurried {
		well, why := s.facts.ready()
		switch {
		case !well && why != nil:
			return nil, notReadyError(errors.New(why.Message))
		case !well:
			return nil, notReadyError(nil)
		}
		how = failInPause
	}
	bound := s.opts.StartDeadline
	if s.facts.starting() {
		bound = s.opts.StartWait
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return cn.get(ctx, how)
}

// scopeOf returns the scope of the link that serves the call.
//
// A modern server over HTTP has no sessions, so that one link serves everybody. A legacy server
// learns in initialize what its client can be asked, and its questions do not name a call. So each
// client that can be asked gets a link of its own. Modern clients of one principal share a link,
// because they cannot be told apart.
func (s *server) scopeOf(cfg *switchboard.Server, c *switchboard.Call) linkScope {
	era, _ := s.opener.Era.Get()
	overHTTP := cfg.Transport == switchboard.TransportHTTP && !s.opener.Era.UsesSSE() // HTTP with SSE has one shared stream, like a pipe
	if era == link.EraModern && overHTTP {
		return linkScope{own: true}
	}
	o := linkScope{own: true}
	if !s.connectors.onePrincipal {
		o = scopeFor(cfg.Share, c.Principal)
	}
	shared := cfg.Share == switchboard.ShareTenant || cfg.Share == switchboard.ShareAll
	if era == link.EraModern || c.Client.Ask == nil || shared && !overHTTP {
		return o
	}
	if asks := link.AskableCapabilities(c.Client.Capabilities, c.Client.Session != ""); len(asks) > 0 {
		o = scopeFor(switchboard.SharePrincipal, c.Principal)
		o.asks, o.session = string(asks), c.Client.Session
	}
	return o
}
