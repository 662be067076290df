// Package history keeps what plots of the past need: for each tenant and server the calls, the failures, the refusals, the moved
// calls, and the latencies as a histogram. It keeps them in three scales: steps of 10 s for an hour, of 1 min for a day, and of
// 15 min for 14 days.
//
// It decides how a call counts, what is kept, and how much: at most 64 series a step, and 16 MiB in memory and 16 MiB in the store. It has
// no query language, and it decides nothing about who may read what: package admin does. Package telemetry has all counts since the start,
// for Prometheus.
//
// Calls are counted in numbers of their own, without a lock. Every 10 s a roll adds what was counted to the present step of each scale.
// Every minute the steps go to the store. There a block holds the steps of one span of time, and all processes add to the same blocks, by
// compare-and-set. So the size of the store depends neither on the number of replicas nor on the number of restarts. While the store is
// away, steps stay in memory, and nothing else is affected.
package history

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// A Store keeps blocks for all processes. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Status() store.Status
}

// A scale is one of the three lengths of steps.
type scale struct {
	name  string
	each  time.Duration // the length of a step
	kept  time.Duration
	steps int // in one block
}

// scales are all scales, the finest first.
var scales = [...]scale{
	{"10s", 10 * time.Second, time.Hour, 30},
	{"1m", time.Minute, 24 * time.Hour, 30},
	{"15m", 15 * time.Minute, 14 * 24 * time.Hour, 24},
}

// Bounds of the history.
const (
	// maxSeries is how many pairs a step has; the last of them holds all calls of further pairs.
	maxSeries = 64

	// maxBlock limits the bytes of a block. There are at most 119 blocks in the store: 14 MiB.
	maxBlock = 120 << 10

	// maxKept limits the bytes of the blocks in memory. What is counted now takes the rest of 16 MiB.
	maxKept = 14 << 20

	// overhead estimates the memory of a block beyond its bytes.
	overhead = 128
)

const (
	rollInterval = 10 * time.Second
	saveInterval = time.Minute
	storeTimeout = 5 * time.Second        // for one save
	readTimeout  = 500 * time.Millisecond // for a reader, who gets what is known without the store
	maxConflicts = 20                     // of one save with other processes that save at the same time

	// refreshInterval is the largest age of blocks that a reader gets without a new read of the store. Other processes add to
	// them once a minute.
	refreshInterval = 5 * time.Second
)

// start returns the begin of the block that holds the instant.
func (s *scale) start(at time.Time) int64 {
	all := int64(s.span() / time.Second)
	return floorDiv(at.Unix(), all) * all
}

// span returns the length of a block.
func (s *scale) span() time.Duration { return time.Duration(s.steps) * s.each }

// stepOf returns the index of the step that holds the instant, in its block.
func (s *scale) stepOf(at time.Time) int {
	return int((at.Unix() - s.start(at)) / int64(s.each/time.Second))
}

// end returns when the block that begins at start expires.
func (s *scale) end(start int64) time.Time { return time.Unix(start, 0).Add(s.span() + s.kept) }

// isKept reports whether the block that begins at start belongs to the history at now. Blocks of the future are of a process with
// a wrong clock, and one step ahead is none.
func (s *scale) isKept(start int64, now time.Time) bool {
	return s.end(start).After(now) && time.Unix(start, 0).Before(now.Add(s.span()))
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		a -= b - 1
	}
	return a / b
}

// keptBlocks are the blocks of one scale in memory, encoded, by their begin in seconds.
type keptBlocks struct {
	known map[int64][]byte    // what the store had when it was read last
	read  time.Time           // when that was
	fresh map[int64][]byte    // counted here, and in no write yet
	sent  map[int64]sentBlock // counted here, in a write that has not ended, or with an unknown outcome
}

// A sentBlock was written to the store, or not.
type sentBlock struct {
	data   []byte
	number uint64 // of the write, see stepBlock.writers
}

// Options are the parts that a History needs.
type Options struct {
	// Store keeps the history for the next start. A store in memory is left out, because it would keep everything a second time. nil means
	// that nothing is kept.
	Store Store

	Log *slog.Logger
}

// A History counts calls and keeps the counts. Use New. It is safe for concurrent use.
type History struct {
	o    Options
	id   uint64 // of this process, in writers
	live liveCounts

	mu     sync.Mutex // guards the next fields, and is never held while the store works
	rolled time.Time  // the last roll
	kept   [len(scales)]keptBlocks
	writes uint64

	sums blockSums

	// storing has one element from a read of the store until known has its result, so that no older read replaces a newer one.
	storing chan struct{}
	failed  bool // the last save failed; guarded by storing
}

// New returns an empty History, which counts at once. Run reads back what the store has.
func New(o Options) *History {
	if o.Store != nil && o.Store.Status().Kind == "memory" {
		o.Store = nil
	}
	h := &History{o: o, id: rand.Uint64(), storing: make(chan struct{}, 1), rolled: time.Now().Round(0)}
	h.live.init()
	for i := range h.kept {
		h.kept[i] = keptBlocks{known: map[int64][]byte{}, fresh: map[int64][]byte{}, sent: map[int64]sentBlock{}}
	}
	return h
}

// Run reads the history back, and then rolls and saves it until ctx is done.
func (h *History) Run(ctx context.Context) {
	h.readBack(ctx)
	// Each process has its own part of the minute, so that few of them save at the same time.
	const rolls = int64(saveInterval / rollInterval)
	mine := int64(h.id % uint64(rolls))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		next := now.Truncate(rollInterval).Add(rollInterval)
		timer.Reset(next.Sub(now))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		h.roll(time.Now())
		if next.Unix()/int64(rollInterval/time.Second)%rolls == mine {
			h.save(ctx)
		}
	}
}

// Close saves what was counted last. Call it after Run has returned.
func (h *History) Close(ctx context.Context) {
	h.roll(time.Now())
	h.save(ctx)
}

// roll adds what was counted since the last roll to the step of that roll: a roll follows the end of each step.
func (h *History) roll(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now = now.Round(0) // the clock of the wall, because steps are times of day
	at := h.rolled
	if now.Before(at) {
		at = now // the clock was set back
	}
	h.rolled = now
	if counted := h.live.take(now); len(counted) > 0 {
		for i := range scales {
			s := &scales[i]
			b := decodeOwn(h.kept[i].fresh[s.start(at)])
			b.add(s.stepOf(at), counted)
			h.kept[i].fresh[s.start(at)] = b.encode()
		}
	}
	h.trim(now)
}

// trim removes what has expired and, if there is too much, the oldest blocks of the scale that has most. The caller holds h.mu.
func (h *History) trim(now time.Time) {
	total, sizes := 0, [len(scales)]int{}
	for i := range h.kept {
		k, s := &h.kept[i], &scales[i]
		expired := func(start int64, _ []byte) bool { return !s.isKept(start, now) }
		maps.DeleteFunc(k.known, expired)
		maps.DeleteFunc(k.fresh, expired)
		maps.DeleteFunc(k.sent, func(start int64, _ sentBlock) bool { return !s.isKept(start, now) })
		sizes[i] = k.size()
		total += sizes[i]
	}
	for total > maxKept {
		i := 0
		for j := range sizes {
			if sizes[j] > sizes[i] {
				i = j
			}
		}
		before := sizes[i]
		h.kept[i].removeOldest()
		sizes[i] = h.kept[i].size()
		total += sizes[i] - before
	}
}

// size returns the bytes of the blocks.
func (k *keptBlocks) size() (n int) {
	for _, data := range k.known {
		n += len(data) + overhead
	}
	for _, data := range k.fresh {
		n += len(data) + overhead
	}
	for _, s := range k.sent {
		n += len(s.data) + overhead
	}
	return n
}

// starts returns the begins of all blocks, sorted.
func (k *keptBlocks) starts() []int64 {
	all := slices.Collect(maps.Keys(k.known))
	all = slices.AppendSeq(all, maps.Keys(k.fresh))
	all = slices.AppendSeq(all, maps.Keys(k.sent))
	slices.Sort(all)
	return slices.Compact(all)
}

// removeOldest removes the oldest block.
func (k *keptBlocks) removeOldest() {
	if all := k.starts(); len(all) > 0 {
		delete(k.known, all[0])
		delete(k.fresh, all[0])
		delete(k.sent, all[0])
	}
}

// addFresh adds the steps of an encoded block to fresh.
func (k *keptBlocks) addFresh(start int64, data []byte) {
	if k.fresh[start] == nil {
		k.fresh[start] = data
		return
	}
	b := decodeOwn(k.fresh[start])
	b.addAll(decodeOwn(data))
	k.fresh[start] = b.encode()
}

// stepsOf returns the steps of the block that begins at start, from all that is kept; id is this process.
func (k *keptBlocks) stepsOf(start int64, id uint64) *stepBlock {
	b := decodeOwn(k.known[start])
	if s, ok := k.sent[start]; ok && !b.hasWrite(id, s.number) {
		b.addAll(decodeOwn(s.data))
	}
	b.addAll(decodeOwn(k.fresh[start]))
	return b
}

// decodeOwn decodes a block that was decoded before, or that this process has encoded. nil is an empty block.
func decodeOwn(data []byte) *stepBlock {
	b, err := decodeBlock(data)
	if err != nil {
		return newBlock() // known has only what decodes
	}
	return b
}
