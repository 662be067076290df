package commit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// The limits of settling.
const (
	linger        = 50 * time.Millisecond // how long a settlement waits for others
	maxQueued     = 1 << 16               // settlements and warnings that wait while the store is unavailable
	settleTimeout = 5 * time.Second
	retryAfter    = time.Second
	markInterval  = time.Minute // of a file
)

// background settles, and does what need not be done before a call goes on. What is queued is lost with the process: then the
// amounts stay held, and count as settled in the end.
type background struct {
	committer *Committer
	wake      chan struct{} // there is work; holds one
	full      chan struct{} // there is much work; holds one
	stopping  chan struct{}
	done      chan struct{}

	mu       sync.Mutex
	queued   map[string][]store.Settlement // by group
	warnings []warning
	size     int // of what is queued
	writing  int // of what flush has taken and not yet written
	dropped  int64
}

func (b *background) start(k *Committer) {
	b.committer, b.queued = k, map[string][]store.Settlement{}
	b.wake, b.full = make(chan struct{}, 1), make(chan struct{}, 1)
	b.stopping, b.done = make(chan struct{}), make(chan struct{})
	go b.work()
}

// settle queues a settlement.
func (b *background) settle(group string, s store.Settlement) {
	b.add(func() { b.queued[group] = append(b.queued[group], s) })
}

// warn queues a warning.
func (b *background) warn(w warning) {
	b.add(func() { b.warnings = append(b.warnings, w) })
}

func (b *background) add(queue func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size+b.writing >= maxQueued {
		if b.dropped++; b.dropped == 1 {
			b.committer.o.Log.Error("settlements are dropped, because the store has been unavailable for long; what is held for these calls counts as spent")
		}
		return
	}
	queue()
	switch b.size++; {
	case b.size == 1:
		signal(b.wake)
	case b.size >= store.MaxSettlements/2:
		signal(b.full)
	}
}

func signal(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// takeAll empties the queue. What it returns counts as queued until written or putBack.
func (b *background) takeAll() (settlements map[string][]store.Settlement, warnings []warning) {
	b.mu.Lock()
	defer b.mu.Unlock()
	settlements, warnings = b.queued, b.warnings
	b.writing += b.size
	b.queued, b.warnings, b.size = map[string][]store.Settlement{}, nil, 0
	return settlements, warnings
}

// putBack queues settlements again that the store did not take.
func (b *background) putBack(group string, all []store.Settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued[group] = append(b.queued[group], all...)
	b.size += len(all)
	b.writing -= len(all)
}

// written makes room for as many as were written.
func (b *background) written(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writing -= n
	if b.size+b.writing == 0 {
		b.dropped = 0 // the next time is another outage
	}
}

// work writes what is queued until Close is called.
func (b *background) work() {
	defer close(b.done)
	pause := linger
	var mark <-chan time.Time // nil: the store loses no hold
	if b.committer.file {
		ticker := time.NewTicker(markInterval)
		defer ticker.Stop()
		mark = ticker.C
	}
	for {
		select {
		case <-b.wake:
		case <-mark:
			b.committer.marks.advance(b.committer, 1)
			continue
		case <-b.stopping:
			b.flush()
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-b.full:
		case <-b.stopping:
		}
		timer.Stop()
		if pause = linger; !b.flush() {
			pause = retryAfter
			signal(b.wake)
		}
	}
}

// flush writes what is queued. It reports whether the store took it.
func (b *background) flush() bool {
	settlements, warnings := b.takeAll()
	good := true
	for group, all := range settlements {
		for len(all) > 0 {
			some := all[:min(len(all), store.MaxSettlements)]
			if err := b.settleNow(group, some); err != nil {
				b.putBack(group, all)
				good = false
				break
			}
			b.written(len(some))
			all = all[len(some):]
		}
	}
	for _, w := range warnings {
		b.committer.sendWarning(w)
		b.written(1)
	}
	if good {
		b.committer.marks.advance(b.committer, markEvery)
	}
	return good
}

// settleNow settles. If one settlement is invalid, the others are settled all the same.
func (b *background) settleNow(group string, all []store.Settlement) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_, err := b.committer.o.Store.Settle(ctx, group, all...)
	switch {
	case !errors.Is(err, store.ErrInvalid):
		return err
	case len(all) == 1:
		b.committer.o.Log.Error("a hold could not be settled; it counts as spent", "group", group, "err", err)
		return nil
	}
	for _, one := range all {
		if err := b.settleNow(group, []store.Settlement{one}); err != nil {
			return err
		}
	}
	return nil
}

// Close settles what is queued, until ctx ends. No call may be in flight.
func (k *Committer) Close(ctx context.Context) error {
	b := &k.later
	b.mu.Lock()
	select {
	case <-b.stopping:
	default:
		close(b.stopping)
	}
	b.mu.Unlock()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
