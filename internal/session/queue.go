package session

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

// A Queue holds what one client has not been notified of yet. It is a run.Watcher, and
// safe for concurrent use. Use NewQueue.
type Queue struct {
	ready       chan struct{}     // holds one signal while the queue is not empty
	wantedKinds switchboard.Kinds // kinds of lists that the client wants

	mu       sync.Mutex
	changed  switchboard.Kinds
	updated  []resourceUpdate
	messages [][]byte // sent as they are
	bytes    int      // of messages
}

// NewQueue returns an empty queue that takes changes of the wanted kinds of lists.
func NewQueue(wanted switchboard.Kinds) *Queue {
	return &Queue{ready: make(chan struct{}, 1), wantedKinds: wanted}
}

// Changed implements run.Watcher.
func (q *Queue) Changed(ks switchboard.Kinds) {
	if ks &= q.wantedKinds; ks != 0 {
		q.Add(ks)
	}
}

// Add adds changes. It merges those that are queued already.
func (q *Queue) Add(ks switchboard.Kinds, updated ...resourceUpdate) {
	q.mu.Lock()
	q.changed |= ks
	for _, u := range updated {
		if len(q.updated) >= maxQueuedUpdates {
			u.uri = u.subscribed
		}
		if !slices.Contains(q.updated, u) {
			q.updated = append(q.updated, u)
		}
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// AddMessage adds a message that is sent as it is.
func (q *Queue) AddMessage(message []byte) {
	q.mu.Lock()
	if q.bytes+len(message) <= maxQueuedBytes {
		q.messages = append(q.messages, message)
		q.bytes += len(message)
	}
	q.mu.Unlock()
	q.Add(0)
}

// dropUpdates removes the queued updates of one subscription.
func (q *Queue) dropUpdates(by string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.updated = slices.DeleteFunc(q.updated, func(u resourceUpdate) bool { return u.subscribed == by })
}

// takeAll empties the queue and returns what was in it.
func (q *Queue) takeAll() (changed switchboard.Kinds, updated []resourceUpdate, asked [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed, updated, asked = q.changed, q.updated, q.messages
	q.changed, q.updated, q.messages, q.bytes = 0, nil, nil, 0
	return changed, updated, asked
}

// Ready receives a signal while the queue is not empty.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Deliver empties the queue into write, and reports whether it did. If allowed returns false or a
// write fails, it puts everything back for the next stream. It asks allowed after it has emptied the
// queue, so that it writes nothing that was queued after that answer. metaMember is a member for the
// _meta of the notifications; nil means none.
func (q *Queue) Deliver(allowed func() bool, metaMember []byte, write func(message []byte) error) bool {
	changed, updated, asked := q.takeAll()
	if allowed() {
		written := true
		for _, m := range slices.Concat(changeNotifications(changed, updated, metaMember), asked) {
			written = written && write(m) == nil
		}
		if written {
			return true
		}
	}
	q.Add(changed, updated...)
	for _, m := range asked {
		q.AddMessage(m)
	}
	return false
}

// A ListChange is a notification that lists of some kinds have changed.
type ListChange struct {
	Method string
	Member string // of the filter of subscriptions/listen
	Kinds  switchboard.Kinds
}

// ListChanges are the notifications of changed lists. To clients, resources and templates are one
// list.
var ListChanges = []ListChange{
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
	for _, c := range ListChanges {
		if changed&c.Kinds == 0 {
			continue
		}
		var params []byte
		if meta != nil {
			params = slices.Concat([]byte("{"), meta, []byte("}"))
		}
		all = append(all, wire.AppendNotification(nil, c.Method, params))
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
