package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A clientRequest is one request of a client, with the means to answer it.
type clientRequest struct {
	*wire.Message
	modern    bool
	principal switchboard.Principal
	client    *clientState // nil over HTTP in the modern era, which has requests but no clients
	bind      runBinder

	// saveSession saves in the store what the client subscribes to; nil if that ends with the
	// connection. See Gateway.saveSession.
	saveSession func(context.Context) error

	// header holds the HTTP headers; nil on stdio.
	header http.Header

	// notify sends the client a notification before the result; nil if the client takes only the
	// result.
	notify func(method string, params []byte)

	// sendKept sends a message that must not be dropped, such as a question; nil as for notify.
	sendKept func(message []byte)
}

// An rpcAnswer is a result or a failure. It is neither if the client no longer wants an answer.
type rpcAnswer struct {
	result  []byte   // an object, or its beginning
	spare   int      // bytes of result's capacity that may be written to; 0 if rest is part of the same memory
	rest    [][]byte // what follows result
	release func()   // gives back the memory of both; nil if it need not be given back
	failure *failure
}

func (a rpcAnswer) none() bool { return a.result == nil && a.failure == nil }

// message returns the answer as one message in new memory.
func (a rpcAnswer) message(id []byte) []byte { return bytes.Join(a.parts(id), nil) }

// parts returns the message in parts, so that a large result is not copied.
func (a rpcAnswer) parts(id []byte) [][]byte {
	if a.failure != nil {
		return [][]byte{a.failure.envelope(id)}
	}
	frame := wire.AppendResult(make([]byte, 0, len(id)+64), id, nil) // the result goes before the last byte
	last := len(frame) - 1
	parts := append(make([][]byte, 0, 3+len(a.rest)), frame[:last], a.result)
	parts = append(append(parts, a.rest...), frame[last:])
	n := 0
	for _, b := range parts[2:] {
		n += len(b)
	}
	if n <= a.spare { // a write of a few bytes costs as much as one of many
		for _, b := range parts[2:] {
			parts[1] = append(parts[1], b...)
		}
		parts = parts[:2]
	}
	return parts
}

// whole returns the result in one piece.
func (a rpcAnswer) whole() []byte {
	if a.rest == nil {
		return a.result
	}
	return slices.Concat(a.result, bytes.Join(a.rest, nil))
}

// done must be called at most once, when nothing reads the answer any more.
func (a rpcAnswer) done() {
	if a.release != nil {
		a.release()
	}
}

// dispatch answers every request except subscriptions/listen. It contains a panic to its request. A
// client that has cancelled or disconnected gets no answer; a client gets one if its request ends
// because Switchboard stops. cancel cancels ctx. The caller must call it when the answer has been
// sent.
func (g *Gateway) dispatch(ctx context.Context, cancel context.CancelCauseFunc, q *clientRequest) (a rpcAnswer) {
	g.requests.add(q, cancel)
	defer g.requests.remove(q)
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("panic while answering", "method", q.Method, "tenant", q.principal.Tenant, "panic", p, "stack", string(debug.Stack()))
			a = rpcAnswer{failure: internalFailure}
		}
		switch {
		case ctx.Err() == nil:
		case !errors.Is(context.Cause(ctx), errStopping):
			a = rpcAnswer{} // the client does not want it any more
		case a.failure == internalFailure:
			a.failure = failureOf(errStopping)
		}
		g.countFailure(a.failure)
	}()
	if q.modern {
		if f := checkMeta(q); f != nil {
			return rpcAnswer{failure: f}
		}
	}
	if token, ok := q.Meta(wire.MetaProgressToken); ok && !isToken(token) {
		return rpcAnswer{failure: invalidParams("params._meta.progressToken must be a string or an integer; leave it out if you want no progress")}
	}
	switch q.Method {
	case wire.MethodInitialize:
		return g.answerInitialize(ctx, q)
	case wire.MethodDiscover:
		return g.describeSelf(ctx, q)
	case wire.MethodPing:
		return g.answerByLibrary(ctx, q)
	case wire.MethodSetLevel:
		return g.saveWish(ctx, q, g.answerByLibrary(ctx, q))
	case wire.MethodToolsCall:
		return g.callTool(ctx, q)
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		if !q.modern {
			return g.saveWish(ctx, q, g.answerSubscribe(ctx, q))
		}
		return rpcAnswer{failure: methodNotFound(q.Method)}
	}
	if k, ok := kinds[q.Method]; ok {
		return g.answerList(ctx, q, k)
	}
	return g.relayToServer(ctx, q)
}

// saveWish saves the session, and then answers with a: a replica that takes the session over must
// know what the client subscribed to. If the store fails, the session is saved later.
func (g *Gateway) saveWish(ctx context.Context, q *clientRequest, a rpcAnswer) rpcAnswer {
	if q.saveSession == nil || a.failure != nil {
		return a
	}
	if err := q.saveSession(ctx); errors.Is(err, store.ErrConflict) {
		return g.errorAnswer(q, switchboard.Unavailable("another replica has just taken the session over, so nothing was done", err))
	}
	return a
}

// answerInitialize binds the run of a legacy client before it answers. So a task that cannot start
// is reported in the answer to initialize.
func (g *Gateway) answerInitialize(ctx context.Context, q *clientRequest) rpcAnswer {
	if !q.modern {
		if version, ok := q.Param("protocolVersion"); !ok || version[0] != '"' {
			return rpcAnswer{failure: invalidParams("initialize: params.protocolVersion must be a string")}
		}
		capabilities, _ := q.Param("capabilities")
		q.client.setCapabilities(capabilities)
		if _, err := q.bind(ctx); err != nil {
			return g.errorAnswer(q, err)
		}
	}
	return g.describeSelf(ctx, q)
}

// discoverPatience is how long server/discover waits for the servers' declarations. Clients that
// get no answer soon assume that we speak the other era.
const discoverPatience = time.Second

// describeSelf answers with the capabilities of Switchboard and of the run's servers.
func (g *Gateway) describeSelf(ctx context.Context, q *clientRequest) rpcAnswer {
	a := g.answerByLibrary(ctx, q)
	if a.failure != nil {
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, discoverPatience)
	defer cancel()
	r, err := q.bind(ctx)
	if err != nil {
		return a // the client's next request gets the reason
	}
	s := r.Surface()
	var edits []wire.Edit
	own, _ := wire.Field(a.result, "capabilities")
	if all := s.Capabilities(own, q.modern); len(all) > len(own) {
		edits = append(edits, wire.Edit{Name: "capabilities", Value: all})
	}
	if text := s.Instructions(); text != "" {
		g.meter.Charge(r.Bill(), run.Instructions, []byte(text))
		edits = append(edits, wire.Edit{Name: "instructions", Value: wire.AppendString(nil, text)})
	}
	if edits != nil {
		a.result = wire.Rewrite(nil, a.result, edits...)
	}
	return a
}

// answerList answers with finished bytes, unless a policy depends on the time.
func (g *Gateway) answerList(ctx context.Context, q *clientRequest, k switchboard.Kind) rpcAnswer {
	if cursor, ok := q.Param("cursor"); ok && string(cursor) != "null" && string(cursor) != `""` {
		return rpcAnswer{failure: invalidParams("no such cursor: this list has one page")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return g.errorAnswer(q, err)
	}
	g.runs.AwaitOffers(ctx, r)
	g.runs.Refresh(ctx, r)
	if err := r.Err(); err != nil && !errors.As(err, new(*run.Starting)) {
		return g.errorAnswer(q, err)
	}
	s := r.Surface()
	list := s.List(k, q.modern)
	if k == switchboard.Tools {
		g.runs.Listed(ctx, r, q.clientOf(r), s.Table(q.modern))
		g.meter.ChargeList(r.Bill(), s, q.modern, list)
	}
	return rpcAnswer{result: list}
}

// clientOf returns an id of the client among those of a base run, made from the name and version
// that it gives. Clients with the same name and version share what they were shown. A minted run
// has one client, with the id "".
func (q *clientRequest) clientOf(r *run.Run) string {
	if r.ID() != "" {
		return ""
	}
	info, ok := q.Meta(wire.MetaClientInfo)
	if !ok {
		return ""
	}
	name, _ := memberOf(info, "name")
	version, _ := memberOf(info, "version")
	sum := sha256.Sum256(slices.Concat(name, []byte{0}, version))
	return hex.EncodeToString(sum[:clientDigits/2])
}

// clientDigits is the number of hexadecimal digits in the id of a client of a base run.
const clientDigits = 16

// StartWait is how long a request waits for servers that are starting, if it is not known which of
// them the request needs. Most clients give a call a minute.
const StartWait = 50 * time.Second

// awaitServers waits for servers that are starting, as long as the run therefore shows only our own
// tools, or does not show what the request needs.
func (g *Gateway) awaitServers(ctx context.Context, r *run.Run, most time.Duration, shows func(*surface.Surface) bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	g.runs.Await(ctx, r, func() bool {
		err := r.Err()
		return err != nil && !errors.As(err, new(*run.Starting)) || err == nil && shows(r.Surface())
	})
}

// whyUnmet returns why the run shows nothing, or nil if it shows something.
func (g *Gateway) whyUnmet(ctx context.Context, r *run.Run) error {
	if r.Err() != nil {
		g.runs.Refresh(ctx, r)
	}
	return r.Err()
}

// ownMeta returns the _meta of a modern result that Switchboard itself gives.
func (g *Gateway) ownMeta(more ...string) []byte {
	m := append([]byte(`{"`+wire.MetaServerInfo+`":`), g.serverInfo...)
	for _, s := range more {
		m = append(append(m, ','), s...)
	}
	return append(m, '}')
}

// memberOf returns a member of params, which may be nil.
func memberOf(params []byte, name string) ([]byte, bool) {
	if params == nil {
		return nil, false
	}
	return wire.Field(params, name)
}

// metaVersion returns the protocol version in params._meta, or "".
func metaVersion(m *wire.Message) string {
	raw, ok := m.Meta(wire.MetaProtocolVersion)
	if !ok {
		return ""
	}
	version, _ := wire.String(raw)
	return version
}

// checkMeta checks what each modern request must say about its client, except the version.
func checkMeta(q *clientRequest) *failure {
	if caps, ok := q.Meta(wire.MetaClientCapabilities); !ok || caps[0] != '{' {
		return invalidParams("params._meta must hold " + wire.MetaClientCapabilities + ", an object; {} means none")
	}
	if raw, ok := q.Meta(wire.MetaLogLevel); ok {
		if level, _ := wire.String(raw); severity(level) < 0 {
			return invalidParams("params._meta: " + wire.MetaLogLevel + " must be one of debug, info, notice, warning, error, critical, alert, emergency")
		}
	}
	return nil
}

// logLevels are the severities of log messages, lowest first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func severity(level string) int { return slices.Index(logLevels, level) }

// Why a request ended early.
var (
	errCancelled = errors.New("cancelled by the client")
	errStopping  = &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "Switchboard is stopping", RetryAfter: time.Second}
)

// An openRequests holds the cancel functions of the requests in flight. To derive each context from
// a common one would cost several times as much. The zero value is empty.
type openRequests struct {
	mu      sync.Mutex
	cancels map[*clientRequest]context.CancelCauseFunc
	ended   error
}

func (o *openRequests) add(q *clientRequest, cancel context.CancelCauseFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cancels == nil {
		o.cancels = map[*clientRequest]context.CancelCauseFunc{}
	}
	o.cancels[q] = cancel
	if o.ended != nil {
		cancel(o.ended)
	}
}

func (o *openRequests) remove(q *clientRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.cancels, q)
}

// cancelAll cancels the requests in flight, and all that are added later.
func (o *openRequests) cancelAll(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = why
	for _, cancel := range o.cancels {
		cancel(why)
	}
}

// A drainGate counts the requests in flight, and admits none once it is shut. Every request passes
// it, so it has no lock. Use newGate.
type drainGate struct {
	entered atomic.Int64
	closed  atomic.Bool
	once    sync.Once
	idle    chan struct{} // closed when the gate is shut and all requests have left
}

func newGate() *drainGate { return &drainGate{idle: make(chan struct{})} }

// enter admits a request, unless the gate is shut. After true, the caller must call leave.
func (g *drainGate) enter() bool {
	g.entered.Add(1) // first count, then look: shut does it in the other order
	if g.closed.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *drainGate) leave() {
	if g.entered.Add(-1) == 0 && g.closed.Load() {
		g.once.Do(func() { close(g.idle) })
	}
}

func (g *drainGate) shut() {
	g.entered.Add(1)
	g.closed.Store(true)
	g.leave()
}

// A requestTable holds the requests in flight of one client, by id. The zero value is empty.
type requestTable struct {
	mu    sync.Mutex
	m     map[string]context.CancelCauseFunc
	ended error
}

// add adds a request. It returns a failure if a request with this id is in flight, or too many are.
func (f *requestTable) add(id []byte, cancel context.CancelCauseFunc) *failure {
	key, _ := wire.IDKey(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.m[key]; ok {
		return &failure{code: wire.CodeInvalidRequest, message: "a request with this id is still in flight; use another id"}
	}
	if len(f.m) >= MaxInFlight {
		return failureOf(switchboard.Refuse(switchboard.CodeOverloaded, "%d requests of this session are in flight, its limit; wait for some to end", MaxInFlight))
	}
	if f.m == nil {
		f.m = map[string]context.CancelCauseFunc{}
	}
	f.m[key] = cancel
	if f.ended != nil {
		cancel(f.ended)
	}
	return nil
}

// cancelAll cancels the requests in flight, and all that are added later.
func (f *requestTable) cancelAll(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = why
	for _, cancel := range f.m {
		cancel(why)
	}
}

func (f *requestTable) remove(id []byte) {
	key, _ := wire.IDKey(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, key)
}

// cancel cancels the request that the params of notifications/cancelled name, and reports whether
// it is in flight.
func (f *requestTable) cancel(params []byte) bool {
	id, _ := memberOf(params, "requestId")
	key, ok := wire.IDKey(id)
	if !ok {
		return false
	}
	f.mu.Lock()
	cancel := f.m[key]
	f.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel(errCancelled)
	return true
}
