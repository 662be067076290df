package gateway

import (
	"bytes"
	"context"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A changeListener is the receiver of a stream of changes.
type changeListener struct {
	stillAllowed func() bool // whether the client is still authorized; nil means always
	write        func(message []byte) error
	keepAlive    func() error // keeps the connection alive; nil if there is no need
	metaMember   []byte       // a member for the _meta of each notification; nil means none
}

// deliver sends the queued notifications to l, and reports whether it did. If it fails, it puts
// them back for the next listener.
func (l changeListener) deliver(ctx context.Context, n *notificationQueue) bool {
	changed, updated, asked := n.takeAll()
	if ctx.Err() == nil && (l.stillAllowed == nil || l.stillAllowed()) {
		said := true
		for _, m := range slices.Concat(changeNotifications(changed, updated, l.metaMember), asked) {
			said = said && l.write(m) == nil
		}
		if said {
			return true
		}
	}
	n.addChanges(changed, updated...)
	for _, m := range asked {
		n.addMessage(m)
	}
	return false
}

// followChanges sends l the notifications of n until ctx is done, l fails or is not authorized any
// more, or the gateway closes. It returns true only in the last case.
func (g *Gateway) followChanges(ctx context.Context, n *notificationQueue, l changeListener) (closing bool) {
	tick := time.NewTicker(KeepAlive)
	defer tick.Stop()
	rung := g.rechecked.wait()
	if l.stillAllowed != nil && !l.stillAllowed() { // the broadcast may have come after the authentication
		return false
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-rung:
			rung = g.rechecked.wait()
			if l.stillAllowed != nil && !l.stillAllowed() {
				return false
			}
		case <-g.closing:
			select {
			case <-n.ready:
				return l.deliver(ctx, n)
			default:
				return true
			}
		case <-n.ready:
			if !l.deliver(ctx, n) {
				return false
			}
		case <-tick.C:
			if l.stillAllowed != nil && !l.stillAllowed() || l.keepAlive != nil && l.keepAlive() != nil {
				return false
			}
		}
	}
}

// A broadcast wakes all goroutines that wait for it. The zero value is ready for use. It is safe
// for concurrent use.
type broadcast struct {
	mu     sync.Mutex
	signal chan struct{}
}

// wait returns a channel that the next send closes.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal == nil {
		b.signal = make(chan struct{})
	}
	return b.signal
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal != nil {
		close(b.signal)
		b.signal = nil
	}
}

// Recheck ends the streams of clients that Options.Authenticate refuses now. Requests in flight
// finish.
func (g *Gateway) Recheck() { g.rechecked.send() }

// isStillAllowed reports whether r would still be authenticated as the principal p. It returns
// false for a revoked key.
func (g *Gateway) isStillAllowed(r *http.Request, p switchboard.Principal) bool {
	now, err := g.authenticate(r)
	return err == nil && principalKeyOf(now) == principalKeyOf(p)
}

// answerListen answers subscriptions/listen: it acknowledges what is granted, and sends each change
// under the id of the request.
func (g *Gateway) answerListen(ctx context.Context, q *clientRequest, still func() bool, send func(...[]byte) error, beat func() error) (a rpcAnswer) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("panic while listening", "tenant", q.principal.Tenant, "panic", p, "stack", string(debug.Stack()))
			a = rpcAnswer{failure: internalFailure}
		}
	}()
	if f := checkMeta(q); f != nil {
		return rpcAnswer{failure: f}
	}
	wanted, ok := q.Param("notifications")
	if !ok || wanted[0] != '{' {
		return rpcAnswer{failure: invalidParams("subscriptions/listen: params.notifications must be an object")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return g.errorAnswer(q, err)
	}
	tag := `"` + wire.MetaSubscriptionID + `":` + string(q.ID)
	granted, n, stop, f := g.grantSubscriptions(ctx, q, r, wanted)
	if f != nil {
		return rpcAnswer{failure: f}
	}
	defer stop() // began before the acknowledgement, so that no change is missed
	ack := wire.AppendNotification(nil, wire.MethodListenAcknowledged, []byte(`{"_meta":{`+tag+`},"notifications":`+string(granted)+`}`))
	if send(ack) != nil {
		return rpcAnswer{}
	}
	if string(granted) != "{}" {
		say := func(m []byte) error { return send(m) }
		if !g.followChanges(ctx, n, changeListener{stillAllowed: still, write: say, keepAlive: beat, metaMember: []byte(tag)}) {
			return rpcAnswer{}
		}
	}
	return rpcAnswer{result: append(append([]byte(`{"resultType":"complete","_meta":`), g.ownMeta(tag)...), '}')}
}

// grantSubscriptions subscribes to the lists and resources in wanted that exist, and returns those
// as granted.
func (g *Gateway) grantSubscriptions(ctx context.Context, q *clientRequest, r *run.Run, wanted []byte) (granted []byte, n *notificationQueue, stop func(), f *failure) {
	var edits []wire.Edit
	var kinds switchboard.Kinds
	for _, c := range listChanges {
		if wish, _ := wire.Field(wanted, c.wish); string(wish) == "true" {
			kinds |= c.kinds
			edits = append(edits, wire.Edit{Name: c.wish, Value: wish})
		}
	}
	n = newNotificationQueue(kinds)
	unwatch := r.Watch(n, true)
	subs := subscriptions{news: n}
	stop = func() { unwatch(); subs.end() }
	raw, ok := wire.Field(wanted, wishResources)
	if !ok {
		return wire.Rewrite(nil, nil, edits...), n, stop, nil
	}
	var wishes [][]byte
	for element := range wire.Elements(raw) {
		if _, ok := wire.String(element); !ok {
			stop()
			return nil, nil, nil, invalidParams("subscriptions/listen: " + wishResources + " must be a list of URIs")
		}
		wishes = append(wishes, element)
	}
	if uris := g.grantResources(ctx, q, r, &subs, wishes); len(uris) > 0 {
		list := append(append([]byte("["), bytes.Join(uris, []byte(","))...), ']')
		edits = append(edits, wire.Edit{Name: wishResources, Value: list})
	}
	return wire.Rewrite(nil, nil, edits...), n, stop, nil
}

// grantResources subscribes to the resources, and returns those that were granted, as the client
// spells them. A slow server does not delay the subscriptions at others.
func (g *Gateway) grantResources(ctx context.Context, q *clientRequest, r *run.Run, subs *subscriptions, wishes [][]byte) [][]byte {
	granted := make([][]byte, len(wishes))
	room := make(chan struct{}, maxBeginning)
	var beginning sync.WaitGroup
	for i, wish := range wishes {
		room <- struct{}{}
		beginning.Go(func() {
			defer func() { <-room }()
			uri, _ := wire.String(wish)
			g.awaitServers(ctx, r, run.ListPatience, listsResource(uri)) // the acknowledgement waits for it
			if err := subs.add(ctx, g, q, r, uri); err != nil {
				g.log.Debug("not subscribed", "tenant", q.principal.Tenant, "err", err)
				return
			}
			granted[i] = wish
		})
	}
	beginning.Wait()
	return slices.DeleteFunc(granted, func(wish []byte) bool { return wish == nil })
}

// wishResources is the member that lists the resources.
const wishResources = "resourceSubscriptions"

// serveListen answers subscriptions/listen over HTTP.
func (x *exchange) serveListen(q *clientRequest) {
	if !x.accepts.events {
		x.refuse(http.StatusNotAcceptable, invalidRequest("Accept must hold text/event-stream: the answer is a stream"))
		return
	}
	account := x.g.accountOf(x.principal)
	if !takeIfBelow(&account.streams, MaxStreamsEach) {
		x.g.refuseStream(x.w, q.ID)
		return
	}
	defer account.streams.Add(-1)
	e := events{w: x.w, c: http.NewResponseController(x.w)}
	a := x.g.answerListen(x.r.Context(), q, func() bool { return x.g.isStillAllowed(x.r, x.principal) }, e.send, e.comment)
	switch {
	case a.none():
	case e.started:
		_ = e.send(a.parts(q.ID)...) // if this write fails, the client is gone
	default:
		x.refuse(a.failure.status(true), a.failure)
	}
}
