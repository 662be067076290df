package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// greeting is the text for a person who opens the address in a browser.
const greeting = `This is Switchboard: one MCP server in front of others.

MCP is at /mcp, and at /mcp/tasks/TASK for one task. Give that address to an MCP client.
There is no page to look at. On this machine, "switchboard status" says how it is.`

// An endpoint is what a path leads to.
type endpoint uint8

const (
	endpointNone endpoint = iota
	endpointMCP
	endpointRuns // mints runs
	endpointHealth
	endpointReady
	endpointMetrics
	endpointInspect
	endpointOperate
)

// endpointMethods are the HTTP methods that each endpoint takes.
var endpointMethods = [...][]string{
	endpointMCP:     {http.MethodGet, http.MethodPost, http.MethodDelete},
	endpointRuns:    {http.MethodPost},
	endpointHealth:  {http.MethodGet, http.MethodHead},
	endpointReady:   {http.MethodGet, http.MethodHead},
	endpointMetrics: {http.MethodGet},
	endpointInspect: {http.MethodGet},
	endpointOperate: {http.MethodPost},
}

// Header values that most answers share. They are never modified.
var (
	nosniff   = []string{"nosniff"}
	noStore   = []string{"no-store"}
	mediaJSON = []string{"application/json"}
)

// routePath returns the endpoint of a path, in the only spelling that is accepted, and the task or
// run in it.
func routePath(path string) (endpoint, runTarget) {
	switch path {
	case "/mcp":
		return endpointMCP, runTarget{}
	case "/healthz":
		return endpointHealth, runTarget{}
	case "/readyz":
		return endpointReady, runTarget{}
	case "/metrics":
		return endpointMetrics, runTarget{}
	}
	if id, ok := strings.CutPrefix(path, "/mcp/tasks/"); ok && isSegment(id) {
		return endpointMCP, runTarget{task: switchboard.TaskID(id)}
	}
	if id, ok := strings.CutPrefix(path, "/mcp/runs/"); ok && isSegment(id) {
		return endpointMCP, runTarget{run: switchboard.RunID(id)}
	}
	if rest, ok := strings.CutPrefix(path, "/v1/tasks/"); ok {
		if id, ok := strings.CutSuffix(rest, "/runs"); ok && isSegment(id) {
			return endpointRuns, runTarget{task: switchboard.TaskID(id)}
		}
	}
	if rest, ok := strings.CutPrefix(path, "/v1/servers/"); ok {
		if id, what, ok := strings.Cut(rest, "/"); ok && isSegment(id) && slices.Contains(operations, what) {
			return endpointOperate, runTarget{}
		}
	}
	return endpointNone, runTarget{}
}

// operations are the actions of Options.Operate.
var operations = []string{"disable", "enable", "restart"}

// isSegment reports whether s is one path segment without escapes. Whether it names something is
// decided after authentication.
func isSegment(s string) bool { return s != "" && !strings.ContainsAny(s, "/%") }

// ServeHTTP answers MCP at /mcp, /mcp/tasks/<id> and /mcp/runs/<id>, mints runs at POST
// /v1/tasks/<id>/runs, answers operators, and answers GET /healthz and GET /readyz without
// authentication.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler: // an answer that another replica gives was cut off, or its client has disconnected
			panic(p)
		default:
			g.log.Error("panic while serving", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler) // the client must not take the bytes so far for an answer
		}
	}()
	// Clear the deadline of an earlier request on this connection.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	h := w.Header()
	h["X-Content-Type-Options"], h["Cache-Control"] = nosniff, noStore
	if endsUnchecked(r) {
		h.Set("Connection", "close")
	}

	path := r.URL.EscapedPath()
	where, t := routePath(path)
	if where == endpointNone && g.operators != nil && g.operators.Read(path) != nil {
		where = endpointInspect
	}
	if where == endpointNone || g.operators == nil && (where == endpointMetrics || where == endpointOperate) {
		text := "nothing is here; MCP is at /mcp"
		if path == "/" {
			text = greeting
		}
		http.Error(w, text, http.StatusNotFound)
		return
	}
	why := g.callers.allowed.Load().refusalReason(r)
	if why == "" && where == endpointOperate && isFromPage(r) {
		why = "a web page may not do what operators do; use the command switchboard server"
	}
	if why != "" {
		g.log.Warn("refused a request", "why", why, "host", shorten(r.Host), "origin", shorten(r.Header.Get("Origin")), "remote", r.RemoteAddr)
		g.refuse(w, where, http.StatusForbidden, nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "%s", why))
		return
	}
	if g.answerCORS(w, r) {
		return
	}
	if allow := endpointMethods[where]; !slices.Contains(allow, r.Method) {
		notAllowed(w, allow...)
		return
	}
	switch where {
	case endpointHealth:
		g.serveHealth(w)
		return
	case endpointReady:
		g.serveReady(w)
		return
	}
	p, err := g.callers.authenticator.Authenticate(r)
	if err != nil {
		g.refuseCaller(w, r, where, err)
		return
	}
	if g.stop.begun() {
		h.Set("Connection", "close") // the client's next connection reaches the process that replaces this one
	}
	x := &exchange{g: g, w: w, r: r, where: where, principal: p, target: t}
	switch where {
	case endpointRuns:
		if x.enterOrRefuse() {
			defer g.stop.gate.leave()
			x.serveRuns()
		}
		return
	case endpointMetrics:
		x.serveMetrics()
		return
	case endpointInspect:
		x.serveInspect()
		return
	case endpointOperate:
		if x.enterOrRefuse() {
			defer g.stop.gate.leave()
			x.serveOperate()
		}
		return
	}
	switch r.Method {
	case http.MethodPost:
		x.servePost()
	case http.MethodGet:
		x.serveGet()
	case http.MethodDelete:
		x.serveDelete()
	}
}

// enterOrRefuse admits the request to the gate, or answers that Switchboard is stopping. After true,
// the caller must call gate.leave.
func (x *exchange) enterOrRefuse() bool {
	if x.g.stop.gate.enter() {
		return true
	}
	if _, hop := cluster.Principal(x.r); hop {
		cluster.NotHere(x.w) // the replica that forwarded it takes over
		return false
	}
	x.w.Header().Set("Retry-After", "1")
	x.w.Header().Set("Connection", "close")
	x.refuseWith(http.StatusServiceUnavailable, errStopping)
	return false
}

// isStillAllowed reports whether the request would still be authenticated as the same principal. It
// returns false for a revoked key.
func (x *exchange) isStillAllowed() bool {
	now, err := x.g.callers.authenticator.Authenticate(x.r)
	return err == nil && session.KeyOf(now) == session.KeyOf(x.principal)
}

// endsUnchecked reports whether Heads cannot tell where r ends, which is so after a
// Transfer-Encoding. net/http removes that header from HTTP/1.0 requests, so all of those count.
// Nothing that follows on the connection may be read: Heads relies on that.
func endsUnchecked(r *http.Request) bool {
	return len(r.TransferEncoding) > 0 || r.ProtoMajor == 1 && r.ProtoMinor == 0
}

// serveHealth answers supervisors, which kill a process that does not answer. Nothing is a reason
// for that, nor is a drain of the calls in flight.
func (g *Gateway) serveHealth(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// serveReady answers load balancers. A process that is not ready need not be killed: see
// serveHealth.
func (g *Gateway) serveReady(w http.ResponseWriter) {
	status := http.StatusServiceUnavailable
	ready, text := g.tasks.Ready()
	switch {
	case g.stop.begun():
		text = []byte(`{"ready":false,"stopping":true}`)
	case ready:
		status = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	writeAll(w, status, text)
}

// notAllowed answers a request that uses another HTTP method than these.
func notAllowed(w http.ResponseWriter, methods ...string) {
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	http.Error(w, "allowed methods: "+allow, http.StatusMethodNotAllowed)
}

// refuseCaller answers a request that was not authenticated or is not authorized. It
// delays callers that fail often.
func (g *Gateway) refuseCaller(w http.ResponseWriter, r *http.Request, where endpoint, err error) {
	var e *switchboard.Error
	if !errors.As(err, &e) {
		g.log.Error("cannot authenticate a caller", "err", err)
		e = switchboard.Refuse(switchboard.CodeNotAuthenticated, "the caller could not be authenticated; the log output of Switchboard says why")
	}
	wait, tell := g.callers.failures.count(Network(r.RemoteAddr))
	if tell > 0 {
		g.log.Warn("refused a caller", "code", e.Code, "why", e, "remote", r.RemoteAddr, "failures", tell)
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
		case <-g.stop.closing:
		}
	}
	if httpStatus(e.Code) == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	g.refuse(w, where, httpStatus(e.Code), nil, e)
}

// refuse answers with e in the form of the endpoint: JSON-RPC with the id, or problem details.
func (g *Gateway) refuse(w http.ResponseWriter, where endpoint, status int, id []byte, e *switchboard.Error) {
	if where == endpointMCP {
		g.writeFailure(w, status, id, failureOf(e))
		return
	}
	g.enc.recorder.Refused(e.Code)
	w.Header().Set("Content-Type", "application/problem+json")
	writeAll(w, status, problem(status, e))
}

// writeFailure answers with a JSON-RPC error; a nil id is null.
func (g *Gateway) writeFailure(w http.ResponseWriter, status int, id []byte, f *failure) {
	g.enc.countFailure(f)
	w.Header().Set("Content-Type", "application/json")
	writeAll(w, status, f.envelope(id))
}

// countFailure counts f if it is a refusal.
func (enc *encoder) countFailure(f *failure) {
	if f != nil && f.refusal != "" {
		enc.recorder.Refused(f.refusal)
	}
}

// serveMetrics answers GET /metrics.
func (x *exchange) serveMetrics() {
	kind, text, err := x.g.operators.Metrics(x.principal, x.r.Header)
	if err != nil {
		x.g.log.Error("metrics", "err", err)
		http.Error(x.w, internalFailure.message, http.StatusInternalServerError)
		return
	}
	x.w.Header().Set("Content-Type", kind)
	writeAll(x.w, http.StatusOK, text)
}

// maxReason is the maximum length of an operator's reason, in bytes.
const maxReason = 500

// serveOperate disables, enables or restarts a server. It demands a JSON content type even for an
// empty body, because a page of another origin cannot send one without a preflight request.
func (x *exchange) serveOperate() {
	bad := func(status int, why string) {
		x.refuseWith(status, &switchboard.Error{Text: why})
	}
	if why := notJSON(x.w, x.r); why != "" {
		bad(http.StatusUnsupportedMediaType, why)
		return
	}
	x.memory = x.g.accounts.newHold(x.principal)
	defer x.memory.release()
	body, ok := x.readBody()
	if !ok {
		return
	}
	var wish struct {
		Reason string `json:"reason"`
	}
	if len(body) > 0 {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&wish); err != nil || dec.More() || len(wish.Reason) > maxReason {
			bad(http.StatusBadRequest, fmt.Sprintf("the body must be empty, or an object with the one member reason, a string of at most %d bytes", maxReason))
			return
		}
	}
	id, what, _ := strings.Cut(strings.TrimPrefix(x.r.URL.EscapedPath(), "/v1/servers/"), "/")
	text, err := x.g.operators.Operate(x.principal, x.r.Header, switchboard.ServerID(id), what, wish.Reason)
	x.answerOperator(text, err)
}

// serveInspect answers one of the operators' reads.
func (x *exchange) serveInspect() {
	text, err := x.g.operators.Read(x.r.URL.EscapedPath())(x.r.Context(), x.principal, x.r.URL.Query())
	x.answerOperator(text, err)
}

// answerOperator answers with JSON, or with problem details if err is set.
func (x *exchange) answerOperator(text []byte, err error) {
	if err != nil {
		e, ok := errors.AsType[*switchboard.Error](err)
		if !ok {
			x.g.log.Error("not answered", "path", x.r.URL.Path, "err", err)
			e = switchboard.Refuse(switchboard.CodeTaskRefused, "this could not be answered; the log output of Switchboard says why")
		}
		x.refuseWith(httpStatus(e.Code), e)
		return
	}
	x.w.Header().Set("Content-Type", "application/json")
	writeAll(x.w, http.StatusOK, text)
}

// serveRuns mints a run of the task.
func (x *exchange) serveRuns() {
	if x.r.ContentLength != 0 {
		if why := notJSON(x.w, x.r); why != "" {
			http.Error(x.w, why+"; or send no body", http.StatusUnsupportedMediaType)
			return
		}
	}
	x.memory = x.g.accounts.newHold(x.principal)
	defer x.memory.release()
	if _, ok := x.readBody(); !ok {
		return
	}
	minted, err := x.g.dispatcher.finder.openRun(x.r.Context(), x.principal, x.target)
	if err != nil {
		var e *switchboard.Error
		if !errors.As(err, &e) {
			x.g.log.Error("cannot open a run", "task", x.target.task, "err", err)
			e = switchboard.Refuse(switchboard.CodeTaskRefused, "%s", internalFailure.message)
		}
		x.g.log.Info("refused", "code", e.Code, "task", x.target.task, "tenant", x.principal.Tenant, "principal", x.principal.ID, "err", e)
		x.refuseWith(httpStatus(e.Code), e)
		return
	}
	path := "/mcp/runs/" + string(minted.ID())
	body, _ := json.Marshal(struct {
		Run  switchboard.RunID  `json:"run"`
		Task switchboard.TaskID `json:"task"`
		Path string             `json:"path"`
	}{minted.ID(), minted.Task(), path})
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Location", path)
	writeAll(x.w, http.StatusCreated, body)
}

// notJSON says what to send instead if the body of r is not plain JSON; "" means that it is. A page
// of another origin can send forms and plain text without a preflight request.
func notJSON(w http.ResponseWriter, r *http.Request) string {
	for _, e := range r.Header.Values("Content-Encoding") {
		if e != "" && e != "identity" {
			w.Header().Set("Accept-Encoding", "identity")
			return "a body in a Content-Encoding is not read here; send it as it is, without that header"
		}
	}
	types := r.Header.Values("Content-Type")
	if len(types) == 1 {
		if types[0] == mediaJSON[0] { // the spelling of nearly all clients
			return ""
		}
		if t, _, err := mime.ParseMediaType(types[0]); err == nil && t == mediaJSON[0] {
			return ""
		}
	}
	return "Content-Type must be application/json"
}

// firstRead is how many bytes of a message are read before more memory is reserved for it.
const firstRead = 64 << 10

// readBody reads the whole body into reserved memory, or answers with the reason why not. A request
// is forwarded only when its body has been read: net/http cuts some answers otherwise
// (golang/go#40747).
func (x *exchange) readBody() ([]byte, bool) {
	tooLong := func() ([]byte, bool) {
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestEntityTooLarge, invalidRequest("the message is longer than 4 MiB"))
		return nil, false
	}
	if x.r.ContentLength > MaxMessage {
		return tooLong()
	}
	c := http.NewResponseController(x.w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer c.SetReadDeadline(time.Time{}) //nolint:errcheck // a connection without deadlines needs no reset
	// Content-Length is only a promise: memory grows with the bytes that arrive.
	whole := int64(MaxMessage + 1)
	if x.r.ContentLength >= 0 {
		whole = x.r.ContentLength + 1 // one more, to see the end
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			room := min(max(4*int64(cap(body)), firstRead), whole)
			if ok, full := x.memory.tryGrow(room - int64(cap(body))); !ok {
				x.refuseMemory(full)
				return nil, false
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := x.r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > MaxMessage:
			return tooLong()
		case err == nil:
		case err == io.EOF:
			return body, true
		case errors.Is(err, os.ErrDeadlineExceeded):
			x.w.Header().Set("Connection", "close")
			x.refuse(http.StatusRequestTimeout, invalidRequest("the message did not arrive within "+bodyTimeout.String()))
			return nil, false
		default:
			x.w.Header().Set("Connection", "close")
			x.refuse(http.StatusBadRequest, invalidRequest("the message could not be read to its end"))
			return nil, false
		}
	}
}

// servePost answers one message.
func (x *exchange) servePost() {
	if why := notJSON(x.w, x.r); why != "" {
		x.refuse(http.StatusUnsupportedMediaType, invalidRequest(why))
		return
	}
	x.accepts = parseAccept(x.r.Header)
	if !x.accepts.json && !x.accepts.events {
		x.refuse(http.StatusNotAcceptable, invalidRequest("Accept must hold application/json, text/event-stream, or better both"))
		return
	}
	x.memory = x.g.accounts.newHold(x.principal)
	defer x.memory.release()
	var ok bool
	if x.body, ok = x.readBody(); !ok {
		return
	}
	m, err := wire.Parse(x.body)
	if err != nil {
		f, id := parseFailure(err)
		x.g.writeFailure(x.w, http.StatusBadRequest, id, f)
		return
	}
	x.message = m
	var f *failure
	if x.target, f = x.target.withHeaders(x.r.Header); f != nil {
		x.refuse(http.StatusBadRequest, f)
		return
	}
	if m.Kind == wire.Request { // other messages concern requests in flight
		if !x.enterOrRefuse() {
			return
		}
		if m.Method == wire.MethodListen {
			x.g.stop.gate.leave() // a drain does not wait for streams of changes
		} else {
			defer x.g.stop.gate.leave()
		}
	}
	header := x.r.Header.Get(wire.HeaderProtocolVersion)
	if wire.Modern(header) || wire.Modern(metaVersion(&m)) {
		x.serveModern(header)
		return
	}
	x.serveLegacy(header)
}

// An acceptedForms says which forms of an answer a client can read.
type acceptedForms struct{ json, events bool }

// parseAccept reads the Accept headers. A client without one gets no event stream: it may be unable
// to read one.
func parseAccept(h http.Header) (a acceptedForms) {
	values := h.Values("Accept")
	if len(values) == 0 {
		return acceptedForms{json: true}
	}
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			kind, params, _ := strings.Cut(part, ";")
			if params != "" && strings.Contains(strings.ReplaceAll(params, " ", "")+";", "q=0;") {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "*/*":
				a.json, a.events = true, true
			case "application/json", "application/*":
				a.json = true
			case "text/event-stream", "text/*":
				a.events = true
			}
		}
	}
	return a
}

// isKnownVersion reports whether Switchboard speaks the protocol version.
func isKnownVersion(version string) bool { return slices.Contains(wire.Versions, version) }

// An exchange is one authenticated HTTP request and its answer.
type exchange struct {
	g         *Gateway
	w         http.ResponseWriter
	r         *http.Request
	where     endpoint
	principal switchboard.Principal
	target    runTarget
	accepts   acceptedForms
	message   wire.Message
	body      []byte     // the message's bytes
	memory    memoryHold // reserved for the message and for its answer
}

// refuse answers with a failure. The id of a response is not repeated: it is no id of a request.
func (x *exchange) refuse(status int, f *failure) {
	id := x.message.ID
	if x.message.Kind == wire.Response {
		id = nil
	}
	x.g.writeFailure(x.w, status, id, f)
}

// refuseWith answers with e in the form of the endpoint: JSON-RPC, or problem details.
func (x *exchange) refuseWith(status int, e *switchboard.Error) {
	if x.where == endpointMCP {
		x.refuse(status, failureOf(e))
		return
	}
	x.g.refuse(x.w, x.where, status, nil, e)
}

// streamReply answers q and sends what servers say meanwhile as notifications. cancel cancels ctx
// and so the work. done is called before the answer is sent, lost when a write to the client fails.
// rs keeps the events that a client can resume; nil keeps none.
func (x *exchange) streamReply(ctx context.Context, cancel context.CancelCauseFunc, lost func(error), q *clientRequest, done func(), rs *session.Replays) {
	p := newHTTPReply(x.w, x.accepts, q.modern, lost, rs)
	if x.accepts.events {
		q.notify, q.sendKept = p.notify, p.sendKept
	}
	a := x.g.dispatcher.dispatch(ctx, cancel, q)
	done()
	if n := p.stopNotifying(); n > 0 {
		x.g.log.Warn("a client reads too slowly; notifications were dropped", "count", n, "tenant", q.principal.Tenant, "principal", q.principal.ID)
	}
	a = x.g.accounts.holdAnswer(&x.memory, a)
	p.sendAnswer(q.ID, a)
	a.done()
}
