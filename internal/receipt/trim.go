package receipt

import (
	"context"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// Retention limits how much of a chain is kept. The zero Retention keeps everything.
type Retention struct {
	MaxAge time.Duration // of a receipt

	// MaxBytes limits the size of all entries, approximately: their size is estimated from a
	// sample.
	MaxBytes int64

	// Folded returns the number of the last entry of a chain that other totals have counted. Trim removes none behind it, unless the chain has twice MaxBytes:
	// a total that is missing is better than a full disk. nil means that there is no such bound.
	Folded func(ctx context.Context, node string) (uint64, error)
}

// sizeSamples is how many entries the estimate reads.
const sizeSamples = 64

// Trim removes the entries that keep does not require, but never the last one. Before that it
// writes a receipt of the new beginning, so that Verify can distinguish a trimmed chain from one
// with a missing beginning. It returns how many entries were removed.
func (b *Chain) Trim(ctx context.Context, keep Retention) (gone uint64, err error) {
	span, err := b.writer.store.Span(ctx, b.writer.logName)
	if err != nil || span.Last <= span.First {
		return 0, err
	}
	first, must := span.First, uint64(0) // entries before must are too many, whatever has counted them
	if keep.MaxAge > 0 {
		if first, err = seekTime(ctx, b.writer.store, b.options.Node, span, time.Now().Add(-keep.MaxAge)); err != nil {
			return 0, err
		}
	}
	if keep.MaxBytes > 0 {
		size, err := b.averageSize(ctx, span)
		if err != nil {
			return 0, err
		}
		if n := uint64(max(keep.MaxBytes/size, 1)); n < span.Last-span.First+1 {
			first = max(first, span.Last-n+1)
			if 2*n < span.Last-span.First+1 {
				must = span.Last - 2*n + 1
			}
		}
	}
	if first = min(first, span.Last); keep.Folded != nil && first > span.First {
		folded, err := keep.Folded(ctx, b.options.Node)
		if err != nil && must == 0 {
			return 0, err
		}
		if first = min(first, folded+1); first < must {
			b.options.Log.Error("receipts are removed before the memory has counted them, because they have twice the size that is allowed", "node", b.options.Node, "receipts", must-first, "err", err)
			first = must
		}
	}
	if first <= span.First {
		return 0, nil
	}
	note := Receipt{Kind: TrimKind, Trim: Trim{First: first}}
	for after := first - 1; note.Trim.Key == ""; {
		entries, err := b.writer.store.Read(ctx, b.writer.logName, after, pageSize)
		if err != nil {
			return 0, err
		}
		if len(entries) == 0 {
			return 0, fmt.Errorf("receipts: nothing behind entry %d of node %s is signed", first, b.options.Node)
		}
		for _, stored := range entries {
			e, err := parseEntry(b.options.Node, stored.Seq, stored.Data)
			if err != nil {
				return 0, fmt.Errorf("receipts: entry %d of node %s: %w", stored.Seq, b.options.Node, err)
			}
			if after = e.Seq; e.Seq == first {
				note.Trim.Prev = e.Prev
			}
			if e.Signature != "" {
				if note.Trim.Key, err = e.verifySignature(); err != nil {
					return 0, fmt.Errorf("receipts: entry %d of node %s: %w", e.Seq, b.options.Node, err)
				}
				break
			}
		}
	}
	if _, err := b.Write(ctx, &note); err != nil {
		return 0, err
	}
	if err := b.writer.store.Trim(ctx, b.writer.logName, first); err != nil {
		return first - span.First, err
	}
	if err := trimIndex(ctx, b.writer.store, b.options.Node, first); err != nil {
		b.options.Log.Debug("the index of removed receipts was not removed", "node", b.options.Node, "err", err)
	}
	return first - span.First, nil
}

// averageSize returns the average size of an entry, in bytes.
func (b *Chain) averageSize(ctx context.Context, span store.Span) (int64, error) {
	var bytes, n int64
	count := span.Last - span.First + 1
	samples := min(count, sizeSamples)
	for i := range samples {
		entries, err := b.writer.store.Read(ctx, b.writer.logName, span.First-1+i*count/samples, 1)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			bytes, n = bytes+int64(len(e.Data)), n+1
		}
	}
	return max(bytes/max(n, 1), 1), nil
}
