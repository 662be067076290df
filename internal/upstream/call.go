package upstream

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Call implements switchboard.Caller.
//
// The request is sent at most once. It is sent again only while it is certain that no server has
// seen it.
func (f *Fleet) Call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	s := f.server(c.Server)
	for s != nil && !s.calls.enter() {
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
	defer s.calls.leave()
	from := f.callerOf(c.Principal)
	turn, err := s.gate.enter(from, !c.NoWait)
	switch {
	case errors.Is(err, errShareUsed):
		return switchboard.Result{}, overloadedError("has as many calls of yours in flight as one caller may have there: the other slots are for other callers")
	case err != nil:
		return switchboard.Result{}, overloadedError("has as many calls in flight as it may have")
	}
	cfg := s.config()
	quiet, all := limitsOf(c, &cfg)
	ctx, left := newAllowance(ctx, quiet, all, &s.gate, from)
	defer left.close()
	if turn != nil {
		// At least half of the call's time is for the server.
		switch err := s.gate.waitTurn(ctx, turn, min(turnTimeout, quiet.limit/2, all.limit/2)); {
		case errors.Is(err, errTurnTimeout):
			return switchboard.Result{}, overloadedError("has as many calls in flight as it may have, and none has ended in time")
		case err != nil:
			return switchboard.Result{}, callError(ctx, ownError(kindSilent, false, "it waited for its turn"))
		}
	}
	left.takeSlot()
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
		e := asExchangeError(err)
		if again || e.sent || ctx.Err() != nil || e.kind != kindGone && e.kind != kindLost {
			if reached && !e.sent && e.kind != kindGone { // an earlier attempt may have reached the server
				e = &exchangeError{kind: e.kind, text: e.text, sent: true, ours: e.ours, after: e.after}
			}
			refused := callError(ctx, e)
			refused.Unsent = !reached
			return switchboard.Result{}, refused
		}
	}
}

// callerOf returns the tenant and the principal that a call of p counts for.
func (f *Fleet) callerOf(p switchboard.Principal) callerKey {
	c := callerKey{tenant: p.Tenant, principal: p.ID}
	if f.opts.Neighbors != nil {
		c.among = f.opts.Neighbors(p)
	}
	return c
}

// overloadedError is the error of a call that gets no slot at its server.
func overloadedError(why string) *switchboard.Error {
	e := switchboard.Refuse(switchboard.CodeOverloaded, "the tool's server %s; try again later", why)
	e.RetryAfter, e.Unsent = time.Second, true
	return e
}

// sendCall sends the call over the client's link. params holds the client's params, and later also
// its answers to questions. reached is set when any byte may have reached a server. The error is an
// *exchangeError or the final error for the caller.
func (s *server) sendCall(ctx context.Context, c *switchboard.Call, params *[]byte, cfg *switchboard.Server, left *callAllowance, reached *bool) (switchboard.Result, error) {
	l, leave, err := s.linkForCall(ctx, c, cfg)
	if err != nil {
		return switchboard.Result{}, err
	}
	defer leave()
	rank := logLevelRank(c.LogLevel)
	l.raiseLogLevel(rank)
	if !l.hello().modern() && c.Client.TakesQuestions {
		if _, answers := wire.Field(*params, inputState); answers {
			return switchboard.Result{}, &switchboard.ServerError{Server: s.id, Object: []byte(unknownStateError)}
		}
	}
	for range maxInputRounds {
		var token []byte
		f := l.newRequest(c.Method, func(id []byte) (sent []byte) {
			sent, token = l.callParams(c, *params, id)
			return sent
		})
		f.progressToken, f.minLogLevel = token, rank
		f.client, f.allowance = &c.Client, left
		if _, ok := l.port.(*httpPort); ok && l.hello().modern() && c.Target != "" {
			f.targetHeader = wire.EncodeHeader(c.Target)
			if c.Tool != nil && bytes.Contains(c.Tool.Definition, []byte(paramHeader)) {
				f.paramHeaders = http.Header{}
				arguments, _ := wire.Field(c.Params, "arguments")
				addParamHeaders(f.paramHeaders, c.Tool.Definition, arguments)
			}
		}
		err := l.roundTrip(ctx, f, c.Notify)
		*reached = *reached || f.sending.MayBeSent()
		if err != nil {
			return switchboard.Result{}, err
		}
		if f.answer.ErrorObject != nil {
			if l.askToVisit(ctx, f, c, f.answer.ErrorObject) {
				continue
			}
			if saysToolUnknown(c, f.answer.ErrorObject, false) {
				if gone := s.confirmWithdrawn(ctx, c); gone != nil {
					*reached = false
					return switchboard.Result{}, gone
				}
			}
			return switchboard.Result{}, &switchboard.ServerError{Server: s.id, Modern: l.hello().modern(), Object: s.mask.JSON(f.answer.ErrorObject)}
		}
		r := f.result()
		if len(r.JSON) == 0 || r.JSON[0] != '{' {
			return switchboard.Result{}, exchangeErrorf(kindInvalid, true, "the result is not an object")
		}
		if c.Client.TakesQuestions || !l.hello().modern() || !isInputRequest(&r) {
			if isToolError(&r) {
				if saysToolUnknown(c, r.JSON, true) {
					if gone := s.confirmWithdrawn(ctx, c); gone != nil {
						*reached = false
						return switchboard.Result{}, gone
					}
				}
				r = s.maskResult(r)
			}
			return r, nil
		}
		if *params, err = l.askInputs(ctx, f, c, *params, r.JSON); err != nil {
			return switchboard.Result{}, err
		}
	}
	return switchboard.Result{}, exchangeErrorf(kindInvalid, true, "it has asked the client %d times, and has no result yet", maxInputRounds)
}

// maskResult returns the result without the server's secrets.
func (s *server) maskResult(r switchboard.Result) switchboard.Result {
	masked := s.mask.JSON(r.JSON)
	if len(masked) == len(r.JSON) && &masked[0] == &r.JSON[0] {
		return r
	}
	return switchboard.Result{JSON: masked}
}

// linkForCall returns the link for the call. leave must be called after it.
func (s *server) linkForCall(ctx context.Context, c *switchboard.Call, cfg *switchboard.Server) (l *link, leave func(), err error) {
	for o := s.scopeOf(cfg, c); ; o.lane++ {
		sl, err := s.connectorFor(o)
		if err != nil {
			return nil, nil, err
		}
		l, err := sl.current(), error(nil)
		if l == nil {
			l, err = s.waitForLink(ctx, sl, c.NoWait)
		}
		var done func()
		if err == nil {
			done, err = l.takeTurn(ctx, c)
		}
		if err == nil {
			return l, func() { done(); sl.release() }, nil
		}
		sl.release()
		if !errors.Is(err, errOtherAsking) {
			return nil, nil, err
		}
	}
}

// waitForLink returns the link of a connector that has none yet. With hurried it opens one only if
// the server is ready, and tries once.
func (s *server) waitForLink(ctx context.Context, sl *connector, hurried bool) (*link, error) {
	how := waitForPause
	if hurried {
		s.mu.Lock()
		well, why := s.state == StateReady, s.failure
		s.mu.Unlock()
		switch {
		case !well && why != nil:
			return nil, notReadyError(errors.New(why.Message))
		case !well:
			return nil, notReadyError(nil)
		}
		how = failInPause
	}
	bound := s.opts.StartDeadline
	if s.starting() {
		bound = s.opts.StartWait
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return sl.get(ctx, how)
}

// unknownStateError answers a call that continues an earlier one with requestState. A legacy server
// never sends one, and would just execute the call again.
const unknownStateError = `{"code":-32602,"message":"params.requestState belongs to no request that waits for an answer: it was used already, has expired, or Switchboard was restarted; send the request again without it"}`

// isToolError reports whether the result is an error of the tool itself.
func isToolError(r *switchboard.Result) bool {
	said := false
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberError { // if repeated, the last counts, as for nearly all readers
			said = string(r.JSON[m.Value:m.End]) == "true"
		}
	}
	return said || r.Outline.Crowded
}

// isInputRequest reports whether the result asks the client for input first.
func isInputRequest(r *switchboard.Result) bool {
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberResultType {
			kind, _ := wire.String(r.JSON[m.Value:m.End])
			return kind == "input_required"
		}
	}
	return false
}

// scopeOf returns the scope of the link that serves the call.
//
// A modern server over HTTP has no sessions, so that one link serves everybody. A legacy server
// learns in initialize what its client can be asked, and its questions do not name a call. So each
// client that can be asked gets a link of its own. Modern clients of one principal share a link,
// because they cannot be told apart.
func (s *server) scopeOf(cfg *switchboard.Server, c *switchboard.Call) linkScope {
	era, _ := s.era.get()
	overHTTP := cfg.Transport == switchboard.TransportHTTP && !s.era.usesSSE() // HTTP with SSE has one shared stream, like a pipe
	if era == EraModern && overHTTP {
		return linkScope{own: true}
	}
	o := linkScope{own: true}
	if !s.opts.OnePrincipal {
		o = scopeFor(cfg.Share, c.Principal)
	}
	shared := cfg.Share == switchboard.ShareTenant || cfg.Share == switchboard.ShareAll
	if era == EraModern || c.Client.Ask == nil || shared && !overHTTP {
		return o
	}
	if asks := askableCapabilities(c.Client.Capabilities, c.Client.Session != ""); len(asks) > 0 {
		o = scopeFor(switchboard.SharePrincipal, c.Principal)
		o.asks, o.session = string(asks), c.Client.Session
	}
	return o
}

// connectorFor returns the connector of the scope, with one more user.
func (s *server) connectorFor(o linkScope) (*connector, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ownError(kindUnreachable, false, "it is being closed")
	}
	if sl, ok := s.connectors[o]; ok && sl.acquire() {
		return sl, nil
	}
	if len(s.connectors) >= s.opts.MaxConnections && !s.evictIdle() {
		return nil, overloadedError("serves as many clients as it may at once")
	}
	sl := s.addConnector(o)
	sl.acquire()
	return sl, nil
}

// evictIdle closes the connector that has been idle longest, if one is idle.
func (s *server) evictIdle() bool {
	var oldest linkScope
	var since time.Time
	for o, sl := range s.connectors {
		if t, idle := sl.idleSince(); idle && sl != s.main && (since.IsZero() || t.Before(since)) {
			oldest, since = o, t
		}
	}
	return !since.IsZero() && s.closeUnused(oldest)
}

// closeIdle closes the connectors that have been idle for that time. A connector of a client
// session stays open as long as the session, because a child process may hold state for it.
func (s *server) closeIdle(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, sl := range s.connectors {
		if t, idle := sl.idleSince(); idle && sl != s.main && o.session == "" && time.Since(t) >= after {
			s.closeUnused(o)
		}
	}
}

// closeSession closes the connectors of the client session.
func (s *server) closeSession(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, sl := range s.connectors {
		if o.session == session {
			delete(s.connectors, o)
			s.linkTasks.run(func() { sl.close(true) })
		}
	}
}

// closeUnused closes the connector of the scope unless it just got a user.
func (s *server) closeUnused(o linkScope) bool {
	if !s.connectors[o].close(false) {
		return false
	}
	delete(s.connectors, o)
	return true
}
