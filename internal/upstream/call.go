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

// defaultTimeout bounds a call where the server's configuration does not.
const defaultTimeout = 60 * time.Second

var errTimeout = errors.New("the server's time for a call is over")

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
		return switchboard.Result{}, switchboard.Refuse(switchboard.CodeServerUnknown, "the tool's server is no longer here")
	}
	defer s.calls.leave()
	defer s.busy.Add(-1)
	if s.busy.Add(1) > int64(s.opts.MaxInFlight) {
		e := switchboard.Refuse(switchboard.CodeOverloaded, "the tool's server has as many calls under way as it may have; try again later")
		e.RetryAfter = time.Second
		return switchboard.Result{}, e
	}
	cfg := s.config()
	timeout := cfg.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	if t := c.Obligations.Timeout; t > 0 {
		timeout = min(timeout, t)
	}
	ctx, time := newAllowance(ctx, timeout, &s.busy)
	defer time.end()
	params := c.Params
	for again := false; ; again = true {
		result, err := s.attempt(ctx, c, &params, &cfg, time)
		if err == nil {
			return result, nil
		}
		if answered, ok := errors.AsType[*switchboard.ServerError](err); ok {
			return switchboard.Result{}, answered
		}
		if refused, ok := errors.AsType[*switchboard.Error](err); ok {
			return switchboard.Result{}, refused
		}
		e := asFault(err)
		if again || e.sent || ctx.Err() != nil || e.kind != kindGone && e.kind != kindLost {
			return switchboard.Result{}, refusal(ctx, e)
		}
	}
}

// attempt sends the call over the client's link. params are the client's, and
// then with its answers. The error is a *fault, or what the caller is told.
func (s *server) attempt(ctx context.Context, c *switchboard.Call, params *[]byte, cfg *switchboard.Server, left *allowance) (switchboard.Result, error) {
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
		if err := l.fly(ctx, f, c.Notify); err != nil {
			return switchboard.Result{}, err
		}
		if f.answer.ErrorObject != nil {
			if l.visited(ctx, f, c, f.answer.ErrorObject) {
				continue
			}
			return switchboard.Result{}, &switchboard.ServerError{Server: s.id, Modern: l.hello().modern(), Object: s.mask.json(f.answer.ErrorObject)}
		}
		r := f.result()
		if len(r.JSON) == 0 || r.JSON[0] != '{' {
			return switchboard.Result{}, faultf(kindInvalid, true, "the result is no object")
		}
		if c.Client.TakesQuestions || !l.hello().modern() || !asksForInput(&r) {
			if saysError(&r) {
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
			patient, cancel := context.WithTimeout(ctx, s.opts.StartDeadline)
			l, err = sl.get(patient, false)
			cancel()
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
		return nil, faultf(kindUnreachable, false, "it is being closed")
	}
	if sl, ok := s.slots[o]; ok && sl.use() {
		return sl, nil
	}
	if len(s.slots) >= s.opts.MaxConnections && !s.evict() {
		e := switchboard.Refuse(switchboard.CodeOverloaded, "the tool's server serves as many clients as it may at once; try again later")
		e.RetryAfter = time.Second
		return nil, e
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
