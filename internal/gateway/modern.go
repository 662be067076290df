package gateway

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// serveModern answers a message of a modern client, which has no session. It ignores a session id.
func (x *exchange) serveModern(version string) {
	m := &x.message
	switch m.Kind {
	case wire.Response:
		x.refuse(http.StatusBadRequest, invalidRequest(wire.Latest+" has no requests to clients, and so no responses of theirs"))
		return
	case wire.Notification:
		// A client cancels by closing the stream of its request. It has no other notification to
		// send.
		x.w.WriteHeader(http.StatusAccepted)
		return
	}
	if f := checkHeaders(x.r.Header, version, m); f != nil {
		x.refuse(http.StatusBadRequest, f)
		return
	}
	q := &clientRequest{
		Message:   &x.message,
		modern:    true,
		principal: x.principal,
		header:    x.r.Header,
		bind: func(ctx context.Context) (*run.Run, error) {
			return x.g.dispatcher.finder.baseRun(ctx, x.principal, x.target)
		},
	}
	if m.Method == wire.MethodListen {
		x.serveListen(q)
		return
	}
	if id := x.g.parks.ReplicaOf(session.KeyOf(q.principal), q.Message); id != "" {
		x.resumeElsewhere(id)
		return
	}
	// Two requests in flight may have the same id here: each has its own stream, and the clients of
	// one principal cannot be told apart.
	if q.hasIdempotencyKey() { // a client that loses its connection asks again, with the key, for the outcome
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
		defer cancel(nil)
		x.streamReply(ctx, cancel, func(error) {}, q, func() {}, nil)
		return
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	x.streamReply(ctx, cancel, cancel, q, func() {}, nil)
}

// resumeElsewhere forwards the request to the replica that has parked its call.
func (x *exchange) resumeElsewhere(id string) {
	if _, hop := cluster.Principal(x.r); hop {
		cluster.AnswerNotOwner(x.w)
		return
	}
	if !x.isForwarded(x.g.cluster.Forward(x.w, x.r, x.body, x.principal, id)) {
		x.refuse(http.StatusBadRequest, noSuchState) // the replica is gone, and the call with it
	}
}

// checkVersion checks the protocol version of a modern request.
func checkVersion(version string) *failure {
	switch {
	case version == "":
		return invalidParams("params._meta must hold " + wire.MetaProtocolVersion + ", a string")
	case !isKnownVersion(version):
		return unsupportedVersion(version)
	}
	return nil
}

// checkHeaders compares the headers of a modern request with its body, because a proxy may have
// decided by the headers.
func checkHeaders(h http.Header, version string, m *wire.Message) *failure {
	inBody := metaVersion(m)
	switch {
	case len(h.Values(wire.HeaderLastEventID)) > 0:
		return headerMismatch("Last-Event-ID: streams cannot be resumed; send the request again with a new id")
	case version == "":
		return headerMismatch("the header MCP-Protocol-Version is missing")
	case inBody == "":
		return checkVersion("")
	case version != inBody || len(h.Values(wire.HeaderProtocolVersion)) > 1:
		return headerMismatch("the header MCP-Protocol-Version differs from params._meta")
	}
	if f := checkVersion(inBody); f != nil {
		return f
	}
	if method, f := singleHeader(h, wire.HeaderMethod); f != nil {
		return f
	} else if method != m.Method {
		return headerMismatch("the header Mcp-Method differs from the message")
	}
	member := ""
	switch m.Method {
	case wire.MethodToolsCall, wire.MethodPromptsGet:
		member = "name"
	case wire.MethodResourcesRead:
		member = "uri"
	default:
		return nil
	}
	header, f := singleHeader(h, wire.HeaderName)
	if f != nil {
		return f
	}
	inHeader, ok := wire.DecodeHeader(header)
	if !ok {
		return headerMismatch("the header Mcp-Name is no valid base64")
	}
	raw, _ := m.Param(member)
	if name, ok := wire.String(raw); !ok || name != inHeader {
		return headerMismatch("the header Mcp-Name differs from params." + member)
	}
	return nil
}

// singleHeader returns the value of a header that must occur exactly once.
func singleHeader(h http.Header, name string) (string, *failure) {
	values := h.Values(name)
	switch {
	case len(values) == 0 || values[0] == "":
		return "", headerMismatch("the header " + name + " is missing")
	case len(values) > 1:
		return "", headerMismatch("the header " + name + " is given twice")
	}
	return values[0], nil
}
