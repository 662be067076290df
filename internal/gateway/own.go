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

// StatusTool is the tool of our own that says how the run stands.
const StatusTool = "switchboard_status"

// Status is StatusTool as lists show it.
var Status = &switchboard.Tool{ID: switchboard.ToolID{Name: StatusTool}, Definition: []byte(`{"name":"` + StatusTool + `",` +
	`"description":"Says what is bound and expanded here, the tokens used and left, what failed and why.",` +
	`"inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true},` + lazyexpand.AlwaysLoad + `}`)}

// newOwn returns the server that answers for Switchboard itself: initialize,
// server/discover, ping and logging/setLevel. It declares what is built, and no
// more.
func newOwn(name, version string) *server.MCPServer {
	return server.NewMCPServer(name, version,
		server.WithToolCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true),
		server.WithCompletions(),
		server.WithLogging(),
	)
}

// answerOwnTool answers a call of a tool of our own, which the run shows.
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
		if own, ok := errors.AsType[*switchboard.Error](err); ok { // the model can ask for something else
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

// readMore gives more of a result that was too long. Policy decides again about the call that
// the result is of.
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

// MetaTokens is the key in the _meta of a stub's result under which stands how the
// budget of tokens stands.
const MetaTokens = wire.MetaOurPrefix + "tokens"

// ownToolResult is what a tool of our own answers.
func (g *Gateway) ownToolResult(reply lazyexpand.Reply, modern bool) []byte {
	b := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), reply.Text)
	b = append(b, `}]`...)
	var more []string
	if reply.Spent != nil {
		spent, _ := json.Marshal(reply.Spent) // numbers: it cannot fail
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

// A client is what mcp-go needs to know of a legacy session, of the process on
// the other side of stdio, or of a single modern request. It implements
// server.SessionWithLogging.
type clientState struct {
	id        string
	publicID  string // tells it apart, and is no secret as id is
	principal switchboard.Principal

	initialized atomic.Bool
	level       atomic.Value // string; what logging/setLevel has set

	// capabilities is the object that it has declared, set before anything else
	// is answered.
	capabilities atomic.Pointer[[]byte]

	// What a client of the legacy era, or a stream of the modern one, is told
	// and asked.
	queue         *notificationQueue
	subscriptions subscriptions
	questions     openQuestions
}

func newClient(id string, p switchboard.Principal) *clientState {
	c := &clientState{id: id, publicID: rand.Text(), principal: p, queue: newNotificationQueue(switchboard.AllKinds)}
	c.subscriptions.news = c.queue
	// A legacy client that does not say hears what is worth telling anybody.
	c.level.Store("info")
	return c
}

// setCapabilities notes what the client can be asked for.
func (c *clientState) setCapabilities(capabilities []byte) {
	own := bytes.Clone(capabilities) // the message that it came with is let go
	c.capabilities.Store(&own)
}

// capabilities returns the capabilities that the client of q has capabilities.
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

// NotificationChannel is nil: mcp-go has nothing to notify of, and a send on it
// would be dropped.
func (c *clientState) NotificationChannel() chan<- mcp.JSONRPCNotification { return nil }

// ownID stands for the client's id while mcp-go answers. mcp-go would decode
// the client's: it takes integers for floats, and so corrupts those over 2^53.
var ownID = []byte("1")

// answerByLibrary lets mcp-go answer q. Its result is spliced behind the client's own id.
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
			f.data, _ = json.Marshal(r.Error.Data) // it came from mcp-go's own types
		}
		return rpcAnswer{failure: f}
	}
	return rpcAnswer{failure: internalFailure}
}
