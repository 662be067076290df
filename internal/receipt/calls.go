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
		return c.Tool == nil || !c.Tool.Contract.OnlyReads()
	}
	return true
}

// RecordCalls returns a Caller that writes one receipt of the outcome of each call, even if next
// panics. It delays nothing. Our own errors name their receipt. It belongs around every wrapper that
// decides about calls.
func (b *Chain) RecordCalls(next switchboard.Caller) switchboard.Caller {
	return recordCalls(next, func() *Chain { return b })
}

// recordCalls is RecordCalls for the chain that now is the process's own.
func recordCalls(next switchboard.Caller, now func() *Chain) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (result switchboard.Result, err error) {
		began := time.Now()
		if c.Trail == nil {
			own := *c
			own.Trail = &switchboard.Trail{}
			c = &own
		}
		digests := now().digests
		r := digests.newReceipt(c)
		r.Kind = Call
		c.Trail.Digested(c.Params, r.Arguments)
		returned := false
		defer func() {
			if !returned { // next has panicked
				r.setOutcome(c, began, switchboard.Result{}, errPanic)
			}
			b := now()
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
			r.Result = digests.resultDigest(r.Tenant, result.JSON)
		case errors.As(err, &failed):
			r.Result = digests.resultDigest(r.Tenant, failed.Object)
		}
		return result, err
	})
}

// IntentTerms are what an intent says besides the call.
type IntentTerms struct {
	Price PriceMark
	Hold  IntentHold
}

// WriteIntent writes the intent of an attempt, and returns its id once it is durable. If it cannot be written, the error is SB-RCPT-001, and the
// attempt must not be made. The intent may then be stored late; then id names it. The call's receipt names every intent.
func (b *Chain) WriteIntent(ctx context.Context, c *switchboard.Call, terms IntentTerms) (id string, err error) {
	m := c.Trail.Marks()
	r := b.digests.newReceipt(c)
	r.Kind, r.Effect, r.Attempt, r.Decision, r.Basis, r.Rulings = Intent, true, c.Attempt, m.Decision, m.Basis, m.Rulings
	r.Touched = touchedNames(m.Touched)
	r.Price, r.Hold, r.Approval = terms.Price, terms.Hold, approvalOf(c.Yes)
	id, err = b.Write(ctx, &r)
	if id != "" {
		c.Trail.Intended(switchboard.Intended{Attempt: c.Attempt, Receipt: id})
	}
	return id, err
}

// newReceipt returns a receipt with the caller, the target and the arguments of the call.
func (d *Digests) newReceipt(c *switchboard.Call) Receipt {
	r := Receipt{
		Tenant: c.Principal.Tenant, Task: c.Task, Run: c.Run,
		Principal: Subject{c.Principal.ID, c.Principal.Auth, c.Principal.Mode.Narrower(switchboard.Autopilot)},
		Method:    c.Method, Server: c.Server,
	}
	digest, known := c.Trail.DigestOf(c.Params)
	if !known {
		digest = d.Request(c)
	}
	r.Arguments = digest
	switch {
	case c.Tool != nil:
		r.Tool, r.Capability = c.Tool.ID.Name, c.Tool.Contract.Capability
	case c.Method == wire.MethodPromptsGet:
		r.Tool = c.Target // a URI may hold secrets
	}
	if c.Item.URI != "" {
		r.Resource = d.resourceOf(c.Principal.Tenant, c.Item.URI)
	}
	return r
}

// touchedNames returns the names of the bits in a receipt; nil for none.
func touchedNames(bits switchboard.FlowBits) []string {
	if bits == 0 {
		return nil
	}
	return bits.Names()
}

// approvalOf returns the approval in a receipt.
func approvalOf(yes *switchboard.Yes) ApprovalRef {
	if yes == nil {
		return ApprovalRef{}
	}
	return ApprovalRef{Request: yes.Request, Standing: yes.Standing}
}

var errPanic = errors.New("the next Caller panicked")

// setOutcome sets the outcome of a call, from its result or err.
func (r *Receipt) setOutcome(c *switchboard.Call, began time.Time, result switchboard.Result, err error) {
	m := c.Trail.Marks()
	r.Decision, r.Basis, r.Rulings, r.Given = m.Decision, m.Basis, m.Rulings, m.Given
	r.Touched = touchedNames(m.Touched)
	r.Effect = len(m.Intents) > 0
	r.Price = PriceMark{m.Held, m.Settled}
	r.Approval = approvalOf(m.Yes)
	for _, t := range m.Tried {
		r.Tries = append(r.Tries, FailedAttempt{Tool: t.Tool.String(), Code: t.Code, Sent: t.Sent})
	}
	for _, intent := range m.Intents {
		switch i := intent.Attempt; {
		case i < len(r.Tries):
			r.Tries[i].Of = intent.Receipt
		default:
			r.Of = intent.Receipt
		}
	}
	r.Took = CallTime{Total: max(time.Since(began).Microseconds(), 1), Waiting: m.Waited.Microseconds()}
	if result.Moved != nil {
		r.ServedBy = result.Moved.To.String()
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
