package receipt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ErrNotFound says that there is no receipt with the id.
var ErrNotFound = errors.New("there is no such receipt")

// A Query selects receipts. The zero Query selects all.
type Query struct {
	Node    string
	Tenant  switchboard.TenantID
	Task    switchboard.TaskID
	Tool    string // a pattern for tool or server/tool; * stands for any text
	Code    switchboard.Code
	Outcome CallOutcome
	Kind    Kind

	Principal string // the id of the client or of the officer

	Since, Until time.Time // from Since on, before Until; zero means no limit

	// Behind are the numbers of entries that the caller has read already, by node: List looks at those behind them only. nil means at all.
	Behind map[string]uint64

	NewestFirst bool // newest receipts first

	// MaxWork is how much List looks at, in units of workEntry; 0 means no bound. When it is reached, List ends with an
	// UnfinishedError. It must be 0 unless NewestFirst is set. The bound is no time, so that equal searches end at the
	// same place on every machine.
	MaxWork int

	// StopAt is when List ends with an UnfinishedError in any case, because the store is slow; zero means never. It must be
	// zero unless NewestFirst is set.
	StopAt time.Time
}

// The work of a search, in units of about 10 µs.
const (
	workEntry = 1   // to parse one entry
	workRead  = 4   // to read entries that follow on each other
	workBlock = 5   // to read the index's entry of one block
	workTexts = 128 // so many terms that are compared are one unit more
)

// An UnfinishedError says that a search has reached Query.MaxWork or Query.StopAt.
type UnfinishedError struct {
	// Looked is back to when every chain was looked at. A search with Until: Looked goes on there: it yields what is missing,
	// and no receipt twice.
	Looked time.Time
}

// Error implements error.
func (e *UnfinishedError) Error() string {
	return "the search has looked back to " + e.Looked.Format(time.RFC3339Nano)
}

// Check reports values of q that no receipt can have.
func (q *Query) Check() error {
	switch {
	case q.Kind != "" && !slices.Contains(Kinds, q.Kind):
		return fmt.Errorf("kind %.80q: want one of %v", q.Kind, Kinds)
	case q.Outcome != "" && !slices.Contains(Outcomes, q.Outcome):
		return fmt.Errorf("outcome %.80q: want one of %v", q.Outcome, Outcomes)
	case q.Node != "":
		return CheckNode(q.Node)
	}
	return nil
}

// Find returns the receipt with the id, in either form. ErrNotFound says that it does not exist, or was
// trimmed.
func Find(ctx context.Context, s ChainReader, id string) (ChainEntry, error) {
	node, seq, when, err := ParseID(id)
	if err != nil {
		return ChainEntry{}, err
	}
	byTime := seq == 0
	if byTime {
		span, err := s.Span(ctx, logPrefix+node)
		if err != nil {
			return ChainEntry{}, err
		}
		if seq, err = seekTime(ctx, s, node, span, when); err != nil {
			return ChainEntry{}, err
		}
	}
	none := fmt.Errorf("%s: %w", id, ErrNotFound)
	all, err := s.Read(ctx, logPrefix+node, seq-1, 1)
	if err != nil {
		return ChainEntry{}, err
	}
	if len(all) == 0 || all[0].Seq != seq {
		return ChainEntry{}, none
	}
	e, _ := parseEntry(node, seq, all[0].Data)
	e.Seq = seq
	if byTime && !e.Receipt.Time.Equal(when) {
		return ChainEntry{}, none
	}
	return e, nil
}

// Last returns the number of the last entry of a chain; 0 if it has none.
func Last(ctx context.Context, s ChainReader, node string) (seq uint64, err error) {
	span, err := s.Span(ctx, logPrefix+node)
	return span.Last, err
}

// An Extent is the first and the last entry that a chain has; the last is 0 if it has none.
type Extent struct{ First, Last uint64 }

// Extents returns the extents of all chains, by node.
func Extents(ctx context.Context, s ChainReader) (map[string]Extent, error) {
	nodes, err := Nodes(ctx, s)
	if err != nil {
		return nil, err
	}
	all := map[string]Extent{}
	for _, node := range nodes {
		span, err := s.Span(ctx, logPrefix+node)
		if err != nil {
			return nil, err
		}
		all[node] = Extent{span.First, span.Last}
	}
	return all, nil
}

// ReadAfter calls see with the receipts of a chain behind entry number after, in their order. It returns the number of the last one. An entry that
// cannot be read is an error.
func ReadAfter(ctx context.Context, s ChainReader, node string, after uint64, see func(*ChainEntry)) (last uint64, err error) {
	const some = 1000
	for last = after; ; {
		all, err := s.Read(ctx, logPrefix+node, last, some)
		if err != nil || len(all) == 0 {
			return last, err
		}
		for _, raw := range all {
			e, err := parseEntry(node, raw.Seq, raw.Data)
			if err != nil {
				return last, fmt.Errorf("receipt %s: %w", ID(node, raw.Seq), err)
			}
			see(&e)
			last = raw.Seq
		}
	}
}

// ReadSome calls see with receipts of a chain behind entry number after, in their order, until see returns false: at most limit, and at least one if there
// is one. An entry that cannot be read has a Fault. Of the others, only Node, Seq, Receipt and Raw are known, and their form is not checked, because that
// takes longer than to read them: Verify checks it. ReadSome returns the number of the last entry that see got; after if there is none.
func ReadSome(ctx context.Context, s ChainReader, node string, after uint64, limit int, see func(*ChainEntry) bool) (last uint64, err error) {
	all, err := s.Read(ctx, logPrefix+node, after, limit)
	if err != nil {
		return after, err
	}
	for _, raw := range all {
		e := decodeEntry(node, raw)
		if after = raw.Seq; !see(&e) {
			break
		}
	}
	return after, nil
}

// decodeEntry reads the receipt of an entry.
func decodeEntry(node string, raw store.Entry) ChainEntry {
	e := ChainEntry{Node: node, Seq: raw.Seq, Raw: raw.Data}
	var in struct {
		Receipt Receipt `json:"receipt"`
	}
	if e.Fault = json.Unmarshal(raw.Data, &in); e.Fault == nil {
		e.Fault = in.Receipt.check()
	}
	if e.Fault == nil {
		e.Receipt = in.Receipt
	}
	return e
}

// List yields the receipts that q selects, from all chains, in the order of their times. An error
// ends it; it can be an *UnfinishedError.
func List(ctx context.Context, s ChainReader, q Query) iter.Seq2[ChainEntry, error] {
	return func(yield func(ChainEntry, error) bool) {
		all, err := openCursors(ctx, s, &q)
		if err == nil {
			err = mergeByTime(ctx, all, &q, yield)
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(ChainEntry{}, err)
		}
	}
}

// A chainCursor reads a chain in one direction. It yields the entries that q may select, and others.
type chainCursor struct {
	reader    ChainReader
	query     *Query
	node      string
	from      uint64 // the first entry that is still to be read,
	to        uint64 // and the last
	pageSize  uint64 // of the next page
	page      []ChainEntry
	time      time.Time // of the first entry in page; if that cannot be read, of the one before
	timeKnown bool      // time is set for that entry

	begun   bool         // something was read
	work    *int         // done so far, by all cursors of the search
	matcher termMatcher  // of query
	index   *indexReader // nil until it is needed
	indexed []uint64     // entries that the index has named, in the order of reading; they precede from and to

	oldest datedEntry // what oldestTime has found
}

// A datedEntry is the number of an entry with its time.
type datedEntry struct {
	seq  uint64
	time time.Time
}

// Pages begin small, because the reader may want few entries.
const (
	firstPageSize = 64

	// maxIndexGap is how many entries between two wanted ones are read and thrown away, because one long
	// read takes less time than two short ones.
	maxIndexGap = 32
)

func openCursors(ctx context.Context, s ChainReader, q *Query) (all []*chainCursor, err error) {
	nodes, work := []string{q.Node}, 0
	if q.Node == "" {
		if nodes, err = Nodes(ctx, s); err != nil {
			return nil, err
		}
	}
	for _, node := range nodes {
		span, err := s.Span(ctx, logPrefix+node)
		if err != nil {
			return nil, err
		}
		c := newCursor(s, q, node, max(span.First, q.Behind[node]+1), span.Last)
		c.work = &work
		if c.from > c.to {
			continue
		}
		if !q.Since.IsZero() {
			from, err := seekTime(ctx, s, node, span, q.Since)
			if err != nil {
				return nil, err
			}
			c.from = max(c.from, from)
		}
		if !q.Until.IsZero() {
			end, err := seekEnd(ctx, s, node, span, q.Until)
			if err != nil {
				return nil, err
			}
			c.to = end - 1
		}
		all = append(all, c)
	}
	return all, nil
}

// seekTime returns the number of the first entry at or after t: times never decrease within a
// chain. If an entry cannot be read, seek returns that entry or an earlier one.
func seekTime(ctx context.Context, s ChainReader, node string, span store.Span, t time.Time) (uint64, error) {
	var failed error
	n := sort.Search(int(span.Last+1-span.First), func(i int) bool {
		if failed != nil {
			return true
		}
		all, err := s.Read(ctx, logPrefix+node, span.First+uint64(i)-1, 1)
		if err != nil || len(all) == 0 {
			failed = err
			return true
		}
		e, err := parseEntry(node, all[0].Seq, all[0].Data)
		return err != nil || !e.Receipt.Time.Before(t)
	})
	return span.First + uint64(n), failed
}

// seekEnd returns the number of the first entry at or after t that can be read. Another entry counts as the nearest one before
// it: so entries before t are before the result, also beside damaged ones.
func seekEnd(ctx context.Context, s ChainReader, node string, span store.Span, t time.Time) (uint64, error) {
	var failed error
	n := sort.Search(int(span.Last+1-span.First), func(i int) bool {
		if failed != nil {
			return true
		}
		when, ok, err := timeBefore(ctx, s, node, span.First, span.First+uint64(i))
		failed = err
		return ok && !when.Before(t)
	})
	return span.First + uint64(n), failed
}

// timeBefore returns the time of the entry seq or, if it cannot be read, of the nearest one before it, down to first. ok is false
// if there is none.
func timeBefore(ctx context.Context, s ChainReader, node string, first, seq uint64) (when time.Time, ok bool, err error) {
	for ; seq >= first; seq-- {
		all, err := s.Read(ctx, logPrefix+node, seq-1, 1)
		if err != nil || len(all) == 0 || all[0].Seq != seq { // it was trimmed
			return when, false, err
		}
		if e, err := parseEntry(node, all[0].Seq, all[0].Data); err == nil {
			return e.Receipt.Time, true, nil
		}
	}
	return when, false, nil
}

func newCursor(s ChainReader, q *Query, node string, from, to uint64) *chainCursor {
	c := &chainCursor{reader: s, query: q, node: node, from: from, to: to, pageSize: firstPageSize, work: new(int), matcher: termMatcher{query: q}}
	if q.NewestFirst {
		c.time = time.Unix(1<<40, 0) // an unreadable entry at the end is yielded at once
	}
	return c
}

// needsPage reports whether the cursor has no entry, and there may be more.
func (c *chainCursor) needsPage() bool {
	return len(c.page) == 0 && (c.from <= c.to || len(c.indexed) > 0)
}

// mustStop reports whether the search has done all the work that it may do, or has taken too long. What the index has named is read in any case.
func (c *chainCursor) mustStop() bool {
	tired := c.query.MaxWork > 0 && *c.work >= c.query.MaxWork || !c.query.StopAt.IsZero() && time.Now().After(c.query.StopAt)
	return tired && c.begun && len(c.indexed) == 0
}

// fillPages reads until each cursor has an entry or is at its end, each in its turn. So none of them is far ahead of
// another one when the search must stop: some cursors then have no entry although there may be more.
func fillPages(ctx context.Context, cursors []*chainCursor) (stopped bool, err error) {
	for again := true; again && !stopped; {
		again = false
		for _, c := range cursors {
			if !c.needsPage() {
				continue
			}
			if c.mustStop() {
				at, err := c.oldestTime(ctx)
				if err != nil {
					return false, err
				}
				if q := c.query; q.Until.IsZero() || at.Before(q.Until) { // else the next search would begin at the same place
					stopped = true
					continue
				}
			}
			if err := c.readPage(ctx); err != nil {
				return false, err
			}
			c.begun, c.timeKnown = true, false
			again = again || c.needsPage()
		}
	}
	for _, c := range cursors {
		if len(c.page) > 0 && !c.timeKnown {
			if c.page[0].Fault == nil {
				c.time = c.page[0].Receipt.Time
			}
			c.timeKnown = true
		}
	}
	return stopped, nil
}

// lookedBackTo returns the time back to which every cursor of a search that stops was read. Each cursor without an entry
// has moved, so this is before Until.
func lookedBackTo(ctx context.Context, cursors []*chainCursor) (looked time.Time, err error) {
	for _, c := range cursors {
		if !c.needsPage() {
			continue
		}
		at, err := c.oldestTime(ctx)
		if err != nil {
			return looked, err
		}
		if at.After(looked) {
			looked = at
		}
	}
	return looked, nil
}

// oldestTime returns the time of the oldest entry that the cursor has come to, newest first. It is the zero time if there is
// nothing to read before it.
func (c *chainCursor) oldestTime(ctx context.Context) (time.Time, error) {
	oldest := c.to + 1
	if c.oldest.seq == oldest {
		return c.oldest.time, nil
	}
	at, ok := time.Time{}, false
	for seq := oldest; seq < oldest+maxIndexGap; seq++ { // it may be unreadable
		all, err := c.reader.Read(ctx, logPrefix+c.node, seq-1, 1)
		if err != nil {
			return at, err
		}
		if len(all) == 0 {
			break
		}
		if e, err := parseEntry(c.node, all[0].Seq, all[0].Data); err == nil {
			at, ok = e.Receipt.Time, c.query.Until.IsZero() || e.Receipt.Time.Before(c.query.Until)
			break
		}
	}
	if !ok { // no entry that was looked at can be read
		before, found, err := timeBefore(ctx, c.reader, c.node, 1, oldest)
		if err != nil {
			return at, err
		}
		if at = (time.Time{}); found {
			at = before.Add(time.Microsecond) // no other entry of the chain has that time, and it was not looked at
		}
	}
	c.oldest = datedEntry{oldest, at}
	return at, nil
}

// readPage moves the cursor, and reads a page if the index does not exclude all entries on the way.
func (c *chainCursor) readPage(ctx context.Context) error {
	n := c.pageSize
	if len(c.indexed) == 0 {
		block, unindexed, err := c.readIndex(ctx)
		if err != nil {
			return err
		}
		if block != nil {
			c.useIndex(block)
			return nil
		}
		n = min(n, unindexed)
	}
	c.pageSize = min(2*c.pageSize, pageSize)
	if len(c.indexed) > 0 {
		n = min(n, uint64(len(c.indexed)))
		wanted := c.indexed[:n]
		c.indexed = c.indexed[n:]
		return c.readEntries(ctx, wanted)
	}
	first, last := c.from, c.from+n-1
	if c.query.NewestFirst {
		first, last = c.to-n+1, c.to
		c.to = first - 1
	} else {
		c.from = last + 1
	}
	err := c.readRange(ctx, first, last, nil)
	if c.query.NewestFirst {
		slices.Reverse(c.page)
	}
	return err
}

// readIndex returns the index's entry for the next block of the cursor, or how many entries must be read
// without the index.
func (c *chainCursor) readIndex(ctx context.Context) (b *indexBlock, unindexed uint64, err error) {
	left := c.to - c.from + 1
	if !c.query.asksForTerms() || c.index == nil && left <= firstPageSize {
		return nil, left, nil
	}
	if c.index == nil {
		end, err := readIndexEnd(ctx, c.reader, c.node)
		if err != nil {
			return nil, 0, err
		}
		c.index = &indexReader{reader: c.reader, node: c.node, newest: c.query.NewestFirst, end: end}
	}
	end, at := c.index.end, c.from
	if end.block == 0 {
		return nil, left, nil
	}
	if c.query.NewestFirst {
		at = c.to
	}
	number := blockOf(at, end.size)
	switch {
	case end.covers(number):
		if b, err = c.index.block(ctx, number); err != nil || b != nil {
			return b, 0, err
		}
		if c.query.NewestFirst { // this block alone is not indexed
			return nil, min(left, at-(number-1)*end.size), nil
		}
		return nil, min(left, number*end.size-at+1), nil
	case c.query.NewestFirst && number > end.block:
		return nil, min(left, at-end.block*end.size), nil
	case !c.query.NewestFirst && number < end.begin:
		return nil, min(left, (end.begin-1)*end.size-at+1), nil
	}
	return nil, left, nil
}

// useIndex moves the cursor to the next block, and notes the entries of this one that are to be read.
func (c *chainCursor) useIndex(b *indexBlock) {
	before := c.matcher.compared
	c.indexed = b.find(&c.matcher, c.from, c.to, c.indexed[:0])
	*c.work += workBlock + (c.matcher.compared-before)/workTexts
	if c.query.NewestFirst {
		slices.Reverse(c.indexed)
		c.to = b.first() - 1
	} else {
		c.from = b.last() + 1
	}
}

// readEntries reads the entries with these numbers, which rise or fall, into the page.
func (c *chainCursor) readEntries(ctx context.Context, wanted []uint64) error {
	if c.query.NewestFirst {
		wanted = slices.Clone(wanted)
		slices.Reverse(wanted)
	}
	for i := 0; i < len(wanted); {
		end := i + 1
		for end < len(wanted) && wanted[end]-wanted[end-1] <= maxIndexGap {
			end++
		}
		if err := c.readRange(ctx, wanted[i], wanted[end-1], wanted[i:end]); err != nil {
			return err
		}
		i = end
	}
	if c.query.NewestFirst {
		slices.Reverse(c.page)
	}
	return nil
}

// readRange reads the entries from first to last into the page: the wanted ones, or all if wanted is nil.
func (c *chainCursor) readRange(ctx context.Context, first, last uint64, wanted []uint64) error {
	for at := first; at <= last; { // a store may return fewer entries than there are
		*c.work += workRead
		all, err := c.reader.Read(ctx, logPrefix+c.node, at-1, int(last-at+1))
		if err != nil {
			return err
		}
		if len(all) == 0 {
			break
		}
		if wanted != nil {
			c.page = slices.Grow(c.page, min(len(all), len(wanted)))
		} else {
			c.page = slices.Grow(c.page, len(all))
		}
		for _, stored := range all {
			if at = stored.Seq + 1; stored.Seq > last {
				break
			}
			if wanted != nil {
				if _, ok := slices.BinarySearch(wanted, stored.Seq); !ok {
					continue
				}
			}
			*c.work += workEntry
			e, _ := parseEntry(c.node, stored.Seq, stored.Data)
			e.Seq = stored.Seq // its position in the log, whatever it claims
			c.page = append(c.page, e)
		}
	}
	return nil
}

func (c *chainCursor) takeEntry() ChainEntry {
	e := c.page[0]
	c.page = c.page[1:]
	c.timeKnown = false
	return e
}

// Follow yields what List yields, oldest first, and then new receipts, until ctx ends. It looks for
// new ones at the interval every. If q has no Since, it begins with receipts written from now on.
func Follow(ctx context.Context, s ChainReader, q Query, every time.Duration) iter.Seq2[ChainEntry, error] {
	return func(yield func(ChainEntry, error) bool) {
		q.NewestFirst = false
		begin := map[string]uint64{} // the last entry of each chain that is not new
		for first := true; ; first = false {
			nodes, err := Nodes(ctx, s)
			var news []*chainCursor
			for _, node := range nodes {
				var span store.Span
				if q.Node != "" && node != q.Node {
					continue
				}
				if span, err = s.Span(ctx, logPrefix+node); err != nil {
					break
				}
				from, known := begin[node]
				switch {
				case known:
				case !q.Since.IsZero():
					if from, err = seekTime(ctx, s, node, span, q.Since); err != nil {
						break
					}
					from--
				case first:
					from = span.Last
				default:
					from = span.First - 1
				}
				begin[node] = max(from, span.Last)
				news = append(news, newCursor(s, &q, node, max(from+1, span.First), span.Last))
			}
			if err == nil {
				err = mergeByTime(ctx, news, &q, yield)
			}
			switch {
			case errors.Is(err, errStop) || ctx.Err() != nil:
				return
			case err != nil:
				yield(ChainEntry{}, err)
				return
			}
			t := time.NewTimer(every)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
	}
}

// errStop says that the consumer has stopped.
var errStop = errors.New("stop")

// mergeByTime yields the entries of all cursors in the order of their times.
func mergeByTime(ctx context.Context, cursors []*chainCursor, q *Query, yield func(ChainEntry, error) bool) error {
	for {
		stopped, err := fillPages(ctx, cursors)
		var looked time.Time
		if err == nil && stopped {
			looked, err = lookedBackTo(ctx, cursors)
		}
		if err != nil {
			return err
		}
		var next *chainCursor
		for _, c := range cursors {
			if len(c.page) == 0 {
				continue
			}
			order := 0
			if next != nil {
				order = cmp.Or(c.time.Compare(next.time), cmp.Compare(c.node, next.node))
			}
			if next == nil || (order < 0) != q.NewestFirst {
				next = c
			}
		}
		switch {
		case stopped && (next == nil || next.time.Before(looked)): // what is before that time is left to the next search
			return &UnfinishedError{looked}
		case next == nil:
			return nil
		}
		if e := next.takeEntry(); q.matchesEntry(&e) && !yield(e, nil) {
			return errStop
		}
	}
}
