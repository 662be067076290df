package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/run"
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
func (g *Gateway) answerOwnTool(ctx context.Context, q *clientRequest, r *run.Run, name string) rpcAnswer {
	a := g.runOwnTool(ctx, q, r, name)
	if a.result != nil {
		g.meter.Charge(r.Bill(), run.Results, a.result)
	}
	return a
}

func (g *Gateway) runOwnTool(ctx context.Context, q *clientRequest, r *run.Run, name string) rpcAnswer {
	args, ok := q.Param("arguments")
	if name == lazyexpand.DeclareTool {
		reply, err := g.declare(ctx, r, args)
		if own, ok := errors.AsType[*switchboard.Error](err); ok { // the model can choose another task
			g.log.Info("refused", "code", own.Code, "method", q.Method, "tool", name, "tenant", q.principal.Tenant, "principal", q.principal.ID, "err", own)
			g.countRefusal(own.Code)
			return rpcAnswer{result: g.toolError(own, q.modern)}
		}
		if err != nil {
			return g.errorAnswer(q, err)
		}
		g.runs.Showed(ctx, r, q.clientOf(r), sightsOf(reply.Defines)...)
		return rpcAnswer{result: g.ownToolResult(reply, q.modern)}
	}
	if name == preview.ReadTool {
		reply, err := g.readMore(ctx, q, r, args)
		if err != nil {
			return g.errorAnswer(q, err)
		}
		return rpcAnswer{result: g.ownToolResult(reply, q.modern)}
	}
	if ok && !emptyObject(args) {
		return g.errorAnswer(q, switchboard.Refuse(switchboard.CodeBadArguments, "%s takes no arguments", StatusTool))
	}
	return rpcAnswer{result: g.ownToolResult(lazyexpand.Reply{Text: string(g.status(q.principal, r))}, q.modern)}
}

// readMore returns another piece of a result that was too long. Policy decides again about the call
// that gave the result.
func (g *Gateway) readMore(ctx context.Context, q *clientRequest, r *run.Run, args []byte) (lazyexpand.Reply, error) {
	ask, err := preview.ParseAsk(args)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	kept, err := g.results.Open(ctx, q.principal, r.ID(), r.Task(), ask.Handle)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	name, _ := r.Surface().Name(kept.Tool)
	entry, ok := r.Surface().Lookup(name)
	if !ok {
		return lazyexpand.Reply{}, preview.ErrUnknown
	}
	c := callOf(entry, kept.Params)
	c.Kept = kept
	result, f, err := g.forwardRaw(ctx, q, r, c)
	if f != nil {
		err = preview.ErrUnknown
	}
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeNoSuchTool {
		err = preview.ErrUnknown
	}
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	text, err := g.results.Piece(&ask, c, result.JSON)
	return lazyexpand.Reply{Text: text}, err
}

// MetaTokens is the key in the _meta of a stub's result that holds the state of the token budget.
const MetaTokens = wire.MetaOurPrefix + "tokens"

// ownToolResult encodes the reply of one of our own tools.
func (g *Gateway) ownToolResult(reply lazyexpand.Reply, modern bool) []byte {
	b := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), reply.Text)
	b = append(b, `}]`...)
	var more []string
	if reply.Spent != nil {
		spent, _ := json.Marshal(reply.Spent) // it holds only numbers: it cannot fail
		more = append(more, `"`+MetaTokens+`":`+string(spent))
	}
	switch {
	case modern:
		b = append(append(b, `,"resultType":"complete","_meta":`...), g.ownMeta(more...)...)
	case more != nil:
		b = append(append(append(b, `,"_meta":{`...), more[0]...), '}')
	}
	return append(b, '}')
}

// A clientState is what the gateway knows about a legacy session, about the client on stdio, or
// about the client of one modern request. It implements server.SessionWithLogging for mcp-go.
type clientState struct {
	id        string
	publicID  string // identifies the client; unlike id it is not secret
	principal switchboard.Principal

	initialized atomic.Bool
	level       atomic.Value // string; set by logging/setLevel

	// capabilities is the object that the client has declared. It is set before any other request
	// is answered.
	capabilities atomic.Pointer[[]byte]

	// What a legacy client, or the stream of a modern one, is notified of and asked.
	queue         *notificationQueue
	subscriptions subscriptions
	questions     openQuestions
}

func newClient(id string, p switchboard.Principal) *clientState {
	c := &clientState{id: id, publicID: rand.Text(), principal: p, queue: newNotificationQueue(switchboard.AllKinds)}
	c.subscriptions.news = c.queue
	// A legacy client that sets no level gets log messages from "info" on.
	c.level.Store("info")
	return c
}

// setCapabilities stores what the client can be asked for.
func (c *clientState) setCapabilities(capabilities []byte) {
	own := bytes.Clone(capabilities) // the message's memory is reused
	c.capabilities.Store(&own)
}

// capabilities returns the capabilities that the client of q has declared.
func (q *clientRequest) capabilities() []byte {
	if q.modern {
		raw, _ := q.Meta(wire.MetaClientCapabilities)
		return raw
	}
	if own := q.client.capabilities.Load(); own != nil {
		return *own
	}
	return nil
}

func (c *clientState) Initialize()                    { c.initialized.Store(true) }
func (c *clientState) Initialized() bool              { return c.initialized.Load() }
func (c *clientState) SessionID() string              { return c.id }
func (c *clientState) SetLogLevel(l mcp.LoggingLevel) { c.level.Store(string(l)) }
func (c *clientState) GetLogLevel() mcp.LoggingLevel  { return mcp.LoggingLevel(c.logLevel()) }
func (c *clientState) logLevel() string               { return c.level.Load().(string) }

// NotificationChannel returns nil: mcp-go has no notifications to send, and a message on the
// channel would be dropped.
func (c *clientState) NotificationChannel() chan<- mcp.JSONRPCNotification { return nil }

// ownID replaces the client's id while mcp-go answers. mcp-go would decode the client's id as a
// float, which corrupts integers above 2^53.
var ownID = []byte("1")

// answerByLibrary lets mcp-go answer q. The caller puts the result behind the client's own id.
func (g *Gateway) answerByLibrary(ctx context.Context, q *clientRequest) rpcAnswer {
	message := wire.AppendRequest(nil, ownID, q.Method, q.Params)
	who := q.client
	if who == nil {
		who = newClient("", q.principal)
	}
	switch r := g.library.HandleMessage(g.library.WithContext(ctx, who), message).(type) {
	case mcp.JSONRPCResponse:
		result, err := json.Marshal(r.Result)
		if err != nil {
			return g.errorAnswer(q, err)
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
