package link

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

// A SubscriptionTable has the subscribers of the resources of one link.
type SubscriptionTable struct {
	link *Link

	mu          sync.Mutex
	subscribers map[*ResourceSubscription]struct{}

	beginMu sync.Mutex     // held while a subscription begins or ends
	counts  map[string]int // number of subscribers by resource, for a legacy server
}

func newSubscriptionTable() SubscriptionTable {
	return SubscriptionTable{subscribers: map[*ResourceSubscription]struct{}{}, counts: map[string]int{}}
}

// add adds s to the subscribers that get the updates of the link.
func (t *SubscriptionTable) add(s *ResourceSubscription) (stop func(), err error) {
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

// receiversOf returns the subscribers that get the update of the URI from a legacy server: those of that
// resource or, if there are none, those with a URI that the updated one begins with.
func (t *SubscriptionTable) receiversOf(uri string) []*ResourceSubscription {
	var exactly, whole []*ResourceSubscription
	t.mu.Lock()
	for s := range t.subscribers {
		switch {
		case s.Target == uri:
			exactly = append(exactly, s)
		case strings.HasPrefix(uri, s.Target):
			whole = append(whole, s)
		}
	}
	t.mu.Unlock()
	if len(exactly) > 0 {
		whole = exactly
	}
	return whole
}

// allSubscriptions returns all subscribers.
func (t *SubscriptionTable) allSubscriptions() []*ResourceSubscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.subscribers))
}

// beginLegacy subscribes at a legacy server, once for all subscribers of the URI, and opens the
// stream for its notifications.
func (t *SubscriptionTable) beginLegacy(ctx context.Context, uri string, spelt []byte) error {
	t.beginMu.Lock()
	defer t.beginMu.Unlock()
	if t.counts[uri] == 0 {
		if w, ok := t.link.port.(*httpPort); ok && !t.link.Listener.streamOpen {
			t.link.Listener.streamOpen = true
			t.link.Listener.openStream(w)
		}
		if _, err := t.link.request(ctx, wire.MethodSubscribe, append(append([]byte(`{"uri":`), spelt...), '}')); err != nil {
			return err
		}
	}
	t.counts[uri]++
	return nil
}

// endLegacy undoes one begin.
func (t *SubscriptionTable) endLegacy(uri string, spelt []byte) {
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

// A ResourceSubscription wants the updates of one resource.
type ResourceSubscription struct {
	Server  switchboard.ServerID
	Target  string                 // the URI
	Owner   *switchboard.Principal // who subscribes
	Updated func(uri string)       // called with the URI as the server spells it
}

// Subscribe subscribes s, and waits until the link or ctx ends. It calls held when the server has granted
// the subscription.
func (t *SubscriptionTable) Subscribe(ctx context.Context, s *ResourceSubscription, held func()) error {
	if resources, _ := wire.Field(t.link.Hello().capabilities, "resources"); !memberIsTrue(resources, "subscribe") {
		return errNoUpdates
	}
	stop, err := t.add(s)
	if err != nil {
		return err
	}
	defer stop()
	uri := wire.AppendString(nil, s.Target)
	if t.link.Hello().Modern() {
		return t.listen(ctx, s, uri, held)
	}
	if err := t.beginLegacy(ctx, s.Target, uri); err != nil {
		return t.clientError(ctx, err)
	}
	defer t.endLegacy(s.Target, uri)
	held()
	select {
	case <-t.link.Requests.Done:
		return t.link.Failure()
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
func (t *SubscriptionTable) listen(ctx context.Context, s *ResourceSubscription, uri []byte, held func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filter := append(append([]byte(`{"notifications":{"resourceSubscriptions":[`), uri...), `]}}`...)
	f := t.link.newRequest(wire.MethodListen, t.link.withMeta(filter, t.link.Hello().Version))
	f.owner = s.Owner
	var refused error
	err := t.link.roundTrip(ctx, f, func(n switchboard.Notification) {
		switch {
		case n.Method == wire.MethodResourceUpdated:
			if uri, ok := updatedURI(n.Params); ok {
				s.Updated(uri)
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
		return &switchboard.ServerError{Server: s.Server, Modern: true, Object: t.link.mask.With(f.shown.Token).JSON(f.response.answer.ErrorObject)}
	}
	return t.clientError(ctx, Errorf(KindLost, true, "it has ended the subscription"))
}

// isGrantedBy reports whether the params of an acknowledgement include the resource.
func (s *ResourceSubscription) isGrantedBy(params []byte) bool {
	granted, _ := wire.Field(params, "notifications")
	uris, _ := wire.Field(granted, "resourceSubscriptions")
	for raw := range wire.Elements(uris) {
		if uri, ok := wire.String(raw); ok && uri == s.Target {
			return true
		}
	}
	return false
}

// clientError returns the client's error for err.
func (t *SubscriptionTable) clientError(ctx context.Context, err error) error {
	f, ok := errors.AsType[*ExchangeError](err)
	switch {
	case !ok:
		return err
	case f.object != nil:
		return &switchboard.ServerError{Object: t.link.mask.With(f.token).JSON(f.object), Modern: t.link.Hello().Modern()}
	}
	return CallError(ctx, f)
}

func updatedURI(params []byte) (uri string, ok bool) {
	raw, _ := wire.Field(params, "uri")
	return wire.String(raw)
}
