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

// A changeListener is the other end of a stream of changes.
type changeListener struct {
	stillAllowed func() bool // whether it may still listen; nil means always
	write        func(message []byte) error
	keepAlive    func() error // keeps the connection alive; nil where that is not needed
	metaMember   []byte       // a member of the _meta of what it is told; nil means none
}

// deliver tells it the news. Whoever comes next shall hear of them where this one
// did not.
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

// followChanges tells l the news, until ctx is done, l is lost or may no longer
// listen, or the gateway closes. Only the last is reported as an end.
func (g *Gateway) followChanges(ctx context.Context, n *notificationQueue, l changeListener) (closing bool) {
	tick := time.NewTicker(KeepAlive)
	defer tick.Stop()
	rung := g.rechecked.wait()
	if l.stillAllowed != nil && !l.stillAllowed() { // the bell may have rung since it was let in
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

// A bell tells all who wait for it at once. The zero value is ready. It is safe for
// concurrent use.
type broadcast struct {
	mu     sync.Mutex
	signal chan struct{}
}

// wait returns what is closed when the bell rings for the next time.
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

// Recheck ends the streams of those whom Options.Authenticate does not know any more.
// What is under way for them is left to finish.
func (g *Gateway) Recheck() { g.rechecked.send() }

// isStillAllowed reports whether r would be let in now as the same principal: a key that
// was revoked hears no more.
func (g *Gateway) isStillAllowed(r *http.Request, p switchboard.Principal) bool {
	now, err := g.authenticate(r)
	return err == nil && principalKeyOf(now) == principalKeyOf(p)
}

// answerListen answers subscriptions/listen: what is granted is acknowledged, and
// each change is told under the id of the request.
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
	defer stop() // it was begun before anything is said, so that no change is missed
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

// grantSubscriptions begins to collect what the client wants to hear of, as far as there is
// something to hear, and says what that is.
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

// grantResources subscribes to the resources, and returns those, as they are
// spelt, of which the client will hear. One server that takes its time holds up
// no other.
func (g *Gateway) grantResources(ctx context.Context, q *clientRequest, r *run.Run, subs *subscriptions, wishes [][]byte) [][]byte {
	granted := make([][]byte, len(wishes))
	room := make(chan struct{}, maxBeginning)
	var beginning sync.WaitGroup
	for i, wish := range wishes {
		room <- struct{}{}
		beginning.Go(func() {
			defer func() { <-room }()
			uri, _ := wire.String(wish)
			g.awaitServers(ctx, r, run.ListPatience, listsResource(uri)) // it is acknowledged after that
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

// wishResources is the filter's list of resources to hear of.
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
		_ = e.send(a.parts(q.ID)...) // the last word: where it is lost, so is the client
	default:
		x.refuse(a.failure.status(true), a.failure)
	}
}
