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
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A chainWriter appends entries to the end of one chain, and signs them. It is for one goroutine at
// a time.
type chainWriter struct {
	store   Store
	node    string
	logName string        // of the chain, in the store
	timeout time.Duration // for one use of the store

	signer          *signer
	previousSigners []*signer // one of them may have signed the chain last
	seq             uint64    // of the last stored entry
	prev            switchboard.Digest
	entryBuffer     []byte // memory for entries
}

// takeOver makes this process the owner of the chain. The previous owner is fenced from then
// on. For up to w.timeout it tries to append between the writes of that owner. The error is
// store.ErrUnavailable, or says why the chain cannot be continued. takeOver returns the time of the
// last receipt.
func (w *chainWriter) takeOver(ctx context.Context, program string) (last time.Time, err error) {
	for until := time.Now().Add(w.timeout); ; {
		last, err = w.tryTakeOver(ctx, program)
		if errors.Is(err, store.ErrConflict) && ctx.Err() == nil && time.Now().Before(until) {
			continue
		}
		return last, err
	}
}

// tryTakeOver finds the end of the chain and appends the receipt of the start. If needed, it first
// appends the receipt that introduces our key. program is the version of Switchboard.
func (w *chainWriter) tryTakeOver(ctx context.Context, program string) (last time.Time, err error) {
	span, err := w.store.Span(ctx, w.logName)
	if err != nil {
		return last, err
	}
	w.seq, w.prev = span.Last, EmptyDigest
	switch {
	case span.Last == 0:
		if last, err = w.introduceKey(ctx, w.signer, last); err != nil {
			return last, err
		}
	case span.First > span.Last:
		return last, fmt.Errorf("receipts: the chain of node %s ends with entry %d, and that entry is missing", w.node, span.Last)
	default:
		end, err := w.checkTail(ctx, span)
		if err != nil {
			return last, err
		}
		w.prev, last = end.prev, end.time
		if end.key != w.signer.public {
			i := slices.IndexFunc(w.previousSigners, func(s *signer) bool { return s.public == end.key })
			if i < 0 {
				return last, &foreignKeyError{w.node, end.key}
			}
			if last, err = w.introduceKey(ctx, w.previousSigners[i], last); err != nil {
				return last, err
			}
		}
	}
	start := Receipt{Kind: Start, Note: program, Time: nextTime(last)}
	if err := w.appendReceipt(ctx, &start, w.signer); err != nil {
		return last, err
	}
	return start.Time, nil
}

// A foreignKeyError says that the end of a chain is signed with a key that we do not have.
type foreignKeyError struct{ node, key string }

// Error implements error.
func (e *foreignKeyError) Error() string {
	return fmt.Sprintf("the chain of node %s was last signed with key %s, which is neither the key nor one of the previous keys", e.node, e.key)
}

// checkTail checks the last entries of the chain, from the last signature but one.
func (w *chainWriter) checkTail(ctx context.Context, span store.Span) (*chainChecker, error) {
	after := span.First - 1
	if span.Last-after > maxBatch+1 {
		after = span.Last - maxBatch - 1
	}
	tail, err := w.store.Read(ctx, w.logName, after, maxBatch+1)
	if err != nil {
		return nil, err
	}
	begin := 0
	for i := len(tail) - 2; i >= 0; i-- { // the last signature but one ends before begin
		if e, err := parseEntry(w.node, tail[i].Seq, tail[i].Data); err == nil && e.Signature != "" {
			begin = i + 1
			break
		}
	}
	c := newChecker(w.node, w.store, span, after+uint64(begin)+1)
	for _, e := range tail[begin:] {
		fault, err := c.checkNext(ctx, e)
		if err != nil {
			return nil, err
		}
		if fault != nil {
			return nil, fmt.Errorf("receipts: the chain of node %s was changed: %w", w.node, fault)
		}
	}
	if fault := c.checkSignedEnd(); fault != nil {
		return nil, fmt.Errorf("receipts: the chain of node %s was changed: %w", w.node, fault)
	}
	return c, nil
}

// introduceKey writes the receipt that introduces our key, signed by the previous key or by our key
// itself. That signature covers nothing else. The time of the receipt is after last.
func (w *chainWriter) introduceKey(ctx context.Context, by *signer, last time.Time) (time.Time, error) {
	when := nextTime(last)
	return when, w.appendReceipt(ctx, &Receipt{Kind: KeyKind, Time: when, Key: ChainKey{w.node, w.signer.public}}, by)
}

// appendReceipt appends one receipt.
func (w *chainWriter) appendReceipt(ctx context.Context, r *Receipt, by *signer) error {
	body := r.append(nil)
	p := batch{bodies: body, ends: []int{len(body)}}
	w.chainEntries(&p, by)
	if err := w.store.Append(ctx, w.logName, w.seq, p.entries...); err != nil {
		return err
	}
	w.seq, w.prev = w.seq+1, p.head
	return nil
}

// chainEntries makes the entries of a batch, and signs the last one.
func (w *chainWriter) chainEntries(p *batch, by *signer) {
	buf, prev, from := w.entryBuffer[:0], w.prev, 0
	starts := make([]int, len(p.ends), len(p.ends)+1)
	for i, end := range p.ends {
		starts[i] = len(buf)
		buf = appendEntry(buf, prev, p.bodies[from:end], w.seq+1+uint64(i))
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
	w.entryBuffer = buf
}

// append writes the entries of a batch to the store. From the batch on, the key of its last waiter
// with a key signs: its introduction is in the chain, even if that caller does not wait any more.
func (w *chainWriter) append(p *batch) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	err := w.store.Append(ctx, w.logName, w.seq, p.entries...)
	if errors.Is(err, store.ErrConflict) {
		err = w.checkStored(ctx, p)
	}
	if err != nil {
		return err
	}
	w.seq += uint64(len(p.entries))
	w.prev = p.head
	for _, waiter := range p.waiters {
		if waiter.signer != nil {
			w.signer = waiter.signer
		}
	}
	return nil
}

// checkStored reports whether an earlier attempt stored the batch. The error is ErrConflict if other
// entries are in its place.
func (w *chainWriter) checkStored(ctx context.Context, p *batch) error {
	there, err := w.store.Read(ctx, w.logName, w.seq, len(p.entries)+1)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(there, p.entries, func(e store.Entry, own []byte) bool { return bytes.Equal(e.Data, own) })
	if !same {
		return fmt.Errorf("the entries after %d of %s are not those that this process wrote: %w", w.seq, w.logName, store.ErrConflict)
	}
	return nil
}
