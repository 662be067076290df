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

// Options say whose chain a Book writes, and how. Node, Key and DigestKey are needed.
type Options struct {
	Node string // see CheckNode

	// Key signs. It is one that NewKey has made. Where the chain was last signed
	// with one of Previous, that one introduces Key.
	Key      switchboard.Secret
	Previous []switchboard.Secret

	// DigestKey is what the digests of arguments and results are made with; all
	// nodes need the same where they are to be compared.
	DigestKey switchboard.Secret

	Linger     time.Duration // how long a receipt for which nobody waits may wait for others; 0 means 50ms
	Queue      int           // how many may wait; 0 means 8192
	QueueBytes int           // of those that wait; 0 means 8 MiB
	Timeout    time.Duration // of one use of the store; 0 means 5s

	// Anchor takes a line for each checkpoint, and has it durable when Write
	// returns; nil means that they are in Log alone. See OpenAnchor.
	Anchor io.Writer

	CheckpointEvery int           // receipts; 0 means 10,000
	CheckpointAfter time.Duration // since the one before, where there is anything new; 0 means 5min

	Version string       // that writes, for the receipt of the start
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

// A Book writes the chain of a node. It is safe for concurrent use.
type Book struct {
	o       Options
	store   Store
	log     string // in the store
	digests *Digests

	// Who writes holds the pen: somebody who waits for a receipt, where it is free, or run.
	// What follows is the writer's own.
	pen        chan struct{} // takes one
	signer     *signer
	previous   []*signer
	seq        uint64 // of the last entry that is stored
	prev       switchboard.Digest
	unsure     *batch     // was given to the store, and perhaps taken
	buf        []byte     // of entries
	spare      batch      // memory for the next queue
	checkpoint Checkpoint // the last one

	wake     chan struct{} // there is something to write; takes one
	hurry    chan struct{} // and somebody waits for it; takes one
	stopping chan struct{}
	done     chan struct{}

	mu     sync.Mutex
	state  state
	fault  error
	since  time.Time // of fault
	queue  batch
	held   int           // receipts that were queued and are neither stored nor lost
	room   chan struct{} // closed when the queue has been taken
	last   time.Time     // of the receipt that was queued last
	lost   int64         // in all
	losing Lost          // what no receipt says yet
	tail   uint64        // seq, for Status
	anchor error         // why the last checkpoint is not there
}

// state says what becomes of receipts.
type state int

const (
	opening state = iota // nothing can be written before the chain has been read
	open
	down   // the store does not take them now; they wait
	fenced // the chain is not ours any more
	closed
)

// A batch is receipts that are written at once.
type batch struct {
	bodies []byte // one behind the other
	ends   []int  // where each ends
	waits  []wait // in their order

	// Once it is in the chain:
	entries [][]byte
	head    switchboard.Digest // of the last one
}

// A wait is for one of a batch.
type wait struct {
	at int
	*waiter
}

// A waiter is somebody who waits until a receipt is stored.
type waiter struct {
	ctx    context.Context
	intent *Receipt // where it is one, and a call stands still
	signer *signer  // that signs behind it; nil means the one before
	told   chan error
	seq    uint64

	// gone says that it was told that its receipt is not stored, or has not waited
	// to hear, as ctx said: no call was made. Guarded by Book.mu.
	gone bool
}

// errClosed is why nothing is written any more.
var errClosed = errors.New("the book is closed")

// Open goes on with the chain of the node, or begins one. It checks what was signed
// last. Where the store is unavailable it returns a Book that fails until it is
// there; any other error says that the chain is not as it was left, or that no key
// can go on with it: then nothing must be written to it.
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
		o: o, store: s, log: logPrefix + o.Node, digests: NewDigests(o.DigestKey),
		pen: make(chan struct{}, 1), wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), room: make(chan struct{}),
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
		b.previous = append(b.previous, p)
	}
	switch err := b.begin(ctx); {
	case errors.Is(err, store.ErrUnavailable):
		b.fall(err)
	case err != nil:
		return nil, err
	}
	go b.run()
	return b, nil
}

// Add has r written soon. It does not wait, and does not keep r. Where there is no
// room for it, it is lost, and a later receipt says so; but for what came of a call
// whose intent is written: of these there are no more than calls under way. The id is by
// the time, since nobody knows the number yet; "" where it is lost.
func (b *Book) Add(r *Receipt) (id string) {
	if !b.add(r) {
		return ""
	}
	return TimeID(b.o.Node, r.Time)
}

// add is Add. It reports whether r will be written.
func (b *Book) add(r *Receipt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ready := b.state == open || b.state == down
	if !ready || b.full() && r.Of == "" {
		b.lose(1)
		return false
	}
	b.put(r, nil)
	return true
}

// Write writes r, which is the Book's from then on, and returns its id once it is
// durable. While the store is
// unavailable it fails at once, and so it does when ctx ends: with a
// *switchboard.Error of SB-RCPT-001. An intent that is stored though its writer was
// told otherwise is followed by a receipt that nothing was done.
func (b *Book) Write(ctx context.Context, r *Receipt) (id string, err error) {
	id, _, err = b.write(ctx, r)
	return id, err
}

// write is Write. queued says, where it has failed, that the Book takes care of what
// came of an intent.
func (b *Book) write(ctx context.Context, r *Receipt) (id string, queued bool, err error) {
	w := &waiter{}
	if r.Kind == Intent {
		w.intent = r
	}
	return b.await(ctx, r, w)
}

// Rotate goes on with another key, which a receipt brings into the chain that the one
// before has signed. It returns when that is durable. Where it fails, which it does at once
// while the store is unavailable, the new key may still come in later; to try again with the
// same one is right then.
func (b *Book) Rotate(ctx context.Context, key switchboard.Secret) error {
	s, err := newSigner(key)
	if err != nil {
		return err
	}
	_, _, err = b.await(ctx, &Receipt{Kind: KeyKind, Key: Key{b.o.Node, s.public}}, &waiter{signer: s})
	return err
}

// await queues r and waits for it, or writes it.
func (b *Book) await(ctx context.Context, r *Receipt, w *waiter) (id string, queued bool, err error) {
	w.ctx, w.told = ctx, make(chan error, 1)
	for {
		b.mu.Lock()
		if b.state != open {
			err := b.refusal()
			b.mu.Unlock()
			return "", false, err
		}
		if !b.full() {
			b.put(r, w)
			b.mu.Unlock()
			break
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return "", false, refusal(context.Cause(ctx))
		}
	}
	if !b.lead(ctx) {
		ring(b.wake)
		ring(b.hurry)
	}
	select {
	case err = <-w.told:
	case <-ctx.Done():
		b.mu.Lock()
		select {
		case err = <-w.told:
		default:
			w.gone = true
			err = refusal(context.Cause(ctx))
		}
		b.mu.Unlock()
	}
	if err != nil {
		return "", true, err
	}
	return ID(b.o.Node, w.seq), true, nil
}

// put queues r. The caller holds b.mu, and where it gives w, sees to it that it is written.
func (b *Book) put(r *Receipt, w *waiter) {
	first := len(b.queue.ends) == 0
	b.last = later(b.last)
	r.Time = b.last
	b.queue.bodies = r.append(b.queue.bodies)
	if w != nil {
		b.queue.waits = append(b.queue.waits, wait{len(b.queue.ends), w})
	}
	b.queue.ends = append(b.queue.ends, len(b.queue.bodies))
	b.held++
	if first && w == nil {
		ring(b.wake)
	}
	if len(b.queue.ends) == b.o.Queue/2 {
		ring(b.hurry)
	}
}

// later is now, or, where the clock does not say so, the next instant after the last.
func later(last time.Time) time.Time {
	if now := time.Now().UTC().Truncate(time.Microsecond); now.After(last) {
		return now
	}
	return last.Add(time.Microsecond)
}

func ring(bell chan struct{}) {
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

// full reports whether there is no room. The caller holds b.mu.
func (b *Book) full() bool {
	return len(b.queue.ends) >= b.o.Queue || len(b.queue.bodies) >= b.o.QueueBytes
}

// lose counts receipts that are lost. The caller holds b.mu.
func (b *Book) lose(n int64) {
	if b.losing.Receipts == 0 {
		b.losing.Since = time.Now().UTC()
		b.o.Log.Error("receipts are lost", "node", b.o.Node, "err", b.fault)
	}
	b.losing.Receipts += n
	b.lost += n
}

// Inherit has b answer for the receipts that are lost of was, a Book that is closed and in
// whose place b goes on: it counts them, and a receipt says so.
func (b *Book) Inherit(was *Book) {
	was.mu.Lock()
	lost, losing := was.lost, was.losing
	was.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost += lost
	if losing.Receipts == 0 {
		return
	}
	b.losing.Receipts += losing.Receipts
	b.losing.Since = losing.Since // which was before
	ring(b.wake)
}

// refusal says why nothing is written. The caller holds b.mu.
func (b *Book) refusal() error {
	if b.fault == nil {
		return refusal(errClosed)
	}
	return refusal(b.fault)
}

func refusal(why error) *switchboard.Error {
	return &switchboard.Error{
		Code: switchboard.CodeReceipt, Text: "nothing was done, since there could be no record of it; try again later",
		Unsent: true, Cause: fmt.Errorf("receipts: %w", why),
	}
}

// Status says how a Book fares.
type Status struct {
	Node    string `json:"node"`
	Seq     uint64 `json:"seq"`     // of the last receipt that is stored
	Waiting int    `json:"waiting"` // to be stored, also while they are being written
	Lost    int64  `json:"lost"`    // since the Book, or the first that it inherits from, was opened

	Fault  string    `json:"fault,omitempty"` // why nothing can be written now
	Since  time.Time `json:"since,omitzero"`  // when that began
	Fenced bool      `json:"fenced,omitempty"`

	Anchor string `json:"anchor_fault,omitempty"` // why the last checkpoint is in the log alone
}

// Status says how it fares.
func (b *Book) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Status{Node: b.o.Node, Seq: b.tail, Waiting: b.held, Lost: b.lost, Fenced: b.state == fenced}
	if b.fault != nil {
		s.Fault, s.Since = b.fault.Error(), b.since
	}
	if b.anchor != nil {
		s.Anchor = b.anchor.Error()
	}
	return s
}

// Close writes what waits, a receipt of the stop and a last checkpoint, as far as the
// store takes them before ctx ends. The error says what could not be written.
func (b *Book) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.state == closed || b.stopped() {
		b.mu.Unlock()
		<-b.done
		return nil
	}
	if b.state == open {
		b.put(&Receipt{Kind: Stop, Note: b.o.Version}, nil)
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
		return fmt.Errorf("receipts: %d of node %s are lost: %w", b.lost, b.o.Node, b.fault)
	}
	return nil
}
