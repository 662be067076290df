package receipt

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Effect reports whether a call may change something outside. It may not if its method only reads,
// or if a trusted source says so of its tool.
func Effect(c *switchboard.Call) bool {
	switch c.Method {
	case wire.MethodResourcesRead, wire.MethodPromptsGet, wire.MethodComplete:
		return false
	case wire.MethodToolsCall:
		if c.Tool == nil {
			return true
		}
		says := &c.Tool.Contract
		return !says.ReadOnly.Holds || !says.ReadOnly.Trusted || says.Stateful.Holds
	}
	return true
}

// RecordCalls returns a Caller that writes one receipt of the outcome of each call, even if next panics.
// A call with an effect is made only after its intent is durable. If the intent cannot be written,
// the call is refused with SB-RCPT-001. Receipts of outcomes and of calls without an effect delay
// nothing. Our own errors name their receipt. Calls belongs around every wrapper that decides about
// calls.
func (b *Chain) RecordCalls(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (result switchboard.Result, err error) {
		began := time.Now()
		if c.Trail == nil {
			own := *c
			own.Trail = &switchboard.Trail{}
			c = &own
		}
		r := Receipt{
			Kind: Call, Tenant: c.Principal.Tenant, Task: c.Task, Run: c.Run,
			Principal: Subject{c.Principal.ID, c.Principal.Auth, c.Principal.Mode.Narrower(switchboard.Autopilot)},
			Method:    c.Method, Server: c.Server, Effect: Effect(c), Arguments: b.digests.Request(c),
		}
		switch {
		case c.Tool != nil:
			r.Tool = c.Tool.ID.Name
		case c.Method == wire.MethodPromptsGet:
			r.Tool = c.Target // a URI may hold secrets
		}
		if c.Item.URI != "" {
			r.Resource = b.digests.resourceOf(c.Principal.Tenant, c.Item.URI)
		}
		if r.Effect {
			intent, marks := r, c.Trail.Marks()
			intent.Kind, intent.Decision, intent.Basis = Intent, marks.Decision, marks.Basis
			id, queued, err := b.writeQueued(ctx, &intent)
			if err != nil {
				if !queued {
					r.setOutcome(c, began, switchboard.Result{}, err)
					err = switchboard.WithReceipt(err, b.Add(&r))
				}
				return switchboard.Result{}, err
			}
			r.Of = id
		}
		returned := false
		defer func() {
			if !returned { // next has panicked
				r.setOutcome(c, began, switchboard.Result{}, errPanic)
			}
			if !b.queue.tryAdd(&r) {
				return
			}
			switch { // nobody else needs the id, and to spell it costs as much as to queue the receipt
			case err != nil:
				err = switchboard.WithReceipt(err, TimeID(b.options.Node, r.Time))
			case c.WantsReceipt:
				result.Receipt = TimeID(b.options.Node, r.Time)
			}
		}()
		result, err = next.Call(ctx, c)
		returned = true
		r.setOutcome(c, began, result, err)
		var failed *switchboard.ServerError
		switch {
		case err == nil:
			r.Result = b.digests.resultDigest(r.Tenant, result.JSON)
		case errors.As(err, &failed):
			r.Result = b.digests.resultDigest(r.Tenant, failed.Object)
		}
		return result, err
	})
}

var errPanic = errors.New("the next Caller panicked")

// setOutcome sets the outcome of a call, from its result or err.
func (r *Receipt) setOutcome(c *switchboard.Call, began time.Time, result switchboard.Result, err error) {
	m := c.Trail.Marks()
	r.Decision, r.Basis, r.Rulings, r.Given = m.Decision, m.Basis, m.Rulings, m.Given
	r.Took = CallTime{Total: max(time.Since(began).Microseconds(), 1), Waiting: m.Waited.Microseconds()}
	if result.Moved != nil {
		r.ServedBy = result.Moved.To.String()
		for _, t := range result.Moved.Tried {
			r.Tries = append(r.Tries, FailedAttempt{t.Tool.String(), t.Code, t.Sent})
		}
	}
	if err == nil {
		if r.Outcome = OK; reportsToolError(&result) {
			r.Outcome = ToolError
		}
		return
	}
	var own *switchboard.Error
	switch {
	case errors.As(err, &own):
		r.Code, r.Outcome = own.Code, outcomeOf(own)
	case errors.As(err, new(*switchboard.ServerError)):
		r.Outcome = ServerError
	default: // its client has disconnected, for example: the call may or may not have been executed
		r.Outcome = Unknown
	}
}

// outcomeOf returns the outcome of a call that ended with e.
func outcomeOf(e *switchboard.Error) CallOutcome {
	switch {
	case e.Unsent:
		return Refused
	case e.Code == switchboard.CodeOutcomeUnknown:
		return Unknown
	case e.Code == switchboard.CodeServerFailed, e.Code == switchboard.CodeResultInvalid, e.ServerFailed:
		return Failed
	}
	return Refused
}

// reportsToolError reports whether the result says that its tool has failed.
func reportsToolError(r *switchboard.Result) bool {
	if r.Outline.End == 0 || r.Outline.Truncated {
		says, _ := wire.Field(r.JSON, wire.MemberError)
		return bytes.Equal(says, []byte("true"))
	}
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberError {
			return bytes.Equal(r.JSON[m.Value:m.End], []byte("true"))
		}
	}
	return false
}
