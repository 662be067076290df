package gateway

import (
	"slices"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxQueuedUpdates bounds the resources of which one client has not been told that they
// were updated. Past it, it is told of what it has subscribed to, and no longer
// of which part that is.
const maxQueuedUpdates = 1024

// maxQueuedBytes bounds, in bytes, what one client has not been asked yet beside its
// calls. What is more is not asked.
const maxQueuedBytes = 64 << 10

// An update is one of a resource: its URI, and that which the client has
// subscribed to, both as the client spells them.
type resourceUpdate struct{ uri, subscribed string }

// News are what one client has not been told yet. They are safe for concurrent
// use, and a run.Watcher. Use newNews.
type notificationQueue struct {
	ready       chan struct{}     // holds one signal while there are some
	wantedKinds switchboard.Kinds // by the client

	mu       sync.Mutex
	changed  switchboard.Kinds
	updated  []resourceUpdate
	messages [][]byte // messages as they are
	bytes    int      // of them
}

func newNotificationQueue(wanted switchboard.Kinds) *notificationQueue {
	return &notificationQueue{ready: make(chan struct{}, 1), wantedKinds: wanted}
}

// Changed implements run.Watcher.
func (n *notificationQueue) Changed(ks switchboard.Kinds) {
	if ks &= n.wantedKinds; ks != 0 {
		n.addChanges(ks)
	}
}

// addChanges notes news; those that are noted already are one.
func (n *notificationQueue) addChanges(ks switchboard.Kinds, updated ...resourceUpdate) {
	n.mu.Lock()
	n.changed |= ks
	for _, u := range updated {
		if len(n.updated) >= maxQueuedUpdates {
			u.uri = u.subscribed
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

// addMessage adds a message that is said as it is.
func (n *notificationQueue) addMessage(message []byte) {
	n.mu.Lock()
	if n.bytes+len(message) <= maxQueuedBytes {
		n.messages = append(n.messages, message)
		n.bytes += len(message)
	}
	n.mu.Unlock()
	n.addChanges(0)
}

// dropUpdates takes back what has not been told of a subscription.
func (n *notificationQueue) dropUpdates(by string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.updated = slices.DeleteFunc(n.updated, func(u resourceUpdate) bool { return u.subscribed == by })
}

// takeAll returns the news, of which there are none afterwards.
func (n *notificationQueue) takeAll() (changed switchboard.Kinds, updated []resourceUpdate, asked [][]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed, updated, asked = n.changed, n.updated, n.messages
	n.changed, n.updated, n.messages, n.bytes = 0, nil, nil, 0
	return changed, updated, asked
}

// listChanges are the notifications of what has changed. Resources and their
// templates are one to clients.
var listChanges = []struct {
	method, wish string
	kinds        switchboard.Kinds
}{
	{wire.MethodToolsChanged, "toolsListChanged", switchboard.Kinds(0).With(switchboard.Tools)},
	{wire.MethodResourcesChanged, "resourcesListChanged", switchboard.Kinds(0).With(switchboard.Resources).With(switchboard.Templates)},
	{wire.MethodPromptsChanged, "promptsListChanged", switchboard.Kinds(0).With(switchboard.Prompts)},
}

// changeNotifications returns the notifications that tell the news. tag is a member of
// their _meta, nil for none.
func changeNotifications(changed switchboard.Kinds, updated []resourceUpdate, tag []byte) (all [][]byte) {
	var meta []byte
	if tag != nil {
		meta = slices.Concat([]byte(`"_meta":{`), tag, []byte("}"))
	}
	for _, c := range listChanges {
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
		if slices.ContainsFunc(updated[:i], func(o resourceUpdate) bool { return o.uri == u.uri }) {
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
