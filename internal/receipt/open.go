package receipt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// takeOverChain makes this process the owner of the chain. The previous owner is fenced from then
// on. For up to Options.Timeout it tries to append between the writes of that owner. The error is
// store.ErrUnavailable, or says why the chain cannot be continued.
func (b *Book) takeOverChain(ctx context.Context) error {
	for until := time.Now().Add(b.options.Timeout); ; {
		err := b.tryTakeOver(ctx)
		if errors.Is(err, store.ErrConflict) && ctx.Err() == nil && time.Now().Before(until) {
			continue
		}
		return err
	}
}

// tryTakeOver finds the end of the chain and appends the receipt of the start. If needed, it first
// appends the receipt that introduces our key.
func (b *Book) tryTakeOver(ctx context.Context) error {
	span, err := b.store.Span(ctx, b.logName)
	if err != nil {
		return err
	}
	b.seq, b.prev = span.Last, Nothing
	var last time.Time
	switch {
	case span.Last == 0:
		if last, err = b.introduceKey(ctx, b.signer, last); err != nil {
			return err
		}
	case span.First > span.Last:
		return fmt.Errorf("receipts: the chain of node %s ends with entry %d, and that entry is missing", b.options.Node, span.Last)
	default:
		end, err := b.checkTail(ctx, span)
		if err != nil {
			return err
		}
		b.prev, last = end.prev, end.time
		if end.key != b.signer.public {
			i := slices.IndexFunc(b.previousSigners, func(s *signer) bool { return s.public == end.key })
			if i < 0 {
				return fmt.Errorf("receipts: the chain of node %s was last signed with key %s, which is neither the key nor one of the previous keys", b.options.Node, end.key)
			}
			if last, err = b.introduceKey(ctx, b.previousSigners[i], last); err != nil {
				return err
			}
		}
	}
	start := Receipt{Kind: Start, Note: b.options.Version, Time: nextTime(last)}
	if err := b.appendReceipt(ctx, &start, b.signer); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.fault, b.storedSeq, b.lastTime = open, nil, b.seq, start.Time
	return nil
}

// checkTail checks the last entries of the chain, from the last signature but one.
func (b *Book) checkTail(ctx context.Context, span store.Span) (*chainChecker, error) {
	after := span.First - 1
	if span.Last-after > maxBatch+1 {
		after = span.Last - maxBatch - 1
	}
	tail, err := b.store.Read(ctx, b.logName, after, maxBatch+1)
	if err != nil {
		return nil, err
	}
	begin := 0
	for i := len(tail) - 2; i >= 0; i-- { // the last signature but one ends before begin
		if e, err := parseEntry(b.options.Node, tail[i].Seq, tail[i].Data); err == nil && e.Signature != "" {
			begin = i + 1
			break
		}
	}
	c := newChecker(b.options.Node, b.store, span, after+uint64(begin)+1)
	for _, e := range tail[begin:] {
		fault, err := c.checkNext(ctx, e)
		if err != nil {
			return nil, err
		}
		if fault != nil {
			return nil, fmt.Errorf("receipts: the chain of node %s was changed: %w", b.options.Node, fault)
		}
	}
	if fault := c.checkSignedEnd(); fault != nil {
		return nil, fmt.Errorf("receipts: the chain of node %s was changed: %w", b.options.Node, fault)
	}
	return c, nil
}

// introduceKey writes the receipt that introduces our key, signed by the previous key or by our key
// itself. That signature covers nothing else. The time of the receipt is after last.
func (b *Book) introduceKey(ctx context.Context, by *signer, last time.Time) (time.Time, error) {
	when := nextTime(last)
	return when, b.appendReceipt(ctx, &Receipt{Kind: KeyKind, Time: when, Key: Key{b.options.Node, b.signer.public}}, by)
}

// appendReceipt appends one receipt.
func (b *Book) appendReceipt(ctx context.Context, r *Receipt, by *signer) error {
	body := r.append(nil)
	p := batch{bodies: body, ends: []int{len(body)}}
	b.chainEntries(&p, by)
	if err := b.store.Append(ctx, b.logName, b.seq, p.entries...); err != nil {
		return err
	}
	b.seq, b.prev = b.seq+1, p.head
	return nil
}
