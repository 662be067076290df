package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxAttempts bounds how often a call may be sent, to one server after the other.
const maxAttempts = 3

// Fallback returns a Caller that gives a call which its server cannot serve to the
// declared equivalents of its tool, in the order of the decision. Each attempt goes
// through next, so that each meets policy, approval and limits anew, with the
// arguments as that server gets them.
//
// A call moves on only if it provably never reached a server, or its tool's contract
// says that repeating it is harmless and the failure is the server's own; and of the
// latter only as many as the budget for retries allows. What a tool answers is
// never second-guessed.
func (m *Monitor) Fallback(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		s := m.server(c.Server)
		if s == nil {
			return next.Call(ctx, c)
		}
		s.calls.Add(1)
		s.budget.earn()
		if len(c.Equivalents) == 0 {
			return next.Call(ctx, c)
		}
		return m.attempts(ctx, s, c, next)
	})
}

// attempts makes the call at its own server, and then at the others.
func (m *Monitor) attempts(ctx context.Context, s *server, c *switchboard.Call, next switchboard.Caller) (switchboard.Result, error) {
	var tried []switchboard.Try
	var first error // why the call has failed, as its caller is told
	heard := &heard{notify: c.Notify}
	sent := 0
	for i := -1; i < len(c.Equivalents) && sent < maxAttempts; i++ {
		tool := c.Tool
		if i >= 0 {
			tool = c.Equivalents[i].Tool
		}
		elsewhere := m.anyFit(c, i+1)
		if !m.mayTry(tool, elsewhere) {
			tried = append(tried, switchboard.Try{Tool: tool.ID})
			continue
		}
		own := *c
		own.Equivalents, own.NoWait = nil, elsewhere
		own.Notify, own.Client = heard.from(i), s.client(c, heard)
		if i >= 0 {
			if err := redirect(&own, &c.Equivalents[i]); err != nil {
				m.o.Log.Info("an equivalent does not take the call", "call", c.Tool.ID.String(), "equivalent", tool.ID.String(), "err", err)
				tried = append(tried, switchboard.Try{Tool: tool.ID})
				continue
			}
		}
		r, err := next.Call(ctx, &own)
		if err == nil && i < 0 {
			return r, nil
		}
		if err == nil {
			r.Moved = &switchboard.Moved{To: tool.ID, Tried: tried}
			m.moved(s, c, r.Moved)
			return r, nil
		}
		refused, ok := errors.AsType[*switchboard.Error](err)
		if !ok { // an answer
			return switchboard.Result{}, err
		}
		tried = append(tried, switchboard.Try{Tool: tool.ID, Code: refused.Code, Sent: !refused.Unsent})
		if first == nil || i < 0 || !refused.Unsent {
			first = err
		}
		switch {
		case ctx.Err() != nil:
			return switchboard.Result{}, failure(first, tried)
		case !atServer(refused):
			if i < 0 {
				return switchboard.Result{}, err
			}
			// Policy, say, has something against this one; not against the others.
		case !refused.Unsent:
			sent++
			if heard.asked.Load() || !tool.Contract.Repeatable() || !s.budget.spend() {
				return switchboard.Result{}, failure(first, tried)
			}
		}
	}
	return switchboard.Result{}, failure(first, tried)
}

// atServer reports whether a call has come to grief at its server, or at its door.
func atServer(e *switchboard.Error) bool {
	return e.ServerFailed || e.Unsent && (e.Code == switchboard.CodeNoneHealthy || e.Code == switchboard.CodeOverloaded)
}

// failure is what the caller is told in the end. The log says what was tried.
func failure(first error, tried []switchboard.Try) error {
	if first == nil { // none was fit, nor took the arguments
		first = refusal("neither the tool's server nor another that does the same is fit to serve", time.Time{})
	}
	own, ok := errors.AsType[*switchboard.Error](first)
	if !ok || len(tried) < 2 {
		return first
	}
	e := *own
	e.Cause = fmt.Errorf("tried %+v: %w", tried, cmp.Or(own.Cause, errors.New(own.Text)))
	return &e
}

// mayTry reports whether the tool is called at all. One on probation is where the
// call is harmless, or there is nowhere else to go: as its trial.
func (m *Monitor) mayTry(t *switchboard.Tool, elsewhere bool) bool {
	if m.Fit(t.ID) || !elsewhere {
		return true
	}
	return m.Unfit()[switchboard.ToolID{Server: t.ID.Server}] == Probation && t.Contract.Repeatable()
}

// anyFit reports whether any of the equivalents from the ith on is fit.
func (m *Monitor) anyFit(c *switchboard.Call, i int) bool {
	for ; i < len(c.Equivalents); i++ {
		if m.Fit(c.Equivalents[i].Tool.ID) {
			return true
		}
	}
	return false
}

// redirect makes of a call one of the equivalent. It cannot ask its client
// anything: a client that is asked comes back with the answers to the tool that it
// knows.
func redirect(c *switchboard.Call, to *switchboard.Equivalent) error {
	for _, member := range [...]string{"requestState", "inputResponses"} {
		if _, ok := wire.Field(c.Params, member); ok {
			return errors.New("it goes on with what its own server has begun")
		}
	}
	params, err := to.Params(c.Params)
	if err != nil {
		return err
	}
	c.Server, c.Tool, c.Target, c.Judgments, c.Params = to.Tool.ID.Server, to.Tool, to.Tool.ID.Name, to.Judgments, params
	c.Client = switchboard.Client{Session: c.Client.Session}
	return nil
}

// heard is what the client of a call has heard of it already.
type heard struct {
	notify func(switchboard.Notification)
	asked  atomic.Bool // it was asked something
	most   float64     // of the progress that was told
	any    bool
}

// from returns what takes the notifications of the ith attempt. Of progress, which
// must grow, a later one passes on what is more than was told.
func (h *heard) from(i int) func(switchboard.Notification) {
	if h.notify == nil {
		return nil
	}
	return func(n switchboard.Notification) {
		if n.Method == wire.MethodProgress {
			raw, _ := wire.Field(n.Params, "progress")
			p, err := strconv.ParseFloat(string(raw), 64)
			if err == nil {
				if i >= 0 && h.any && p <= h.most {
					return
				}
				h.most, h.any = max(h.most, p), true
			}
		}
		h.notify(n)
	}
}

// client is the call's, and notes that it was asked.
func (s *server) client(c *switchboard.Call, h *heard) switchboard.Client {
	own := c.Client
	if ask := own.Ask; ask != nil {
		own.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
			h.asked.Store(true)
			return ask(ctx, method, params)
		}
	}
	return own
}

// A budget bounds how many calls are made again: one for each fifth call, and a
// few that are saved. The zero budget has those that are saved from the start.
type budget struct{ spent atomic.Int64 }

const (
	retryCost  = 5
	savedTries = 10
)

// earn counts a call.
func (b *budget) earn() {
	if n := b.spent.Load(); n > 0 {
		b.spent.CompareAndSwap(n, n-1) // who loses the race loses a fifth
	}
}

// spend takes one retry, and reports whether there was one.
func (b *budget) spend() bool {
	for {
		n := b.spent.Load()
		if n+retryCost > savedTries*retryCost {
			return false
		}
		if b.spent.CompareAndSwap(n, n+retryCost) {
			return true
		}
	}
}
