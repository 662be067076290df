package receipt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A receiptQueue holds the receipts that are not stored yet and the callers that wait for them. It
// knows whether receipts can be stored now, refuses waiting callers if not, and counts lost
// receipts. It is safe for concurrent use.
type receiptQueue struct {
	options *ChainOptions
	wake    chan struct{} // there is something to write; holds one
	wakeNow chan struct{} // and a caller waits for it; holds one

	mu             sync.Mutex
	state          bookState
	fault          error
	faultSince     time.Time
	queued         batch
	terms          termTable
	unwritten      int           // receipts that were queued and are neither stored nor lost
	roomFreed      chan struct{} // closed when the queue is emptied
	lastTime       time.Time     // of the last queued receipt
	totalLost      int64
	unreportedLoss LossReport // no receipt reports it yet
	storedSeq      uint64     // of the last stored entry
}

func newReceiptQueue(o *ChainOptions) receiptQueue {
	return receiptQueue{options: o, wake: make(chan struct{}, 1), wakeNow: make(chan struct{}, 1), roomFreed: make(chan struct{})}
}

// bookState says what happens to new receipts.
type bookState int

const (
	opening bookState = iota // the chain has not been read yet, so nothing can be written
	open
	down   // the store does not answer; receipts wait
	fenced // another process owns the chain now
	closed
)

// A queuedWaiter joins a waiter to the receipt at that index of a batch.
type queuedWaiter struct {
	index int
	*receiptWaiter
}

// A receiptWaiter is a caller that waits until its receipt is stored.
type receiptWaiter struct {
	ctx    context.Context
	signer *signer // the key that signs after this receipt; nil means no change
	result chan error
	seq    uint64 // that the receipt has if it is stored; set when it is queued

	// refused says that the caller was told that its receipt is not stored, or that it stopped
	// waiting because ctx ended. Either way it made no call. Guarded by receiptQueue.mu.
	refused bool
}

// errClosed is why a closed Chain writes nothing.
var errClosed = errors.New("the chain is closed")

// tryAdd queues r, and reports whether r will be written.
func (q *receiptQueue) tryAdd(r *Receipt) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ready := q.state == open || q.state == down
	if !ready || q.isFull() && r.Of == "" {
		q.countLost(1)
		return false
	}
	q.enqueue(r, nil)
	return true
}

// addWithWaiter queues r with a waiter. It waits for room until the context of w ends, and fails at
// once if receipts cannot be stored now. The caller makes sure that the queue is written.
func (q *receiptQueue) addWithWaiter(r *Receipt, w *receiptWaiter) error {
	for {
		q.mu.Lock()
		if q.state != open {
			err := q.refusalError()
			q.mu.Unlock()
			return err
		}
		if !q.isFull() {
			q.enqueue(r, w)
			q.mu.Unlock()
			return nil
		}
		room := q.roomFreed
		q.mu.Unlock()
		select {
		case <-room:
		case <-w.ctx.Done():
			return refuseBecause(context.Cause(w.ctx))
		}
	}
}

// wait returns when the receipt of w is stored, is refused, or the context of w ends.
func (q *receiptQueue) wait(w *receiptWaiter) error {
	select {
	case err := <-w.result:
		return err
	case <-w.ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case err := <-w.result:
		return err
	default:
		w.refused = true
		return refuseBecause(context.Cause(w.ctx))
	}
}

// enqueue queues r. The caller holds q.mu. If it gives w, it also makes sure that the queue is
// written.
func (q *receiptQueue) enqueue(r *Receipt, w *receiptWaiter) {
	first := len(q.queued.ends) == 0
	q.lastTime = nextTime(q.lastTime)
	r.Time = q.lastTime
	q.queued.bodies = r.append(q.queued.bodies)
	q.queued.terms = append(q.queued.terms, q.terms.find(r))
	q.unwritten++
	if w != nil {
		w.seq = q.storedSeq + uint64(q.unwritten)
		q.queued.waiters = append(q.queued.waiters, queuedWaiter{len(q.queued.ends), w})
	}
	q.queued.ends = append(q.queued.ends, len(q.queued.bodies))
	if first && w == nil {
		signal(q.wake)
	}
	if len(q.queued.ends) == q.options.Queue/2 {
		signal(q.wakeNow)
	}
}

// nextTime returns the current time, or last plus a microsecond if the clock is not past last.
func nextTime(last time.Time) time.Time {
	if now := time.Now().UTC().Truncate(time.Microsecond); now.After(last) {
		return now
	}
	return last.Add(time.Microsecond)
}

func signal(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// isClosed reports whether c is closed. Nothing is ever sent on c.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// isFull reports whether the queue is full. The caller holds q.mu.
func (q *receiptQueue) isFull() bool {
	return len(q.queued.ends) >= q.options.Queue || len(q.queued.bodies) >= q.options.QueueBytes
}

// countLost counts n lost receipts. The caller holds q.mu.
func (q *receiptQueue) countLost(n int64) {
	if q.unreportedLoss.Receipts == 0 {
		q.unreportedLoss.Since = time.Now().UTC()
		q.options.Log.Error("receipts are lost", "node", q.options.Node, "err", q.fault)
	}
	q.unreportedLoss.Receipts += n
	q.totalLost += n
}

// losses returns the lost receipts: all, and those that no receipt reports yet.
func (q *receiptQueue) losses() (total int64, unreported LossReport) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.totalLost, q.unreportedLoss
}

// addLosses adds lost receipts of an earlier queue, which a receipt will report.
func (q *receiptQueue) addLosses(total int64, unreported LossReport) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.totalLost += total
	if unreported.Receipts == 0 {
		return
	}
	q.unreportedLoss.Receipts += unreported.Receipts
	q.unreportedLoss.Since = unreported.Since // the earlier of the two
	signal(q.wake)
}

// refusalError says why nothing can be written. The caller holds q.mu.
func (q *receiptQueue) refusalError() error {
	if q.fault == nil {
		return refuseBecause(errClosed)
	}
	return refuseBecause(q.fault)
}

func refuseBecause(why error) *switchboard.Error {
	return &switchboard.Error{
		Code: switchboard.CodeReceipt, Text: "nothing was done, because it could not be recorded; try again later",
		Unsent: true, Cause: fmt.Errorf("receipts: %w", why),
	}
}

// wakeWriter makes the write loop write without waiting for more receipts.
func (q *receiptQueue) wakeWriter() {
	signal(q.wake)
	signal(q.wakeNow)
}

// takeAll empties the queue, after it added a receipt that reports lost receipts. It takes nothing
// unless receipts can be stored: a batch that could not be written goes first. The queue continues in
// the memory of spare, and spare is empty then.
func (q *receiptQueue) takeAll(spare *batch) (taken batch, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != open {
		return batch{}, false
	}
	if q.unreportedLoss.Receipts > 0 {
		q.enqueue(&Receipt{Kind: LostKind, Lost: q.unreportedLoss}, nil)
		q.unreportedLoss = LossReport{}
	}
	taken = q.queued
	q.queued, *spare = *spare, batch{}
	close(q.roomFreed)
	q.roomFreed = make(chan struct{})
	for _, bell := range []chan struct{}{q.wake, q.wakeNow} {
		select {
		case <-bell:
		default:
		}
	}
	return taken, true
}

// putBack puts receipts that were taken before those that were queued since.
func (q *receiptQueue) putBack(rest *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued.prepend(rest)
}

// confirm tells the waiters of a batch that it is durable, from entry first on.
func (q *receiptQueue) confirm(p *batch, first uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.storedSeq = first + uint64(len(p.entries)) - 1
	q.unwritten -= len(p.entries)
	for _, w := range p.waiters {
		switch {
		case w.refused:
		case w.ctx.Err() == nil:
			w.result <- nil
		default:
			w.refused = true
			w.result <- refuseBecause(context.Cause(w.ctx))
		}
	}
}

// currentState returns the state.
func (q *receiptQueue) currentState() bookState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// markOpen records that the chain ends with entry seq, written at the time last, and takes more.
func (q *receiptQueue) markOpen(seq uint64, last time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state, q.fault, q.storedSeq, q.lastTime = open, nil, seq, last
}

// markUnavailable records that the store is unavailable, and refuses all waiters, also those
// of the unconfirmed batch.
func (q *receiptQueue) markUnavailable(err error, unconfirmed *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fault == nil {
		q.faultSince = time.Now().UTC()
		q.options.Log.Error("receipts cannot be written: calls that may change something outside are refused until they can", "node", q.options.Node, "err", err)
	}
	q.fault = err
	if q.state == open {
		q.state = down
	}
	q.refuseWaiters(unconfirmed)
}

// markFenced records that this process may not write to the chain any more.
func (q *receiptQueue) markFenced(err error, unconfirmed *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state, q.faultSince, q.fault = fenced, time.Now().UTC(), err
	q.options.Log.Error("receipts cannot be written until this process restarts", "node", q.options.Node, "err", err)
	q.refuseWaiters(unconfirmed)
}

// refuseWaiters tells all waiters, also those of the unconfirmed batch, that their receipts
// are not written. The caller holds q.mu.
func (q *receiptQueue) refuseWaiters(unconfirmed *batch) {
	waits := q.queued.waiters
	if unconfirmed != nil {
		waits = slices.Concat(unconfirmed.waiters, waits)
	}
	for _, w := range waits {
		if !w.refused {
			w.refused = true
			w.result <- q.refusalError()
		}
	}
	close(q.roomFreed)
	q.roomFreed = make(chan struct{})
}

// markAvailable records that the store takes receipts again.
func (q *receiptQueue) markAvailable() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.options.Log.Info("receipts are written again", "node", q.options.Node, "after", time.Since(q.faultSince).Round(time.Millisecond))
	q.state, q.fault = open, nil
	if len(q.queued.ends) > 0 || q.unreportedLoss.Receipts > 0 {
		q.wakeWriter()
	}
}

// markClosed closes the Chain, and counts the receipts that were not written as lost.
func (q *receiptQueue) markClosed(unconfirmed *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unwritten > 0 {
		q.countLost(int64(q.unwritten))
		q.unwritten = 0
	}
	if q.state != fenced {
		q.state = closed
	}
	q.refuseWaiters(unconfirmed)
}

// stop queues the receipt of the stop and closes stopping. It returns false if that was done before.
func (q *receiptQueue) stop(stopping chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == closed || isClosed(stopping) {
		return false
	}
	if q.state == open {
		q.enqueue(&Receipt{Kind: Stop, Note: q.options.Version}, nil)
	}
	close(stopping)
	return true
}

// lossError says after the end which receipts are lost, and why.
func (q *receiptQueue) lossError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fault == nil {
		return nil
	}
	return fmt.Errorf("receipts: %d of node %s are lost: %w", q.totalLost, q.options.Node, q.fault)
}

func (q *receiptQueue) status() ChainStatus {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := ChainStatus{Node: q.options.Node, Seq: q.storedSeq, Waiting: q.unwritten, Lost: q.totalLost, Fenced: q.state == fenced}
	if q.fault != nil {
		s.Fault, s.Since = q.fault.Error(), q.faultSince
	}
	return s
}
