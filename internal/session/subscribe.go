package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits on the resources that one client subscribes to.
const (
	MaxSubscriptions = 256
	maxURI           = 8 << 10 // bytes
)

// Subscriptions holds the resources that one client subscribes to. It is safe for concurrent use.
//
// A subscription rests while the client's run does not show the resource: the client gets no
// updates. It starts again when the run shows the resource again.
type Subscriptions struct {
	queue *Queue

	mu      sync.Mutex
	run     *run.Run                 // of all subscriptions; nil until there is one
	unwatch func()                   // likewise
	open    map[string]*subscription // by URI as the client spells it
	ended   bool
}

// A SubscribeFunc asks a server for the updates of the resource that c names, until stop is called.
// It calls updated with the URI as the server spells it.
type SubscribeFunc func(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error)

// A Subscriber is a client that subscribes to resources.
type Subscriber struct {
	Principal switchboard.Principal
	Client    func() switchboard.Client // called when a subscription first starts
	Subscribe SubscribeFunc
}

// ErrNotListed refuses a subscription to a resource that the run does not show.
var ErrNotListed = errors.New("the run does not show it")

// A subscription is one resource that a client subscribes to.
type subscription struct {
	uri       string // as the client spells it
	item      surface.Item
	call      *switchboard.Call // nil until the subscription first starts
	callOf    func() *switchboard.Call
	subscribe SubscribeFunc

	stop      func() // ends the updates; nil while the server sends none
	beginning bool   // the server is being asked for updates
}

// NewSubscriptions returns the empty subscriptions of a client with this queue.
func NewSubscriptions(q *Queue) *Subscriptions { return &Subscriptions{queue: q} }

// Add subscribes to the resource, unless that was done already.
func (s *Subscriptions) Add(ctx context.Context, sub Subscriber, r *run.Run, uri string) error {
	own, err := s.reserve(sub, r, uri)
	if own == nil || err != nil {
		return err
	}
	if err := s.subscribeToServer(ctx, own); err != nil {
		s.Remove(uri)
		return err
	}
	return nil
}

// reserve adds a subscription that is about to start. It returns nil if there is one already, or
// the client is gone.
func (s *Subscriptions) reserve(sub Subscriber, r *run.Run, uri string) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := r.Surface().Resource(uri)
	switch {
	case !ok || len(uri) > maxURI:
		return nil, ErrNotListed
	case s.open[uri] != nil || s.ended:
		return nil, nil
	case len(s.open) >= MaxSubscriptions:
		return nil, &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "you have as many subscriptions as one client may have; unsubscribe from some resources"}
	}
	own := s.addResting(sub, r, uri, it)
	own.begin()
	return own, nil
}

// restore adds the subscriptions that the client had at the session's earlier owner. Each starts
// when the run shows its resource. Then the client is told that the resource may have been updated.
func (s *Subscriptions) restore(sub Subscriber, r *run.Run, kept []storedSubscription) {
	s.mu.Lock()
	for _, k := range kept {
		s.addResting(sub, r, k.URI, surface.Item{Server: k.Server, Own: k.Own})
	}
	s.mu.Unlock()
	s.ReviewAll()
}

// addResting adds a subscription that rests. The caller holds s.mu.
func (s *Subscriptions) addResting(sub Subscriber, r *run.Run, uri string, it surface.Item) *subscription {
	if s.open == nil {
		s.run, s.open = r, map[string]*subscription{}
		s.unwatch = r.Watch(s, false)
	}
	own := &subscription{uri: uri, item: it, subscribe: sub.Subscribe, callOf: func() *switchboard.Call {
		return &switchboard.Call{
			Principal: sub.Principal, Task: r.Task(), Run: r.ID(), Flows: r.Flows(),
			Server: it.Server, Method: wire.MethodSubscribe, Item: ResourceItem(it), Target: it.Own, Client: sub.Client(),
			Judgments: r.Surface().Judgments(it.Server),
		}
	}}
	s.open[uri] = own
	return own
}

// begin marks the subscription as starting, and makes its call.
func (own *subscription) begin() {
	own.beginning = true
	if own.call == nil {
		own.call, own.callOf = own.callOf(), nil // which releases the request
	}
}

// subscribeToServer asks the server for updates.
func (s *Subscriptions) subscribeToServer(ctx context.Context, own *subscription) error {
	stop, err := own.subscribe(ctx, own.call, func(uri string) { s.updated(own, uri) })
	s.mu.Lock()
	defer s.mu.Unlock()
	own.beginning = false
	switch {
	case err != nil:
		return err
	case s.open[own.uri] == own && s.shows(own):
		own.stop = stop
	default:
		stop()
	}
	return nil
}

// updated queues an update for the client. uri may name a part of the resource.
func (s *Subscriptions) updated(own *subscription, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[own.uri] != own || !s.shows(own) {
		return
	}
	spelt := own.uri
	if uri != own.item.Own && len(uri) <= maxURI {
		spelt = s.run.Surface().ClientURI(own.item.Server, uri)
	}
	s.queue.Add(0, resourceUpdate{spelt, own.uri})
}

// shows reports whether the run still shows the resource. The caller holds s.mu.
func (s *Subscriptions) shows(own *subscription) bool {
	it, ok := s.run.Surface().Resource(own.uri)
	return ok && it.Server == own.item.Server && it.Own == own.item.Own
}

// Changed implements run.Watcher.
func (s *Subscriptions) Changed(switchboard.Kinds) { go s.ReviewAll() }

// ReviewAll stops the subscriptions that the run no longer shows, and starts those that it shows
// again.
func (s *Subscriptions) ReviewAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, own := range s.open {
		switch shown := s.shows(own); {
		case !shown && own.stop != nil:
			own.stop()
			own.stop = nil
		case shown && own.stop == nil && !own.beginning:
			own.begin()
			go func() {
				if s.subscribeToServer(context.Background(), own) == nil {
					s.updated(own, own.item.Own) // the resource may have been updated meanwhile
				}
			}()
		}
	}
}

// Remove ends a subscription and drops its queued updates.
func (s *Subscriptions) Remove(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.open[uri]; own != nil && own.stop != nil {
		own.stop()
	}
	delete(s.open, uri)
	s.queue.dropUpdates(uri)
}

// stored returns the subscriptions as the store keeps them, in the order of their URIs.
func (s *Subscriptions) stored() (kept []storedSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uri := range slices.Sorted(maps.Keys(s.open)) {
		it := s.open[uri].item
		kept = append(kept, storedSubscription{uri, it.Server, it.Own})
	}
	return kept
}

// End ends all subscriptions, for good.
func (s *Subscriptions) End() {
	s.mu.Lock()
	open, unwatch := s.open, s.unwatch
	s.open, s.unwatch, s.ended = nil, nil, true
	for _, own := range open {
		if own.stop != nil {
			own.stop()
		}
	}
	s.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
}

// ResourceItem returns a resource in the form that policies judge.
func ResourceItem(it surface.Item) switchboard.Item {
	if it.Template != "" {
		return switchboard.Item{Kind: switchboard.KindTemplate, Name: it.Template, URI: it.Own}
	}
	return switchboard.Item{Kind: switchboard.KindResource, Name: it.Own, URI: it.Own}
}
