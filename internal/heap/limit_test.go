package heap

import (
	"context"
	"errors"
	"testing"
)

func TestAContextEndsWhenTheHeapHasGrownTooMuch(t *testing.T) {
	ctx, stop := Limit(t.Context(), 32<<20)
	defer stop()
	var kept [][]byte
	for ctx.Err() == nil && len(kept) < 1<<14 {
		kept = append(kept, make([]byte, 1<<20))
	}
	if !errors.Is(context.Cause(ctx), ErrGrown) || len(kept) < 30 {
		t.Errorf("after %d MiB: %v", len(kept), context.Cause(ctx))
	}
	calm, stop := Limit(t.Context(), 1<<40)
	if calm.Err() != nil {
		t.Error("it ended at once")
	}
	stop()
	if !errors.Is(context.Cause(calm), context.Canceled) {
		t.Errorf("after stop: %v", context.Cause(calm))
	}
}
