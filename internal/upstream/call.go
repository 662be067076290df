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
	s := f.server(c.Tool.ID.Server)
	for s != nil && !s.calls.enter() {
		was := s
		if s = f.server(c.Tool.ID.Server); s == was {
			s = nil
		}
	}
	if s == nil {
		return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "the tool's server is no longer here")
	}
	defer s.calls.leave()
	if s.calls.size() > s.opts.MaxInFlight {
		e := switchboard.Refuse(switchboard.CodeOverloaded, "the tool's server has as many calls under way as it may have; try again later")
		e.RetryAfter = time.Second
		return nil, e
	}
	cfg := s.config()
	timeout := cfg.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	for again := false; ; again = true {
		result, err := s.attempt(ctx, c, &cfg)
		if err == nil {
			return result, nil
		}
		if answered, ok := errors.AsType[*switchboard.ServerError](err); ok {
			return nil, answered
		}
		if refused, ok := errors.AsType[*switchboard.Error](err); ok {
			return nil, refused
		}
		e := asFault(err)
		if again || e.sent || ctx.Err() != nil || e.kind != kindGone && e.kind != kindLost {
			return nil, refusal(ctx, e)
		}
	}
}

// attempt sends the call over the principal's link. The error is a *fault, or
// what the caller is told.
func (s *server) attempt(ctx context.Context, c *switchboard.Call, cfg *switchboard.Server) (switchboard.Result, error) {
	sl, err := s.slotFor(s.owner(cfg, c.Principal))
	if err != nil {
		return nil, err
	}
	defer sl.release()
	patient, cancel := context.WithTimeout(ctx, s.opts.StartDeadline)
	l, err := sl.get(patient, false)
	cancel()
	if err != nil {
		return nil, err
	}

	rank := levelRank(c.LogLevel)
	l.raise(rank)
	var token []byte
	f := l.newFlight(wire.MethodToolsCall, func(id []byte) []byte {
		var params []byte
		params, token = l.callParams(c, id)
		return params
	})
	f.token, f.level = token, rank
	if _, ok := l.port.(*web); ok && l.hello().modern() {
		f.header = http.Header{}
		f.header[wire.HeaderName] = []string{wire.EncodeHeader(c.Tool.ID.Name)}
		arguments, _ := wire.Field(c.Params, "arguments")
		addParamHeaders(f.header, c.Tool.Definition, arguments)
	}
	if err := l.fly(ctx, f, c.Notify); err != nil {
		return nil, err
	}
	if f.answer.ErrorObject != nil {
		return nil, &switchboard.ServerError{Server: s.id, Object: s.mask.json(f.answer.ErrorObject)}
	}
	if l.hello().modern() && asksForInput(f.answer.Result) {
		return nil, switchboard.Refuse(switchboard.CodeServerFailed,
			"the tool asks for further input from the client, which is not supported yet; it was not completed")
	}
	result := f.answer.Result
	if len(result) == 0 || result[0] != '{' {
		return nil, faultf(kindInvalid, true, "the result is no object")
	}
	if saysError(result) {
		result = s.mask.json(result)
	}
	return switchboard.Result(result), nil
}

// saysError reports whether the result is an error of the tool's own.
func saysError(result []byte) bool {
	const name = "isError"
	if !bytes.Contains(result, []byte(name)) { // as most do not: no need to read it all
		return false
	}
	value, _ := wire.Field(result, name)
	return string(value) == "true"
}

// asksForInput reports whether the result is not one yet, but asks for more.
func asksForInput(result []byte) bool {
	for name, value := range wire.Members(result) {
		if name == "resultType" {
			kind, _ := wire.String(value)
			return kind == "input_required"
		}
	}
	return false
}

// owner returns whose link serves the principal. A modern server over HTTP has
// no sessions, so that one link is as good as many.
func (s *server) owner(cfg *switchboard.Server, p switchboard.Principal) owner {
	era, _ := s.known.recall()
	if s.opts.OnePrincipal || era == EraModern && cfg.Transport == switchboard.TransportHTTP {
		return owner{own: true}
	}
	return ownerOf(cfg.Share, p)
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

// reap closes the slots that nobody has used for a while.
func (s *server) reap(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, sl := range s.slots {
		if t, idle := sl.idleSince(); idle && sl != s.main && time.Since(t) >= after {
			s.remove(o)
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
