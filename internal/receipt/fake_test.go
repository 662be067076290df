package receipt_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// counting counts appends to chains.
type counting struct {
	receipt.Store
	appends atomic.Int64
}

func (c *counting) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	if isChain(log) {
		c.appends.Add(1)
	}
	return c.Store.Append(ctx, log, after, entries...)
}

// isChain reports whether the log is a chain, and not the index of one.
func isChain(log string) bool { return strings.HasPrefix(log, "receipts/") }

// breaking is a store whose chains fail on demand.
type breaking struct {
	receipt.Store
	slow    time.Duration
	failing atomic.Bool
	takes   atomic.Bool // it stores what it reports as failed

	failOn         int // the number of the append that fails
	appended, most int // the number of appends, and the bytes of the largest
}

func (b *breaking) fail(now, takes bool) {
	b.failing.Store(now)
	b.takes.Store(takes)
}

func (b *breaking) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	if !isChain(log) {
		return b.Store.Append(ctx, log, after, entries...)
	}
	if b.slow > 0 {
		select {
		case <-time.After(b.slow):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		}
	}
	b.appended++
	n := 0
	for _, e := range entries {
		n += len(e)
	}
	b.most = max(b.most, n)
	if !b.failing.Load() && b.appended != b.failOn {
		return b.Store.Append(ctx, log, after, entries...)
	}
	if b.takes.Load() {
		_ = b.Store.Append(ctx, log, after, entries...)
	}
	return fmt.Errorf("%w: it is broken", store.ErrUnavailable)
}

func (b *breaking) Span(ctx context.Context, log string) (store.Span, error) {
	if b.failing.Load() {
		return store.Span{}, fmt.Errorf("%w: it is broken", store.ErrUnavailable)
	}
	return b.Store.Span(ctx, log)
}
