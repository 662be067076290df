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

// A request is one request of a client, with what answering it takes.
type request struct {
	*wire.Message
	modern    bool
	principal switchboard.Principal
	client    *client // nil over HTTP where modern: that has no clients, only requests
	bind      binder

	// keep has it kept what the client wishes to hear of; nil where that ends with the
	// connection. See Gateway.keep.
	keep func(context.Context) error

	// header is what the request came with over HTTP; nil on stdio.
	header http.Header

	// notify tells the client something before the result; nil where the
	// client takes nothing but the result.
	notify func(method string, params []byte)

	// send tells it what may not be dropped, such as a question; nil likewise.
	send func(message []byte)
}

// An answer is a result or a failure; or neither, where the client no longer
// wants one.
type answer struct {
	result  []byte   // an object, or how it begins
	spare   int      // of its capacity, which can be written to; not 0 only where rest is memory of its own
	rest    [][]byte // how it goes on
	release func()   // takes the memory of both back; nil where there is no need
	failure *failure
}

func (a answer) none() bool { return a.result == nil && a.failure == nil }

// message returns the answer as a message of its own memory.
func (a answer) message(id []byte) []byte { return bytes.Join(a.parts(id), nil) }

// parts returns the answer as the parts of a message, so that a big result need
// not be copied into one.
func (a answer) parts(id []byte) [][]byte {
	if a.failure != nil {
		return [][]byte{a.failure.envelope(id)}
	}
	frame := wire.AppendResult(make([]byte, 0, len(id)+64), id, nil) // the result stands before its last byte
	last := len(frame) - 1
	parts := append(make([][]byte, 0, 3+len(a.rest)), frame[:last], a.result)
	parts = append(append(parts, a.rest...), frame[last:])
	n := 0
	for _, b := range parts[2:] {
		n += len(b)
	}
	if n <= a.spare { // to write a few bytes by themselves costs as much as to write many
		for _, b := range parts[2:] {
			parts[1] = append(parts[1], b...)
		}
		parts = parts[:2]
	}
	return parts
}

// whole returns the result in one piece.
func (a answer) whole() []byte {
	if a.rest == nil {
		return a.result
	}
	return slices.Concat(a.result, bytes.Join(a.rest, nil))
}

// done is called when nothing reads the answer any more, that is at most once.
func (a answer) done() {
	if a.release != nil {
		a.release()
	}
}

// answer answers q, but for subscriptions/listen. A panic is that request's
// alone. A client that has cancelled, or gone, gets no answer; one whose request
// ends because we stop does. cancel is that of ctx, for which the caller sees to
// it that it is called once the answer is sent.
func (g *Gateway) answer(ctx context.Context, cancel context.CancelCauseFunc, q *request) (a answer) {
	g.open.add(q, cancel)
	defer g.open.remove(q)
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("panic while answering", "method", q.Method, "tenant", q.principal.Tenant, "panic", p, "stack", string(debug.Stack()))
			a = answer{failure: internal}
		}
		switch {
		case ctx.Err() == nil:
		case !errors.Is(context.Cause(ctx), errStopping):
			a = answer{} // nobody waits for it any more
		case a.failure == internal:
			a.failure = refused(errStopping)
		}
		g.count(a.failure)
	}()
	if q.modern {
		if f := checkMeta(q); f != nil {
			return answer{failure: f}
		}
	}
	if token, ok := q.Meta(wire.MetaProgressToken); ok && !isToken(token) {
		return answer{failure: invalidParams("params._meta.progressToken must be a string or an integer; leave it out where no progress is wanted")}
	}
	switch q.Method {
	case wire.MethodInitialize:
		return g.initialize(ctx, q)
	case wire.MethodDiscover:
		return g.introduce(ctx, q)
	case wire.MethodPing:
		return g.ask(ctx, q)
	case wire.MethodSetLevel:
		return g.wished(ctx, q, g.ask(ctx, q))
	case wire.MethodToolsCall:
		return g.call(ctx, q)
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		if !q.modern {
			return g.wished(ctx, q, g.subscribing(ctx, q))
		}
		return answer{failure: noMethod(q.Method)}
	}
	if k, ok := kinds[q.Method]; ok {
		return g.list(ctx, q, k)
	}
	return g.relay(ctx, q)
}

// wished answers with a, once it is kept what the client wishes to hear of: where the
// session goes on elsewhere, that is known there. Where the store fails, it is kept
// later.
func (g *Gateway) wished(ctx context.Context, q *request, a answer) answer {
	if q.keep == nil || a.failure != nil {
		return a
	}
	if err := q.keep(ctx); errors.Is(err, store.ErrConflict) {
		return g.refusal(q, switchboard.Unavailable("the session has just gone on at another replica, so nothing was done", err))
	}
	return a
}

// initialize binds the run of a legacy client before it is told that it is
// welcome, so that a task that cannot start is said where it was asked for.
func (g *Gateway) initialize(ctx context.Context, q *request) answer {
	if !q.modern {
		if version, ok := q.Param("protocolVersion"); !ok || version[0] != '"' {
			return answer{failure: invalidParams("initialize: params.protocolVersion must be a string")}
		}
		capabilities, _ := q.Param("capabilities")
		q.client.declare(capabilities)
		if _, err := q.bind(ctx); err != nil {
			return g.refusal(q, err)
		}
	}
	return g.introduce(ctx, q)
}

// discoverPatience is how long server/discover waits for what servers declare:
// clients that hear nothing soon take us for one of the other era.
const discoverPatience = time.Second

// introduce says what we can do, and what the servers of the run can besides.
func (g *Gateway) introduce(ctx context.Context, q *request) answer {
	a := g.ask(ctx, q)
	if a.failure != nil {
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, discoverPatience)
	defer cancel()
	r, err := q.bind(ctx)
	if err != nil {
		return a // why is said when it asks for something
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

// list answers with bytes that are finished already, but where policy looks at
// the clock.
func (g *Gateway) list(ctx context.Context, q *request, k switchboard.Kind) answer {
	if cursor, ok := q.Param("cursor"); ok && string(cursor) != "null" && string(cursor) != `""` {
		return answer{failure: invalidParams("no such cursor: this list has one page")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return g.refusal(q, err)
	}
	g.runs.AwaitOffers(ctx, r)
	g.runs.Refresh(ctx, r)
	if err := r.Err(); err != nil && !errors.As(err, new(*run.Starting)) {
		return g.refusal(q, err)
	}
	s := r.Surface()
	list := s.List(k, q.modern)
	if k == switchboard.Tools {
		g.runs.Listed(ctx, r, q.clientOf(r), s.Table(q.modern))
		g.meter.ChargeList(r.Bill(), s, q.modern, list)
	}
	return answer{result: list}
}

// clientOf tells the clients of a base run apart, by what they say of themselves: those that say the
// same share what they were shown. A minted run has one client.
func (q *request) clientOf(r *run.Run) string {
	if r.ID() != "" {
		return ""
	}
	info, ok := q.Meta(wire.MetaClientInfo)
	if !ok {
		return ""
	}
	name, _ := field(info, "name")
	version, _ := field(info, "version")
	sum := sha256.Sum256(slices.Concat(name, []byte{0}, version))
	return hex.EncodeToString(sum[:clientDigits/2])
}

// clientDigits are the hexadecimal digits that a client of a base run is known by.
const clientDigits = 16

// StartWait is how long a request waits for servers that are starting, while it is not
// known which of them it is for. Most clients give a call a minute.
const StartWait = 50 * time.Second

// awaitServers waits for servers that are starting, while the run shows only our own
// tools for want of them, or does not show what the request is for.
func (g *Gateway) awaitServers(ctx context.Context, r *run.Run, most time.Duration, shows func(*surface.Surface) bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	g.runs.Await(ctx, r, func() bool {
		err := r.Err()
		return err != nil && !errors.As(err, new(*run.Starting)) || err == nil && shows(r.Surface())
	})
}

// met returns why the run shows nothing, where that is so now.
func (g *Gateway) met(ctx context.Context, r *run.Run) error {
	if r.Err() != nil {
		g.runs.Refresh(ctx, r)
	}
	return r.Err()
}

// meta is the _meta of a modern result of our own.
func (g *Gateway) meta(more ...string) []byte {
	m := append([]byte(`{"`+wire.MetaServerInfo+`":`), g.info...)
	for _, s := range more {
		m = append(append(m, ','), s...)
	}
	return append(m, '}')
}

// field returns a member of params, which may be nil.
func field(params []byte, name string) ([]byte, bool) {
	if params == nil {
		return nil, false
	}
	return wire.Field(params, name)
}

// metaVersion returns the version that params._meta names, or "".
func metaVersion(m *wire.Message) string {
	raw, ok := m.Meta(wire.MetaProtocolVersion)
	if !ok {
		return ""
	}
	version, _ := wire.String(raw)
	return version
}

// checkMeta checks what each modern request has to say of its client besides
// the version.
func checkMeta(q *request) *failure {
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

// levels are the severities of log messages, least first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func severity(level string) int { return slices.Index(levels, level) }

// Why a request ends before it is done.
var (
	errCancelled = errors.New("cancelled by the client")
	errStopping  = &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "Switchboard is stopping", RetryAfter: time.Second}
)

// Open are the requests that are under way. A context of its own that each hung
// on would cost several times as much. The zero value is empty.
type open struct {
	mu    sync.Mutex
	m     map[*request]context.CancelCauseFunc
	ended error
}

func (o *open) add(q *request, cancel context.CancelCauseFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.m == nil {
		o.m = map[*request]context.CancelCauseFunc{}
	}
	o.m[q] = cancel
	if o.ended != nil {
		cancel(o.ended)
	}
}

func (o *open) remove(q *request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.m, q)
}

// end ends what is under way, and what comes after.
func (o *open) end(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = why
	for _, cancel := range o.m {
		cancel(why)
	}
}

// A gate counts who is in, and lets nobody in once it is shut. It is on the path
// of every request, and so has no lock. Use newGate.
type gate struct {
	n      atomic.Int64
	closed atomic.Bool
	once   sync.Once
	idle   chan struct{} // closed once it is shut and all have left
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// enter counts one more, unless the gate is shut. Whoever is in has to leave.
func (g *gate) enter() bool {
	g.n.Add(1) // before it looks: shut looks after it has shut
	if g.closed.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.n.Add(-1) == 0 && g.closed.Load() {
		g.once.Do(func() { close(g.idle) })
	}
}

func (g *gate) shut() {
	g.n.Add(1)
	g.closed.Store(true)
	g.leave()
}

// A flight is the requests of one client that are under way, by id. The zero
// flight is empty.
type flight struct {
	mu    sync.Mutex
	m     map[string]context.CancelCauseFunc
	ended error
}

// enter notes a request. It is refused where one with the same id is under way,
// or too many are.
func (f *flight) enter(id []byte, cancel context.CancelCauseFunc) *failure {
	key, _ := wire.IDKey(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.m[key]; ok {
		return &failure{code: wire.CodeInvalidRequest, message: "a request with this id is still under way; use another id"}
	}
	if len(f.m) >= MaxInFlight {
		return refused(switchboard.Refuse(switchboard.CodeOverloaded, "%d requests of this session are under way, which is all that it may have; wait for some to end", MaxInFlight))
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

// end ends what is under way, and what comes after.
func (f *flight) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = why
	for _, cancel := range f.m {
		cancel(why)
	}
}

func (f *flight) leave(id []byte) {
	key, _ := wire.IDKey(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, key)
}

// cancelled does what the params of notifications/cancelled ask for, and reports whether
// that request is under way.
func (f *flight) cancelled(params []byte) bool {
	id, _ := field(params, "requestId")
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
