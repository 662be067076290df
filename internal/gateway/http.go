package gateway

import (
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// greeting is the text for a person who opens the address in a browser.
const greeting = `This is Switchboard: one MCP server in front of others.

MCP is at /mcp, and at /mcp/tasks/TASK for one task. Give that address to an MCP client.
There is no page to look at. On this machine, "switchboard status" says how it is.`

// elsewhere is the text for programs that look for the admin API here.
const elsewhere = "this address is for agents: MCP is at /mcp. Status, metrics and the rest of the API are at the admin address, " +
	"which \"switchboard status\" names on this machine; \"switchboard docs operators\" says more"

// An endpoint is what a path leads to.
type endpoint uint8

const (
	endpointNone endpoint = iota
	endpointMCP
	endpointRuns // mints runs
	endpointHealth
	endpointReady
)

// endpointMethods are the HTTP methods that each endpoint takes.
var endpointMethods = [...][]string{
	endpointMCP:    {http.MethodGet, http.MethodPost, http.MethodDelete},
	endpointRuns:   {http.MethodPost},
	endpointHealth: {http.MethodGet, http.MethodHead},
	endpointReady:  {http.MethodGet, http.MethodHead},
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
	return endpointNone, runTarget{}
}

// isSegment reports whether s is one path segment without escapes. Whether it names something is
// decided after authentication.
func isSegment(s string) bool { return s != "" && !strings.ContainsAny(s, "/%") }

// ServeHTTP answers MCP at /mcp, /mcp/tasks/<id> and /mcp/runs/<id>, mints runs at POST
// /v1/tasks/<id>/runs, and answers GET /healthz and GET /readyz without authentication. What people and
// Prometheus ask is answered by package api, at another address.
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
	if where == endpointNone {
		text := "nothing is here; MCP is at /mcp"
		switch {
		case path == "/":
			text = greeting
		case path == "/metrics" || strings.HasPrefix(path, "/v1/"):
			text = elsewhere
		}
		http.Error(w, text, http.StatusNotFound)
		return
	}
	why := g.callers.allowed.Load().RefusalReason(r)
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
	x.serve()
}

// endsUnchecked reports whether httphead.Checker cannot tell where r ends, which is so after a
// Transfer-Encoding. net/http removes that header from HTTP/1.0 requests, so all of those count.
// Nothing that follows on the connection may be read: the Checker relies on that.
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
	var wait time.Duration
	var toLog int
	if e.Code != switchboard.CodeOverloaded { // then it is not known who calls, and a connection that waits would make it worse
		wait, toLog = g.callers.failures.Count(access.NetworkOf(r.RemoteAddr))
	}
	if toLog > 0 {
		g.log.Warn("refused a caller", "code", e.Code, "why", e, "remote", r.RemoteAddr, "failures", toLog)
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
		case <-g.stop.closing:
		}
	}
	if access.HTTPStatus(e.Code) == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	g.refuse(w, where, access.HTTPStatus(e.Code), nil, e)
}

// refuse answers with e in the form of the endpoint: JSON-RPC with the id, or problem details.
func (g *Gateway) refuse(w http.ResponseWriter, where endpoint, status int, id []byte, e *switchboard.Error) {
	if where == endpointMCP {
		g.writeFailure(w, status, id, failureOf(e))
		return
	}
	g.enc.recorder.Refused(e.Code)
	w.Header().Set("Content-Type", "application/problem+json")
	writeAll(w, status, access.ProblemOf(status, e).Encode())
}

// writeFailure answers with a JSON-RPC error; a nil id is null.
func (g *Gateway) writeFailure(w http.ResponseWriter, status int, id []byte, f *failure) {
	g.enc.countFailure(f)
	w.Header().Set("Content-Type", "application/json")
	writeAll(w, status, f.envelope(id))
}

// isKnownVersion reports whether Switchboard speaks the protocol version.
func isKnownVersion(version string) bool { return slices.Contains(wire.Versions, version) }
