package replay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A RuleMemory remembers the decisions of one tenant that a count of rules has found, and the rules that held in them. Entries of chains never change, so the next
// count reads only the entries behind them. Reading a tenant's receipts takes nearly all the time of a count. The zero value is an empty memory. It is for one
// count at a time.
type RuleMemory struct {
	since time.Time         // it has all decisions since then
	ends  map[string]uint64 // the last entry that was certainly read, by node; nil: m is empty
	all   []*decisionRecord // without their texts
	fired map[firedKey]firedRules
}

// Decisions is the number of decisions that it remembers.
func (m *RuleMemory) Decisions() int { return len(m.all) }

// A recordedOnce is equal for decisions of one day that count once.
type recordedOnce struct {
	kind          string
	digest, basis switchboard.Digest
	day           int64
}

// once returns the same value for decisions that count once.
func (e *decisionRecord) once() recordedOnce {
	of := recordedOnce{kind: e.kind, digest: e.digest, day: e.when.Truncate(recordInterval).Unix()}
	if e.kind == kindDecision { // a ruling names its basis
		of.basis = e.basis
	}
	return of
}

// read reads the decisions as Bounds.read does, but takes the decisions of m from memory. ends are the last entries that were read for certain, by node; nil if
// the reading cannot be remembered.
func (m *RuleMemory) read(ctx, timed context.Context, records Records, s *Bounds) (r *recordReading, looked *LookedAt, ends map[string]uint64, err error) {
	extents, err := receipt.Extents(ctx, records)
	if err != nil {
		return nil, nil, nil, err
	}
	ends = map[string]uint64{}
	for node, e := range extents {
		ends[node] = e.Last
	}
	// Of damaged entries and of decisions that are only counted, no times are known.
	whole := func() bool { return r.damaged == 0 && len(r.further) == 0 && !looked.OrMore }
	if m.ends != nil && !s.Since.Before(m.since) {
		news := *s
		news.behind = m.ends
		if r, looked, _, err = news.read(ctx, timed, records); err != nil {
			return nil, nil, nil, err
		}
		m.addTo(timed, r, s.Since, extents)
		if looked.Of = len(r.all); whole() && (s.Limit == 0 || looked.Of <= s.Limit) {
			return r, looked, ends, nil
		}
	}
	if r, looked, _, err = s.read(ctx, timed, records); err != nil || !whole() {
		ends = nil
	}
	return r, looked, ends, err
}

// addTo adds remembered decisions to those of r: the decisions since then, if their receipts still exist.
func (m *RuleMemory) addTo(ctx context.Context, r *recordReading, since time.Time, extents map[string]receipt.Extent) {
	news := map[recordedOnce]bool{}
	for _, e := range r.all {
		news[e.once()] = true
	}
	bases := map[switchboard.Digest]*decisionRecord{} // of many decisions each: they share their digests
	for _, e := range m.all {
		if e.when.Before(since) || e.seq < extents[e.node].First || news[e.once()] {
			continue
		}
		if e.refs == nil { // its texts were not archived yet
			r.readBasis(ctx, e)
		}
		bases[e.basis] = e
		r.all = append(r.all, e)
	}
	for _, e := range r.all {
		if known := bases[e.basis]; known != nil {
			e.basis, e.refs = known.basis, known.refs
		}
	}
	slices.SortStableFunc(r.all, func(a, b *decisionRecord) int {
		return cmp.Or(b.when.Compare(a.when), cmp.Compare(b.node, a.node), cmp.Compare(b.seq, a.seq))
	})
}

// remember replaces the content of m by the findings of a count.
func (m *RuleMemory) remember(s *Bounds, ends map[string]uint64, all []*decisionRecord, fired map[firedKey]firedRules) {
	*m = RuleMemory{}
	if ends == nil {
		return
	}
	*m = RuleMemory{since: s.Since, ends: ends, all: all, fired: map[firedKey]firedRules{}}
	texts := map[policy.RuleID]policy.RuleID{}
	for _, e := range all {
		e.text = nil
		f, known := fired[e.firedKey()]
		if !known || f.why != "" { // what is missing in the archive may come yet
			continue
		}
		for i, id := range f.rules { // the rules of most decisions are the same: they share their texts
			if was, ok := texts[id]; ok {
				f.rules[i] = was
			} else {
				texts[id] = id
			}
		}
		m.fired[e.firedKey()] = f
	}
}

// A firedKey identifies decisions that fire the same rules.
type firedKey struct {
	kind          string
	digest, basis switchboard.Digest
}

func (e *decisionRecord) firedKey() firedKey { return firedKey{e.kind, e.digest, e.basis} }
