package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A toolCaller answers tools/call: of the servers' tools, of stubs, and of our own tools.
type toolCaller struct {
	runs      *run.Runs
	finder    *runFinder
	desk      *lazyexpand.Desk
	tasks     Tasks
	results   *preview.Keeper
	approvals *approval.Keeper
	forwarder *forwarder
	meter     *run.Meter
	recorder  CallRecorder
	enc       *encoder
	log       *slog.Logger
}

// callTool answers tools/call. It checks the params, binds the run and calls the tool. If the call
// never left because its server failed, and the run moves to another server soon, callTool calls
// once more.
func (tc *toolCaller) callTool(ctx context.Context, q *clientRequest) rpcAnswer {
	raw, ok := q.Param("name")
	if !ok || raw[0] != '"' {
		return rpcAnswer{failure: invalidParams("tools/call: params.name must be a string")}
	}
	name, _ := wire.String(raw)
	if args, ok := q.Param("arguments"); ok && args[0] != '{' {
		return rpcAnswer{failure: invalidParams("tools/call: params.arguments must be an object; leave it out if there are none")}
	}
	key, f := q.idempotencyKey()
	if f != nil {
		return rpcAnswer{failure: f}
	}
	arrived := time.Now()
	r, err := q.bind(ctx)
	if err != nil {
		return tc.enc.errorAnswer(q, err)
	}
	if r.AdditionEnded(arrived) {
		tc.runs.Refresh(ctx, r)
	}
	for repeated := false; ; repeated = true {
		a, sent, err := tc.callRouted(ctx, q, r, name, key, arrived)
		if err == nil {
			return a
		}
		if !repeated && sent != nil && tc.awaitMove(ctx, q, r, name, sent.Tool, err) {
			continue
		}
		if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeNoSuchTool {
			return rpcAnswer{failure: unknownTool(name)}
		}
		return tc.enc.errorAnswer(q, err)
	}
}

// movePatience is how long a call waits for its run to be bound to another server.
const movePatience = 500 * time.Millisecond

// awaitMove reports whether a call that failed with err can be made once more. That needs a call
// that never left and a server that is not fit. awaitMove waits, for up to movePatience, until the
// name leads to another tool than the one that failed.
func (tc *toolCaller) awaitMove(ctx context.Context, q *clientRequest, r *run.Run, name string, failed *switchboard.Tool, err error) bool {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || !own.Rebinds || session.HasState(q.Message) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	for {
		s := r.Surface()
		e, _ := s.Lookup(name)
		if _, shown := s.Name(failed.Key()); !shown || e.Role != surface.Stub && e.Tool != nil && e.Tool.Key() != failed.Key() {
			return true
		}
		if !r.AwaitChange(ctx, s) {
			return false
		}
	}
}

// callRouted calls the tool that the name leads to now. The Call is nil if none was sent. An error
// is meant for the client of q: see errorAnswer.
func (tc *toolCaller) callRouted(ctx context.Context, q *clientRequest, r *run.Run, name, key string, arrived time.Time) (rpcAnswer, *switchboard.Call, error) {
	if _, ours := tc.forwarder.parkedState(q); ours {
		a, err := tc.forwarder.forward(ctx, q, r, &switchboard.Call{Params: q.Params})
		return a, nil, err
	}
	shown := r.Surface()
	route := tc.routeCall(ctx, q, r, name, arrived)
	entry := route.Entry
	if session.HasState(q.Message) && !isSameTool(r.Seen(q.clientOf(r)), name, route) {
		return rpcAnswer{}, nil, tc.recordDenied(q, r, name, &switchboard.Error{
			Code: switchboard.CodeOutcomeUnknown,
			Text: shorten(name) + " is served by another tool than the one that began this call; it may have been executed: check before you make the call again",
		})
	}
	if route.Kind == surface.Forward && entry.Role == surface.Own {
		if name == approval.ResumeTool {
			return tc.resumeCall(ctx, q, r, key)
		}
		return tc.answerOwnTool(ctx, q, r, name), nil, nil
	}
	if err := tc.finder.whyUnmet(ctx, r); err != nil {
		return rpcAnswer{}, nil, err
	}
	if route.Kind != surface.Forward && r.Surface() != shown {
		// The run may have shown nothing when the call was routed, because policy could not be evaluated, and whyUnmet has bound it again.
		route = tc.routeCall(ctx, q, r, name, arrived)
		entry = route.Entry
	}
	switch route.Kind {
	case surface.Unknown:
		err := &switchboard.Error{Code: switchboard.CodeNoSuchTool}
		return rpcAnswer{}, nil, tc.recordDenied(q, r, name, err)
	case surface.Changed:
		return tc.answerServedDifferently(ctx, q, r, name, route), nil, nil
	case surface.Unmet:
		return rpcAnswer{}, nil, tc.recordDenied(q, r, name, unmetError(name, route))
	case surface.Unjudged:
		return rpcAnswer{}, nil, tc.recordDenied(q, r, name, &switchboard.Error{
			Code: switchboard.CodePolicyFailed, Requirement: route.Was,
			Text: "nothing was executed: policy could not be evaluated for " + shorten(name),
			Hint: "try again",
		})
	}
	params := q.Params
	args, _ := q.Param("arguments")
	byName := entry.Role != surface.Stub
	if !byName {
		tc.runs.Refresh(ctx, r)
		reply, err := tc.desk.Serve(ctx, r, entry, args, !q.modern)
		if err != nil {
			return rpcAnswer{}, nil, tc.recordDenied(q, r, name, err)
		}
		if reply.Inner == nil {
			return tc.answerStub(ctx, q, r, reply), nil, nil
		}
		entry = *reply.Inner
		name = entry.Name
		if route, shown := tc.routeMember(q, r, name, arrived); shown {
			switch route.Kind {
			case surface.Unknown: // the tool that was shown by this name is gone, and another tool has the name
				return rpcAnswer{}, nil, tc.recordDenied(q, r, name, &switchboard.Error{Code: switchboard.CodeNoSuchTool})
			case surface.Changed:
				return tc.answerServedDifferently(ctx, q, r, name, route), nil, nil
			case surface.Forward:
				entry = route.Entry
			}
		}
		params = wire.Rewrite(nil, q.Params, wire.Edit{Name: "arguments", Value: reply.Arguments})
	}
	if err := tc.admitMember(ctx, r, entry, args, byName); err != nil {
		return rpcAnswer{}, nil, tc.recordDenied(q, r, name, err)
	}
	if q.modern && q.header != nil {
		if f := checkParamHeaders(q.header, entry.Tool, params); f != nil {
			return rpcAnswer{failure: f}, nil, nil
		}
	}
	c := callOf(entry, params)
	if key != "" {
		c.IdempotencyKey = &switchboard.IdempotencyKey{Key: key, Tool: name}
	}
	a, err := tc.forwarder.forward(ctx, q, r, c)
	return a, c, err
}

// unmetError returns the refusal of a call of a name that no tool serves now.
func unmetError(name string, route surface.Route) error {
	e := &switchboard.Error{Code: cmp.Or(route.Code, switchboard.CodeUnmet), Requirement: route.Was, Hint: "list the tools again"}
	switch route.Code {
	case switchboard.CodeSuspended:
		e.Text = shorten(name) + " is suspended: it has changed since it was let in, or has failed a test, or a person has taken it out; nothing was sent"
		e.Hint = "an operator decides about it; list the tools again meanwhile"
	case switchboard.CodeRetired:
		e.Text = shorten(name) + " is retired: it does not come back; nothing was sent"
	case switchboard.CodeNotLetIn:
		e.Text = shorten(name) + " is new, and no person has let it in; nothing was sent"
	default:
		e.Text = shorten(name) + " is not served now, and no other tool that you may use does the same"
	}
	return e
}

// callOf returns a Call of the entry's tool with these params; nil means the params of the request.
func callOf(e surface.Entry, params []byte) *switchboard.Call {
	both := &struct { // one allocation
		call  switchboard.Call
		trail switchboard.Trail
	}{call: switchboard.Call{
		Server: e.Tool.ID.Server, Tool: e.Tool, Target: e.Tool.ID.Name, Params: params,
		Judgments: e.Judgments, Equivalents: e.Equivalents, Alternatives: e.Others,
	}}
	both.call.Trail = &both.trail
	return &both.call
}

// answerStub answers with the stub's reply. Definitions in the reply count as shown.
func (tc *toolCaller) answerStub(ctx context.Context, q *clientRequest, r *run.Run, reply lazyexpand.Reply) rpcAnswer {
	text, item := tc.enc.ownToolResult(reply, q.modern), run.Searches
	if reply.Defines != nil {
		tc.runs.RecordShown(ctx, r, q.clientOf(r), sightsOf(reply.Defines)...)
		item = run.Definitions
	}
	tc.meter.Charge(r.Bill(), item, text)
	tc.meter.NoteSearch(q.principal.Tenant, text)
	return rpcAnswer{result: text}
}

// admitMember returns why a member of a group may not be executed now. It expands a member that is
// called by its own name, if there is room. Any other member counts as used.
func (tc *toolCaller) admitMember(ctx context.Context, r *run.Run, e surface.Entry, args []byte, byName bool) error {
	if e.Role == surface.Member && !e.Withheld {
		if err := tc.desk.AuthorizeCall(ctx, r, e); err != nil {
			return err
		}
	}
	if byName && !e.Usable() {
		err := tc.desk.Admit(ctx, r, e, args)
		if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Code != switchboard.CodeExpandFirst {
			return err
		}
		tc.runs.CatchUp(ctx, r) // another replica may have expanded it
		now, ok := r.Surface().Lookup(e.Name)
		if !ok || !now.Usable() || now.Tool.ID != e.Tool.ID {
			return err
		}
		e = now
	}
	if byName && e.Expanded != nil {
		e.Expanded.Use()
	}
	return nil
}

// isSameTool reports whether the name still leads to the tool, with the definition, that was shown
// by the name. Only that tool can resume a call that it has begun.
func isSameTool(seen *surface.Seen, name string, route surface.Route) bool {
	o, shown := seen.Lookup(name)
	return route.Kind == surface.Forward && (!shown || o.SameAs(&route.Entry))
}

// routeCall returns the route of a call by name. If there is none, it checks whether another
// replica has changed the run, and waits for servers that are starting.
func (tc *toolCaller) routeCall(ctx context.Context, q *clientRequest, r *run.Run, name string, arrived time.Time) surface.Route {
	s := r.Surface()
	if e, ok := s.Lookup(name); ok && e.Usable() && !r.MayPredateAnnouncement(arrived) && r.UpToDate(s) {
		return surface.Route{Kind: surface.Forward, Entry: e} // the fast path: to look up the clients costs more
	}
	client := q.clientOf(r)
	now := func() surface.Route {
		return r.Surface().Route(r.Seen(client), name, r.PredatesAnnouncement(client, name, arrived))
	}
	route := now()
	if route.Kind != surface.Forward { // the client may just have used another replica
		tc.runs.CatchUp(ctx, r)
		route = now()
	}
	if route.Kind == surface.Unjudged {
		tc.runs.Refresh(ctx, r)
		route = now()
	}
	if route.Kind == surface.Unknown || route.Kind == surface.Unmet {
		left := time.Until(arrived.Add(StartWait)) // of the wait of this call, which may be routed twice
		tc.finder.awaitServers(ctx, r, left, func(*surface.Surface) bool {
			route = now()
			return route.Kind == surface.Forward || route.Kind == surface.Changed
		})
		route = now()
	}
	return route
}

// routeMember returns the route of a member that the client calls through a stub. shown reports
// whether the client was, or may have been, shown the member by itself.
func (tc *toolCaller) routeMember(q *clientRequest, r *run.Run, name string, arrived time.Time) (route surface.Route, shown bool) {
	client := q.clientOf(r)
	seen := r.Seen(client)
	if _, shown := seen.Lookup(name); !shown && !seen.IsLost() {
		return surface.Route{}, false
	}
	return r.Surface().Route(seen, name, r.PredatesAnnouncement(client, name, arrived)), true
}

// answerServedDifferently tells the client which tool serves the name now. That tool counts as
// shown.
func (tc *toolCaller) answerServedDifferently(ctx context.Context, q *clientRequest, r *run.Run, name string, route surface.Route) rpcAnswer {
	e, client := route.Entry, q.clientOf(r)
	if r.HistoryUnread() && r.Seen(client).IsLost() {
		return tc.enc.errorAnswer(q, tc.recordDenied(q, r, name, switchboard.Unavailable("nothing was executed: the store cannot be read, so it is not known which tool was shown as "+shorten(name)+"", nil)))
	}
	err := &switchboard.Error{
		Code: switchboard.CodeServedDifferently, Requirement: route.Was, ServedBy: switchboard.ServedTool{Name: e.Name, Definition: string(e.Append(nil))},
		Text: "nothing was executed: " + shorten(name) + " is served by another tool now, " + e.Name,
		Hint: "call " + e.Name + " with arguments that fit its definition, which follows",
	}
	if e.Name == name {
		err.Text = "nothing was executed: " + name + " has another definition now"
		err.Hint = "write the call again, with arguments that fit the definition that follows"
	}
	if !route.JustShown {
		names := []string{name}
		if o, shown := r.Seen(client).Lookup(e.Name); shown && e.Name != name && !o.SameAs(&e) {
			names = append(names, e.Name)
		}
		defer r.Announce(client, names...)()
		tc.runs.RecordShown(ctx, r, client, surface.SightOf(e))
	}
	a := tc.enc.errorAnswer(q, tc.recordDenied(q, r, name, err))
	tc.meter.Charge(r.Bill(), run.Definitions, a.result)
	return a
}

// sightsOf returns a sight of each entry.
func sightsOf(entries []surface.Entry) []surface.Sight {
	all := make([]surface.Sight, len(entries))
	for i, e := range entries {
		all[i] = surface.SightOf(e)
	}
	return all
}

// recordDenied writes a receipt for a call that was refused with err before it reached the Caller.
// It returns err with the id of the receipt.
func (tc *toolCaller) recordDenied(q *clientRequest, r *run.Run, name string, err error) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || own.Receipt != "" {
		return err
	}
	return switchboard.WithReceipt(err, tc.recorder.Denied(q.principal, r, name, own.Code))
}

// idempotencyKey returns the key that the client gives for its call in the header or in _meta; ""
// for none.
func (q *clientRequest) idempotencyKey() (string, *failure) {
	raw, inMeta := q.Meta(wire.MetaIdempotencyKey)
	values := q.header.Values(wire.HeaderIdempotencyKey)
	if !inMeta && len(values) == 0 {
		return "", nil
	}
	key, ok := "", true
	if inMeta {
		key, ok = wire.String(raw)
	}
	switch {
	case len(values) > 1:
		return "", headerMismatch("the header " + wire.HeaderIdempotencyKey + " is given twice")
	case len(values) == 1 && inMeta && values[0] != key:
		return "", headerMismatch("the header " + wire.HeaderIdempotencyKey + " differs from " + wire.MetaIdempotencyKey + " in params._meta")
	case len(values) == 1:
		key = values[0]
	}
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	if !ok || key == "" || len(key) > switchboard.MaxOnceKey || strings.ContainsFunc(key, unprintable) {
		return "", invalidParams("an idempotency key has 1 to " + strconv.Itoa(switchboard.MaxOnceKey) + " printable ASCII characters; leave it out if the call may be made more than once")
	}
	return key, nil
}

// hasIdempotencyKey reports whether q is a call with an idempotency key.
func (q *clientRequest) hasIdempotencyKey() bool {
	if q.Method != wire.MethodToolsCall {
		return false
	}
	_, inMeta := q.Meta(wire.MetaIdempotencyKey)
	return inMeta || len(q.header.Values(wire.HeaderIdempotencyKey)) > 0
}

// isToken reports whether the JSON value raw can be a progress token. It takes 1e2 for an integer,
// as a JSON schema does.
func isToken(raw []byte) bool {
	if raw[0] == '"' {
		return true
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	return err == nil && n == math.Trunc(n)
}

// checkParamHeaders compares the Mcp-Param headers of a modern call with its arguments, as the
// tool's schema demands.
func checkParamHeaders(h http.Header, tool *switchboard.Tool, params []byte) *failure {
	// Few tools ask for a header, and to read a schema costs more than the call.
	if !bytes.Contains(tool.Definition, []byte("x-mcp-header")) {
		return nil
	}
	schema, ok := wire.Field(tool.Definition, "inputSchema")
	if !ok {
		return nil
	}
	for name, values := range h {
		if strings.HasPrefix(name, wire.HeaderParamPrefix) && len(values) > 1 {
			return headerMismatch("header mismatch: " + name + " is given twice")
		}
	}
	lookup := func(name string) (string, bool) {
		values := h.Values(name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
	if err := mcp.ValidateParamHeadersLookup(lookup, &mcp.Tool{RawInputSchema: schema}, params); err != nil {
		return headerMismatch(err.Error())
	}
	return nil
}
