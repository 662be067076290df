// Package question checks the questions of servers to the client of a call before anyone sees them:
// elicitation, sampling and roots. It adds the name of the server, removes deceptive characters
// from an elicitation (package scan), and lets policy decide whether the client may be asked.
//
// A question comes in three ways, and all of them are checked here: as a request of a server while
// a call is in flight, as a result that asks for more input (input_required, 2026-07-28), and as
// the error -32042, which asks the client to visit URLs first.
package question

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MetaServer is the key of _meta that names the server of a question.
const MetaServer = wire.MetaOurPrefix + "server"

// codeVisitFirst is the error of a legacy server that the client has to visit URLs before it
// repeats the request.
const codeVisitFirst = -32042

// maxAsks limits the questions of one result.
const maxAsks = 16

// A PermitFunc says whether the client of the call may be asked this: nil, or the reason against it. It
// is safe for concurrent use.
type PermitFunc func(ctx context.Context, c *switchboard.Call, method string, params []byte) error

// Vet returns a Caller that passes only the questions that permit allows to the client, with the
// name of the server. It belongs directly around the Caller that sends calls, so that the server of
// the call is the one that asks.
func Vet(permit PermitFunc, log *slog.Logger, next switchboard.Caller) switchboard.Caller {
	v := vetter{permit, log}
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if ask := c.Client.Ask; ask != nil {
			own := *c
			own.Client.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
				params, err := v.vetQuestion(ctx, c, method, params)
				if err != nil {
					return nil, refuseQuestion()
				}
				return ask(ctx, method, params)
			}
			c = &own
		}
		r, err := next.Call(ctx, c)
		if len(c.Client.Capabilities) == 0 {
			return r, err // it can be asked nothing
		}
		if err != nil {
			return r, v.vetError(ctx, c, err)
		}
		return v.vetResult(ctx, c, r)
	})
}

type vetter struct {
	permit PermitFunc
	log    *slog.Logger
}

// vetQuestion returns the params of a question in the form for the client.
func (v vetter) vetQuestion(ctx context.Context, c *switchboard.Call, method string, params []byte) ([]byte, error) {
	if len(params) == 0 {
		params = []byte("{}")
	}
	if method == wire.MethodElicit {
		clean, removed := scan.CleanJSON(params)
		if removed > 0 {
			v.log.Warn("characters that deceive were removed from a server's question", "server", c.Server, "removed", removed)
		}
		params = clean
	}
	if err := v.permit(ctx, c, method, params); err != nil {
		v.log.Warn("a server may not ask this", "server", c.Server, "method", method, "tenant", c.Principal.Tenant, "err", err)
		return nil, err
	}
	return nameServer(c.Server, method, params), nil
}

// nameServer puts the name of the server into the text and _meta of a question. For the client, all servers are one: it must not add what others have
// said to what a server's question sends to its model, so includeContext becomes none.
func nameServer(by switchboard.ServerID, method string, params []byte) []byte {
	meta, ok := wire.Field(params, wire.MemberMeta)
	if !ok || meta[0] != '{' {
		meta = []byte("{}")
	}
	meta = wire.Without(nil, meta, func(key string) bool { return key != wire.MetaRelatedTask && wire.Reserved(key) })
	edits := []wire.Edit{{Name: wire.MemberMeta, Value: wire.Rewrite(nil, meta, wire.Edit{Name: MetaServer, Value: wire.AppendString(nil, string(by))})}}
	if method == wire.MethodElicit {
		raw, _ := wire.Field(params, "message")
		message, _ := wire.String(raw)
		edits = append(edits, wire.Edit{Name: "message", Value: wire.AppendString(nil, fmt.Sprintf("The server %q asks: %s", by, message))})
	}
	if _, ok := wire.Field(params, "includeContext"); ok && method == wire.MethodSample {
		edits = append(edits, wire.Edit{Name: "includeContext", Value: []byte(`"none"`)})
	}
	return wire.Rewrite(nil, params, edits...)
}

// refuseQuestion is the answer to a server if the client does not get its question.
func refuseQuestion() error {
	object := fmt.Appendf(nil, `{"code":%d,"message":"the client was not asked: policy does not allow this question"}`, wire.CodeInvalidParams)
	return &switchboard.ClientError{Object: object}
}

// errNotAsked ends a call if its server asks something that policy does not allow.
func errNotAsked(cause error) error {
	return &switchboard.Error{
		Code: switchboard.CodeServerFailed, Cause: cause,
		Text: "the tool asks you a question that policy does not allow; it was not completed",
	}
}

// vetResult checks a result that asks for more input.
func (v vetter) vetResult(ctx context.Context, c *switchboard.Call, r switchboard.Result) (switchboard.Result, error) {
	if !asksForInput(&r) {
		return r, nil
	}
	wanted, _ := wire.Field(r.JSON, "inputRequests")
	var edits []wire.Edit
	for key, value := range wire.Members(wanted) {
		raw, _ := wire.Field(value, "method")
		method, _ := wire.String(raw)
		params, _ := wire.Field(value, "params")
		params, err := v.vetQuestion(ctx, c, method, params)
		if err != nil {
			return switchboard.Result{}, errNotAsked(err)
		}
		edits = append(edits, wire.Edit{Name: key, Value: wire.Rewrite(nil, value, wire.Edit{Name: "params", Value: params})})
	}
	switch {
	case len(edits) == 0:
		return r, nil
	case len(edits) > maxAsks:
		return switchboard.Result{}, errNotAsked(fmt.Errorf("it asks for %d things at once; the most is %d", len(edits), maxAsks))
	}
	text := wire.Rewrite(nil, r.JSON, wire.Edit{Name: "inputRequests", Value: wire.Rewrite(nil, wanted, edits...)})
	if r.Release != nil {
		r.Release()
	}
	return switchboard.Result{JSON: text}, nil
}

// asksForInput reports whether the result only asks for input.
func asksForInput(r *switchboard.Result) bool {
	raw, ok := []byte(nil), false
	if r.Outline.End == 0 || r.Outline.Truncated {
		raw, ok = wire.Field(r.JSON, wire.MemberResultType)
	}
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberResultType {
			raw, ok = r.JSON[m.Value:m.End], true
		}
	}
	kind, _ := wire.String(raw)
	return ok && kind == "input_required"
}

// vetError checks the error that asks the client to visit URLs first.
func (v vetter) vetError(ctx context.Context, c *switchboard.Call, err error) error {
	said, ok := errors.AsType[*switchboard.ServerError](err)
	if !ok {
		return err
	}
	code, _ := wire.Field(said.Object, "code")
	data, _ := wire.Field(said.Object, "data")
	list, ok := wire.Field(data, "elicitations")
	if string(code) != fmt.Sprint(codeVisitFirst) || !ok || list[0] != '[' {
		return err
	}
	vetted := []byte{'['}
	for params := range wire.Elements(list) {
		params, err := v.vetQuestion(ctx, c, wire.MethodElicit, params)
		if err != nil {
			return errNotAsked(err)
		}
		if len(vetted) > 1 {
			vetted = append(vetted, ',')
		}
		vetted = append(vetted, params...)
	}
	told := *said
	told.Object = wire.Rewrite(nil, said.Object, wire.Edit{Name: "data", Value: wire.Rewrite(nil, data, wire.Edit{Name: "elicitations", Value: append(vetted, ']')})})
	return &told
}
