package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// subscribePatience is how long a server may take to grant a subscription.
const subscribePatience = 10 * time.Second

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
		return told(ctx, err)
	}
	defer sl.release()
	l, err := sl.get(ctx, false)
	if err != nil {
		return told(ctx, err)
	}
	defer l.watch(s)()
	uri := wire.AppendString(nil, s.call.Target)
	if l.hello().modern() {
		filter := append(append([]byte(`{"notifications":{"resourceSubscriptions":[`), uri...), `]}}`...)
		f := l.newFlight(wire.MethodListen, func([]byte) []byte { return l.params(filter, l.hello().version) })
		err = l.fly(ctx, f, func(n switchboard.Notification) {
			if n.Method == wire.MethodListenAcknowledged {
				held()
			}
		})
		if err == nil && f.answer.ErrorObject != nil {
			return &switchboard.ServerError{Server: server.id, Modern: true, Object: server.mask.json(f.answer.ErrorObject)}
		}
		return told(ctx, err)
	}
	if err := l.subscribe(ctx, s.call.Target, uri); err != nil {
		return told(ctx, err)
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

// told turns a fault into what the client is told.
func told(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return err
	}
	if f.object != nil {
		return &switchboard.ServerError{Object: f.object}
	}
	return refusal(ctx, f)
}

// watch lets s hear of the updates that the server tells of on the link.
func (l *link) watch(s *subscriber) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers[s] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, s)
	}
}

// updated passes an update on: to those who have subscribed to that resource, or
// else, since it may be a part of what they have subscribed to, to all.
func (l *link) updated(params []byte) {
	raw, _ := wire.Field(params, "uri")
	uri, ok := wire.String(raw)
	if !ok {
		l.drop("an update of no resource")
		return
	}
	var exactly, all []*subscriber
	l.mu.Lock()
	for s := range l.watchers {
		all = append(all, s)
		if s.call.Target == uri {
			exactly = append(exactly, s)
		}
	}
	l.mu.Unlock()
	if len(exactly) > 0 {
		all = exactly
	}
	for _, s := range all {
		s.updated(uri)
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
