package gateway

import (
	"context"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxSubscriptions bounds the resources that one client hears of.
const MaxSubscriptions = 256

// subscriptions are the resources that one client hears of. They are safe for
// concurrent use.
type subscriptions struct {
	news *news

	mu    sync.Mutex
	stops map[string]func() // by URI as the client spells it
	ended bool
}

// add subscribes to the resource, once.
func (s *subscriptions) add(ctx context.Context, g *Gateway, q *request, r *run.Run, uri string) error {
	it, ok := r.Surface().Resource(uri)
	if !ok {
		return unlisted(uri)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stops[uri] != nil || s.ended:
		return nil
	case len(s.stops) >= MaxSubscriptions:
		return &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "you are subscribed to as many resources as one client may be; unsubscribe from some"}
	}
	c := &switchboard.Call{Principal: q.principal, Task: r.Task(), Run: r.ID(), Server: it.Server, Method: wire.MethodSubscribe, Target: it.Own}
	stop, err := g.subscribe(ctx, c, func(own string) {
		// It may be another one, such as a part of it.
		if it.Name != it.Own {
			own = it.Name[:len(it.Name)-len(it.Own)] + own
		}
		s.news.add(0, own)
	})
	if err != nil {
		return err
	}
	if s.stops == nil {
		s.stops = map[string]func(){}
	}
	s.stops[uri] = stop
	return nil
}

// remove ends one.
func (s *subscriptions) remove(uri string) {
	s.mu.Lock()
	stop := s.stops[uri]
	delete(s.stops, uri)
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// end ends all, for good.
func (s *subscriptions) end() {
	s.mu.Lock()
	stops := s.stops
	s.stops, s.ended = nil, true
	s.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// subscribing answers resources/subscribe and resources/unsubscribe of a legacy
// client.
func (g *Gateway) subscribing(ctx context.Context, q *request) answer {
	raw, _ := field(q.Params, "uri")
	uri, ok := wire.String(raw)
	if !ok {
		return answer{failure: invalidParams(q.Method + ": params.uri must be a string")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return g.refusal(q, err)
	}
	if q.Method == wire.MethodUnsubscribe {
		q.client.subscriptions.remove(uri)
		return answer{result: []byte("{}")}
	}
	if err := q.client.subscriptions.add(ctx, g, q, r, uri); err != nil {
		return g.refusal(q, err)
	}
	return answer{result: []byte("{}")}
}
