package gateway

import (
	"slices"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxNews bounds the resources of which one client has not been told that they
// were updated. Past it, it is told of what it has subscribed to, and no longer
// of which part that is.
const maxNews = 1024

// maxAsked bounds, in bytes, what one client has not been asked yet beside its
// calls. What is more is not asked.
const maxAsked = 64 << 10

// An update is one of a resource: its URI, and that which the client has
// subscribed to, both as the client spells them.
type update struct{ uri, by string }

// News are what one client has not been told yet. They are safe for concurrent
// use, and a run.Watcher. Use newNews.
type news struct {
	ready  chan struct{}     // holds one signal while there are some
	wanted switchboard.Kinds // by the client

	mu      sync.Mutex
	changed switchboard.Kinds
	updated []update
	asked   [][]byte // messages as they are
	bytes   int      // of them
}

func newNews(wanted switchboard.Kinds) *news {
	return &news{ready: make(chan struct{}, 1), wanted: wanted}
}

// Changed implements run.Watcher.
func (n *news) Changed(ks switchboard.Kinds) {
	if ks &= n.wanted; ks != 0 {
		n.add(ks)
	}
}

// add notes news; those that are noted already are one.
func (n *news) add(ks switchboard.Kinds, updated ...update) {
	n.mu.Lock()
	n.changed |= ks
	for _, u := range updated {
		if len(n.updated) >= maxNews {
			u.uri = u.by
		}
		if !slices.Contains(n.updated, u) {
			n.updated = append(n.updated, u)
		}
	}
	n.mu.Unlock()
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

// say adds a message that is said as it is.
func (n *news) say(message []byte) {
	n.mu.Lock()
	if n.bytes+len(message) <= maxAsked {
		n.asked = append(n.asked, message)
		n.bytes += len(message)
	}
	n.mu.Unlock()
	n.add(0)
}

// forget takes back what has not been told of a subscription.
func (n *news) forget(by string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.updated = slices.DeleteFunc(n.updated, func(u update) bool { return u.by == by })
}

// take returns the news, of which there are none afterwards.
func (n *news) take() (changed switchboard.Kinds, updated []update, asked [][]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed, updated, asked = n.changed, n.updated, n.asked
	n.changed, n.updated, n.asked, n.bytes = 0, nil, nil, 0
	return changed, updated, asked
}

// changes are the notifications of what has changed. Resources and their
// templates are one to clients.
var changes = []struct {
	method, wish string
	kinds        switchboard.Kinds
}{
	{wire.MethodToolsChanged, "toolsListChanged", switchboard.Kinds(0).With(switchboard.Tools)},
	{wire.MethodResourcesChanged, "resourcesListChanged", switchboard.Kinds(0).With(switchboard.Resources).With(switchboard.Templates)},
	{wire.MethodPromptsChanged, "promptsListChanged", switchboard.Kinds(0).With(switchboard.Prompts)},
}

// messages returns the notifications that tell the news. tag is a member of
// their _meta, nil for none.
func messages(changed switchboard.Kinds, updated []update, tag []byte) (all [][]byte) {
	var meta []byte
	if tag != nil {
		meta = slices.Concat([]byte(`"_meta":{`), tag, []byte("}"))
	}
	for _, c := range changes {
		if changed&c.kinds == 0 {
			continue
		}
		var params []byte
		if meta != nil {
			params = slices.Concat([]byte("{"), meta, []byte("}"))
		}
		all = append(all, wire.AppendNotification(nil, c.method, params))
	}
	for i, u := range updated {
		if slices.ContainsFunc(updated[:i], func(o update) bool { return o.uri == u.uri }) {
			continue // told of once, however many subscriptions it is part of
		}
		params := wire.AppendString([]byte(`{"uri":`), u.uri)
		if meta != nil {
			params = append(append(params, ','), meta...)
		}
		all = append(all, wire.AppendNotification(nil, wire.MethodResourceUpdated, append(params, '}')))
	}
	return all
}
