package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// StatusTool is Switchboard's own tool that reports the state of the run.
const StatusTool = "switchboard_status"

// Status is StatusTool as lists show it.
var Status = &switchboard.Tool{ID: switchboard.ToolID{Name: StatusTool}, Definition: []byte(`{"name":"` + StatusTool + `",` +
	`"description":"Says what is bound and expanded here, the tokens used and left, what failed and why.",` +
	`"inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true},` + lazyexpand.AlwaysLoad + `}`)}

// newOwn returns the mcp-go server that answers for Switchboard itself: initialize,
// server/discover, ping and logging/setLevel. It declares only what is built.
func newOwn(name, version string) *server.MCPServer {
	return server.NewMCPServer(name, version,
		server.WithToolCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true),
		server.WithCompletions(),
		server.WithLogging(),
	)
}

// answerOwnTool answers a call of one of Switchboard's own tools, and charges the run for it.
func (tc *toolCaller) answerOwnTool(ctx context.Context, q *clientRequest, r *run.Run, name string) rpcAnswer {
	a := tc.runOwnTool(ctx, q, r, name)
	if a.result != nil {
		tc.meter.Charge(r.Bill(), run.Results, a.result)
	}
	return a
}

func (tc *toolCaller) runOwnTool(ctx context.Context, q *clientRequest, r *run.Run, name string) rpcAnswer {
	args, ok := q.Param("arguments")
	switch name {
	case lazyexpand.DeclareTool:
		reply, err := tc.tasks.Declare(ctx, r, args)
		return tc.answerForModel(ctx, q, r, name, reply, err)
	case lazyexpand.RequestTool:
		reply, err := tc.tasks.Request(ctx, q.principal, r, args)
		return tc.answerForModel(ctx, q, r, name, reply, err)
	}
	if name == preview.ReadTool {
		reply, err := tc.readMore(ctx, q, r, args)
		if err != nil {
			return tc.enc.errorAnswer(q, err)
		}
		return rpcAnswer{result: tc.enc.ownToolResult(reply, q.modern)}
	}
	if ok && !emptyObject(args) {
		var reply lazyexpand.Reply
		capability, err := lazyexpand.ParseStatus(args)
		if err == nil {
			reply, err = tc.tasks.CapabilityStatus(ctx, q.principal, r, capability)
		}
		return tc.answerForModel(ctx, q, r, name, reply, err)
	}
	return rpcAnswer{result: tc.enc.ownToolResult(lazyexpand.Reply{Text: string(tc.tasks.Status(q.principal, r))}, q.modern)}
}

// answerForModel answers with the reply, or with an error that the model can act on.
func (tc *toolCaller) answerForModel(ctx context.Context, q *clientRequest, r *run.Run, name string, reply lazyexpand.Reply, err error) rpcAnswer {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		tc.log.Info("refused", "code", own.Code, "method", q.Method, "tool", name, "tenant", q.principal.Tenant, "principal", q.principal.ID, "err", own)
		tc.enc.recorder.Refused(own.Code)
		return rpcAnswer{result: tc.enc.toolError(own, q.modern)}
	}
	if err != nil {
		return tc.enc.errorAnswer(q, err)
	}
	tc.runs.RecordShown(ctx, r, q.clientOf(r), sightsOf(reply.Defines)...)
	return rpcAnswer{result: tc.enc.ownToolResult(reply, q.modern)}
}

// readMore returns another piece of a result that was too long. Policy decides again about the call
// that gave the result.
func (tc *toolCaller) readMore(ctx context.Context, q *clientRequest, r *run.Run, args []byte) (lazyexpand.Reply, error) {
	ask, err := preview.ParseReadRequest(args)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	kept, err := tc.results.Open(ctx, q.principal, r.ID(), r.Task(), ask.Handle)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	name, _ := r.Surface().Name(kept.Tool)
	entry, ok := r.Surface().Lookup(name)
	if !ok {
		return lazyexpand.Reply{}, preview.ErrUnknownHandle
	}
	c := callOf(entry, kept.Params)
	c.Stored = kept
	result, f, err := tc.forwarder.forwardRaw(ctx, q, r, c)
	if f != nil {
		err = preview.ErrUnknownHandle
	}
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeNoSuchTool {
		err = preview.ErrUnknownHandle
	}
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	text, err := tc.results.ReadPart(&ask, c, result.JSON)
	return lazyexpand.Reply{Text: text}, err
}

// resumeCall makes a call that has waited for a person, exactly as its client made it. Everything is decided again.
func (tc *toolCaller) resumeCall(ctx context.Context, q *clientRequest, r *run.Run, key string) (rpcAnswer, *switchboard.Call, error) {
	args, _ := q.Param("arguments")
	ask, err := approval.ParseResume(args)
	if err != nil {
		return rpcAnswer{}, nil, err
	}
	if ask.Withdraw {
		text, err := tc.approvals.WithdrawByCaller(ctx, &q.principal, r.Task(), ask.Request)
		if err != nil {
			return rpcAnswer{}, nil, err
		}
		a := rpcAnswer{result: tc.enc.ownToolResult(lazyexpand.Reply{Text: text}, q.modern)}
		tc.meter.Charge(r.Bill(), run.Results, a.result)
		return a, nil, nil
	}
	asked, kept, err := tc.approvals.Resume(ctx, &q.principal, r.Task(), ask.Request)
	if err != nil {
		return rpcAnswer{}, nil, err
	}
	entry, ok := r.Surface().Calls(asked.Target.ID(), asked.Target.Capability)
	if !ok || asked.Target.Method != wire.MethodToolsCall {
		return rpcAnswer{}, nil, &switchboard.Error{
			Code: switchboard.CodeApprovalGone, Unsent: true,
			Text: "the tool of request " + ask.Request + " is not in your list any more, so its call was not made",
		}
	}
	if err := tc.admitMember(ctx, r, entry, nil, false); err != nil {
		return rpcAnswer{}, nil, tc.recordDenied(q, r, entry.Name, err)
	}
	// These members belong to this request: the progress token, what the client can be asked, and its answers to the server.
	meta, _ := q.Param(wire.MemberMeta)
	answers, _ := q.Param(session.MemberAnswers)
	state, _ := q.Param(session.MemberState)
	params := wire.Rewrite(nil, kept.Params,
		wire.Edit{Name: wire.MemberMeta, Value: meta}, wire.Edit{Name: session.MemberAnswers, Value: answers}, wire.Edit{Name: session.MemberState, Value: state})
	c := callOf(entry, params)
	c.Resumes, c.IdempotencyKey = ask.Request, kept.Key
	if key != "" && kept.Key == nil {
		c.IdempotencyKey = &switchboard.IdempotencyKey{Key: key, Tool: approval.ResumeTool}
	}
	a, err := tc.forwarder.forward(ctx, q, r, c)
	return a, c, err
}

// MetaTokens is the key in the _meta of a stub's result that holds the state of the token budget.
const MetaTokens = wire.MetaOurPrefix + "tokens"

// ownToolResult encodes the reply of one of our own tools.
func (enc *encoder) ownToolResult(reply lazyexpand.Reply, modern bool) []byte {
	b := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), reply.Text)
	b = append(b, `}]`...)
	var more []string
	if reply.Budget != nil {
		spent, _ := json.Marshal(reply.Budget) // it holds only numbers: it cannot fail
		more = append(more, `"`+MetaTokens+`":`+string(spent))
	}
	switch {
	case modern:
		b = append(append(b, `,"resultType":"complete","_meta":`...), enc.ownMeta(more...)...)
	case more != nil:
		b = append(append(append(b, `,"_meta":{`...), more[0]...), '}')
	}
	return append(b, '}')
}

// capabilities returns the capabilities that the client of q has declared.
func (q *clientRequest) capabilities() []byte {
	if q.modern {
		raw, _ := q.Meta(wire.MetaClientCapabilities)
		return raw
	}
	return q.client.Capabilities()
}

// ownID replaces the client's id while mcp-go answers. mcp-go would decode the client's id as a
// float, which corrupts integers above 2^53.
var ownID = []byte("1")

// answerByLibrary lets mcp-go answer q. The caller puts the result behind the client's own id.
func (d *dispatcher) answerByLibrary(ctx context.Context, q *clientRequest) rpcAnswer {
	message := wire.AppendRequest(nil, ownID, q.Method, q.Params)
	who := q.client
	if who == nil {
		who = session.NewClientState("", q.principal)
	}
	switch r := d.library.HandleMessage(d.library.WithContext(ctx, who), message).(type) {
	case mcp.JSONRPCResponse:
		result, err := json.Marshal(r.Result)
		if err != nil {
			return d.enc.errorAnswer(q, err)
		}
		return rpcAnswer{result: result}
	case mcp.JSONRPCError:
		f := &failure{code: r.Error.Code, message: r.Error.Message}
		if r.Error.Data != nil {
			f.data, _ = json.Marshal(r.Error.Data) // mcp-go's own types can be encoded
		}
		return rpcAnswer{failure: f}
	}
	return rpcAnswer{failure: internalFailure}
}
