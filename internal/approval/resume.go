package approval

import (
	"context"
	"errors"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// ResumeTool is our own tool that makes a call which has waited for a person.
const ResumeTool = "switchboard_resume"

// Tool is the definition of ResumeTool.
var Tool = &switchboard.Tool{ID: switchboard.ToolID{Name: ResumeTool}, Definition: []byte(`{"name":"` + ResumeTool + `","description":"Makes a call that waits for a person's approval, exactly as it was. The answer of such a call gives its request.",` +
	`"inputSchema":{"type":"object","properties":{"request":{"type":"string"},` +
	`"withdraw":{"type":"boolean","description":"true: the call is not needed any more"}},"required":["request"]},` +
	`"_meta":{"anthropic/alwaysLoad":true}}`)}

// A ResumeRequest is what the arguments of ResumeTool say.
type ResumeRequest struct {
	Request  string
	Withdraw bool
}

// ParseResume reads the arguments of ResumeTool, an object that was scanned. The error is a *switchboard.Error.
func ParseResume(args []byte) (r ResumeRequest, err error) {
	for name, raw := range wire.Members(args) {
		text, isText := wire.String(raw)
		switch {
		case name == "request" && isText:
			r.Request = text
		case name == "withdraw" && (string(raw) == "true" || string(raw) == "false"):
			r.Withdraw = string(raw) == "true"
		default:
			return r, switchboard.Refuse(switchboard.CodeBadArguments, `%s takes {"request":"…"}, and withdraw, which is true or false`, ResumeTool)
		}
	}
	if r.Request == "" {
		return r, switchboard.Refuse(switchboard.CodeBadArguments, `%s takes {"request":"…"}: the request that the answer of the call has named`, ResumeTool)
	}
	return r, nil
}

// errUnknown answers a request that does not exist, or belongs to another principal or task. Both look the same.
func errUnknown() error {
	return gone("there is no such request of yours in this task")
}

// Resume returns the request and the call that it keeps, for the principal and the task that asked. The error is a *switchboard.Error.
func (k *Keeper) Resume(ctx context.Context, p *switchboard.Principal, task switchboard.TaskID, id string) (*Request, KeptCall, error) {
	r, err := k.Find(ctx, p.Tenant, id)
	switch {
	case errors.Is(err, ErrNoRequest):
		return nil, KeptCall{}, errUnknown()
	case err != nil:
		return nil, KeptCall{}, storeError(err)
	case r.Kind == ForCapability && r.Asker.is(p, task):
		e := gone("request %s asks for the capability %s, so there is no call to make", id, r.Target.Capability)
		e.Hint = "call switchboard_status with the capability: it says how the request stands"
		return nil, KeptCall{}, e
	case r.Kind != ForCall || !r.Asker.is(p, task):
		return nil, KeptCall{}, errUnknown()
	}
	kept, err := k.Kept(ctx, r)
	switch {
	case errors.Is(err, ErrNoRequest):
		return nil, KeptCall{}, k.refusalOf(r)
	case err != nil:
		e := gone("the call of request %s cannot be read any more", id)
		e.Hint, e.Cause = "make the call again", err
		return nil, KeptCall{}, e
	}
	return r, kept, nil
}

// WithdrawByCaller ends a pending request, for the principal and the task that asked. It returns a sentence for the caller. The error is a *switchboard.Error.
func (k *Keeper) WithdrawByCaller(ctx context.Context, p *switchboard.Principal, task switchboard.TaskID, id string) (string, error) {
	_, err := k.Withdraw(ctx, p, task, id)
	if late, ok := errors.AsType[*OutrunError](err); ok {
		return "", k.refusalOf(late.Request)
	}
	switch {
	case errors.Is(err, ErrNoRequest):
		return "", errUnknown()
	case err != nil:
		return "", storeError(err)
	}
	return "request " + id + " is withdrawn: no person needs to decide it", nil
}
