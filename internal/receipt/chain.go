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

// A ChainReader reads chains. A store.Store is one.
type ChainReader interface {
	Read(ctx context.Context, log string, after uint64, limit int) ([]store.Entry, error)
	Span(ctx context.Context, log string) (store.Span, error)
	Logs(ctx context.Context) ([]string, error)
}

// A Store keeps chains. A store.Store is one.
type Store interface {
	ChainReader
	Append(ctx context.Context, log string, after uint64, entries ...[]byte) error
	Trim(ctx context.Context, log string, first uint64) error
}

// ChainOptions say which chain a Chain writes, and how. Node, Key and DigestKey are needed.
type ChainOptions struct {
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

	IndexBlock int // entries that one entry of the index describes; 0 means 1,024

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
	defaultIndexBlock      = 1024
)

// A Chain writes the chain of one replica. It is safe for concurrent use.
type Chain struct {
	options     ChainOptions
	digests     *Digests
	queue       receiptQueue
	checkpoints checkpointer
	indexer     *indexer

	// writeRight is the right to write: a caller that waits for a receipt takes it if it is free,
	// writeLoop takes it otherwise. The fields below it belong to its holder.
	writeRight  chan struct{} // holds one
	writer      chainWriter
	unconfirmed *batch // given to the store, which did not confirm it
	spareBatch  batch  // memory for the next queue

	stopping chan struct{}
	done     chan struct{}
}

// Open continues the chain of o.Node, or begins one. It checks the entries since the last signature
// but one. If the store is unavailable, it returns a Chain that refuses receipts until the store
// answers. Any other error says that the chain was changed, or that no key can continue it: then
// nothing may be written to it.
func Open(ctx context.Context, s Store, o ChainOptions) (*Chain, error) {
	if err := CheckNode(o.Node); err != nil {
		return nil, err
	}
	o.Linger = cmp.Or(o.Linger, defaultLinger)
	o.Queue = cmp.Or(o.Queue, defaultQueue)
	o.QueueBytes = cmp.Or(o.QueueBytes, defaultQueueBytes)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, defaultCheckpointEvery)
	o.CheckpointAfter = cmp.Or(o.CheckpointAfter, defaultCheckpointAfter)
	o.IndexBlock = min(max(cmp.Or(o.IndexBlock, defaultIndexBlock), 1), maxBlock)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.DigestKey.Reveal() == "" {
		return nil, errors.New("receipts: there is no key for digests")
	}
	b := &Chain{
		options: o, digests: NewDigests(o.DigestKey),
		writer:     chainWriter{store: s, node: o.Node, logName: logPrefix + o.Node, timeout: o.Timeout},
		writeRight: make(chan struct{}, 1), stopping: make(chan struct{}), done: make(chan struct{}),
	}
	b.queue = newReceiptQueue(&b.options)
	b.checkpoints.options = &b.options
	b.indexer = newIndexer(s, o.Node, o.IndexBlock, o.Log)
	var err error
	if b.writer.signer, err = newSigner(o.Key); err != nil {
		return nil, err
	}
	for _, key := range o.Previous {
		p, err := newSigner(key)
		if err != nil {
			return nil, err
		}
		b.writer.previousSigners = append(b.writer.previousSigners, p)
	}
	switch err := b.takeOverChain(ctx); {
	case errors.Is(err, store.ErrUnavailable):
		b.queue.markUnavailable(err, nil)
	case err != nil:
		return nil, err
	}
	go b.work()
	return b, nil
}

// work writes and indexes until the Chain is closed.
func (b *Chain) work() {
	defer close(b.done)
	indexing, stop := context.WithCancel(context.Background())
	var indexer sync.WaitGroup
	indexer.Go(func() { b.indexer.run(indexing) })
	b.writeLoop()
	stop()
	indexer.Wait()
}

// Add queues r and returns at once. It keeps no reference to r. If the queue is full, r is lost and
// a later receipt counts the loss. A receipt of the outcome of a written intent is never lost this
// way: there are at most as many of them as calls in flight. The id names r by its time, because
// its number is not known yet. It is "" if r is lost.
func (b *Chain) Add(r *Receipt) (id string) {
	if !b.queue.tryAdd(r) {
		return ""
	}
	return TimeID(b.options.Node, r.Time)
}

// Write writes r and returns its id once it is durable. It keeps no reference to r. It fails with a
// *switchboard.Error of SB-RCPT-001, at once while the store is unavailable, or when ctx ends. If it
// fails and returns an id all the same, r may still be stored later, under that id.
func (b *Chain) Write(ctx context.Context, r *Receipt) (id string, err error) {
	return b.queueAndWait(ctx, r, &receiptWaiter{})
}

// Rotate makes the chain continue with another key. The old key signs a receipt that introduces the
// new one. Rotate returns when that receipt is durable. It fails at once while the store is
// unavailable. After any failure the new key may still come into the chain, so the caller should
// try again with the same key.
func (b *Chain) Rotate(ctx context.Context, key switchboard.Secret) error {
	s, err := newSigner(key)
	if err != nil {
		return err
	}
	_, err = b.queueAndWait(ctx, &Receipt{Kind: KeyKind, Key: ChainKey{b.options.Node, s.public}}, &receiptWaiter{signer: s})
	return err
}

// queueAndWait queues r, and waits for it or writes it. See Write.
func (b *Chain) queueAndWait(ctx context.Context, r *Receipt, w *receiptWaiter) (id string, err error) {
	w.ctx, w.result = ctx, make(chan error, 1)
	if err := b.queue.addWithWaiter(r, w); err != nil {
		return "", err
	}
	if !b.writeAsCaller(ctx) {
		b.queue.wakeWriter()
	}
	return ID(b.options.Node, w.seq), b.queue.wait(w)
}

// InheritLosses adds the lost receipts of was to those of b, which counts them and reports them in a
// receipt. was is closed, and b replaces it.
func (b *Chain) InheritLosses(was *Chain) { b.queue.addLosses(was.queue.losses()) }

// ChainStatus is the state of a Chain.
type ChainStatus struct {
	Node    string `json:"node"`
	Seq     uint64 `json:"seq"`     // of the last stored receipt
	Waiting int    `json:"waiting"` // receipts that are queued or being written
	Lost    int64  `json:"lost"`    // since the first Chain of those that this one inherits from was opened

	Fault  string    `json:"fault,omitempty"` // why nothing can be written now
	Since  time.Time `json:"since,omitzero"`  // when Fault began
	Fenced bool      `json:"fenced,omitempty"`

	Anchor string `json:"anchor_fault,omitempty"` // why the last checkpoint is in the log output alone
}

// Status returns the state of b.
func (b *Chain) Status() ChainStatus {
	s := b.queue.status()
	if err := b.checkpoints.anchorFault(); err != nil {
		s.Anchor = err.Error()
	}
	return s
}

// Close writes the queue, a receipt of the stop and a last checkpoint. It stops when ctx ends. The
// error says what could not be written.
func (b *Chain) Close(ctx context.Context) error {
	if !b.queue.stop(b.stopping) {
		<-b.done
		return nil
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		return fmt.Errorf("receipts: %w", context.Cause(ctx))
	}
	return b.queue.lossError()
}
