package gateway

import (
	"bytes"
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

	// maxBeginning is how many subscriptions of one request start at once.
	maxBeginning = 16
)

// subscriptions holds the resources that one client subscribes to. It is safe for concurrent use.
//
// A subscription rests while the client's run does not show the resource: the client gets no
// updates. It starts again when the run shows the resource again.
type subscriptions struct {
	news *notificationQueue

	mu      sync.Mutex
	run     *run.Run                 // of all subscriptions; nil until there is one
	unwatch func()                   // likewise
	open    map[string]*subscription // by URI as the client spells it
	ended   bool
}

// A subscription is one resource that a client subscribes to.
type subscription struct {
	uri       string // as the client spells it
	item      surface.Item
	call      *switchboard.Call // nil until the subscription first starts
	callOf    func() *switchboard.Call
	subscribe func(context.Context, *switchboard.Call, func(uri string)) (func(), error)

	stop      func() // ends the updates; nil while the server sends none
	beginning bool   // the server is being asked for updates
}

// add subscribes to the resource, unless that was done already.
func (s *subscriptions) add(ctx context.Context, g *Gateway, q *clientRequest, r *run.Run, uri string) error {
	own, err := s.reserve(g, q, r, uri)
	if own == nil || err != nil {
		return err
	}
	if err := s.subscribeToServer(ctx, own); err != nil {
		s.remove(uri)
		return err
	}
	return nil
}

// reserve adds a subscription that is about to start. It returns nil if there is one already, or
// the client is gone.
func (s *subscriptions) reserve(g *Gateway, q *clientRequest, r *run.Run, uri string) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := r.Surface().Resource(uri)
	switch {
	case !ok || len(uri) > maxURI:
		return nil, resourceNotListed(uri)
	case s.open[uri] != nil || s.ended:
		return nil, nil
	case len(s.open) >= MaxSubscriptions:
		return nil, &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "you have as many subscriptions as one client may have; unsubscribe from some resources"}
	}
	own := s.addResting(g, q, r, uri, it)
	own.begin()
	return own, nil
}

// restore adds the subscriptions that the client had at the session's earlier owner. Each starts
// when the run shows its resource. Then the client is told that the resource may have been updated.
func (s *subscriptions) restore(g *Gateway, q *clientRequest, r *run.Run, kept []storedSubscription) {
	s.mu.Lock()
	for _, k := range kept {
		s.addResting(g, q, r, k.URI, surface.Item{Server: k.Server, Own: k.Own})
	}
	s.mu.Unlock()
	s.reviewAll()
}

// addResting adds a subscription that rests. The caller holds s.mu.
func (s *subscriptions) addResting(g *Gateway, q *clientRequest, r *run.Run, uri string, it surface.Item) *subscription {
	if s.open == nil {
		s.run, s.open = r, map[string]*subscription{}
		s.unwatch = r.Watch(s, false)
	}
	own := &subscription{uri: uri, item: it, subscribe: g.subscribe, callOf: func() *switchboard.Call {
		return &switchboard.Call{
			Principal: q.principal, Task: r.Task(), Run: r.ID(),
			Server: it.Server, Method: wire.MethodSubscribe, Item: resourceOf(it), Target: it.Own, Client: q.subscribingClient(),
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
func (s *subscriptions) subscribeToServer(ctx context.Context, own *subscription) error {
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
func (s *subscriptions) updated(own *subscription, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[own.uri] != own || !s.shows(own) {
		return
	}
	spelt := own.uri
	if uri != own.item.Own && len(uri) <= maxURI {
		spelt = s.run.Surface().Spell(own.item.Server, uri)
	}
	s.news.addChanges(0, resourceUpdate{spelt, own.uri})
}

// shows reports whether the run still shows the resource. The caller holds s.mu.
func (s *subscriptions) shows(own *subscription) bool {
	it, ok := s.run.Surface().Resource(own.uri)
	return ok && it.Server == own.item.Server && it.Own == own.item.Own
}

// Changed implements run.Watcher.
func (s *subscriptions) Changed(switchboard.Kinds) { go s.reviewAll() }

// reviewAll stops the subscriptions that the run no longer shows, and starts those that it shows
// again.
func (s *subscriptions) reviewAll() {
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

// remove ends a subscription and drops its queued updates.
func (s *subscriptions) remove(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.open[uri]; own != nil && own.stop != nil {
		own.stop()
	}
	delete(s.open, uri)
	s.news.dropUpdates(uri)
}

// stored returns the subscriptions as the store keeps them, in the order of their URIs.
func (s *subscriptions) stored() (kept []storedSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uri := range slices.Sorted(maps.Keys(s.open)) {
		it := s.open[uri].item
		kept = append(kept, storedSubscription{uri, it.Server, it.Own})
	}
	return kept
}

// end ends all subscriptions, for good.
func (s *subscriptions) end() {
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

// subscribingClient returns the client of q as a server sees it when the client subscribes: the
// same as for calls, so that a server which notifies only the process that made a change reaches
// this client.
func (q *clientRequest) subscribingClient() switchboard.Client {
	who := q.switchboardClient()
	who.Capabilities = bytes.Clone(who.Capabilities) // it outlives the request
	if who.Ask != nil || q.modern && canBeAsked(who.Capabilities) {
		who.Ask = func(context.Context, string, []byte) ([]byte, error) {
			return nil, errors.New("a subscription asks nothing")
		}
	}
	return who
}

// listsResource returns a function that reports whether a surface lists the resource.
func listsResource(uri string) func(*surface.Surface) bool {
	return func(s *surface.Surface) bool { _, ok := s.Resource(uri); return ok }
}

// answerSubscribe answers resources/subscribe and resources/unsubscribe of a legacy client.
func (g *Gateway) answerSubscribe(ctx context.Context, q *clientRequest) rpcAnswer {
	raw, _ := q.Param("uri")
	uri, ok := wire.String(raw)
	if !ok {
		return rpcAnswer{failure: invalidParams(q.Method + ": params.uri must be a string")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return g.errorAnswer(q, err)
	}
	if q.Method == wire.MethodUnsubscribe {
		q.client.subscriptions.remove(uri)
		return rpcAnswer{result: []byte("{}")}
	}
	g.awaitServers(ctx, r, StartWait, listsResource(uri))
	if err := g.whyUnmet(ctx, r); err != nil {
		return g.errorAnswer(q, err)
	}
	switch err := q.client.subscriptions.add(ctx, g, q, r, uri); {
	case errors.Is(err, errUnlisted):
		return rpcAnswer{failure: resourceNotFound(uri, q.modern)}
	case err != nil:
		return g.errorAnswer(q, err)
	}
	return rpcAnswer{result: []byte("{}")}
}
