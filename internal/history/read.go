package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Range says which part of the history to read.
type Range struct {
	Tenant   switchboard.TenantID // "" means all tenants
	Server   switchboard.ServerID // "" means all servers
	Step     string               // the name of a scale: 10s, 1m or 15m
	From, To time.Time            // From zero: from the oldest step; To zero: until now
	After    string               // continue behind this place: Excerpt.Next
	Total    bool                 // each series has one point, the sum of its steps
}

// maxPoints is how many points an answer has at most. One series has at most 1,441.
const maxPoints = 2000

// An Excerpt is a part of the history.
type Excerpt struct {
	Step string    `json:"step" doc:"The length of a step: 10s, 1m or 15m."`
	From time.Time `json:"from" doc:"The begin of the first step."`
	To   time.Time `json:"to" doc:"The end of the last step. The present step still grows."`

	// Bounds are the upper bounds of the buckets, in milliseconds; the last bucket has none.
	Bounds []float64 `json:"bounds_ms" doc:"The upper bounds of the buckets. There is one more bucket, without a bound."`

	Series []TimeSeries `json:"series" doc:"Sorted by tenant and server."`

	Next string `json:"next,omitempty" doc:"There are more series: ask again with after=NEXT."`

	// Incomplete says that a step had more pairs of tenant and server than are kept apart, so that calls of the asked ones may be missing.
	Incomplete bool `json:"incomplete,omitempty" doc:"A step keeps at most 64 series. Calls of further pairs of tenant and server are not in a series with their names: for an operator they are in one without names."`

	// StoreAway says that the store could not be read now.
	StoreAway bool `json:"store_away,omitempty" doc:"The store cannot be read now: the newest steps of other replicas are missing."`
}

// A TimeSeries is the part of the history about one tenant and one server.
type TimeSeries struct {
	Tenant switchboard.TenantID `json:"tenant,omitempty" doc:"Absent in the series of all calls that have no series of their own, as is the server. A series with a tenant and without a server is about the lists of tools that the tenant's clients got."`
	Server switchboard.ServerID `json:"server,omitempty" doc:"The server that the calls were for."`
	Points []Point              `json:"points" doc:"The steps with calls, the oldest first; with total, one point for all of them."`
}

// A Point has the counts of one step.
type Point struct {
	Start time.Time `json:"start" doc:"The begin of the step."`
	Tally
}

// A Tally counts calls.
type Tally struct {
	Calls   int64 `json:"calls" doc:"All calls that ended, also those that their clients have cancelled."`
	Failed  int64 `json:"failed,omitempty" doc:"Calls that got the server's own error, or no result because something has failed."`
	Refused int64 `json:"refused,omitempty" doc:"Calls that were refused by a rule, or for a mistake of their caller."`
	Moved   int64 `json:"moved,omitempty" doc:"Calls that another server has served."`

	Spent switchboard.Micros `json:"spent_micros,omitempty" doc:"What was settled for attempts at the server, in millionths of the currency. An attempt of a call that has moved counts at the server that it was sent to."`

	Lists      int64 `json:"lists,omitempty" doc:"Lists of tools that clients got, of tasks with tools of servers. This and the next three are in the series of the tenant that has no server."`
	ListTokens int64 `json:"list_tokens,omitempty" doc:"The tokens of the definitions in these lists, and of the answers of stubs."`
	FullTokens int64 `json:"full_list_tokens,omitempty" doc:"The tokens of all definitions that the servers behind these lists offer, once for each list."`
	Uncounted  int64 `json:"uncounted_lists,omitempty" doc:"Lists and answers of stubs that are in none of these numbers, because too many waited to be counted."`

	Refusals map[string]int64 `json:"refusals,omitempty" doc:"The refused calls by code; \"others\" are those with a code that is rare at calls."`

	P50     float64 `json:"p50_ms,omitempty" doc:"The latency that half of the calls with a result, or with a failure, had at most: estimated from the buckets."`
	P95     float64 `json:"p95_ms,omitempty" doc:"Likewise for 95 of 100 calls."`
	Buckets []int64 `json:"buckets,omitempty" doc:"How many of these calls had a latency in each bucket."`
}

// Names returns the names of the scales, the finest first.
func Names() (all []string) {
	for i := range scales {
		all = append(all, scales[i].name)
	}
	return all
}

// Read returns the part of the history that the range names, of all processes that share the store. If the store cannot be read, it returns
// what this process knows. The error is a *switchboard.Error.
func (h *History) Read(ctx context.Context, q Range) (*Excerpt, error) {
	r, i, err := h.open(ctx, q)
	if err != nil {
		return nil, err
	}
	if q.Total {
		h.collectTotals(r, i, q)
	} else {
		h.collect(r, i, q)
	}
	return r, nil
}

// open reads what other processes have counted, and returns an Excerpt without series and the index of its scale.
func (h *History) open(ctx context.Context, q Range) (*Excerpt, int, error) {
	i := slices.IndexFunc(scales[:], func(s scale) bool { return s.name == q.Step })
	if i < 0 {
		return nil, 0, switchboard.Refuse(switchboard.CodeBadArguments, "there are no steps of %.20q; choose %s", q.Step, strings.Join(Names(), ", "))
	}
	s, now := &scales[i], time.Now()
	from, to := q.From, q.To
	if oldest := now.Add(-s.kept); from.Before(oldest) {
		from = oldest
	}
	if to.IsZero() || to.After(now) {
		to = now
	}
	if !from.Before(to) {
		return nil, 0, switchboard.Refuse(switchboard.CodeBadArguments, "from must be before to, and to within the last %s", spellKept(s.kept))
	}
	from, to = s.align(from), s.align(to.Add(s.each-1))
	r := &Excerpt{Step: s.name, From: from, To: to, Series: []TimeSeries{}}
	for _, b := range bucketBounds {
		r.Bounds = append(r.Bounds, float64(b)/float64(time.Millisecond))
	}
	short, cancel := context.WithTimeout(ctx, readTimeout)
	r.StoreAway = h.refresh(short, i) != nil
	cancel()
	h.roll(time.Now())
	return r, i, nil
}

// align returns the begin of the step that holds the instant.
func (s *scale) align(at time.Time) time.Time {
	each := int64(s.each / time.Second)
	return time.Unix(floorDiv(at.Unix(), each)*each, 0).UTC()
}

func spellKept(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 1 {
		return fmt.Sprint(int(days), " days")
	}
	return fmt.Sprint(int(d/time.Hour), " h")
}

// place is the place of the pair in the list of series. A space comes before all characters of ids, so the list is sorted by it.
func (p seriesKey) place() string { return string(p.tenant) + " " + string(p.server) }

// collect adds the series of the range to the report.
func (h *History) collect(r *Excerpt, i int, q Range) {
	s := &scales[i]
	blocks := h.blocksOf(i, r)
	points := map[seriesKey]int{}
	for _, b := range blocks {
		b.eachCounts(s.stepsIn(r, &b), nil, func(_ int, p seriesKey, _ *counts) {
			r.Incomplete = r.Incomplete || p == seriesKey{}
			points[p]++
		})
	}
	maps.DeleteFunc(points, func(p seriesKey, _ int) bool {
		return !q.selects(p) || q.isBehind(p)
	})
	all, sum := slices.SortedFunc(maps.Keys(points), seriesKey.compare), 0
	for n, p := range all {
		if sum += points[p]; sum > maxPoints {
			r.Next, all = all[n-1].place(), all[:n]
			break
		}
	}
	r.Series = make([]TimeSeries, len(all))
	lines := map[seriesKey]*TimeSeries{}
	for n, p := range all {
		r.Series[n] = TimeSeries{Tenant: p.tenant, Server: p.server, Points: make([]Point, 0, points[p])}
		lines[p] = &r.Series[n]
	}
	for _, b := range blocks {
		b.eachCounts(s.stepsIn(r, &b), func(p seriesKey) bool { return lines[p] != nil }, func(step int, p seriesKey, c *counts) {
			lines[p].Points = append(lines[p].Points, Point{s.startOf(&b, step), c.tally()})
		})
	}
}

// startOf returns the begin of a step of the block.
func (s *scale) startOf(b *readBlock, step int) time.Time {
	return b.begin.Add(time.Duration(step) * s.each).UTC()
}

// stepsIn returns a function that reports whether a step of the block is in the report.
func (s *scale) stepsIn(r *Excerpt, b *readBlock) func(step int) bool {
	return func(step int) bool {
		at := b.begin.Add(time.Duration(step) * s.each)
		return !at.Before(r.From) && at.Before(r.To)
	}
}

// A readBlock is a block that a reader looks at: encoded, or decoded where several parts were summed up.
type readBlock struct {
	begin time.Time
	data  []byte
	steps map[int]historyStep
}

// blocksOf returns the blocks of the scale with steps of the report, the oldest first.
func (h *History) blocksOf(i int, r *Excerpt) (all []readBlock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept, s := &h.kept[i], &scales[i]
	for _, start := range kept.starts() {
		b := readBlock{begin: time.Unix(start, 0), data: kept.known[start]}
		if !b.begin.Add(s.span()).After(r.From) || !b.begin.Before(r.To) {
			continue
		}
		if _, sent := kept.sent[start]; sent || kept.fresh[start] != nil {
			b.steps = kept.stepsOf(start, h.id).steps
			for _, step := range b.steps {
				step.fold(maxSeries)
			}
		}
		all = append(all, b)
	}
	return all
}

// eachCounts calls see with the pairs of each step, in the order of steps. in says which steps count, and wants which pairs do, whose numbers are valid
// during the call. If wants is nil, all pairs count, without their numbers.
func (b *readBlock) eachCounts(in func(step int) bool, wants func(seriesKey) bool, see func(step int, p seriesKey, c *counts)) {
	if b.steps != nil {
		for _, index := range slices.Sorted(maps.Keys(b.steps)) {
			for p, c := range b.steps[index] {
				if in(index) && (wants == nil || wants(p)) {
					see(index, p, c)
				}
			}
		}
		return
	}
	r, pairs := openBlock(b.data)
	wanted := make([]bool, len(pairs))
	for n, p := range pairs {
		wanted[n] = wants != nil && wants(p)
	}
	var c counts
	for range r.count(maxSteps) {
		index := r.count(maxSteps - 1)
		counts := in(index)
		for range r.count(maxSeries) {
			n := r.count(len(pairs))
			switch {
			case r.damaged || n >= len(pairs):
				return
			case counts && wanted[n]:
				c = r.counts()
				see(index, pairs[n], &c)
			default:
				r.skipCounts()
				if counts && wants == nil {
					see(index, pairs[n], nil)
				}
			}
		}
	}
}

// tally returns the numbers as a Tally.
func (c *counts) tally() Tally {
	t := Tally{Calls: int64(min(c[numCalls], maxNumber)), Failed: int64(min(c[numFailed], maxNumber)), Refused: int64(min(c[numRefused], maxNumber)), Moved: int64(min(c[numMoved], maxNumber))}
	t.Spent = switchboard.Micros(min(c[numSpent], maxNumber))
	for number, to := range map[int]*int64{numLists: &t.Lists, numTokens: &t.ListTokens, numFull: &t.FullTokens, numUncounted: &t.Uncounted} {
		*to = int64(min(c[number], maxNumber))
	}
	for i, n := range c[firstCode:firstExtra] {
		if n > 0 {
			name := OtherCodes
			if i < len(refusalCodes) {
				name = string(refusalCodes[i])
			}
			t.addRefusals(name, int64(min(n, maxNumber)))
		}
	}
	for _, n := range c[firstBucket:firstCode] {
		t.Buckets = append(t.Buckets, int64(min(n, maxNumber)))
	}
	t.estimate()
	return t
}

// OtherCodes is the key of Tally.Refusals for the codes that are not counted apart.
const OtherCodes = "others"

func (t *Tally) addRefusals(code string, n int64) {
	if t.Refusals == nil {
		t.Refusals = map[string]int64{}
	}
	t.Refusals[code] += n
}

// Add adds the calls of u.
func (t *Tally) Add(u *Tally) {
	t.Calls, t.Failed, t.Refused, t.Moved = t.Calls+u.Calls, t.Failed+u.Failed, t.Refused+u.Refused, t.Moved+u.Moved
	t.Spent += u.Spent
	t.Lists, t.ListTokens, t.FullTokens, t.Uncounted = t.Lists+u.Lists, t.ListTokens+u.ListTokens, t.FullTokens+u.FullTokens, t.Uncounted+u.Uncounted
	for code, n := range u.Refusals {
		t.addRefusals(code, n)
	}
	for i, n := range u.Buckets {
		if i == len(t.Buckets) {
			t.Buckets = append(t.Buckets, 0)
		}
		t.Buckets[i] += n
	}
	t.estimate()
}

// estimate computes P50 and P95 from the buckets.
func (t *Tally) estimate() {
	t.P50, t.P95 = percentile(t.Buckets, 50), percentile(t.Buckets, 95)
	if t.P95 == 0 {
		t.Buckets = nil // no call has a latency
	}
}

// percentile returns the latency in milliseconds that the percent of the calls have at most, as if those of a bucket were spread evenly. It
// is 0 without calls, and the last bound if it lies above.
func percentile(buckets []int64, percent float64) float64 {
	total := int64(0)
	for _, n := range buckets {
		total += n
	}
	want, below, low := float64(total)*percent/100, 0.0, 0.0
	for i, n := range buckets {
		if i == len(bucketBounds) || total == 0 {
			break
		}
		high := float64(bucketBounds[i]) / float64(time.Millisecond)
		if below+float64(n) >= want && n > 0 {
			return low + (high-low)*(want-below)/float64(n)
		}
		below, low = below+float64(n), high
	}
	if total == 0 {
		return 0
	}
	return low
}
