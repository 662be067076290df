package approval

import (
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A bell wakes what waits for a request. The zero value is ready.
type bell struct {
	mu       sync.Mutex
	waiting  map[string]map[chan struct{}]bool // by id
	watchers map[*func(switchboard.TenantID, string)]bool
}

// hear takes a notice of the store.
func (b *bell) hear(data []byte) {
	tenant, id, ok := decodeNotice(data)
	if !ok {
		tenant, id = "", "" // any may have changed
	}
	b.ring(tenant, id)
}

// ring wakes the calls that wait for the request; for "", all of them.
func (b *bell) ring(tenant switchboard.TenantID, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wake := func(all map[chan struct{}]bool) {
		for c := range all {
			select {
			case c <- struct{}{}:
			default: // it is awake
			}
		}
	}
	if id != "" {
		wake(b.waiting[id])
	} else {
		for _, all := range b.waiting {
			wake(all)
		}
	}
	for w := range b.watchers {
		(*w)(tenant, id)
	}
}

// listen returns a channel that gets an element after the request may have changed, until stop is called.
func (b *bell) listen(id string) (changed <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan struct{}, 1)
	if b.waiting == nil {
		b.waiting = map[string]map[chan struct{}]bool{}
	}
	if b.waiting[id] == nil {
		b.waiting[id] = map[chan struct{}]bool{}
	}
	b.waiting[id][c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.waiting[id], c); len(b.waiting[id]) == 0 {
			delete(b.waiting, id)
		}
	}
}

func (b *bell) watch(heard func(switchboard.TenantID, string)) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == nil {
		b.watchers = map[*func(switchboard.TenantID, string)]bool{}
	}
	b.watchers[&heard] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, &heard)
	}
}

// waiters counts the calls of each principal that wait here. The zero value is ready.
type waiters struct {
	mu    sync.Mutex
	count map[waiterKey]int
}

type waiterKey struct {
	tenant    switchboard.TenantID
	principal string
}

// enter counts one more. ok is false if there are MaxWaiting already.
func (w *waiters) enter(p *switchboard.Principal) (leave func(), ok bool) {
	key := waiterKey{p.Tenant, p.ID}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[key] >= MaxWaiting {
		return nil, false
	}
	if w.count == nil {
		w.count = map[waiterKey]int{}
	}
	w.count[key]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.count[key]--; w.count[key] == 0 {
			delete(w.count, key)
		}
	}, true
}
