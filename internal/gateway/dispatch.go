package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A clientRequest is one request of a client, with the means to answer it.
type clientRequest struct {
	*wire.Message
	modern    bool
	principal switchboard.Principal
	client    *session.ClientState // nil over HTTP in the modern era, which has requests but no clients
	bind      runBinder

	// saveSession saves in the store what the client subscribes to; nil if that ends with the
	// connection. See session.Replicator.Save.
	saveSession func(context.Context) error

	// header holds the HTTP headers; nil on stdio.
	header http.Header

	// sender sends the client messages before the result; nil if the client takes only the result.
	sender earlySender
}

// An earlySender sends a client messages before the result of its request.
type earlySender interface {
	// notify sends a notification. It may drop it if the client reads too slowly.
	notify(method string, params []byte)

	// sendKept sends a message that must not be dropped, such as a question.
	sendKept(message []byte)
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

// A dispatcher answers the requests of both eras and both transports, by method.
type dispatcher struct {
	library   *server.MCPServer // answers what concerns only Switchboard itself
	runs      *run.Runs
	finder    *runFinder
	tools     *toolCaller
	forwarder *forwarder
	notifier  *changeNotifier
	meter     *run.Meter
	enc       *encoder
	log       *slog.Logger
	requests  openRequests
}

// dispatch answers every request except subscriptions/listen. It contains a panic to its request. A
// client that has cancelled or disconnected gets no answer; a client gets one if its request ends
// because Switchboard stops. cancel cancels ctx. The caller must call it when the answer has been
// sent.
func (d *dispatcher) dispatch(ctx context.Context, cancel context.CancelCauseFunc, q *clientRequest) (a rpcAnswer) {
	d.requests.add(q, cancel)
	defer d.requests.remove(q)
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("panic while answering", "method", q.Method, "tenant", q.principal.Tenant, "panic", p, "stack", string(debug.Stack()))
			a = rpcAnswer{failure: internalFailure}
		}
		switch {
		case ctx.Err() == nil:
		case !errors.Is(context.Cause(ctx), errStopping):
			a = rpcAnswer{} // the client does not want it any more
		case a.failure == internalFailure:
			a.failure = failureOf(errStopping)
		}
		d.enc.countFailure(a.failure)
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
		return d.answerInitialize(ctx, q)
	case wire.MethodDiscover:
		return d.describeSelf(ctx, q)
	case wire.MethodPing:
		return d.answerByLibrary(ctx, q)
	case wire.MethodSetLevel:
		return d.saveWish(ctx, q, d.answerByLibrary(ctx, q))
	case wire.MethodToolsCall:
		return d.tools.callTool(ctx, q)
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		if !q.modern {
			return d.saveWish(ctx, q, d.notifier.answerSubscribe(ctx, q))
		}
		return rpcAnswer{failure: methodNotFound(q.Method)}
	}
	if k, ok := kinds[q.Method]; ok {
		return d.answerList(ctx, q, k)
	}
	return d.relayToServer(ctx, q)
}

// saveWish saves the session, and then answers with a: a replica that takes the session over must
// know what the client subscribed to. If the store fails, the session is saved later.
func (d *dispatcher) saveWish(ctx context.Context, q *clientRequest, a rpcAnswer) rpcAnswer {
	if q.saveSession == nil || a.failure != nil {
		return a
	}
	if err := q.saveSession(ctx); errors.Is(err, store.ErrConflict) {
		return d.enc.errorAnswer(q, switchboard.Unavailable("another replica has just taken the session over, so nothing was done", err))
	}
	return a
}

// answerInitialize binds the run of a legacy client before it answers. So a task that cannot start
// is reported in the answer to initialize.
func (d *dispatcher) answerInitialize(ctx context.Context, q *clientRequest) rpcAnswer {
	if !q.modern {
		if version, ok := q.Param("protocolVersion"); !ok || version[0] != '"' {
			return rpcAnswer{failure: invalidParams("initialize: params.protocolVersion must be a string")}
		}
		capabilities, _ := q.Param("capabilities")
		q.client.SetCapabilities(capabilities)
		if _, err := q.bind(ctx); err != nil {
			return d.enc.errorAnswer(q, err)
		}
	}
	return d.describeSelf(ctx, q)
}

// discoverPatience is how long initialize and server/discover wait for what the servers declare and say of themselves.
// Clients that get no answer soon assume that we speak the other era.
const discoverPatience = time.Second

// describeSelf answers with the capabilities of Switchboard and of the run's servers.
func (d *dispatcher) describeSelf(ctx context.Context, q *clientRequest) rpcAnswer {
	a := d.answerByLibrary(ctx, q)
	if a.failure != nil {
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, discoverPatience)
	defer cancel()
	r, err := q.bind(ctx)
	if err != nil {
		return a // the client's next request gets the reason
	}
	d.runs.AwaitServers(ctx, r, func() bool { return false })
	s := r.Surface()
	var edits []wire.Edit
	own, _ := wire.Field(a.result, "capabilities")
	if all := s.Capabilities(own, q.modern); len(all) > len(own) {
		edits = append(edits, wire.Edit{Name: "capabilities", Value: all})
	}
	if text := s.Instructions(); text != "" {
		d.meter.Charge(r.Bill(), run.Instructions, []byte(text))
		edits = append(edits, wire.Edit{Name: "instructions", Value: wire.AppendString(nil, text)})
	}
	if edits != nil {
		a.result = wire.Rewrite(nil, a.result, edits...)
	}
	return a
}

// answerList answers with finished bytes, unless a policy depends on the time.
func (d *dispatcher) answerList(ctx context.Context, q *clientRequest, k switchboard.Kind) rpcAnswer {
	if cursor, ok := q.Param("cursor"); ok && string(cursor) != "null" && string(cursor) != `""` {
		return rpcAnswer{failure: invalidParams("no such cursor: this list has one page")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return d.enc.errorAnswer(q, err)
	}
	d.runs.AwaitOffers(ctx, r)
	d.runs.Refresh(ctx, r)
	if err := r.Err(); err != nil && !errors.As(err, new(*run.Waiting)) {
		return d.enc.errorAnswer(q, err)
	}
	s := r.Surface()
	list := s.List(k, q.modern)
	if k == switchboard.Tools {
		d.runs.RecordListed(ctx, r, q.clientOf(r), s.Table(q.modern))
		d.meter.ChargeList(r.Bill(), s, q.modern, list)
		d.meter.NoteList(q.principal.Tenant, s, q.modern)
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
		if level, _ := wire.String(raw); session.Severity(level) < 0 {
			return invalidParams("params._meta: " + wire.MetaLogLevel + " must be one of debug, info, notice, warning, error, critical, alert, emergency")
		}
	}
	return nil
}

// errStopping ends the requests that are in flight when Switchboard stops.
var (
	errStopping = &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "Switchboard is stopping", RetryAfter: time.Second}
)
