package gateway

import (
	"slices"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxQueuedUpdates limits the updates that wait for one client. Above it, an update names the
// resource that the client subscribed to, and no longer the part of it that changed.
const maxQueuedUpdates = 1024

// maxQueuedBytes limits the bytes of the questions that wait for one client outside of its calls.
// Further questions are dropped.
const maxQueuedBytes = 64 << 10

// A resourceUpdate is the URI of an updated resource, and the URI that the client subscribed to,
// both as the client spells them.
type resourceUpdate struct{ uri, subscribed string }

// A notificationQueue holds what one client has not been notified of yet. It is a run.Watcher, and
// safe for concurrent use. Use newNotificationQueue.
type notificationQueue struct {
	ready       chan struct{}     // holds one signal while the queue is not empty
	wantedKinds switchboard.Kinds // kinds of lists that the client wants

	mu       sync.Mutex
	changed  switchboard.Kinds
	updated  []resourceUpdate
	messages [][]byte // sent as they are
	bytes    int      // of messages
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

// addChanges adds changes. It merges those that are queued already.
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

// addMessage adds a message that is sent as it is.
func (n *notificationQueue) addMessage(message []byte) {
	n.mu.Lock()
	if n.bytes+len(message) <= maxQueuedBytes {
		n.messages = append(n.messages, message)
		n.bytes += len(message)
	}
	n.mu.Unlock()
	n.addChanges(0)
}

// dropUpdates removes the queued updates of one subscription.
func (n *notificationQueue) dropUpdates(by string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.updated = slices.DeleteFunc(n.updated, func(u resourceUpdate) bool { return u.subscribed == by })
}

// takeAll empties the queue and returns what was in it.
func (n *notificationQueue) takeAll() (changed switchboard.Kinds, updated []resourceUpdate, asked [][]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed, updated, asked = n.changed, n.updated, n.messages
	n.changed, n.updated, n.messages, n.bytes = 0, nil, nil, 0
	return changed, updated, asked
}

// listChanges are the notifications of changed lists. To clients, resources and templates are one
// list.
var listChanges = []struct {
	method, wish string
	kinds        switchboard.Kinds
}{
	{wire.MethodToolsChanged, "toolsListChanged", switchboard.Kinds(0).With(switchboard.Tools)},
	{wire.MethodResourcesChanged, "resourcesListChanged", switchboard.Kinds(0).With(switchboard.Resources).With(switchboard.Templates)},
	{wire.MethodPromptsChanged, "promptsListChanged", switchboard.Kinds(0).With(switchboard.Prompts)},
}

// changeNotifications returns the notifications of the changes. tag is a member for their _meta;
// nil means none.
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
			continue // one notification, even if several subscriptions cover the resource
		}
		params := wire.AppendString([]byte(`{"uri":`), u.uri)
		if meta != nil {
			params = append(append(params, ','), meta...)
		}
		all = append(all, wire.AppendNotification(nil, wire.MethodResourceUpdated, append(params, '}')))
	}
	return all
}
