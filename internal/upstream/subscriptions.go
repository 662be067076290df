package upstream

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A subscriptionTable has the subscribers of the resources of one link.
type subscriptionTable struct {
	link *link

	mu          sync.Mutex
	subscribers map[*resourceSubscriber]struct{}

	beginMu sync.Mutex     // held while a subscription begins or ends
	counts  map[string]int // number of subscribers by resource, for a legacy server
}

func newSubscriptionTable() subscriptionTable {
	return subscriptionTable{subscribers: map[*resourceSubscriber]struct{}{}, counts: map[string]int{}}
}

// add adds s to the subscribers that get the updates of the link.
func (t *subscriptionTable) add(s *resourceSubscriber) (stop func(), err error) {
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
func (t *subscriptionTable) of(uri string) []*resourceSubscriber {
	var exactly, whole []*resourceSubscriber
	t.mu.Lock()
	for s := range t.subscribers {
		switch {
		case s.call.Target == uri:
			exactly = append(exactly, s)
		case strings.HasPrefix(uri, s.call.Target):
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
func (t *subscriptionTable) all() []*resourceSubscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.subscribers))
}

// subscribe subscribes at a legacy server, once for all subscribers of the URI, and opens the
// stream for its notifications.
func (t *subscriptionTable) subscribe(ctx context.Context, uri string, spelt []byte) error {
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

// unsubscribe undoes one subscribe.
func (t *subscriptionTable) unsubscribe(uri string, spelt []byte) {
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
