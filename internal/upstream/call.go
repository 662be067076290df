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
// The request leaves at most once: it is sent again only while it is certain
// that no server has seen it.
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
	from := f.caller(c.Principal)
	turn, err := s.gate.enter(from, !c.NoWait)
	switch {
	case errors.Is(err, errShare):
		return switchboard.Result{}, overloaded("has as many calls of yours under way as one caller may have there: the other places are for others")
	case err != nil:
		return switchboard.Result{}, overloaded("has as many calls under way as it may have")
	}
	cfg := s.config()
	quiet, all := timesOf(c, &cfg)
	ctx, left := newAllowance(ctx, quiet, all, &s.gate, from)
	defer left.end()
	if turn != nil {
		// At least half of the call's time is for the server.
		switch err := s.gate.wait(ctx, turn, min(queuePatience, quiet.d/2, all.d/2)); {
		case errors.Is(err, errNoTurn):
			return switchboard.Result{}, overloaded("has had as many calls under way as it may have, and none has ended in time")
		case err != nil:
			return switchboard.Result{}, refusal(ctx, ourFault(kindSilent, false, "it waited for its turn"))
		}
	}
	left.enter()
	params := c.Params
	reached := false // a server, maybe
	for again := false; ; again = true {
		result, err := s.attempt(ctx, c, &params, &cfg, left, &reached)
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
		e := asFault(err)
		if again || e.sent || ctx.Err() != nil || e.kind != kindGone && e.kind != kindLost {
			if reached && !e.sent && e.kind != kindGone { // not this time, but before that
				e = &fault{kind: e.kind, text: e.text, sent: true, ours: e.ours, after: e.after}
			}
			refused := refusal(ctx, e)
			refused.Unsent = !reached
			return switchboard.Result{}, refused
		}
	}
}

// caller returns whom a call of p counts for.
func (f *Fleet) caller(p switchboard.Principal) caller {
	c := caller{tenant: p.Tenant, principal: p.ID}
	if f.opts.Neighbors != nil {
		c.among = f.opts.Neighbors(p)
	}
	return c
}

// overloaded is the refusal of a call for which there is no place at its server.
func overloaded(why string) *switchboard.Error {
	e := switchboard.Refuse(switchboard.CodeOverloaded, "the tool's server %s; try again later", why)
	e.RetryAfter, e.Unsent = time.Second, true
	return e
}

// attempt sends the call over the client's link. params are the client's, and
// then with its answers; reached is set as soon as any byte of them may have
// reached a server. The error is a *fault, or what the caller is told.
func (s *server) attempt(ctx context.Context, c *switchboard.Call, params *[]byte, cfg *switchboard.Server, left *allowance, reached *bool) (switchboard.Result, error) {
	l, leave, err := s.linkFor(ctx, c, cfg)
	if err != nil {
		return switchboard.Result{}, err
	}
	defer leave()
	rank := levelRank(c.LogLevel)
	l.raise(rank)
	if !l.hello().modern() && c.Client.TakesQuestions {
		if _, answers := wire.Field(*params, inputState); answers {
			return switchboard.Result{}, &switchboard.ServerError{Server: s.id, Object: []byte(noSuchState)}
		}
	}
	for range maxRounds {
		var token []byte
		f := l.newFlight(c.Method, func(id []byte) (sent []byte) {
			sent, token = l.callParams(c, *params, id)
			return sent
		})
		f.token, f.level = token, rank
		f.client, f.left = &c.Client, left
		if _, ok := l.port.(*web); ok && l.hello().modern() && c.Target != "" {
			f.name = wire.EncodeHeader(c.Target)
			if c.Tool != nil && bytes.Contains(c.Tool.Definition, []byte(paramHeader)) {
				f.header = http.Header{}
				arguments, _ := wire.Field(c.Params, "arguments")
				addParamHeaders(f.header, c.Tool.Definition, arguments)
			}
		}
		err := l.fly(ctx, f, c.Notify)
		*reached = *reached || f.maybeSent()
		if err != nil {
			return switchboard.Result{}, err
		}
		if f.answer.ErrorObject != nil {
			if l.visited(ctx, f, c, f.answer.ErrorObject) {
				continue
			}
			if soundsWithdrawn(c, f.answer.ErrorObject, false) {
				if gone := s.withdrawn(ctx, c); gone != nil {
					*reached = false
					return switchboard.Result{}, gone
				}
			}
			return switchboard.Result{}, &switchboard.ServerError{Server: s.id, Modern: l.hello().modern(), Object: s.mask.json(f.answer.ErrorObject)}
		}
		r := f.result()
		if len(r.JSON) == 0 || r.JSON[0] != '{' {
			return switchboard.Result{}, faultf(kindInvalid, true, "the result is no object")
		}
		if c.Client.TakesQuestions || !l.hello().modern() || !asksForInput(&r) {
			if saysError(&r) {
				if soundsWithdrawn(c, r.JSON, true) {
					if gone := s.withdrawn(ctx, c); gone != nil {
						*reached = false
						return switchboard.Result{}, gone
					}
				}
				r = s.masked(r)
			}
			return r, nil
		}
		if *params, err = l.askAll(ctx, f, c, *params, r.JSON); err != nil {
			return switchboard.Result{}, err
		}
	}
	return switchboard.Result{}, faultf(kindInvalid, true, "it has asked the client %d times, and has no result yet", maxRounds)
}

// masked returns the result without the server's secrets.
func (s *server) masked(r switchboard.Result) switchboard.Result {
	masked := s.mask.json(r.JSON)
	if len(masked) == len(r.JSON) && &masked[0] == &r.JSON[0] {
		return r
	}
	return switchboard.Result{JSON: masked}
}

// linkFor returns the link over which the call goes, and how it is left.
func (s *server) linkFor(ctx context.Context, c *switchboard.Call, cfg *switchboard.Server) (l *link, leave func(), err error) {
	for o := s.owner(cfg, c); ; o.lane++ {
		sl, err := s.slotFor(o)
		if err != nil {
			return nil, nil, err
		}
		l, err := sl.current(), error(nil)
		if l == nil {
			l, err = s.connected(ctx, sl, c.NoWait)
		}
		var done func()
		if err == nil {
			done, err = l.takeTurn(ctx, c)
		}
		if err == nil {
			return l, func() { done(); sl.release() }, nil
		}
		sl.release()
		if !errors.Is(err, errAsking) {
			return nil, nil, err
		}
	}
}

// connected returns the link of a slot that has none yet. In a hurry it makes one
// only where the server is well, and tries that once.
func (s *server) connected(ctx context.Context, sl *slot, hurried bool) (*link, error) {
	how := patient
	if hurried {
		s.mu.Lock()
		well, why := s.state == StateReady, s.failure
		s.mu.Unlock()
		switch {
		case !well && why != nil:
			return nil, waited(errors.New(why.Message))
		case !well:
			return nil, waited(nil)
		}
		how = once
	}
	bound := s.opts.StartDeadline
	if s.starting() {
		bound = s.opts.StartWait
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return sl.get(ctx, how)
}

// noSuchState is the answer to a request that goes on with another, which a
// server of the legacy era cannot have answered: it would only do the same again.
const noSuchState = `{"code":-32602,"message":"params.requestState is of no request that waits for an answer: it was used already, has expired, or Switchboard was started again since; make the request again without it"}`

// saysError reports whether the result is an error of the tool's own.
func saysError(r *switchboard.Result) bool {
	said := false
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberError { // the last counts, as for nearly all readers
			said = string(r.JSON[m.Value:m.End]) == "true"
		}
	}
	return said || r.Outline.Crowded
}

// asksForInput reports whether the result is not one yet, but asks for more.
func asksForInput(r *switchboard.Result) bool {
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberResultType {
			kind, _ := wire.String(r.JSON[m.Value:m.End])
			return kind == "input_required"
		}
	}
	return false
}

// owner returns whose link serves the call.
//
// A modern server over HTTP has no sessions, so that one link is as good as
// many. A legacy one is told when a session opens what its client can be asked
// for, and asks without saying for which call: so that it has one with each
// client that can be asked. Modern clients of one principal, which cannot be told
// apart, share theirs.
func (s *server) owner(cfg *switchboard.Server, c *switchboard.Call) owner {
	era, _ := s.known.recall()
	overHTTP := cfg.Transport == switchboard.TransportHTTP && !s.known.overSSE() // whose one stream is like a pipe
	if era == EraModern && overHTTP {
		return owner{own: true}
	}
	o := owner{own: true}
	if !s.opts.OnePrincipal {
		o = ownerOf(cfg.Share, c.Principal)
	}
	shared := cfg.Share == switchboard.ShareTenant || cfg.Share == switchboard.ShareAll
	if era == EraModern || c.Client.Ask == nil || shared && !overHTTP {
		return o
	}
	if asks := askable(c.Client.Capabilities, c.Client.Session != ""); len(asks) > 0 {
		o = ownerOf(switchboard.SharePrincipal, c.Principal)
		o.asks, o.session = string(asks), c.Client.Session
	}
	return o
}

// slotFor returns the owner's slot, with one more user.
func (s *server) slotFor(o owner) (*slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ourFault(kindUnreachable, false, "it is being closed")
	}
	if sl, ok := s.slots[o]; ok && sl.use() {
		return sl, nil
	}
	if len(s.slots) >= s.opts.MaxConnections && !s.evict() {
		return nil, overloaded("serves as many clients as it may at once")
	}
	sl := s.newSlot(o)
	sl.use()
	return sl, nil
}

// evict closes the slot that was idle for longest, if any is.
func (s *server) evict() bool {
	var oldest owner
	var since time.Time
	for o, sl := range s.slots {
		if t, idle := sl.idleSince(); idle && sl != s.main && (since.IsZero() || t.Before(since)) {
			oldest, since = o, t
		}
	}
	return !since.IsZero() && s.remove(oldest)
}

// reap closes the slots that nobody has used for a while. Those of a session are
// its own for as long as that lasts: a child may keep something for it.
func (s *server) reap(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, sl := range s.slots {
		if t, idle := sl.idleSince(); idle && sl != s.main && o.session == "" && time.Since(t) >= after {
			s.remove(o)
		}
	}
}

// forget closes the slots of the client's session.
func (s *server) forget(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, sl := range s.slots {
		if o.session == session {
			delete(s.slots, o)
			s.links.run(func() { sl.close(true) })
		}
	}
}

// remove closes the owner's slot unless somebody has just come to use it.
func (s *server) remove(o owner) bool {
	if !s.slots[o].close(false) {
		return false
	}
	delete(s.slots, o)
	return true
}
