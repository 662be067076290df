package history

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// group returns the group in the store that has the blocks of the scale, by their begin in seconds.
func (s *scale) group() string { return "history/" + s.name }

// acquire waits until no other goroutine uses the store for the history. The caller calls release unless the error is not nil.
func (h *History) acquire(ctx context.Context) error {
	select {
	case h.storing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *History) release() { <-h.storing }

// readBack reads everything that the store has.
func (h *History) readBack(ctx context.Context) {
	if h.o.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for i := range scales {
		if err := h.refresh(ctx, i); err != nil {
			h.o.Log.Warn("the history of metrics cannot be read; each reader tries it again", "err", err)
			return
		}
	}
}

// isFresh reports whether the blocks of a scale were read less than refreshInterval ago, and the store has no fault.
func (h *History) isFresh(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.kept[i].read) < refreshInterval && h.o.Store.Status().Fault == ""
}

// refresh reads the blocks of a scale from the store unless they are fresh.
func (h *History) refresh(ctx context.Context, i int) error {
	if h.o.Store == nil || h.isFresh(i) {
		return nil
	}
	if err := h.acquire(ctx); err != nil {
		return err
	}
	defer h.release()
	if h.isFresh(i) { // another reader was here first
		return nil
	}
	now := time.Now()
	rows, err := h.o.Store.List(ctx, scales[i].group())
	if err != nil {
		return err
	}
	h.mu.Lock()
	known, before := map[int64][]byte{}, maps.Clone(h.kept[i].known)
	h.mu.Unlock()
	for _, row := range rows {
		start, err := strconv.ParseInt(row.Name, 10, 64)
		if err != nil || start != scales[i].start(time.Unix(start, 0)) || !scales[i].isKept(start, now) {
			continue
		}
		if data := before[start]; data != nil && bytes.Equal(data, row.Data) {
			known[start] = data // most blocks never change any more
		} else if _, err := decodeBlock(row.Data); err == nil {
			known[start] = bytes.Clone(row.Data) // a row may be a part of something larger
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept[i].known, h.kept[i].read = known, now
	h.trim(now)
	return nil
}

// save writes everything that the store does not have yet. What cannot be written stays in memory, for the next save.
func (h *History) save(ctx context.Context) {
	if h.o.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if h.acquire(ctx) != nil {
		return
	}
	defer h.release()
	var err error
	for i := range scales {
		for _, start := range h.unsaved(i) {
			if err == nil {
				err = h.saveBlock(ctx, i, start)
			}
		}
	}
	switch {
	case err == nil && h.failed:
		h.o.Log.Info("the history of metrics is written again")
	case err != nil && !h.failed:
		h.o.Log.Warn("the history of metrics cannot be written; it stays in memory until it can", "err", err)
	}
	h.failed = err != nil
}

// unsaved returns the begins of the blocks of a scale with steps that the store may not have, sorted.
func (h *History) unsaved(i int) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(h.kept[i].fresh)), maps.Keys(h.kept[i].sent))
	slices.Sort(all)
	return slices.Compact(all)
}

// saveBlock adds what was counted here to a block in the store.
func (h *History) saveBlock(ctx context.Context, i int, start int64) error {
	k := store.Key{Group: scales[i].group(), Name: strconv.FormatInt(start, 10)}
	for range maxConflicts {
		v, err := h.o.Store.Value(ctx, k)
		if err != nil && !errors.Is(err, store.ErrUnopened) {
			return err
		}
		b, err := decodeBlock(v.Data)
		switch {
		case errors.Is(err, errFormat):
			return nil // another version owns it; readers here see what was counted here
		case err != nil:
			b = newBlock() // a damaged block is replaced
		}
		ttl := time.Until(scales[i].end(start))
		if ttl <= 0 {
			return nil // the next roll removes it
		}
		data, ok := h.takeUnsaved(i, start, b, v.Data)
		if !ok {
			return nil
		}
		_, err = h.o.Store.Apply(ctx, store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Was: v.Version, Data: data, TTL: ttl}}})
		h.endWrite(i, start, data, err)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}

// takeUnsaved adds to the block b what this process has counted, and returns b encoded for the store. b is the block that the store has now; stored is
// its encoding. ok is false if the store needs no write. Each write has a number. If an earlier write has an unknown outcome, b has its number or not.
func (h *History) takeUnsaved(i int, start int64, b *stepBlock, stored []byte) (data []byte, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := &h.kept[i]
	if s, ok := kept.sent[start]; ok {
		delete(kept.sent, start)
		if b.hasWrite(h.id, s.number) {
			kept.known[start] = stored
		} else {
			kept.addFresh(start, s.data)
		}
	}
	fresh := kept.fresh[start]
	if fresh == nil {
		return nil, false
	}
	delete(kept.fresh, start)
	h.writes++
	kept.sent[start] = sentBlock{fresh, h.writes}
	b.addAll(decodeOwn(fresh))
	b.noteWrite(h.id, h.writes)
	return b.encode(), true
}

// endWrite notes the outcome of a write of data.
func (h *History) endWrite(i int, start int64, data []byte, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := &h.kept[i]
	switch {
	case err == nil:
		kept.known[start] = data
		delete(kept.sent, start)
	case errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrInvalid): // it was not made
		if s, ok := kept.sent[start]; ok { // unless trim has removed it
			delete(kept.sent, start)
			kept.addFresh(start, s.data)
		}
	}
}
