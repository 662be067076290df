package receipt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// begin makes the chain ours. From then on whoever has written it before is fenced.
// It tries for Options.Timeout to come in between what another still writes. The
// error is store.ErrUnavailable, or says why the chain cannot be gone on with.
func (b *Book) begin(ctx context.Context) error {
	for until := time.Now().Add(b.o.Timeout); ; {
		err := b.claim(ctx)
		if errors.Is(err, store.ErrConflict) && ctx.Err() == nil && time.Now().Before(until) {
			continue
		}
		return err
	}
}

// claim finds the end of the chain, and puts the receipt of the start there; before
// it, where that is needed, the one that brings our key into the chain.
func (b *Book) claim(ctx context.Context) error {
	span, err := b.store.Span(ctx, b.log)
	if err != nil {
		return err
	}
	b.seq, b.prev = span.Last, Nothing
	var last time.Time
	switch {
	case span.Last == 0:
		if last, err = b.introduce(ctx, b.signer, last); err != nil {
			return err
		}
	case span.First > span.Last:
		return fmt.Errorf("receipts: the chain of node %s ends with entry %d, and not even that is there", b.o.Node, span.Last)
	default:
		end, err := b.ended(ctx, span)
		if err != nil {
			return err
		}
		b.prev, last = end.prev, end.time
		if end.key != b.signer.public {
			i := slices.IndexFunc(b.previous, func(s *signer) bool { return s.public == end.key })
			if i < 0 {
				return fmt.Errorf("receipts: the chain of node %s was last signed with key %s, and neither the key nor one of the previous ones is that", b.o.Node, end.key)
			}
			if last, err = b.introduce(ctx, b.previous[i], last); err != nil {
				return err
			}
		}
	}
	start := Receipt{Kind: Start, Note: b.o.Version, Time: later(last)}
	if err := b.one(ctx, &start, b.signer); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.fault, b.tail, b.last = open, nil, b.seq, start.Time
	return nil
}

// ended checks what was written last to the chain.
func (b *Book) ended(ctx context.Context, span store.Span) (*checker, error) {
	after := span.First - 1
	if span.Last-after > maxBatch+1 {
		after = span.Last - maxBatch - 1
	}
	tail, err := b.store.Read(ctx, b.log, after, maxBatch+1)
	if err != nil {
		return nil, err
	}
	begin := 0
	for i := len(tail) - 2; i >= 0; i-- { // behind the last signature but one
		if e, err := parse(b.o.Node, tail[i].Seq, tail[i].Data); err == nil && e.Signature != "" {
			begin = i + 1
			break
		}
	}
	c := newChecker(b.o.Node, b.store, span, after+uint64(begin)+1)
	for _, e := range tail[begin:] {
		fault, err := c.next(ctx, e)
		if err != nil {
			return nil, err
		}
		if fault != nil {
			return nil, fmt.Errorf("receipts: the chain of node %s is not as it was left: %w", b.o.Node, fault)
		}
	}
	if fault := c.signedToTheEnd(); fault != nil {
		return nil, fmt.Errorf("receipts: the chain of node %s is not as it was left: %w", b.o.Node, fault)
	}
	return c, nil
}

// introduce writes the receipt by which the key comes into the chain, signed by the
// one before or by itself. Nothing else is signed with it. It is made later than last.
func (b *Book) introduce(ctx context.Context, by *signer, last time.Time) (time.Time, error) {
	when := later(last)
	return when, b.one(ctx, &Receipt{Kind: KeyKind, Time: when, Key: Key{b.o.Node, b.signer.public}}, by)
}

// one writes a receipt.
func (b *Book) one(ctx context.Context, r *Receipt, by *signer) error {
	body := r.append(nil)
	p := batch{bodies: body, ends: []int{len(body)}}
	b.enchain(&p, by)
	if err := b.store.Append(ctx, b.log, b.seq, p.entries...); err != nil {
		return err
	}
	b.seq, b.prev = b.seq+1, p.head
	return nil
}
