package upstream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	// subscribeTimeout limits how long a server may take to grant a subscription.
	subscribeTimeout = 10 * time.Second

	// maxSubscribers limits the subscriptions on one link. Each is a stream if the server is
	// modern.
	maxSubscribers = 1024
)

// A resourceSubscriber wants the updates of one resource of a server.
type resourceSubscriber struct {
	fleet   *Fleet
	call    *switchboard.Call
	updated func(uri string)

	firstResult chan error // receives the result of the first attempt
}

// Subscribe subscribes to the resource that c.Target names, until stop is called. It calls updated
// with the URI as the server spells it. It also calls updated after a lost connection, when updates
// may have been missed. The error is like that of Call.
func (f *Fleet) Subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error) {
	s := &resourceSubscriber{fleet: f, call: c, updated: updated, firstResult: make(chan error, 1)}
	own, cancel := context.WithCancel(f.ctx)
	if !f.tasks.run(func() { s.run(own) }) {
		cancel()
		return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "the resource's server is no longer here")
	}
	ctx, done := context.WithTimeout(ctx, subscribeTimeout)
	defer done()
	select {
	case err = <-s.firstResult:
	case <-ctx.Done():
		err = callError(ctx, exchangeErrorf(kindSilent, false, "no answer to %s in time", c.Method))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// run subscribes, again whenever the connection is lost.
func (s *resourceSubscriber) run(ctx context.Context) {
	granted := false
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		err := s.subscribeOnce(ctx, func() {
			if granted {
				s.updated(s.call.Target) // updates may have been missed
				return
			}
			granted = true
			s.firstResult <- nil
		})
		if !granted {
			s.firstResult <- err
			return
		}
		if fails = failsInRow(fails, began); sleep(ctx, backoff(fails)) != nil {
			return
		}
	}
}

// subscribeOnce subscribes over the link of the call's principal, and waits until the link or ctx
// ends. It calls held when the server has granted the subscription.
func (s *resourceSubscriber) subscribeOnce(ctx context.Context, held func()) error {
	server := s.fleet.server(s.call.Server)
	if server == nil {
		return switchboard.Refuse(switchboard.CodeServerUnknown, "the resource's server is no longer here")
	}
	cfg := server.config()
	sl, err := server.connectorFor(server.scopeOf(&cfg, s.call))
	if err != nil {
		return noLinkError(ctx, err)
	}
	defer sl.release()
	l, err := sl.get(ctx, waitForPause)
	if err != nil {
		return noLinkError(ctx, err)
	}
	if resources, _ := wire.Field(l.hello().capabilities, "resources"); !memberIsTrue(resources, "subscribe") {
		return errNoUpdates
	}
	stop, err := l.addSubscriber(s)
	if err != nil {
		return err
	}
	defer stop()
	uri := wire.AppendString(nil, s.call.Target)
	if l.hello().modern() {
		return s.listenOnce(ctx, l, uri, held)
	}
	if err := l.subscribe(ctx, s.call.Target, uri); err != nil {
		return l.subscribeError(ctx, err)
	}
	defer l.unsubscribe(s.call.Target, uri)
	held()
	select {
	case <-l.done:
		return l.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noLinkError returns the client's error if there is no link.
func noLinkError(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*exchangeError](err); ok {
		return callError(ctx, f)
	}
	return err
}

// errNoUpdates is the error for a server that does not send updates of the resource.
var errNoUpdates = switchboard.Refuse(switchboard.CodeServerFailed, "the resource's server does not send updates of it")

func memberIsTrue(obj []byte, name string) bool {
	value, _ := wire.Field(obj, name)
	return string(value) == "true"
}

// listenOnce is subscribeOnce for a modern server, which sends updates on a stream per
// subscription.
func (s *resourceSubscriber) listenOnce(ctx context.Context, l *link, uri []byte, held func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := append(append([]byte(`{"notifications":{"resourceSubscriptions":[`), uri...), `]}}`...)
	f := l.newRequest(wire.MethodListen, func([]byte) []byte { return l.withMeta(filter, l.hello().version) })
	var refused error
	err := l.roundTrip(ctx, f, func(n switchboard.Notification) {
		switch {
		case n.Method == wire.MethodResourceUpdated:
			if uri, ok := updatedURI(n.Params); ok {
				s.updated(uri)
			}
		case s.isGrantedBy(n.Params):
			held()
		default:
			refused = errNoUpdates
			cancel()
		}
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return l.subscribeError(ctx, err)
	case f.answer.ErrorObject != nil:
		return &switchboard.ServerError{Server: s.call.Server, Modern: true, Object: l.mask.JSON(f.answer.ErrorObject)}
	}
	return l.subscribeError(ctx, exchangeErrorf(kindLost, true, "it has ended the subscription"))
}

// isGrantedBy reports whether the params of an acknowledgement include the resource.
func (s *resourceSubscriber) isGrantedBy(params []byte) bool {
	granted, _ := wire.Field(params, "notifications")
	uris, _ := wire.Field(granted, "resourceSubscriptions")
	for raw := range wire.Elements(uris) {
		if uri, ok := wire.String(raw); ok && uri == s.call.Target {
			return true
		}
	}
	return false
}

// subscribeError returns the client's error for err.
func (l *link) subscribeError(ctx context.Context, err error) error {
	f, ok := errors.AsType[*exchangeError](err)
	switch {
	case !ok:
		return err
	case f.object != nil:
		return &switchboard.ServerError{Object: l.mask.JSON(f.object), Modern: l.hello().modern()}
	}
	return callError(ctx, f)
}

// addSubscriber adds s to the subscribers that get the updates of the link.
func (l *link) addSubscriber(s *resourceSubscriber) (stop func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.subscribers) >= maxSubscribers {
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "the resource's server has as many subscriptions as it may have; try again later")
	}
	l.subscribers[s] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subscribers, s)
	}, nil
}

func updatedURI(params []byte) (uri string, ok bool) {
	raw, _ := wire.Field(params, "uri")
	return wire.String(raw)
}

// handleUpdated passes an update on. A modern server names the subscription. The update of a legacy
// server goes to the subscribers of that resource. If there are none, it goes to those with a URI
// that the updated one begins with, since the updated resource may be a part of theirs.
func (l *link) handleUpdated(m wire.Message, via *pendingRequest) {
	uri, ok := updatedURI(m.Params)
	if !ok {
		l.dropMessage("an update without a URI")
		return
	}
	if l.hello().modern() {
		if f := l.subscriptionOf(m, via); f == nil || f.method != wire.MethodListen || !f.enqueue(switchboard.Notification{Method: m.Method, Params: m.Params}) {
			l.dropMessage("an update without a subscription")
		}
		return
	}
	var exactly, whole []*resourceSubscriber
	l.mu.Lock()
	for s := range l.subscribers {
		switch {
		case s.call.Target == uri:
			exactly = append(exactly, s)
		case strings.HasPrefix(uri, s.call.Target):
			whole = append(whole, s)
		}
	}
	l.mu.Unlock()
	if len(exactly) > 0 {
		whole = exactly
	}
	for _, s := range whole {
		s.updated(uri)
	}
}

// announceMissed lists the offer again and notifies all subscribers, because notifications of the
// server may have been missed.
func (l *link) announceMissed() {
	l.onListChanged(switchboard.AllKinds)
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.subscribers))
	l.mu.Unlock()
	for _, s := range all {
		s.updated(s.call.Target)
	}
}

// subscribe subscribes at a legacy server, once for all subscribers of the URI, and opens the
// stream for its notifications.
func (l *link) subscribe(ctx context.Context, uri string, spelt []byte) error {
	l.subscribeMu.Lock()
	defer l.subscribeMu.Unlock()
	if l.subscriptions[uri] == 0 {
		if w, ok := l.port.(*httpPort); ok && !l.listening {
			l.listening = true
			l.openListenStream(w)
		}
		if _, err := l.request(ctx, wire.MethodSubscribe, append(append([]byte(`{"uri":`), spelt...), '}')); err != nil {
			return err
		}
	}
	l.subscriptions[uri]++
	return nil
}

// unsubscribe undoes one subscribe.
func (l *link) unsubscribe(uri string, spelt []byte) {
	l.subscribeMu.Lock()
	defer l.subscribeMu.Unlock()
	if l.subscriptions[uri]--; l.subscriptions[uri] > 0 {
		return
	}
	delete(l.subscriptions, uri)
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	if _, err := l.request(ctx, wire.MethodUnsubscribe, append(append([]byte(`{"uri":`), spelt...), '}')); err != nil {
		l.log.Debug("a subscription was not ended", "error", l.mask.Text(err.Error()))
	}
}
