package receipt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Reader reads chains. A store.Store is one.
type Reader interface {
	Read(ctx context.Context, log string, after uint64, limit int) ([]store.Entry, error)
	Span(ctx context.Context, log string) (store.Span, error)
	Logs(ctx context.Context) ([]string, error)
}

// A Store keeps chains. A store.Store is one.
type Store interface {
	Reader
	Append(ctx context.Context, log string, after uint64, entries ...[]byte) error
	Trim(ctx context.Context, log string, first uint64) error
}

// Options say which chain a Book writes, and how. Node, Key and DigestKey are needed.
type Options struct {
	Node string // see CheckNode

	// Key signs the chain; NewKey makes such keys. If the last signature of the chain is by one of
	// Previous, that key signs the receipt that introduces Key.
	Key      switchboard.Secret
	Previous []switchboard.Secret

	// DigestKey keys the digests of arguments and results. All replicas need the same one, so that
	// their digests can be compared.
	DigestKey switchboard.Secret

	Linger     time.Duration // how long a receipt without a waiter may wait for others; 0 means 50ms
	Queue      int           // how many receipts may wait; 0 means 8192
	QueueBytes int           // bytes of the receipts that wait; 0 means 8 MiB
	Timeout    time.Duration // for one use of the store; 0 means 5s

	// Anchor gets one line for each checkpoint. The line must be durable when Write returns. nil
	// means that checkpoints are written to Log alone. See OpenAnchor.
	Anchor io.Writer

	CheckpointEvery int           // receipts; 0 means 10,000
	CheckpointAfter time.Duration // since the last one, if there are new entries; 0 means 5min

	Version string       // of Switchboard, for the receipt of the start
	Log     *slog.Logger // nil means none
}

// The defaults.
const (
	defaultLinger          = 50 * time.Millisecond
	defaultQueue           = 8192
	defaultQueueBytes      = 8 << 20
	defaultTimeout         = 5 * time.Second
	defaultCheckpointEvery = 10_000
	defaultCheckpointAfter = 5 * time.Minute
)

// A Book writes the chain of one replica. It is safe for concurrent use.
type Book struct {
	options Options
	store   Store
	logName string // its name in the store
	digests *Digests

	// writeRight is the right to write: a caller that waits for a receipt takes it if it is free,
	// run takes it otherwise. The fields below it belong to its holder.
	writeRight      chan struct{} // holds one
	signer          *signer
	previousSigners []*signer
	seq             uint64 // of the last stored entry
	prev            switchboard.Digest
	unconfirmed     *batch     // given to the store, which did not confirm it
	entryBuffer     []byte     // memory for entries
	spareBatch      batch      // memory for the next queue
	lastCheckpoint  Checkpoint // the last one that was made

	wake     chan struct{} // there is something to write; holds one
	wakeNow  chan struct{} // and a caller waits for it; holds one
	stopping chan struct{}
	done     chan struct{}

	mu             sync.Mutex
	state          bookState
	fault          error
	faultSince     time.Time // of fault
	queue          batch
	unwritten      int           // receipts that were queued and are neither stored nor lost
	roomFreed      chan struct{} // closed when the queue is emptied
	lastTime       time.Time     // of the last queued receipt
	totalLost      int64         // in all
	unreportedLoss Lost          // not yet reported by a receipt
	storedSeq      uint64        // seq, for Status
	anchorFault    error         // why the last checkpoint is not in the anchor
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

// A batch holds receipts that are written together.
type batch struct {
	bodies  []byte         // one after another
	ends    []int          // where each body ends
	waiters []queuedWaiter // sorted by at

	// Set once the batch is part of the chain:
	entries [][]byte
	head    switchboard.Digest // digest of the last entry
}

// A queuedWaiter joins a waiter to the receipt at index at of a batch.
type queuedWaiter struct {
	index int
	*receiptWaiter
}

// A receiptWaiter is a caller that waits until its receipt is stored.
type receiptWaiter struct {
	ctx    context.Context
	intent *Receipt // set if the receipt is an intent: a call waits for it
	signer *signer  // the key that signs after this receipt; nil means no change
	result chan error
	seq    uint64

	// refused says that the caller was told that its receipt is not stored, or that it stopped
	// waiting because ctx ended. Either way it made no call. Guarded by Book.mu.
	refused bool
}

// errClosed is why a closed Book writes nothing.
var errClosed = errors.New("the book is closed")

// Open continues the chain of o.Node, or begins one. It checks the entries since the last signature
// but one. If the store is unavailable, it returns a Book that refuses receipts until the store
// answers. Any other error says that the chain was changed, or that no key can continue it: then
// nothing may be written to it.
func Open(ctx context.Context, s Store, o Options) (*Book, error) {
	if err := CheckNode(o.Node); err != nil {
		return nil, err
	}
	o.Linger = cmp.Or(o.Linger, defaultLinger)
	o.Queue = cmp.Or(o.Queue, defaultQueue)
	o.QueueBytes = cmp.Or(o.QueueBytes, defaultQueueBytes)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, defaultCheckpointEvery)
	o.CheckpointAfter = cmp.Or(o.CheckpointAfter, defaultCheckpointAfter)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.DigestKey.Reveal() == "" {
		return nil, errors.New("receipts: there is no key for digests")
	}
	b := &Book{
		options: o, store: s, logName: logPrefix + o.Node, digests: NewDigests(o.DigestKey),
		writeRight: make(chan struct{}, 1), wake: make(chan struct{}, 1), wakeNow: make(chan struct{}, 1), roomFreed: make(chan struct{}),
		stopping: make(chan struct{}), done: make(chan struct{}),
	}
	var err error
	if b.signer, err = newSigner(o.Key); err != nil {
		return nil, err
	}
	for _, key := range o.Previous {
		p, err := newSigner(key)
		if err != nil {
			return nil, err
		}
		b.previousSigners = append(b.previousSigners, p)
	}
	switch err := b.takeOverChain(ctx); {
	case errors.Is(err, store.ErrUnavailable):
		b.markUnavailable(err)
	case err != nil:
		return nil, err
	}
	go b.writeLoop()
	return b, nil
}

// Add queues r and returns at once. It keeps no reference to r. If the queue is full, r is lost and
// a later receipt counts the loss. A receipt of the outcome of a written intent is never lost this
// way: there are at most as many of them as calls in flight. The id names r by its time, because
// its number is not known yet. It is "" if r is lost.
func (b *Book) Add(r *Receipt) (id string) {
	if !b.tryAdd(r) {
		return ""
	}
	return TimeID(b.options.Node, r.Time)
}

// tryAdd queues r, and reports whether r will be written.
func (b *Book) tryAdd(r *Receipt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ready := b.state == open || b.state == down
	if !ready || b.queueFull() && r.Of == "" {
		b.countLost(1)
		return false
	}
	b.enqueue(r, nil)
	return true
}

// Write writes r and returns its id once it is durable. r belongs to the Book from then on. It
// fails with a *switchboard.Error of SB-RCPT-001, at once while the store is unavailable, or when
// ctx ends. If an intent is stored although Write failed, the Book writes another receipt, which
// says that nothing was done.
func (b *Book) Write(ctx context.Context, r *Receipt) (id string, err error) {
	id, _, err = b.writeQueued(ctx, r)
	return id, err
}

// writeQueued does the work of Write. If it fails, queued says whether the Book itself writes the
// outcome of an intent.
func (b *Book) writeQueued(ctx context.Context, r *Receipt) (id string, queued bool, err error) {
	w := &receiptWaiter{}
	if r.Kind == Intent {
		w.intent = r
	}
	return b.queueAndWait(ctx, r, w)
}

// Rotate makes the chain continue with another key. The old key signs a receipt that introduces the
// new one. Rotate returns when that receipt is durable. It fails at once while the store is
// unavailable. After any failure the new key may still come into the chain, so the caller should
// try again with the same key.
func (b *Book) Rotate(ctx context.Context, key switchboard.Secret) error {
	s, err := newSigner(key)
	if err != nil {
		return err
	}
	_, _, err = b.queueAndWait(ctx, &Receipt{Kind: KeyKind, Key: Key{b.options.Node, s.public}}, &receiptWaiter{signer: s})
	return err
}

// queueAndWait queues r, and waits for it or writes it.
func (b *Book) queueAndWait(ctx context.Context, r *Receipt, w *receiptWaiter) (id string, queued bool, err error) {
	w.ctx, w.result = ctx, make(chan error, 1)
	for {
		b.mu.Lock()
		if b.state != open {
			err := b.refusalError()
			b.mu.Unlock()
			return "", false, err
		}
		if !b.queueFull() {
			b.enqueue(r, w)
			b.mu.Unlock()
			break
		}
		room := b.roomFreed
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return "", false, refuseBecause(context.Cause(ctx))
		}
	}
	if !b.writeAsCaller(ctx) {
		signal(b.wake)
		signal(b.wakeNow)
	}
	select {
	case err = <-w.result:
	case <-ctx.Done():
		b.mu.Lock()
		select {
		case err = <-w.result:
		default:
			w.refused = true
			err = refuseBecause(context.Cause(ctx))
		}
		b.mu.Unlock()
	}
	if err != nil {
		return "", true, err
	}
	return ID(b.options.Node, w.seq), true, nil
}

// enqueue queues r. The caller holds b.mu. If it gives w, it also makes sure that the queue is
// written.
func (b *Book) enqueue(r *Receipt, w *receiptWaiter) {
	first := len(b.queue.ends) == 0
	b.lastTime = nextTime(b.lastTime)
	r.Time = b.lastTime
	b.queue.bodies = r.append(b.queue.bodies)
	if w != nil {
		b.queue.waiters = append(b.queue.waiters, queuedWaiter{len(b.queue.ends), w})
	}
	b.queue.ends = append(b.queue.ends, len(b.queue.bodies))
	b.unwritten++
	if first && w == nil {
		signal(b.wake)
	}
	if len(b.queue.ends) == b.options.Queue/2 {
		signal(b.wakeNow)
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

func (b *Book) stopped() bool {
	select {
	case <-b.stopping:
		return true
	default:
		return false
	}
}

// queueFull reports whether the queue is full. The caller holds b.mu.
func (b *Book) queueFull() bool {
	return len(b.queue.ends) >= b.options.Queue || len(b.queue.bodies) >= b.options.QueueBytes
}

// countLost counts n lost receipts. The caller holds b.mu.
func (b *Book) countLost(n int64) {
	if b.unreportedLoss.Receipts == 0 {
		b.unreportedLoss.Since = time.Now().UTC()
		b.options.Log.Error("receipts are lost", "node", b.options.Node, "err", b.fault)
	}
	b.unreportedLoss.Receipts += n
	b.totalLost += n
}

// Inherit adds the lost receipts of was to those of b, which counts them and reports them in a
// receipt. was is closed, and b replaces it.
func (b *Book) Inherit(was *Book) {
	was.mu.Lock()
	lost, losing := was.totalLost, was.unreportedLoss
	was.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totalLost += lost
	if losing.Receipts == 0 {
		return
	}
	b.unreportedLoss.Receipts += losing.Receipts
	b.unreportedLoss.Since = losing.Since // the earlier of the two
	signal(b.wake)
}

// refusalError says why nothing can be written. The caller holds b.mu.
func (b *Book) refusalError() error {
	if b.fault == nil {
		return refuseBecause(errClosed)
	}
	return refuseBecause(b.fault)
}

func refuseBecause(why error) *switchboard.Error {
	return &switchboard.Error{
		Code: switchboard.CodeReceipt, Text: "nothing was done, because it could not be recorded; try again later",
		Unsent: true, Cause: fmt.Errorf("receipts: %w", why),
	}
}

// Status is the state of a Book.
type Status struct {
	Node    string `json:"node"`
	Seq     uint64 `json:"seq"`     // of the last stored receipt
	Waiting int    `json:"waiting"` // receipts that are queued or being written
	Lost    int64  `json:"lost"`    // since the first Book of those that this one inherits from was opened

	Fault  string    `json:"fault,omitempty"` // why nothing can be written now
	Since  time.Time `json:"since,omitzero"`  // when Fault began
	Fenced bool      `json:"fenced,omitempty"`

	Anchor string `json:"anchor_fault,omitempty"` // why the last checkpoint is in the log output alone
}

// Status returns the state of b.
func (b *Book) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Status{Node: b.options.Node, Seq: b.storedSeq, Waiting: b.unwritten, Lost: b.totalLost, Fenced: b.state == fenced}
	if b.fault != nil {
		s.Fault, s.Since = b.fault.Error(), b.faultSince
	}
	if b.anchorFault != nil {
		s.Anchor = b.anchorFault.Error()
	}
	return s
}

// Close writes the queue, a receipt of the stop and a last checkpoint. It stops when ctx ends. The
// error says what could not be written.
func (b *Book) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.state == closed || b.stopped() {
		b.mu.Unlock()
		<-b.done
		return nil
	}
	if b.state == open {
		b.enqueue(&Receipt{Kind: Stop, Note: b.options.Version}, nil)
	}
	close(b.stopping)
	b.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		return fmt.Errorf("receipts: %w", context.Cause(ctx))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		return fmt.Errorf("receipts: %d of node %s are lost: %w", b.totalLost, b.options.Node, b.fault)
	}
	return nil
}
