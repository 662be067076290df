package replay

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds say which recorded decisions a comparison looks at, and how far it goes. It begins with the newest ones.
type Bounds struct {
	Tenant  switchboard.TenantID // "" means all tenants
	Since   time.Time
	Receipt string // the id of a receipt: only its decisions, whenever it was written; "" means all

	Limit   int           // the most decisions; 0 means all
	Time    time.Duration // the comparison ends then, with what it has replayed; 0 means no limit
	Workers int           // 0 means one for each processor

	ByTask bool // each change names the task of its decisions; otherwise equal changes of several tasks are one

	behind map[string]uint64 // only receipts behind these entries, by node; nil means all
}

// partSize is the number of decisions that are replayed and counted together within bounds. The result holds whole parts, so that
// it can say up to which instant it has looked.
const partSize = 256

// entries yields the receipts with the decisions. The error receipt.ErrNotFound says that there is no such receipt, or that it is another tenant's.
func (s *Bounds) entries(ctx context.Context, records Records) iter.Seq2[receipt.ChainEntry, error] {
	if s.Receipt == "" {
		return receipt.List(ctx, records, receipt.Query{Tenant: s.Tenant, Since: s.Since, Behind: s.behind, NewestFirst: true})
	}
	return func(yield func(receipt.ChainEntry, error) bool) {
		e, err := receipt.Find(ctx, records, s.Receipt)
		if err == nil && s.Tenant != "" && e.Receipt.Tenant != s.Tenant {
			err = receipt.ErrNotFound
		}
		yield(e, err)
	}
}

// limitTime returns a context that ends when the time is over.
func (s *Bounds) limitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.Time <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.Time)
}

// read reads which decisions were recorded, for half of the time at most: the rest is for their replay. timed is from limitTime. last is the time of the last receipt.
func (s *Bounds) read(ctx, timed context.Context, records Records) (r *recordReading, looked *LookedAt, last time.Time, err error) {
	end := time.Now().Add(s.Time / 2)
	r = newRecordReading(records)
	r.most, r.selections = s.Limit, s.Receipt != ""
	looked = &LookedAt{Back: time.Now()}
	for e, err := range s.entries(timed, records) {
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				looked.OrMore = true
				break
			}
			return nil, nil, last, err
		}
		r.add(timed, &e)
		last = e.Receipt.Time
		if s.Time > 0 && time.Now().After(end) || len(r.further) == maxFurther {
			looked.OrMore = true
			break
		}
	}
	looked.Of = len(r.all) + len(r.further)
	return r, looked, last, nil
}

// CompareWithin is Compare within bounds. Diff.Looked says how far it has looked.
func CompareWithin(ctx context.Context, records Records, s Bounds, p *Proposal, progress func(done, of int)) (*Diff, error) {
	timed, stop := s.limitTime(ctx)
	defer stop()
	r, looked, receiptTime, err := s.read(ctx, timed, records)
	if err != nil {
		return nil, err
	}
	all := newComparison(p, nil, r.damaged)
	readers := newReaders(records, s.Workers)
	for part := range slices.Chunk(r.all, partSize) {
		c := newComparison(p, part, 0)
		c.byTask = s.ByTask
		if done := all.total; progress != nil {
			c.progress = func(n, _ int) { progress(done+n, len(r.all)) }
		}
		back := part[len(part)-1].when // before they are sorted by their bases
		if err := c.replayAll(timed, readers, part); err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				break // the part is incomplete, and its last decisions may have been made without time
			}
			return nil, err
		}
		all.merge(c)
		looked.Back = back
	}
	if looked.Decisions = all.total; looked.Complete() {
		looked.Back = s.Since
	}
	since := s.Since
	if s.Receipt != "" { // all its decisions were looked at, whenever they were made
		since, looked = receiptTime, nil
	}
	d := all.result(since, all.total+r.damaged)
	d.Looked = looked
	return d, nil
}

// merge adds the findings of another comparison.
func (c *comparison) merge(o *comparison) {
	c.total += o.total
	c.calls += o.calls
	c.changed += o.changed
	c.unlisted += o.unlisted
	for of, n := range o.callers {
		c.countCaller(of, n)
	}
	for change, n := range o.changes {
		c.countChange(change, n)
	}
	for why, n := range o.notReplayed {
		c.notReplayed[why] += n
	}
	c.broken = append(c.broken, o.broken...)
}

// WithoutValues returns the Diff without texts that can hold arguments of calls. A reason of a policy may repeat them; its code stays.
func (d *Diff) WithoutValues() *Diff {
	out := *d
	counts := map[DecisionChange]int{}
	out.Changes = []DecisionChange{}
	for _, c := range d.Changes {
		if c.Of == kindCall {
			c.Why, c.From, c.To = codeIn(c.Why), "", ""
		}
		key := c
		key.Decisions = 0
		if counts[key] == 0 {
			out.Changes = append(out.Changes, key)
		}
		counts[key] += c.Decisions
	}
	for i := range out.Changes {
		out.Changes[i].Decisions = counts[out.Changes[i]]
	}
	return &out
}

// codeIn returns the first code in a text, "" if there is none.
func codeIn(text string) string {
	_, rest, ok := strings.Cut(text, "SB-")
	if !ok {
		return ""
	}
	code, _, _ := strings.Cut(rest, ":")
	return "SB-" + code
}
