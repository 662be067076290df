package receipt

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// How long the Chain waits before it tries the store again.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// writeLoop writes the queue until the Chain is closed: the receipts without waiters, and those that
// were queued while another goroutine wrote.
func (b *Chain) writeLoop() {
	tick := time.NewTicker(b.options.CheckpointAfter)
	defer tick.Stop()
	for b.awaitStore() {
		late := false
		select {
		case <-b.queue.wake:
			b.waitForMore()
		case <-tick.C:
			late = true
		case <-b.stopping:
			b.writeRight <- struct{}{}
			if b.drainQueue() {
				b.checkpoints.recordNew(&b.writer)
			}
			b.queue.markClosed(b.unconfirmed)
			<-b.writeRight
			return
		}
		b.writeRight <- struct{}{}
		if b.flushQueue() {
			if late {
				b.checkpoints.recordNew(&b.writer)
			}
			b.checkpoints.recordDue(&b.writer)
		}
		<-b.writeRight
	}
	b.writeRight <- struct{}{}
	b.queue.markClosed(b.unconfirmed)
	<-b.writeRight
}

// writeAsCaller lets the waiting caller write the queue itself, which saves two switches between
// goroutines. It reports whether the caller wrote. It declines if another goroutine writes now, or
// if ctx may end before the store answers.
func (b *Chain) writeAsCaller(ctx context.Context) bool {
	if until, ok := ctx.Deadline(); ok && time.Until(until) < b.options.Timeout {
		return false
	}
	select {
	case b.writeRight <- struct{}{}:
	default:
		return false
	}
	defer func() { <-b.writeRight }()
	if !b.flushQueue() || b.checkpoints.due(b.writer.seq) { // writeLoop has to retry, or to make a checkpoint
		b.queue.wakeWriter()
	}
	return true
}

// waitForMore waits for more receipts, unless a caller waits already.
func (b *Chain) waitForMore() {
	t := time.NewTimer(b.options.Linger)
	defer t.Stop()
	select {
	case <-b.queue.wakeNow:
	case <-t.C:
	case <-b.stopping:
	}
}

// flushQueue writes the queue, and reports whether all of it is stored.
func (b *Chain) flushQueue() bool {
	runtime.Gosched() // callers that are about to queue theirs need no sync of their own
	batch, ok := b.queue.takeAll(&b.spareBatch)
	return ok && b.commitBatch(batch)
}

// drainQueue writes until the queue is empty, and reports whether all of it is stored.
func (b *Chain) drainQueue() bool {
	for {
		batch, ok := b.queue.takeAll(&b.spareBatch)
		if !ok || len(batch.ends) == 0 {
			return ok
		}
		if !b.commitBatch(batch) {
			return false
		}
	}
}

// commitBatch writes a batch, a large one in parts. It puts the parts that the store does not take
// back into the queue.
func (b *Chain) commitBatch(whole batch) bool {
	spare := batch{bodies: whole.bodies[:0], ends: whole.ends[:0], terms: whole.terms[:0], waiters: whole.waiters[:0]}
	for len(whole.ends) > 0 {
		part := whole.cutFront()
		b.writer.chainEntries(&part, b.writer.signer)
		if err := b.appendBatch(&part); err != nil {
			b.queue.putBack(&whole)
			b.keepUnconfirmed(&part, err)
			return false
		}
	}
	if cap(spare.bodies) <= maxBatchBytes {
		clear(spare.waiters[:cap(spare.waiters)])
		b.spareBatch = spare
	}
	return true
}

// appendBatch writes a batch to the store, and tells its waiters that it is stored.
func (b *Chain) appendBatch(p *batch) error {
	first := b.writer.seq + 1
	if err := b.writer.append(p); err != nil {
		return err
	}
	b.unconfirmed = nil
	b.queue.confirm(p, first)
	b.indexer.note(first, p.terms)
	return nil
}

// keepUnconfirmed remembers a batch that the store did not confirm. The store may have it all the
// same, now or later, so the same bytes are written again until the store answers.
func (b *Chain) keepUnconfirmed(p *batch, err error) {
	b.unconfirmed, b.writer.entryBuffer = p, nil // p has the memory of the buffer
	if errors.Is(err, store.ErrConflict) {
		b.queue.markFenced(fmt.Errorf("another process writes the chain of node %s: %w", b.options.Node, err), p)
		return
	}
	b.queue.markUnavailable(err, p)
}

// awaitStore waits until the store takes receipts. It returns false if nothing can be written any
// more: the chain belongs to another process, or the Chain was closed before the store answered.
func (b *Chain) awaitStore() bool {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		now := b.queue.currentState()
		switch now {
		case open:
			return true
		case fenced:
			return false
		}
		last := isClosed(b.stopping)
		if !last {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-b.stopping:
				t.Stop()
			}
		}
		b.writeRight <- struct{}{}
		good := b.retryStore(now)
		if good {
			b.queue.markAvailable()
		}
		<-b.writeRight
		if last && !good {
			return false
		}
	}
}

// retryStore repeats the operation that failed, once.
func (b *Chain) retryStore(was bookState) bool {
	if was == opening {
		ctx, cancel := context.WithTimeout(context.Background(), b.options.Timeout)
		defer cancel()
		err := b.takeOverChain(ctx)
		switch {
		case errors.Is(err, store.ErrUnavailable):
			b.queue.markUnavailable(err, b.unconfirmed)
		case err != nil:
			b.queue.markFenced(err, b.unconfirmed)
		}
		return err == nil
	}
	if b.unconfirmed == nil {
		return true
	}
	if err := b.appendBatch(b.unconfirmed); err != nil {
		b.keepUnconfirmed(b.unconfirmed, err)
		return false
	}
	return true
}

// takeOverChain makes this process the owner of the chain. See chainWriter.takeOver.
func (b *Chain) takeOverChain(ctx context.Context) error {
	last, err := b.writer.takeOver(ctx, b.options.Version)
	if err == nil {
		b.queue.markOpen(b.writer.seq, last)
	}
	return err
}
