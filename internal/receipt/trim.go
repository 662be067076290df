package receipt

import (
	"context"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// Retention bounds what is kept of a chain. The zero Retention keeps everything.
type Retention struct {
	MaxAge time.Duration // of a receipt

	// MaxBytes bounds the entries, about: how large they are is told from some of
	// them.
	MaxBytes int64
}

// samples is how many entries tell how large they are.
const samples = 64

// Trim lets go of what need not be kept, and of the last entry never. Before that it
// writes where the chain begins then, so that Verify can tell it from one whose
// beginning was taken away. It returns how many entries are gone.
func (b *Book) Trim(ctx context.Context, keep Retention) (gone uint64, err error) {
	span, err := b.store.Span(ctx, b.log)
	if err != nil || span.Last <= span.First {
		return 0, err
	}
	first := span.First
	if keep.MaxAge > 0 {
		if first, err = seek(ctx, b.store, b.o.Node, span, time.Now().Add(-keep.MaxAge)); err != nil {
			return 0, err
		}
	}
	if keep.MaxBytes > 0 {
		size, err := b.sample(ctx, span)
		if err != nil {
			return 0, err
		}
		if n := uint64(max(keep.MaxBytes/size, 1)); n < span.Last-span.First+1 {
			first = max(first, span.Last-n+1)
		}
	}
	if first = min(first, span.Last); first == span.First {
		return 0, nil
	}
	note := Receipt{Kind: TrimKind, Trim: Trim{First: first}}
	for after := first - 1; note.Trim.Key == ""; {
		entries, err := b.store.Read(ctx, b.log, after, page)
		if err != nil {
			return 0, err
		}
		if len(entries) == 0 {
			return 0, fmt.Errorf("receipts: nothing behind entry %d of node %s is signed", first, b.o.Node)
		}
		for _, stored := range entries {
			e, err := parse(b.o.Node, stored.Seq, stored.Data)
			if err != nil {
				return 0, fmt.Errorf("receipts: entry %d of node %s: %w", stored.Seq, b.o.Node, err)
			}
			if after = e.Seq; e.Seq == first {
				note.Trim.Prev = e.Prev
			}
			if e.Signature != "" {
				if note.Trim.Key, err = e.signed(); err != nil {
					return 0, fmt.Errorf("receipts: entry %d of node %s: %w", e.Seq, b.o.Node, err)
				}
				break
			}
		}
	}
	if _, err := b.Write(ctx, &note); err != nil {
		return 0, err
	}
	return first - span.First, b.store.Trim(ctx, b.log, first)
}

// sample returns how many bytes an entry has.
func (b *Book) sample(ctx context.Context, span store.Span) (int64, error) {
	var bytes, n int64
	count := span.Last - span.First + 1
	for i := range uint64(samples) {
		entries, err := b.store.Read(ctx, b.log, span.First-1+i*count/samples, 1)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			bytes, n = bytes+int64(len(e.Data)), n+1
		}
	}
	return max(bytes/max(n, 1), 1), nil
}
