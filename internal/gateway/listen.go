package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
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

// isAllowed reports whether the client is still authorized.
func (l changeListener) isAllowed() bool { return l.stillAllowed == nil || l.stillAllowed() }

// deliver sends the queued notifications to l, and reports whether it did. If it fails, they stay
// queued for the next listener.
func (l changeListener) deliver(ctx context.Context, q *session.Queue) bool {
	return q.Deliver(func() bool { return ctx.Err() == nil && l.isAllowed() }, l.metaMember, l.write)
}

// A changeNotifier sends clients the changes that they subscribed to.
type changeNotifier struct {
	servers   Servers
	finder    *runFinder
	enc       *encoder
	rechecked broadcast // sent when any key may have been revoked
	closing   <-chan struct{}
	log       *slog.Logger
}

// followChanges sends l the notifications of n until ctx is done, l fails or is not authorized any
// more, or the gateway closes. It returns true only in the last case.
func (nt *changeNotifier) followChanges(ctx context.Context, n *session.Queue, l changeListener) (closing bool) {
	tick := time.NewTicker(KeepAlive)
	defer tick.Stop()
	recheck := nt.rechecked.wait()
	if !l.isAllowed() { // the broadcast may have come after the authentication
		return false
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-recheck:
			recheck = nt.rechecked.wait()
			if !l.isAllowed() {
				return false
			}
		case <-nt.closing:
			select {
			case <-n.Ready():
				return l.deliver(ctx, n)
			default:
				return true
			}
		case <-n.Ready():
			if !l.deliver(ctx, n) {
				return false
			}
		case <-tick.C:
			if !l.isAllowed() || l.keepAlive != nil && l.keepAlive() != nil {
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

// RecheckStreams ends the streams of clients that the Authenticator refuses now. Requests in flight
// finish.
func (g *Gateway) RecheckStreams() { g.notifier.rechecked.send() }

// answerListen answers subscriptions/listen: it acknowledges what is granted, and sends each change
// under the id of the request.
func (nt *changeNotifier) answerListen(ctx context.Context, q *clientRequest, stillAllowed func() bool, send func(...[]byte) error, keepAlive func() error) (a rpcAnswer) {
	defer func() {
		if p := recover(); p != nil {
			nt.log.Error("panic while listening", "tenant", q.principal.Tenant, "panic", p, "stack", string(debug.Stack()))
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
	if unmet, ok := errors.AsType[*switchboard.Error](err); ok && unmet.Code == switchboard.CodeUnmet {
		r, err = nil, nil // the client is told when the task can be met
	}
	if err != nil {
		return nt.enc.errorAnswer(q, err)
	}
	tag := `"` + wire.MetaSubscriptionID + `":` + string(q.ID)
	granted, n, stop, f := nt.grantSubscriptions(ctx, q, r, wanted)
	if f != nil {
		return rpcAnswer{failure: f}
	}
	defer stop() // began before the acknowledgement, so that no change is missed
	ack := wire.AppendNotification(nil, wire.MethodListenAcknowledged, []byte(`{"_meta":{`+tag+`},"notifications":`+string(granted)+`}`))
	if send(ack) != nil {
		return rpcAnswer{}
	}
	if string(granted) != "{}" {
		write := func(m []byte) error { return send(m) }
		if !nt.followChanges(ctx, n, changeListener{stillAllowed: stillAllowed, write: write, keepAlive: keepAlive, metaMember: []byte(tag)}) {
			return rpcAnswer{}
		}
	}
	return rpcAnswer{result: append(append([]byte(`{"resultType":"complete","_meta":`), nt.enc.ownMeta(tag)...), '}')}
}

// grantSubscriptions subscribes to the lists and resources in wanted that exist, and returns those
// as granted. r is nil while the task cannot be met, when no resource exists.
func (nt *changeNotifier) grantSubscriptions(ctx context.Context, q *clientRequest, r *run.Run, wanted []byte) (granted []byte, n *session.Queue, stop func(), f *failure) {
	var edits []wire.Edit
	var kinds switchboard.Kinds
	for _, c := range session.ListChanges {
		if wish, _ := wire.Field(wanted, c.Member); string(wish) == "true" {
			kinds |= c.Kinds
			edits = append(edits, wire.Edit{Name: c.Member, Value: wish})
		}
	}
	n = session.NewQueue(kinds)
	if r == nil {
		return wire.Rewrite(nil, nil, edits...), n, nt.watchOnceMet(ctx, q, n), nil
	}
	unwatch := r.Watch(n, true)
	subs := session.NewSubscriptions(n)
	stop = func() { unwatch(); subs.End() }
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
	if uris := nt.grantResources(ctx, q, r, subs, wishes); len(uris) > 0 {
		list := append(append([]byte("["), bytes.Join(uris, []byte(","))...), ']')
		edits = append(edits, wire.Edit{Name: wishResources, Value: list})
	}
	return wire.Rewrite(nil, nil, edits...), n, stop, nil
}

// watchOnceMet tries to bind the request's task whenever servers have answered or the configuration has changed. Once that succeeds, n is told of all lists, since
// the client has none, and of their changes from then on.
func (nt *changeNotifier) watchOnceMet(ctx context.Context, q *clientRequest, n *session.Queue) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				nt.log.Error("panic while listening", "tenant", q.principal.Tenant, "panic", p, "stack", string(debug.Stack()))
			}
		}()
		for {
			next := run.NextOffers(nt.finder.runs, q.principal.Tenant)
			if r, err := q.bind(ctx); err == nil {
				defer r.Watch(n, true)()
				for _, c := range session.ListChanges {
					n.Changed(c.Kinds)
				}
				<-ctx.Done()
				return
			}
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); watching.Wait() }
}

// grantResources subscribes to the resources, and returns those that were granted, as the client
// spells them. A slow server does not delay the subscriptions at others.
func (nt *changeNotifier) grantResources(ctx context.Context, q *clientRequest, r *run.Run, subs *session.Subscriptions, wishes [][]byte) [][]byte {
	granted := make([][]byte, len(wishes))
	room := make(chan struct{}, maxBeginning)
	var beginning sync.WaitGroup
	for i, wish := range wishes {
		room <- struct{}{}
		beginning.Go(func() {
			defer func() { <-room }()
			uri, _ := wire.String(wish)
			nt.finder.awaitServers(ctx, r, run.ListPatience, listsResource(uri)) // the acknowledgement waits for it
			if err := subs.Add(ctx, nt.subscriber(q), r, uri); err != nil {
				nt.log.Debug("not subscribed", "tenant", q.principal.Tenant, "err", err)
				return
			}
			granted[i] = wish
		})
	}
	beginning.Wait()
	return slices.DeleteFunc(granted, func(wish []byte) bool { return wish == nil })
}

// maxBeginning is how many subscriptions of one request start at once.
const maxBeginning = 16

// wishResources is the member that lists the resources.
const wishResources = "resourceSubscriptions"

// serveListen answers subscriptions/listen over HTTP.
func (x *exchange) serveListen(q *clientRequest) {
	if !x.accepts.events {
		x.refuse(http.StatusNotAcceptable, invalidRequest("Accept must hold text/event-stream: the answer is a stream"))
		return
	}
	account := x.g.accounts.accountOf(x.principal)
	if !takeIfBelow(&account.streams, MaxStreamsEach) {
		x.refuseStream()
		return
	}
	defer account.streams.Add(-1)
	e := events{w: x.w, c: *http.NewResponseController(x.w)}
	a := x.g.notifier.answerListen(x.r.Context(), q, x.isStillAllowed, e.send, e.comment)
	switch {
	case a.none():
	case e.started:
		_ = e.send(a.parts(q.ID)...) // if this write fails, the client is gone
	default:
		x.refuse(a.failure.status(true), a.failure)
	}
}
