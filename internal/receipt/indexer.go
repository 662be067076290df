package receipt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// How an indexer paces itself.
const (
	// indexAfter is how long after its start a Chain indexes what earlier processes have left. It would
	// slow the start otherwise. A block that this Chain fills is indexed at once.
	indexAfter = 5 * time.Second

	// indexPause follows each block that had to be read from the store, so that indexing an old chain takes
	// a fifth of one processor at most.
	indexPause = 50 * time.Millisecond

	// maxKnownBlocks is how many blocks an indexer keeps in memory while the store does not take them.
	maxKnownBlocks = 8

	// indexTries is how often an indexer looks again after another process has written the index.
	indexTries = 4
)

// An indexer writes the index of one chain, one block after the other, when all entries of a block
// are stored. The index is derived data. So a fault of the store only delays the indexer, and several
// processes may index one chain.
type indexer struct {
	store Store
	node  string
	size  uint64 // entries of a block
	log   *slog.Logger
	wake  chan struct{} // a block is full; holds one

	mu    sync.Mutex
	known map[uint64][]searchTerms // of entries that this process has written, by block

	end   indexEnd // belongs to run
	found bool     // end is set
}

func newIndexer(s Store, node string, size int, log *slog.Logger) *indexer {
	return &indexer{
		store: s, node: node, size: uint64(size), log: log,
		wake: make(chan struct{}, 1), known: map[uint64][]searchTerms{},
	}
}

// note records the terms of entries that were stored, from first on. It does not use the store.
func (x *indexer) note(first uint64, terms []searchTerms) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, t := range terms {
		seq := first + uint64(i)
		number := blockOf(seq, x.size)
		block := x.known[number]
		if block == nil {
			if len(x.known) >= maxKnownBlocks { // the indexer reads this block from the store
				continue
			}
			block = make([]searchTerms, x.size)
			x.known[number] = block
		}
		block[(seq-1)%x.size] = t
		if seq%x.size == 0 {
			signal(x.wake)
		}
	}
}

// run indexes full blocks until ctx ends.
func (x *indexer) run(ctx context.Context) {
	begin := time.NewTimer(indexAfter)
	defer begin.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-begin.C:
		case <-x.wake:
		}
		if err := x.catchUp(ctx); err != nil && ctx.Err() == nil {
			x.log.Debug("receipts are not indexed now, so searching them takes longer", "node", x.node, "err", err)
		}
	}
}

// catchUp indexes all full blocks that are not indexed.
func (x *indexer) catchUp(ctx context.Context) error {
	for {
		wasRead, err := x.indexNext(ctx)
		if errors.Is(err, errIndexed) {
			return nil
		}
		if err != nil {
			return err
		}
		if !wasRead {
			continue
		}
		t := time.NewTimer(indexPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// errIndexed says that all full blocks are indexed.
var errIndexed = errors.New("all blocks are indexed")

// indexNext indexes one block. wasRead says that it has read the entries from the store.
func (x *indexer) indexNext(ctx context.Context) (wasRead bool, err error) {
	for range indexTries {
		var chain store.Span
		if chain, err = x.store.Span(ctx, logPrefix+x.node); err != nil {
			return wasRead, err
		}
		if err = x.findEnd(ctx); err != nil {
			return wasRead, err
		}
		if chain.Last < chain.First {
			return wasRead, errIndexed
		}
		b := &indexBlock{size: x.size, begin: x.end.begin, number: x.end.block + 1}
		oldest := blockOf(chain.First, x.size)
		if x.end.block == 0 || b.number < oldest { // the first block, or those before oldest were trimmed
			b.begin, b.number = oldest, oldest
		}
		if b.last() > chain.Last {
			return wasRead, errIndexed
		}
		terms, read, err := x.blockTerms(ctx, b)
		if wasRead = wasRead || read; err != nil {
			return wasRead, err
		}
		err = x.store.Append(ctx, indexPrefix+x.node, x.end.seq, encodeIndexBlock(b, terms))
		if errors.Is(err, store.ErrConflict) { // another process has written the index
			x.found = false
			continue
		}
		if err != nil {
			x.found = false
			return wasRead, err
		}
		x.forget(b.number)
		x.end = indexEnd{size: x.size, begin: b.begin, block: b.number, seq: x.end.seq + 1}
		if b.begin == b.number && x.end.seq > 1 { // the entries before it describe another chain, or nothing that is left
			return wasRead, x.store.Trim(ctx, indexPrefix+x.node, x.end.seq)
		}
		return wasRead, nil
	}
	return wasRead, fmt.Errorf("the index of node %s is written by other processes: %w", x.node, store.ErrConflict)
}

// findEnd finds the end of the index, once. An index with blocks of another size counts as empty.
func (x *indexer) findEnd(ctx context.Context) error {
	if x.found {
		return nil
	}
	end, err := readIndexEnd(ctx, x.store, x.node)
	if err != nil {
		return err
	}
	if end.size != x.size {
		end = indexEnd{seq: end.seq}
	}
	x.end, x.found = end, true
	return nil
}

// blockTerms returns the terms of all entries of b, and sets b.end. It reads the entries that this
// process has not written. Entries that cannot be read have anyTerms.
func (x *indexer) blockTerms(ctx context.Context, b *indexBlock) (terms []searchTerms, wasRead bool, err error) {
	terms = make([]searchTerms, x.size)
	x.mu.Lock()
	copy(terms, x.known[b.number])
	x.mu.Unlock()
	var table termTable
	for i := 0; i < len(terms); {
		if terms[i][0] != nil {
			i++
			continue
		}
		end := i + 1
		for end < len(terms) && terms[end][0] == nil {
			end++
		}
		first, last := b.first()+uint64(i), b.first()+uint64(end)-1
		for at := first; at <= last; {
			all, err := x.store.Read(ctx, logPrefix+x.node, at-1, int(last-at+1))
			if err != nil {
				return nil, wasRead, err
			}
			if len(all) == 0 {
				break
			}
			for _, stored := range all {
				if at = stored.Seq + 1; stored.Seq > last {
					break
				}
				wasRead = true
				if e, err := parseEntry(x.node, stored.Seq, stored.Data); err == nil {
					terms[stored.Seq-b.first()] = table.find(&e.Receipt)
				}
			}
		}
		for ; i < end; i++ {
			if terms[i][0] == nil { // it was trimmed, or cannot be read
				terms[i] = anyTerms
			}
		}
	}
	digest, ok, err := digestAt(ctx, x.store, x.node, b.last())
	if err == nil && !ok {
		err = fmt.Errorf("entry %d of node %s is not there", b.last(), x.node)
	}
	b.end = digest
	return terms, wasRead, err
}

// forget drops the terms of the blocks up to number, which are indexed.
func (x *indexer) forget(number uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for block := range x.known {
		if block <= number {
			delete(x.known, block)
		}
	}
}

// trimIndex removes the entries of the index whose blocks the chain does not have any more. first is the first
// entry of the chain.
func trimIndex(ctx context.Context, s Store, node string, first uint64) error {
	end, err := readIndexEnd(ctx, s, node)
	if err != nil || end.block == 0 {
		return err
	}
	oldest := min(max(blockOf(first, end.size), end.begin), end.block)
	return s.Trim(ctx, indexPrefix+node, end.seqOf(oldest))
}
