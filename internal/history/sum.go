package history

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"weak"
)

// maxSums limits the bytes of the sums of blocks that are kept. The sums of all blocks for one tenant take a tenth of that.
const maxSums = 1 << 20

// blockSums has the sums of encoded blocks that were asked for: a block with many pairs takes much longer to decode than its sum, and most blocks
// never change again. The zero blockSums is empty.
type blockSums struct {
	mu    sync.Mutex
	size  int
	known map[sumKey]blockSum
}

// A sumKey names a block, and the pairs that were summed up.
type sumKey struct {
	scale int
	start int64
	pair  seriesKey // an empty name means all
}

// A blockSum is a block with one pair for all pairs that were summed up, and with the zero pair.
type blockSum struct {
	of   weak.Pointer[byte] // the begin of the block that was summed up
	data []byte
}

// sum returns the block with one pair in the place of those that wants selects.
func (c *blockSums) sum(b readBlock, scale int, pair seriesKey, wants func(seriesKey) bool) readBlock {
	if b.steps != nil || len(b.data) == 0 {
		return b
	}
	key, of := sumKey{scale, b.begin.Unix(), pair}, weak.Make(&b.data[0])
	c.mu.Lock()
	known, ok := c.known[key]
	c.mu.Unlock()
	if ok && known.of == of {
		return readBlock{begin: b.begin, data: known.data}
	}
	sum := newBlock()
	b.eachCounts(func(int) bool { return true }, wants, func(step int, p seriesKey, n *counts) {
		if p != (seriesKey{}) {
			p = pair
		}
		sum.add(step, historyStep{p: n})
	})
	data := bytes.Clone(sum.append(nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.known[key]; ok {
		c.size -= len(old.data) + overhead
	}
	if c.size += len(data) + overhead; c.size > maxSums || c.known == nil {
		c.size, c.known = len(data)+overhead, map[sumKey]blockSum{}
	}
	c.known[key] = blockSum{of, data}
	return readBlock{begin: b.begin, data: data}
}

// Sum is Read with one series without names, the sum of all that the range selects. After and Total do not count.
func (h *History) Sum(ctx context.Context, q Range) (*Excerpt, error) {
	r, i, err := h.open(ctx, q)
	if err != nil {
		return nil, err
	}
	s, isWhole := &scales[i], q.Tenant == "" && q.Server == ""
	wants := func(p seriesKey) bool { return p == seriesKey{} || q.selects(p) }
	points := []Point{}
	for _, b := range h.blocksOf(i, r) {
		sums := map[int]*counts{}
		b = h.sums.sum(b, i, seriesKey{q.Tenant, q.Server}, wants)
		b.eachCounts(s.stepsIn(r, &b), wants, func(step int, p seriesKey, c *counts) {
			if p == (seriesKey{}) && !isWhole {
				r.Incomplete = true // some of these calls may be selected
				return
			}
			if sums[step] == nil {
				sums[step] = new(counts)
			}
			sums[step].add(c)
		})
		for _, step := range slices.Sorted(maps.Keys(sums)) {
			points = append(points, Point{s.startOf(&b, step), sums[step].tally()})
		}
	}
	r.Series = append(r.Series, TimeSeries{Points: points})
	return r, nil
}

// collectTotals adds the series of the range to the report, each with one point for all of its steps.
func (h *History) collectTotals(r *Excerpt, i int, q Range) {
	s, sums := &scales[i], map[seriesKey]*counts{}
	for _, b := range h.blocksOf(i, r) {
		b.eachCounts(s.stepsIn(r, &b), func(p seriesKey) bool { return p == seriesKey{} || q.selects(p) }, func(_ int, p seriesKey, c *counts) {
			if r.Incomplete = r.Incomplete || p == (seriesKey{}); !q.selects(p) {
				return
			}
			if sums[p] == nil {
				sums[p] = new(counts)
			}
			sums[p].add(c)
		})
	}
	maps.DeleteFunc(sums, func(p seriesKey, _ *counts) bool { return q.isBehind(p) })
	all := slices.SortedFunc(maps.Keys(sums), seriesKey.compare)
	if len(all) > maxPoints {
		all = all[:maxPoints]
		r.Next = all[maxPoints-1].place()
	}
	for _, p := range all {
		r.Series = append(r.Series, TimeSeries{Tenant: p.tenant, Server: p.server, Points: []Point{{r.From, sums[p].tally()}}})
	}
}

// selects reports whether the range is about the pair.
func (q *Range) selects(p seriesKey) bool {
	return (q.Tenant == "" || p.tenant == q.Tenant) && (q.Server == "" || p.server == q.Server)
}

// isBehind reports whether the answers before have had the pair.
func (q *Range) isBehind(p seriesKey) bool { return q.After != "" && p.place() <= q.After }
