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
	// subscribePatience is how long a server may take to grant a subscription.
	subscribePatience = 10 * time.Second

	// maxWatchers bounds the subscriptions on one link, each of which is a
	// stream where the server is modern.
	maxWatchers = 1024
)

// A subscriber wants to hear of one resource of a server's.
type subscriber struct {
	fleet   *Fleet
	call    *switchboard.Call
	updated func(uri string)

	granted chan error // takes whether the first attempt was
}

// Subscribe begins to hear of updates of the resource that c.Target names, until
// stop is called. updated gets the URI as the server says it; it is also called
// where updates may have been missed, because the connection was lost. The error
// is that of Call.
func (f *Fleet) Subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error) {
	s := &subscriber{fleet: f, call: c, updated: updated, granted: make(chan error, 1)}
	own, cancel := context.WithCancel(f.ctx)
	if !f.busy.run(func() { s.run(own) }) {
		cancel()
		return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "the resource's server is no longer here")
	}
	ctx, done := context.WithTimeout(ctx, subscribePatience)
	defer done()
	select {
	case err = <-s.granted:
	case <-ctx.Done():
		err = refusal(ctx, faultf(kindSilent, false, "no answer to %s in time", c.Method))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// run holds the subscription, again whenever the connection was lost.
func (s *subscriber) run(ctx context.Context) {
	granted := false
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		err := s.hold(ctx, func() {
			if granted {
				s.updated(s.call.Target) // it may have been, meanwhile
				return
			}
			granted = true
			s.granted <- nil
		})
		if !granted {
			s.granted <- err
			return
		}
		if fails = again(fails, began); sleep(ctx, backoff(fails)) != nil {
			return
		}
	}
}

// hold subscribes by the link of the call's principal and waits until that, or
// ctx, ends. held is called once the server has granted it.
func (s *subscriber) hold(ctx context.Context, held func()) error {
	server := s.fleet.server(s.call.Server)
	if server == nil {
		return switchboard.Refuse(switchboard.CodeServerUnknown, "the resource's server is no longer here")
	}
	cfg := server.config()
	sl, err := server.slotFor(server.owner(&cfg, s.call))
	if err != nil {
		return unreached(ctx, err)
	}
	defer sl.release()
	l, err := sl.get(ctx, patient)
	if err != nil {
		return unreached(ctx, err)
	}
	if resources, _ := wire.Field(l.hello().capabilities, "resources"); !says(resources, "subscribe") {
		return untold
	}
	stop, err := l.watch(s)
	if err != nil {
		return err
	}
	defer stop()
	uri := wire.AppendString(nil, s.call.Target)
	if l.hello().modern() {
		return s.listen(ctx, l, uri, held)
	}
	if err := l.subscribe(ctx, s.call.Target, uri); err != nil {
		return l.told(ctx, err)
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

// unreached is what the client is told where there is no link.
func unreached(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*fault](err); ok {
		return refusal(ctx, f)
	}
	return err
}

// untold is the answer where the server would not say that a resource was
// updated.
var untold = switchboard.Refuse(switchboard.CodeServerFailed, "the resource's server does not tell when it is updated")

func says(obj []byte, name string) bool {
	value, _ := wire.Field(obj, name)
	return string(value) == "true"
}

// listen is hold for a modern server, which tells of updates on a stream of the
// subscription's own.
func (s *subscriber) listen(ctx context.Context, l *link, uri []byte, held func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := append(append([]byte(`{"notifications":{"resourceSubscriptions":[`), uri...), `]}}`...)
	f := l.newFlight(wire.MethodListen, func([]byte) []byte { return l.params(filter, l.hello().version) })
	var refused error
	err := l.fly(ctx, f, func(n switchboard.Notification) {
		switch {
		case n.Method == wire.MethodResourceUpdated:
			if uri, ok := updatedURI(n.Params); ok {
				s.updated(uri)
			}
		case s.grantedBy(n.Params):
			held()
		default:
			refused = untold
			cancel()
		}
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return l.told(ctx, err)
	case f.answer.ErrorObject != nil:
		return &switchboard.ServerError{Server: s.call.Server, Modern: true, Object: l.mask.json(f.answer.ErrorObject)}
	}
	return l.told(ctx, faultf(kindLost, true, "it has ended the subscription"))
}

// grantedBy reports whether the params of an acknowledgement hold the resource.
func (s *subscriber) grantedBy(params []byte) bool {
	granted, _ := wire.Field(params, "notifications")
	uris, _ := wire.Field(granted, "resourceSubscriptions")
	for raw := range wire.Elements(uris) {
		if uri, ok := wire.String(raw); ok && uri == s.call.Target {
			return true
		}
	}
	return false
}

// told turns a fault into what the client is told.
func (l *link) told(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault](err)
	switch {
	case !ok:
		return err
	case f.object != nil:
		return &switchboard.ServerError{Object: l.mask.json(f.object), Modern: l.hello().modern()}
	}
	return refusal(ctx, f)
}

// watch lets s hear of the updates that the server tells of on the link.
func (l *link) watch(s *subscriber) (stop func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.watchers) >= maxWatchers {
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "the resource's server has as many subscriptions as it may have; try again later")
	}
	l.watchers[s] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, s)
	}, nil
}

func updatedURI(params []byte) (uri string, ok bool) {
	raw, _ := wire.Field(params, "uri")
	return wire.String(raw)
}

// updated passes an update on. A modern server says for which subscription it
// is. Of a legacy one those hear who have subscribed to that very resource, or
// else, since it may be a part of what they have subscribed to, to one whose URI
// it begins with.
func (l *link) updated(m wire.Message, via *flight) {
	uri, ok := updatedURI(m.Params)
	if !ok {
		l.drop("an update of no resource")
		return
	}
	if l.hello().modern() {
		if f := l.subscription(m, via); f == nil || f.method != wire.MethodListen || !f.push(switchboard.Notification{Method: m.Method, Params: m.Params}) {
			l.drop("an update that nobody asked for")
		}
		return
	}
	var exactly, whole []*subscriber
	l.mu.Lock()
	for s := range l.watchers {
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

// missed has everything asked for again of which the server may have told while
// it could not be heard.
func (l *link) missed() {
	l.relist(switchboard.AllKinds)
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.watchers))
	l.mu.Unlock()
	for _, s := range all {
		s.updated(s.call.Target)
	}
}

// subscribe asks a legacy server for updates, once for all who want them, and
// sees to it that they can be heard.
func (l *link) subscribe(ctx context.Context, uri string, spelt []byte) error {
	l.subscribing.Lock()
	defer l.subscribing.Unlock()
	if l.subscribed[uri] == 0 {
		if w, ok := l.port.(*web); ok && !l.listens {
			l.listens = true
			l.listen(w)
		}
		if _, err := l.ask(ctx, wire.MethodSubscribe, append(append([]byte(`{"uri":`), spelt...), '}')); err != nil {
			return err
		}
	}
	l.subscribed[uri]++
	return nil
}

// unsubscribe undoes one subscribe.
func (l *link) unsubscribe(uri string, spelt []byte) {
	l.subscribing.Lock()
	defer l.subscribing.Unlock()
	if l.subscribed[uri]--; l.subscribed[uri] > 0 {
		return
	}
	delete(l.subscribed, uri)
	ctx, cancel := context.WithTimeout(context.Background(), cancelPatience)
	defer cancel()
	if _, err := l.ask(ctx, wire.MethodUnsubscribe, append(append([]byte(`{"uri":`), spelt...), '}')); err != nil {
		l.log.Debug("a subscription was not ended", "error", l.mask.text(err.Error()))
	}
}
