package gateway

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A listener is the other end of a stream of changes.
type listener struct {
	still func() bool  // whether it may still listen; nil means always
	say   func() error // tells it that the list has changed
	beat  func() error // keeps the connection alive; nil where that is not needed
}

// follow tells l of each change, until ctx is done, l is lost or may no longer
// listen, or the gateway closes. Only the last is reported as an end.
func (g *Gateway) follow(ctx context.Context, changed chan struct{}, l listener) (closing bool) {
	tick := time.NewTicker(KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-g.closing:
			return true
		case <-changed:
			// Whoever comes next shall hear of it where this one did not.
			if ctx.Err() != nil || l.still != nil && !l.still() || l.say() != nil {
				select {
				case changed <- struct{}{}:
				default:
				}
				return false
			}
		case <-tick.C:
			if l.still != nil && !l.still() || l.beat != nil && l.beat() != nil {
				return false
			}
		}
	}
}

// still reports whether r would be let in now as the same principal: a key that
// was revoked hears no more.
func (g *Gateway) still(r *http.Request, p switchboard.Principal) bool {
	now, err := g.authenticate(r)
	return err == nil && ownerOf(now) == ownerOf(p)
}

// listen answers subscriptions/listen: what is granted is acknowledged, and
// each change is told under the id of the request. What was not asked for, or
// is not built, is not granted.
func (g *Gateway) listen(ctx context.Context, q *request, still func() bool, send func(...[]byte) error, beat func() error) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("panic while listening", "tenant", q.principal.Tenant, "panic", p, "stack", string(debug.Stack()))
			a = answer{failure: internal}
		}
	}()
	if f := checkMeta(q.Params); f != nil {
		return answer{failure: f}
	}
	wanted, ok := field(q.Params, "notifications")
	if !ok || wanted[0] != '{' {
		return answer{failure: invalidParams("subscriptions/listen: params.notifications must be an object")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return g.refusal(q, err)
	}
	tools, _ := wire.Field(wanted, "toolsListChanged")
	granted := string(tools) == "true"
	changed := make(chan struct{}, 1)
	if granted {
		defer r.Watch(changed)() // before it is said, so that no change is missed
	}
	tag := `"` + wire.MetaSubscriptionID + `":` + string(q.ID)
	filter := "{}"
	if granted {
		filter = `{"toolsListChanged":true}`
	}
	ack := wire.AppendNotification(nil, wire.MethodListenAcknowledged, []byte(`{"_meta":{`+tag+`},"notifications":`+filter+`}`))
	if send(ack) != nil {
		return answer{}
	}
	if granted {
		message := wire.AppendNotification(nil, wire.MethodToolsChanged, []byte(`{"_meta":{`+tag+`}}`))
		closing := g.follow(ctx, changed, listener{still: still, say: func() error { return send(message) }, beat: beat})
		if !closing {
			return answer{}
		}
	}
	return answer{result: append(append([]byte(`{"resultType":"complete","_meta":`), g.meta(tag)...), '}')}
}

// serveListen answers subscriptions/listen over HTTP.
func (x *exchange) serveListen(q *request) {
	if !x.accepts.events {
		x.fail(http.StatusNotAcceptable, invalidRequest("Accept must hold text/event-stream: the answer is a stream"))
		return
	}
	account := x.g.account(x.principal)
	if !take(&account.streams, MaxStreamsEach) {
		refuseStream(x.w, q.ID)
		return
	}
	defer account.streams.Add(-1)
	e := events{w: x.w, c: http.NewResponseController(x.w)}
	a := x.g.listen(x.r.Context(), q, func() bool { return x.g.still(x.r, x.principal) }, e.send, e.comment)
	switch {
	case a.none():
	case e.started:
		_ = e.send(a.parts(q.ID)...) // the last word: where it is lost, so is the client
	default:
		x.fail(a.failure.status(true), a.failure)
	}
}
