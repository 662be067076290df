package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxAttempts limits how often one call may be sent, to one server after the other.
const maxAttempts = 3

// Fallback returns a Caller that moves a call which its server cannot serve to the declared equivalents of its tool,
// in the order of the decision. Each attempt goes through next, so policy, approval and limits apply to each attempt,
// with the arguments that its server gets.
//
// A call moves only if it provably never reached a server, because that is not fit or a budget is used up, or if its tool's contract says that a repetition is
// harmless and the failure is the server's own. The retry budget limits the moves of the second kind. A tool's answer
// is final, even an error. A call that no fit equivalent can take goes to its own server, like a call without equivalents.
func (m *Monitor) Fallback(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		s := m.server(c.Server)
		if s == nil {
			return next.Call(ctx, c)
		}
		s.traffic.calls.Add(1)
		s.traffic.retries.earn()
		if len(c.Equivalents) == 0 {
			return next.Call(ctx, c)
		}
		return m.callInOrder(ctx, s, c, next)
	})
}

// callInOrder makes the call at its own server, and then at the equivalents.
func (m *Monitor) callInOrder(ctx context.Context, s *serverMonitor, c *switchboard.Call, next switchboard.Caller) (switchboard.Result, error) {
	var tried []switchboard.Attempt
	var first error // the error for the caller
	heard := &relayedSoFar{notify: c.Notify}
	sent := 0
	fail := func() (switchboard.Result, error) {
		if first == nil { // no fit equivalent takes the arguments
			own := *c
			own.Equivalents = nil
			return next.Call(ctx, &own)
		}
		if len(tried) > 1 {
			c.Trail.Tried(tried) // all of them, because none is the one that answered
		}
		return switchboard.Result{}, finalError(first, tried)
	}
	for i := -1; i < len(c.Equivalents) && sent < maxAttempts; i++ {
		tool := c.Tool
		if i >= 0 {
			tool = c.Equivalents[i].Tool
		}
		elsewhere := m.anyFit(c, i+1)
		if !m.mayCall(tool, elsewhere) {
			tried = append(tried, switchboard.Attempt{Tool: tool.ID})
			continue
		}
		own := *c
		own.Equivalents, own.NoWait, own.Attempt = nil, elsewhere, i+1
		own.Notify, own.Client = heard.notifier(i), trackQuestions(c, heard)
		if i >= 0 {
			if err := redirectCall(&own, &c.Equivalents[i]); err != nil {
				m.o.Log.Info("an equivalent does not take the call", "call", c.Tool.ID.String(), "equivalent", tool.ID.String(), "err", err)
				tried = append(tried, switchboard.Attempt{Tool: tool.ID})
				continue
			}
		}
		if len(tried) > 0 {
			c.Trail.Tried(tried)
		}
		r, err := next.Call(ctx, &own)
		if err == nil && i < 0 {
			return r, nil
		}
		if err == nil {
			r.Moved = &switchboard.Moved{To: tool.ID, Tried: tried}
			m.recordMove(s, c, r.Moved)
			return r, nil
		}
		refused, ok := errors.AsType[*switchboard.Error](err)
		if !ok { // an answer
			return switchboard.Result{}, err
		}
		tried = append(tried, switchboard.Attempt{Tool: tool.ID, Code: refused.Code, Sent: !refused.Unsent})
		if first == nil || i < 0 || !refused.Unsent {
			first = err
		}
		switch {
		case ctx.Err() != nil:
			return fail()
		case !failedAtServer(refused):
			if i < 0 {
				return switchboard.Result{}, err
			}
			// For example, policy denies this equivalent, and may allow the others.
		case !refused.Unsent:
			sent++
			if heard.asked.Load() || !tool.Contract.Repeatable() || !s.traffic.retries.spend() {
				return fail()
			}
		}
	}
	return fail()
}

// failedAtServer reports whether the server failed the call, was not fit to take it, or costs more than is left.
func failedAtServer(e *switchboard.Error) bool {
	return e.ServerFailed || e.Unsent && (e.Code == switchboard.CodeNoneHealthy || e.Code == switchboard.CodeOverloaded || e.Code == switchboard.CodeBudgetExceeded)
}

// finalError returns the error for the caller. Its cause, for the log, lists the attempts.
func finalError(first error, tried []switchboard.Attempt) error {
	own, ok := errors.AsType[*switchboard.Error](first)
	if !ok || len(tried) < 2 {
		return first
	}
	e := *own
	e.Cause = fmt.Errorf("tried %+v: %w", tried, cmp.Or(own.Cause, errors.New(own.Text)))
	return &e
}

// mayCall reports whether the tool may be called. A tool of a server on probation is called, as the trial, if the
// call is repeatable or no other server can take it.
func (m *Monitor) mayCall(t *switchboard.Tool, elsewhere bool) bool {
	if m.Fit(t.ID) || !elsewhere {
		return true
	}
	return m.Unfit()[switchboard.ToolID{Server: t.ID.Server}] == Probation && t.Contract.Repeatable()
}

// anyFit reports whether any of the equivalents from index i on is fit.
func (m *Monitor) anyFit(c *switchboard.Call, i int) bool {
	for ; i < len(c.Equivalents); i++ {
		if m.Fit(c.Equivalents[i].Tool.ID) {
			return true
		}
	}
	return false
}

// redirectCall turns a call into a call of the equivalent. The equivalent cannot ask the client anything: the client
// would send its answers to the original tool.
func redirectCall(c *switchboard.Call, to *switchboard.Equivalent) error {
	for _, member := range [...]string{"requestState", "inputResponses"} {
		if _, ok := wire.Field(c.Params, member); ok {
			return errors.New("the call continues a request that its own server has begun")
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

// relayedSoFar records what the client of a call has received already.
type relayedSoFar struct {
	notify      func(switchboard.Notification)
	asked       atomic.Bool // a question was relayed to the client
	maxProgress float64     // the largest progress that was relayed
	hasProgress bool
}

// notifier returns the function for the notifications of attempt i. Progress must grow, so a later attempt relays
// only progress above the maximum so far.
func (h *relayedSoFar) notifier(i int) func(switchboard.Notification) {
	if h.notify == nil {
		return nil
	}
	return func(n switchboard.Notification) {
		if n.Method == wire.MethodProgress {
			raw, _ := wire.Field(n.Params, "progress")
			p, err := strconv.ParseFloat(string(raw), 64)
			if err == nil {
				if i >= 0 && h.hasProgress && p <= h.maxProgress {
					return
				}
				h.maxProgress, h.hasProgress = max(h.maxProgress, p), true
			}
		}
		h.notify(n)
	}
}

// trackQuestions returns the call's client with an Ask that records in h that the client was asked.
func trackQuestions(c *switchboard.Call, h *relayedSoFar) switchboard.Client {
	own := c.Client
	if ask := own.Ask; ask != nil {
		own.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
			h.asked.Store(true)
			return ask(ctx, method, params)
		}
	}
	return own
}

// A retryBudget limits how many calls are sent again: one for each fifth call, and up to savedRetries in reserve. The
// zero value has the full reserve.
type retryBudget struct{ debt atomic.Int64 }

const (
	retryCost    = 5
	savedRetries = 10
)

// earn counts a call.
func (b *retryBudget) earn() {
	if n := b.debt.Load(); n > 0 {
		b.debt.CompareAndSwap(n, n-1) // a lost race only loses a fifth of a retry
	}
}

// spend takes one retry, and reports whether there was one.
func (b *retryBudget) spend() bool {
	for {
		n := b.debt.Load()
		if n+retryCost > savedRetries*retryCost {
			return false
		}
		if b.debt.CompareAndSwap(n, n+retryCost) {
			return true
		}
	}
}
