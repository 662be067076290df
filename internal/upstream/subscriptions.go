package upstream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxSubscribers limits the subscriptions on one link. Each is a stream if the server is modern.
const maxSubscribers = 1024

// A subscriptionTable has the subscribers of the resources of one link.
type subscriptionTable struct {
	link *link

	mu          sync.Mutex
	subscribers map[*subscription]struct{}

	beginMu sync.Mutex     // held while a subscription begins or ends
	counts  map[string]int // number of subscribers by resource, for a legacy server
}

func newSubscriptionTable() subscriptionTable {
	return subscriptionTable{subscribers: map[*subscription]struct{}{}, counts: map[string]int{}}
}

// add adds s to the subscribers that get the updates of the link.
func (t *subscriptionTable) add(s *subscription) (stop func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.subscribers) >= maxSubscribers {
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "the resource's server has as many subscriptions as it may have; try again later")
	}
	t.subscribers[s] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.subscribers, s)
	}, nil
}

// of returns the subscribers that get the update of the URI from a legacy server: those of that
// resource or, if there are none, those with a URI that the updated one begins with.
func (t *subscriptionTable) of(uri string) []*subscription {
	var exactly, whole []*subscription
	t.mu.Lock()
	for s := range t.subscribers {
		switch {
		case s.target == uri:
			exactly = append(exactly, s)
		case strings.HasPrefix(uri, s.target):
			whole = append(whole, s)
		}
	}
	t.mu.Unlock()
	if len(exactly) > 0 {
		whole = exactly
	}
	return whole
}

// all returns all subscribers.
func (t *subscriptionTable) all() []*subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.subscribers))
}

// begin subscribes at a legacy server, once for all subscribers of the URI, and opens the
// stream for its notifications.
func (t *subscriptionTable) begin(ctx context.Context, uri string, spelt []byte) error {
	t.beginMu.Lock()
	defer t.beginMu.Unlock()
	if t.counts[uri] == 0 {
		if w, ok := t.link.port.(*httpPort); ok && !t.link.changes.streamOpen {
			t.link.changes.streamOpen = true
			t.link.changes.open(w)
		}
		if _, err := t.link.request(ctx, wire.MethodSubscribe, append(append([]byte(`{"uri":`), spelt...), '}')); err != nil {
			return err
		}
	}
	t.counts[uri]++
	return nil
}

// end undoes one begin.
func (t *subscriptionTable) end(uri string, spelt []byte) {
	t.beginMu.Lock()
	defer t.beginMu.Unlock()
	if t.counts[uri]--; t.counts[uri] > 0 {
		return
	}
	delete(t.counts, uri)
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	if _, err := t.link.request(ctx, wire.MethodUnsubscribe, append(append([]byte(`{"uri":`), spelt...), '}')); err != nil {
		t.link.log.Debug("a subscription was not ended", "error", t.link.mask.Text(err.Error()))
	}
}

// A subscription wants the updates of one resource.
type subscription struct {
	server  switchboard.ServerID
	target  string           // the URI
	updated func(uri string) // called with the URI as the server spells it
}

// subscribe subscribes s, and waits until the link or ctx ends. It calls held when the server has granted
// the subscription.
func (t *subscriptionTable) subscribe(ctx context.Context, s *subscription, held func()) error {
	if resources, _ := wire.Field(t.link.hello().capabilities, "resources"); !memberIsTrue(resources, "subscribe") {
		return errNoUpdates
	}
	stop, err := t.add(s)
	if err != nil {
		return err
	}
	defer stop()
	uri := wire.AppendString(nil, s.target)
	if t.link.hello().modern() {
		return t.listen(ctx, s, uri, held)
	}
	if err := t.begin(ctx, s.target, uri); err != nil {
		return t.clientError(ctx, err)
	}
	defer t.end(s.target, uri)
	held()
	select {
	case <-t.link.requests.done:
		return t.link.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errNoUpdates is the error for a server that does not send updates of the resource.
var errNoUpdates = switchboard.Refuse(switchboard.CodeServerFailed, "the resource's server does not send updates of it")

func memberIsTrue(obj []byte, name string) bool {
	value, _ := wire.Field(obj, name)
	return string(value) == "true"
}

// listen is subscribe for a modern server, which sends updates on a stream per
// subscription.
func (t *subscriptionTable) listen(ctx context.Context, s *subscription, uri []byte, held func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := append(append([]byte(`{"notifications":{"resourceSubscriptions":[`), uri...), `]}}`...)
	f := t.link.newRequest(wire.MethodListen, func([]byte) []byte { return t.link.withMeta(filter, t.link.hello().version) })
	var refused error
	err := t.link.roundTrip(ctx, f, func(n switchboard.Notification) {
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
		return t.clientError(ctx, err)
	case f.response.answer.ErrorObject != nil:
		return &switchboard.ServerError{Server: s.server, Modern: true, Object: t.link.mask.JSON(f.response.answer.ErrorObject)}
	}
	return t.clientError(ctx, exchangeErrorf(kindLost, true, "it has ended the subscription"))
}

// isGrantedBy reports whether the params of an acknowledgement include the resource.
func (s *subscription) isGrantedBy(params []byte) bool {
	granted, _ := wire.Field(params, "notifications")
	uris, _ := wire.Field(granted, "resourceSubscriptions")
	for raw := range wire.Elements(uris) {
		if uri, ok := wire.String(raw); ok && uri == s.target {
			return true
		}
	}
	return false
}

// clientError returns the client's error for err.
func (t *subscriptionTable) clientError(ctx context.Context, err error) error {
	f, ok := errors.AsType[*exchangeError](err)
	switch {
	case !ok:
		return err
	case f.object != nil:
		return &switchboard.ServerError{Object: t.link.mask.JSON(f.object), Modern: t.link.hello().modern()}
	}
	return callError(ctx, f)
}

func updatedURI(params []byte) (uri string, ok bool) {
	raw, _ := wire.Field(params, "uri")
	return wire.String(raw)
}
