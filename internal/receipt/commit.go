package receipt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// How much is written at once, at most.
const (
	maxBatch      = 2048
	maxBatchBytes = 4 << 20
)

// How long the Book waits before it tries the store again.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// writeLoop writes the queue until the Book is closed: the receipts without waiters, and those that
// were queued while another goroutine wrote.
func (b *Book) writeLoop() {
	defer close(b.done)
	tick := time.NewTicker(b.options.CheckpointAfter)
	defer tick.Stop()
	for b.awaitStore() {
		late := false
		select {
		case <-b.wake:
			b.waitForMore()
		case <-tick.C:
			late = true
		case <-b.stopping:
			b.writeRight <- struct{}{}
			if b.drainQueue() {
				b.makeCheckpoint(b.seq > b.lastCheckpoint.Seq)
			}
			b.markClosed()
			<-b.writeRight
			return
		}
		b.writeRight <- struct{}{}
		if b.flushQueue() {
			b.makeCheckpoint(b.checkpointDue() || late && b.seq > b.lastCheckpoint.Seq)
		}
		<-b.writeRight
	}
	b.writeRight <- struct{}{}
	b.markClosed()
	<-b.writeRight
}

// writeAsCaller lets the waiting caller write the queue itself, which saves two switches between
// goroutines. It reports whether the caller wrote. It declines if another goroutine writes now, or
// if ctx may end before the store answers.
func (b *Book) writeAsCaller(ctx context.Context) bool {
	if until, ok := ctx.Deadline(); ok && time.Until(until) < b.options.Timeout {
		return false
	}
	select {
	case b.writeRight <- struct{}{}:
	default:
		return false
	}
	defer func() { <-b.writeRight }()
	if !b.flushQueue() || b.checkpointDue() { // run has to retry, or to make a checkpoint
		signal(b.wake)
		signal(b.wakeNow)
	}
	return true
}

// waitForMore waits for more receipts, unless a caller waits already.
func (b *Book) waitForMore() {
	t := time.NewTimer(b.options.Linger)
	defer t.Stop()
	select {
	case <-b.wakeNow:
	case <-t.C:
	case <-b.stopping:
	}
}

// flushQueue writes the queue, and reports whether all of it is stored.
func (b *Book) flushQueue() bool {
	batch, ok := b.takeQueue()
	return ok && b.commitBatch(batch)
}

// takeQueue empties the queue, after it added a receipt that reports lost receipts. It takes nothing
// unless the Book is open: a batch that could not be written goes first.
func (b *Book) takeQueue() (taken batch, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != open {
		return batch{}, false
	}
	if b.unreportedLoss.Receipts > 0 {
		b.enqueue(&Receipt{Kind: LostKind, Lost: b.unreportedLoss}, nil)
		b.unreportedLoss = Lost{}
	}
	taken = b.queue
	b.queue, b.spareBatch = b.spareBatch, batch{}
	close(b.roomFreed)
	b.roomFreed = make(chan struct{})
	for _, bell := range []chan struct{}{b.wake, b.wakeNow} {
		select {
		case <-bell:
		default:
		}
	}
	return taken, true
}

// drainQueue writes until the queue is empty, and reports whether all of it is stored.
func (b *Book) drainQueue() bool {
	for {
		batch, ok := b.takeQueue()
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
func (b *Book) commitBatch(whole batch) bool {
	spare := batch{bodies: whole.bodies[:0], ends: whole.ends[:0], waiters: whole.waiters[:0]}
	for len(whole.ends) > 0 {
		part := whole.cutFront()
		b.chainEntries(&part, b.signer)
		if err := b.appendBatch(&part); err != nil {
			b.mu.Lock()
			b.queue.prepend(&whole)
			b.mu.Unlock()
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

// cutFront removes the part that is written next from the front of w.
func (w *batch) cutFront() batch {
	n := min(len(w.ends), maxBatch)
	for n > 1 && w.ends[n-1] > maxBatchBytes {
		n /= 2
	}
	end := w.ends[n-1]
	at, _ := slices.BinarySearchFunc(w.waiters, n, func(w queuedWaiter, n int) int { return w.index - n })
	part := batch{bodies: w.bodies[:end], ends: w.ends[:n], waiters: w.waiters[:at]}
	w.bodies, w.ends, w.waiters = w.bodies[end:], w.ends[n:], w.waiters[at:]
	for i := range w.ends {
		w.ends[i] -= end
	}
	for i := range w.waiters {
		w.waiters[i].index -= n
	}
	return part
}

// prepend puts first before the receipts that were queued since.
func (w *batch) prepend(first *batch) {
	bytes, n := len(first.bodies), len(first.ends)
	for i := range w.ends {
		w.ends[i] += bytes
	}
	for i := range w.waiters {
		w.waiters[i].index += n
	}
	w.bodies = slices.Concat(first.bodies, w.bodies)
	w.ends = slices.Concat(first.ends, w.ends)
	w.waiters = slices.Concat(first.waiters, w.waiters)
}

// chainEntries makes the entries of a batch, and signs the last one.
func (b *Book) chainEntries(p *batch, by *signer) {
	buf, prev, from := b.entryBuffer[:0], b.prev, 0
	starts := make([]int, len(p.ends), len(p.ends)+1)
	for i, end := range p.ends {
		starts[i] = len(buf)
		buf = appendEntry(buf, prev, p.bodies[from:end], b.seq+1+uint64(i))
		from = end
		if i == len(p.ends)-1 {
			buf = appendSignature(buf, starts[i], by)
		}
		prev = canonical.Sum(buf[starts[i]:])
	}
	starts = append(starts, len(buf))
	p.entries = make([][]byte, len(p.ends))
	for i := range p.entries {
		p.entries[i] = buf[starts[i]:starts[i+1]:starts[i+1]]
	}
	p.head = prev
	b.entryBuffer = buf
}

// appendBatch writes the entries of a batch to the store.
func (b *Book) appendBatch(p *batch) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.options.Timeout)
	defer cancel()
	err := b.store.Append(ctx, b.logName, b.seq, p.entries...)
	if errors.Is(err, store.ErrConflict) {
		err = b.checkStored(ctx, p)
	}
	if err == nil {
		b.confirmStored(p)
	}
	return err
}

// keepUnconfirmed remembers a batch that the store did not confirm. The store may have it all the
// same, now or later, so the same bytes are written again until the store answers.
func (b *Book) keepUnconfirmed(p *batch, err error) {
	b.unconfirmed, b.entryBuffer = p, nil
	if errors.Is(err, store.ErrConflict) {
		b.markFenced(fmt.Errorf("another process writes the chain of node %s: %w", b.options.Node, err))
		return
	}
	b.markUnavailable(err)
}

// checkStored reports whether an earlier attempt stored the batch. The error is ErrConflict if other
// entries are in its place.
func (b *Book) checkStored(ctx context.Context, p *batch) error {
	there, err := b.store.Read(ctx, b.logName, b.seq, len(p.entries)+1)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(there, p.entries, func(e store.Entry, own []byte) bool { return bytes.Equal(e.Data, own) })
	if !same {
		return fmt.Errorf("the entries after %d of %s are not those that this process wrote: %w", b.seq, b.logName, store.ErrConflict)
	}
	return nil
}

// confirmStored tells the waiters that the batch is durable. If a waiter was told otherwise, or has
// gone, and its receipt is an intent, another receipt says that nothing was done.
func (b *Book) confirmStored(p *batch) {
	first := b.seq + 1
	b.seq += uint64(len(p.entries))
	b.prev = p.head
	b.unconfirmed = nil
	b.mu.Lock()
	b.storedSeq = b.seq
	b.unwritten -= len(p.entries)
	for _, w := range p.waiters {
		w.seq = first + uint64(w.index)
		if w.signer != nil { // even if the caller did not wait: the key is in the chain
			b.signer = w.signer
		}
		if !w.refused && w.ctx.Err() == nil {
			w.result <- nil
			continue
		}
		if !w.refused {
			w.refused = true
			w.result <- refuseBecause(context.Cause(w.ctx))
		}
		if w.intent != nil {
			r := *w.intent
			r.Kind, r.Of, r.Outcome, r.Code = Call, ID(b.options.Node, w.seq), Refused, refuseBecause(nil).Code
			b.enqueue(&r, nil)
		}
	}
	b.mu.Unlock()
}

// checkpointDue reports whether enough entries were written since the last checkpoint to make one.
func (b *Book) checkpointDue() bool {
	return b.seq-b.lastCheckpoint.Seq >= uint64(b.options.CheckpointEvery)
}

// markUnavailable records that the store is unavailable, and refuses all waiters.
func (b *Book) markUnavailable(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil {
		b.faultSince = time.Now().UTC()
		b.options.Log.Error("receipts cannot be written: calls that may change something outside are refused until they can", "node", b.options.Node, "err", err)
	}
	b.fault = err
	if b.state == open {
		b.state = down
	}
	b.refuseWaiters()
}

// markFenced records that this process may not write to the chain any more.
func (b *Book) markFenced(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.faultSince, b.fault = fenced, time.Now().UTC(), err
	b.options.Log.Error("receipts cannot be written until this process restarts", "node", b.options.Node, "err", err)
	b.refuseWaiters()
}

// refuseWaiters tells all waiters that their receipts are not written. The caller holds b.mu.
func (b *Book) refuseWaiters() {
	waits := b.queue.waiters
	if b.unconfirmed != nil {
		waits = slices.Concat(b.unconfirmed.waiters, waits)
	}
	for _, w := range waits {
		if !w.refused {
			w.refused = true
			w.result <- b.refusalError()
		}
	}
	close(b.roomFreed)
	b.roomFreed = make(chan struct{})
}

// awaitStore waits until the store takes receipts. It returns false if nothing can be written any
// more: the chain belongs to another process, or the Book was closed before the store answered.
func (b *Book) awaitStore() bool {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		b.mu.Lock()
		now := b.state
		b.mu.Unlock()
		switch now {
		case open:
			return true
		case fenced:
			return false
		}
		last := b.stopped()
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
			b.markAvailable()
		}
		<-b.writeRight
		if last && !good {
			return false
		}
	}
}

// retryStore repeats the operation that failed, once.
func (b *Book) retryStore(was bookState) bool {
	if was == opening {
		ctx, cancel := context.WithTimeout(context.Background(), b.options.Timeout)
		defer cancel()
		err := b.takeOverChain(ctx)
		switch {
		case errors.Is(err, store.ErrUnavailable):
			b.markUnavailable(err)
		case err != nil:
			b.markFenced(err)
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

// markAvailable records that the store takes receipts again.
func (b *Book) markAvailable() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.options.Log.Info("receipts are written again", "node", b.options.Node, "after", time.Since(b.faultSince).Round(time.Millisecond))
	b.state, b.fault = open, nil
	if len(b.queue.ends) > 0 || b.unreportedLoss.Receipts > 0 {
		signal(b.wake)
		signal(b.wakeNow)
	}
}

// markClosed closes the Book, and counts the receipts that were not written as lost.
func (b *Book) markClosed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unwritten > 0 {
		b.countLost(int64(b.unwritten))
		b.unwritten = 0
	}
	if b.state != fenced {
		b.state = closed
	}
	b.refuseWaiters()
}
