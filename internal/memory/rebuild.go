package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Rebuilt says what Rebuild has done.
type Rebuilt struct {
	From     Day    `json:"from"` // all days from it on were counted again
	To       Day    `json:"to"`
	Receipts uint64 `json:"receipts"`
	Pages    int    `json:"pages"`

	// Trimmed says that receipts of days before From were removed. Their pages are as they were.
	Trimmed bool `json:"trimmed"`
}

// Rebuild counts again the days of which all receipts exist, and replaces their pages. It may run while other processes fold.
func (m *Memory) Rebuild(ctx context.Context) (done Rebuilt, err error) {
	extents, err := receipt.Extents(ctx, m.o.Store)
	if err != nil {
		return done, err
	}
	now := time.Now()
	done.From, done.Trimmed, err = m.firstWholeDay(ctx, extents, DayOf(now))
	if err != nil {
		return done, err
	}
	done.From, done.To = max(done.From, oldest(now)), DayOf(now)+1 // the clock of a replica may be ahead
	for day := done.From; day <= done.To; day++ {
		err := m.rebuildDay(ctx, day, extents, &done)
		switch {
		case errors.Is(err, errTrimmed):
			done.Trimmed, done.From = true, day+1
		case err != nil:
			return done, err
		}
	}
	done.To = DayOf(now)
	return done, nil // the marks stay: receipts of days before From may be uncounted
}

// firstWholeDay returns the first day of which no chain was trimmed, up to last.
func (m *Memory) firstWholeDay(ctx context.Context, extents map[string]receipt.Extent, last Day) (day Day, trimmed bool, err error) {
	begins, whole := last, Day(0)
	for node, e := range extents {
		_, err := receipt.ReadSome(ctx, m.o.Store, node, e.First-1, headEntries, func(first *receipt.ChainEntry) bool {
			if first.Fault != nil {
				return true // the next one has a time
			}
			if begins = min(begins, DayOf(first.Receipt.Time)); e.First > 1 {
				trimmed, whole = true, max(whole, DayOf(first.Receipt.Time)+1)
			}
			return false
		})
		if err != nil {
			return 0, false, err
		}
	}
	return max(begins, whole), trimmed, nil
}

// errTrimmed says that receipts of a day were removed while they were counted again.
var errTrimmed = errors.New("receipts of the day were removed meanwhile")

// checkWhole returns errTrimmed if receipts of the day were removed since the chains had the extents.
func (m *Memory) checkWhole(ctx context.Context, day Day, since map[string]receipt.Extent) error {
	now, err := receipt.Extents(ctx, m.o.Store)
	if err != nil {
		return err
	}
	moved := false
	for node, e := range since {
		moved = moved || now[node].First != e.First
	}
	if !moved {
		return nil
	}
	first, _, err := m.firstWholeDay(ctx, now, day)
	if err == nil && first > day {
		return errTrimmed
	}
	return err
}

// rebuildDay counts one day again. extents are those of before: of the entries up to there, none of this day is missed. errTrimmed says that it has left pages of the
// day as they were.
func (m *Memory) rebuildDay(ctx context.Context, day Day, extents map[string]receipt.Extent, done *Rebuilt) error {
	t, counted, receipts, tenants := newTally(day, nil), map[string]uint64{}, uint64(0), map[switchboard.TenantID]bool{}
	for node, all := range extents {
		counted[node] = all.Last
		for e, err := range receipt.List(ctx, m.o.Store, receipt.Query{Node: node, Since: day.Start(), Until: (day + 1).Start()}) {
			if err != nil {
				return err
			}
			t.count(&e)
			tenants[e.Receipt.Tenant] = true
			counted[node] = max(counted[node], e.Seq)
			receipts++
		}
	}
	if err := m.checkWhole(ctx, day, extents); err != nil {
		return err
	}
	for tenant := range tenants {
		for _, part := range allParts() { // a damaged page may hold what no receipt says
			k := pageKey{tenant, part, day}
			if t.pages[k] != nil {
				continue
			}
			if v, err := m.o.Store.Value(ctx, k.key()); ignoreUnopened(err) != nil {
				return err
			} else if v.Version != 0 {
				t.pages[k] = newPage()
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.pages), pageKey.compare) {
		err := m.replace(ctx, k, counted, extents, t.pages[k])
		switch {
		case err == nil:
			done.Pages++
		case !m.leavesOut(k, err):
			return err
		}
	}
	done.Receipts += receipts
	return nil
}

// replace writes a page that was counted up to these entries. If another process has counted further entries for it meanwhile, they are counted here, too. If some of
// them were removed since the chains had the extents, the page stays, and the error is errTrimmed.
func (m *Memory) replace(ctx context.Context, k pageKey, upTo map[string]uint64, extents map[string]receipt.Extent, counted *page) error {
	upTo = maps.Clone(upTo)
	return m.update(ctx, k, func(was *page) (*page, error) {
		for node, at := range was.cursors {
			if at <= upTo[node] {
				continue
			}
			t := newTally(k.day, &k)
			if _, err := m.read(ctx, node, upTo[node], at, t); err != nil {
				return nil, err
			}
			if err := m.checkWhole(ctx, k.day, extents); err != nil {
				return nil, err
			}
			if more := t.pages[k]; more != nil {
				counted.add(more)
			}
			upTo[node] = at
		}
		counted.cursors = upTo
		return counted, nil
	})
}

// allParts returns the parts of a tenant.
func allParts() (all []string) {
	for i := range parts {
		all = append(all, partName(i))
	}
	return append(all, gapPart)
}
