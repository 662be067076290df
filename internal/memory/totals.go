package memory

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const numOutcomes = 6

// Totals are what the calls of one tool came to, in one or more days. The zero Totals have no calls. A call that was tried at several tools counts for
// each of them, as one attempt.
type Totals struct {
	Outcomes [numOutcomes]uint64 // of attempts, in the order of receipt.Outcomes
	Kept     uint64              // calls that an earlier result answered, without the tool
	Cost     switchboard.Micros  // what was settled
	LastOK   time.Time           // of the last attempt that succeeded; zero if none has
	Latency  Latency             // of the attempts that the tool answered
	Patterns map[Pattern]Sightings
}

// A Pattern is one kind of attempt without success.
type Pattern struct {
	Outcome receipt.CallOutcome
	Code    switchboard.Code // "" if the tool or its server reported the error itself
	Moved   bool             // another tool was tried after it, or instead of it
}

// Sightings say how often something was seen, and when.
type Sightings struct {
	Count       uint64
	First, Last time.Time // to the second
}

// seen returns one sighting.
func seen(at time.Time) Sightings {
	at = at.UTC().Truncate(time.Second)
	return Sightings{1, at, at}
}

// add returns the sum of both.
func (s Sightings) add(o Sightings) Sightings {
	switch {
	case s.Count == 0:
		return o
	case o.Count == 0:
		return s
	}
	s.Count += o.Count
	if o.First.Before(s.First) {
		s.First = o.First
	}
	if o.Last.After(s.Last) {
		s.Last = o.Last
	}
	return s
}

// Attempts returns how many attempts there were.
func (t *Totals) Attempts() (n uint64) {
	for _, c := range t.Outcomes {
		n += c
	}
	return n
}

// Judged returns how many attempts say something about the tool: those that Switchboard has not refused.
func (t *Totals) Judged() uint64 { return t.Attempts() - t.Of(receipt.Refused) }

// Of returns how many attempts ended with the outcome.
func (t *Totals) Of(o receipt.CallOutcome) uint64 {
	if i := slices.Index(receipt.Outcomes, o); i >= 0 {
		return t.Outcomes[i]
	}
	return 0
}

// Add adds the totals of another day, or of another tool.
func (t *Totals) Add(o *Totals) {
	for i, n := range o.Outcomes {
		t.Outcomes[i] += n
	}
	t.Kept += o.Kept
	t.Cost += o.Cost
	if o.LastOK.After(t.LastOK) {
		t.LastOK = o.LastOK
	}
	t.Latency.Add(&o.Latency)
	if len(t.Patterns)+len(o.Patterns) <= maxPatterns { // then their order does not matter
		for p, s := range o.Patterns {
			t.addPattern(p, s)
		}
		return
	}
	for _, p := range slices.SortedFunc(maps.Keys(o.Patterns), Pattern.compare) {
		t.addPattern(p, o.Patterns[p])
	}
}

// reset makes the totals those of no calls, and keeps their room for others.
func (t *Totals) reset() {
	clear(t.Latency.counts)
	clear(t.Patterns)
	*t = Totals{Latency: Latency{counts: t.Latency.counts[:0]}, Patterns: t.Patterns}
}

// addPattern counts a pattern. Patterns beyond maxPatterns count as one without a code.
func (t *Totals) addPattern(p Pattern, s Sightings) {
	if t.Patterns == nil {
		t.Patterns = map[Pattern]Sightings{}
	}
	if _, known := t.Patterns[p]; !known && len(t.Patterns) >= maxPatterns {
		p.Code = ""
	}
	t.Patterns[p] = t.Patterns[p].add(s)
}

func (p Pattern) compare(q Pattern) int {
	moved := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(p.Outcome, q.Outcome), cmp.Compare(p.Code, q.Code), cmp.Compare(moved(p.Moved), moved(q.Moved)))
}

// A Latency is a histogram of latencies. Eight buckets double the time, so what Quantile returns is at most 1/16 away from the latency that was
// measured, for latencies from 8 µs to 18 min. The zero Latency is empty.
type Latency struct {
	counts []uint64 // by bucket, up to the last one that has any
	n      uint64
}

const (
	bucketBits = 3 // 8 buckets for each power of two
	maxMicros  = 1<<30 - 1
)

// bucketOf returns the bucket of a latency in microseconds.
func bucketOf(micros int64) int {
	v := uint64(min(max(micros, 0), maxMicros)) //nolint:gosec // it is not negative
	if v < 1<<bucketBits {
		return int(v) //nolint:gosec // it is small
	}
	shift := bits.Len64(v) - 1 - bucketBits
	return (shift+1)<<bucketBits + int(v>>shift) - 1<<bucketBits //nolint:gosec // it is small
}

// boundsOf returns the microseconds that the bucket holds: from low to below high.
func boundsOf(bucket int) (low, high int64) {
	if bucket < 1<<bucketBits {
		return int64(bucket), int64(bucket) + 1
	}
	shift := bucket>>bucketBits - 1
	low = int64(1<<bucketBits+bucket&(1<<bucketBits-1)) << shift
	return low, low + 1<<shift
}

// maxBucket is the last bucket.
var maxBucket = bucketOf(maxMicros)

// note counts one latency.
func (l *Latency) note(micros int64) { l.addCount(bucketOf(micros), 1) }

func (l *Latency) addCount(bucket int, n uint64) {
	if n == 0 {
		return
	}
	if more := bucket + 1 - len(l.counts); more > 0 {
		l.counts = append(l.counts, make([]uint64, more)...)
	}
	l.counts[bucket] += n
	l.n += n
}

// Add adds another histogram.
func (l *Latency) Add(o *Latency) {
	if more := len(o.counts) - len(l.counts); more > 0 {
		l.counts = append(l.counts, make([]uint64, more)...)
	}
	for b, n := range o.counts {
		l.counts[b] += n
	}
	l.n += o.n
}

// Len returns how many latencies there are.
func (l *Latency) Len() uint64 { return l.n }

// Quantile returns the latency that the part q of all does not exceed; 0 if there are none.
func (l *Latency) Quantile(q float64) time.Duration {
	if l.n == 0 {
		return 0
	}
	low, high := boundsOf(l.at(uint64(math.Ceil(q * float64(l.n)))))
	return time.Duration(low+high) * time.Microsecond / 2
}

// MedianBounds returns an interval that holds the true median with a probability of 95 %, widened to whole buckets. ok is false for fewer than 8 latencies.
func (l *Latency) MedianBounds() (low, high time.Duration, ok bool) {
	if l.n < 8 {
		return 0, 0, false
	}
	half, spread := float64(l.n)/2, z95*math.Sqrt(float64(l.n))/2
	a, _ := boundsOf(l.at(uint64(math.Floor(max(half-spread, 1)))))
	_, b := boundsOf(l.at(uint64(math.Ceil(min(half+spread+1, float64(l.n))))))
	return time.Duration(a) * time.Microsecond, time.Duration(b) * time.Microsecond, true
}

// at returns the bucket of the latency with that rank, from 1 on.
func (l *Latency) at(rank uint64) int {
	rank = min(max(rank, 1), l.n)
	for b, n := range l.counts {
		if rank <= n {
			return b
		}
		rank -= n
	}
	return len(l.counts) - 1
}

// z95 is how many standard deviations around the mean hold 95 % of a normal distribution.
const z95 = 1.959964

// Wilson returns the interval of Wilson's score that holds the true rate of success with a probability of 95 %. n must not be 0.
func Wilson(success, n uint64) (low, high float64) {
	p, of := float64(success)/float64(n), float64(n)
	mid := p + z95*z95/(2*of)
	spread := z95 * math.Sqrt(p*(1-p)/of+z95*z95/(4*of*of))
	scale := 1 + z95*z95/of
	return max((mid-spread)/scale, 0), min((mid+spread)/scale, 1)
}
