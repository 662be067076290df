package receipt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

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

	Since, Until time.Time // from Since on, before Until; zero means no limit

	NewestFirst bool // newest receipts first
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

// selects reports whether q selects e, apart from its node. q selects every entry that cannot be
// read, because its content is unknown.
func (q *Query) selects(e *ChainEntry) bool {
	r := &e.Receipt
	switch {
	case e.Fault != nil:
		return true
	case q.Tenant != "" && r.Tenant != q.Tenant,
		q.Task != "" && r.Task != q.Task,
		q.Code != "" && r.Code != q.Code,
		q.Outcome != "" && r.Outcome != q.Outcome,
		q.Kind != "" && r.Kind != q.Kind,
		!q.Since.IsZero() && r.Time.Before(q.Since),
		!q.Until.IsZero() && !r.Time.Before(q.Until):
		return false
	case q.Tool == "":
		return true
	}
	for _, id := range r.Tools {
		_, name, _ := strings.Cut(id, "/")
		if switchboard.MatchPattern(q.Tool, id) || switchboard.MatchPattern(q.Tool, name) {
			return true
		}
	}
	return r.Tool != "" && (switchboard.MatchPattern(q.Tool, r.Tool) ||
		switchboard.MatchPattern(q.Tool, string(r.Server)+"/"+r.Tool) || switchboard.MatchPattern(q.Tool, r.ServedBy))
}

// Find returns the receipt with the id, in either form. ErrNone says that it does not exist, or was
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

// List yields the receipts that q selects, from all chains, in the order of their times. An error
// ends it.
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

// A chainCursor reads a chain in one direction.
type chainCursor struct {
	reader    ChainReader
	node      string
	newest    bool
	from      uint64 // the first entry that is still to be read,
	to        uint64 // and the last
	page      []ChainEntry
	time      time.Time // of the first entry in page
	timeKnown bool      // time is set for that entry
}

func openCursors(ctx context.Context, s ChainReader, q *Query) (all []*chainCursor, err error) {
	nodes := []string{q.Node}
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
		c := &chainCursor{reader: s, node: node, newest: q.NewestFirst, from: span.First, to: span.Last}
		if !q.Since.IsZero() {
			if c.from, err = seekTime(ctx, s, node, span, q.Since); err != nil {
				return nil, err
			}
		}
		if !q.Until.IsZero() {
			end, err := seekTime(ctx, s, node, span, q.Until)
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

// fillPage reads the next page when the last one is empty.
func (c *chainCursor) fillPage(ctx context.Context) error {
	for len(c.page) == 0 && c.from <= c.to {
		n := min(c.to-c.from+1, pageSize)
		first, last := c.from, c.from+n-1
		if c.newest {
			first, last = c.to-n+1, c.to
		}
		for at := first; at <= last; { // a store may return fewer entries than there are
			all, err := c.reader.Read(ctx, logPrefix+c.node, at-1, int(last-at+1))
			if err != nil {
				return err
			}
			if len(all) == 0 {
				break
			}
			for _, stored := range all {
				e, _ := parseEntry(c.node, stored.Seq, stored.Data)
				e.Seq = stored.Seq // its position in the log, whatever it claims
				if at = e.Seq + 1; e.Seq <= last {
					c.page = append(c.page, e)
				}
			}
		}
		if c.newest {
			c.to = first - 1
			slices.Reverse(c.page)
		} else {
			c.from = last + 1
		}
		c.timeKnown = false
	}
	if len(c.page) > 0 && !c.timeKnown {
		if c.page[0].Fault == nil {
			c.time = c.page[0].Receipt.Time
		}
		c.timeKnown = true
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
				news = append(news, &chainCursor{reader: s, node: node, from: max(from+1, span.First), to: span.Last})
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
		var next *chainCursor
		for _, c := range cursors {
			if err := c.fillPage(ctx); err != nil {
				return err
			}
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
		if next == nil {
			return nil
		}
		if e := next.takeEntry(); q.selects(&e) && !yield(e, nil) {
			return errStop
		}
	}
}
