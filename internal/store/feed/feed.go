// Package feed tells a replica when to read something in the store again, because another replica has changed it.
//
// Notices of a store are hints, and one can be lost: the store connects again, a subscriber is too slow, a file's
// notices do not reach other processes, or the publisher dies before it publishes. The feed has one answer to all of
// these: it says that everything may have changed, when the store reports that notices may be missing, when it cannot
// read a notice, when too many wait, and at the latest after Options.Every.
//
// The package decides when to read. The packages that use it publish, and decide what they read.
package feed

import (
	"context"
	"sync"
	"time"
)

// A Store has the notices. See store.Store.
type Store interface {
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// maxWaiting limits how many keys wait for Next. Above it, everything counts as changed.
const maxWaiting = 4096

// Options describe a feed. K names what a notice is about.
type Options[K comparable] struct {
	Topic string

	// Every is the longest time between two returns of Next; 0 means that Next waits for a notice.
	Every time.Duration

	// Decode returns what the notice is about, and which replica published it. nil means that each notice says
	// that everything may have changed.
	Decode func(data []byte) (key K, from string, err error)

	// Self is this replica as Decode returns it: the feed leaves out its notices. "" means that it leaves out none.
	Self string
}

// A Feed collects notices between two calls of Next. Use Open or Watch.
type Feed[K comparable] struct {
	o    Options[K]
	stop func()
	wake chan struct{} // of capacity one
	tick <-chan time.Time
	end  func() // of tick

	mu      sync.Mutex
	changed map[K]bool
	all     bool
}

// Open subscribes to the topic. Read what the feed is about after Open, and then after each Next: so no change is
// missed. The caller calls Close.
func Open[K comparable](s Store, o Options[K]) *Feed[K] {
	f := &Feed[K]{o: o, wake: make(chan struct{}, 1), changed: map[K]bool{}, end: func() {}}
	if o.Every > 0 {
		t := time.NewTicker(o.Every)
		f.tick, f.end = t.C, t.Stop
	}
	f.stop = s.Subscribe(o.Topic, f.receive)
	return f
}

// Watch is Open for notices that name nothing: Next returns after each of them.
func Watch(s Store, topic string, every time.Duration) *Feed[struct{}] {
	return Open(s, Options[struct{}]{Topic: topic, Every: every})
}

func (f *Feed[K]) receive(data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(data)
	if !f.all && len(f.changed) == 0 {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// add adds one notice. The caller holds f.mu.
func (f *Feed[K]) add(data []byte) {
	if data == nil || f.o.Decode == nil || len(f.changed) >= maxWaiting {
		f.all = true
		return
	}
	key, from, err := f.o.Decode(data)
	switch {
	case err != nil:
		f.all = true
	case from == "" || from != f.o.Self:
		f.changed[key] = true
	}
}

// Next waits until something may have changed. It returns what has changed since the last Next; all says that
// everything may have changed. The error is that of ctx.
func (f *Feed[K]) Next(ctx context.Context) (changed map[K]bool, all bool, err error) {
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-f.wake:
		changed, all = f.Take()
	case <-f.tick:
		changed, _ = f.Take()
		all = true
	}
	return changed, all, nil
}

// Wakes receives when there is something to Take. It is for a select that also waits for other things; Options.Every
// has no effect on it.
func (f *Feed[K]) Wakes() <-chan struct{} { return f.wake }

// Take returns at once what has changed since the last Next or Take.
func (f *Feed[K]) Take() (changed map[K]bool, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, all = f.changed, f.all
	f.changed, f.all = map[K]bool{}, false
	return changed, all
}

// Close ends the subscription.
func (f *Feed[K]) Close() {
	f.end()
	f.stop()
}
