package memory

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A DaySpan is a range of days. From and To belong to it.
type DaySpan struct{ From, To Day }

// LastDays returns the span of the last n days, with the day of now.
func LastDays(n int, now time.Time) DaySpan { return DaySpan{DayOf(now) - Day(n) + 1, DayOf(now)} }

// A ToolDay is what one day of a tool came to.
type ToolDay struct {
	Day Day
	Totals
}

// Tool returns the days of the span with attempts at the tool or results that were kept, the oldest first.
func (m *Memory) Tool(ctx context.Context, tenant switchboard.TenantID, id switchboard.ToolID, s DaySpan) (days []ToolDay, err error) {
	want := id.String()
	err = m.eachPage(ctx, tenant, partOf(want), s, func(day Day, data []byte) error {
		return readPage(data, nil, func(tool string, totals []byte) bool {
			if tool != want {
				return true
			}
			t, ok := decodeTotals(totals)
			if ok {
				days = append(days, ToolDay{day, *t})
			}
			return ok
		}, nil, nil)
	})
	return days, err
}

// Sum returns the totals of all days.
func Sum(days []ToolDay) *Totals {
	sum := &Totals{}
	for i := range days {
		sum.Add(&days[i].Totals)
	}
	return sum
}

// A SeenGap is a gap of a tenant, and how often it was seen.
type SeenGap struct {
	Gap
	Sightings
	Days int // with sightings
}

// Gaps returns the gaps of the span, those that were seen most often first.
func (m *Memory) Gaps(ctx context.Context, tenant switchboard.TenantID, s DaySpan) ([]SeenGap, error) {
	all := map[Gap]*SeenGap{}
	err := m.eachPage(ctx, tenant, gapPart, s, func(_ Day, data []byte) error {
		return readPage(data, nil, nil, func(g Gap, s Sightings) {
			if all[g] == nil {
				all[g] = &SeenGap{Gap: g}
			}
			all[g].Sightings = all[g].add(s)
			all[g].Days++
		}, nil)
	})
	rows := make([]SeenGap, 0, len(all))
	for _, g := range all {
		rows = append(rows, *g)
	}
	slices.SortFunc(rows, func(a, b SeenGap) int {
		if a.Count != b.Count {
			if a.Count > b.Count {
				return -1
			}
			return 1
		}
		return a.Gap.compare(b.Gap)
	})
	return rows, err
}

// Changes returns the changes of the span that receipts of the tenant name, the oldest first; for the empty tenant those of the whole installation.
func (m *Memory) Changes(ctx context.Context, tenant switchboard.TenantID, s DaySpan) (all []ServedChange, err error) {
	err = m.eachPage(ctx, tenant, gapPart, s, func(_ Day, data []byte) error {
		return readPage(data, nil, nil, nil, func(c ServedChange) { all = append(all, c) })
	})
	return all, err
}

// eachPage calls see with the pages of a part in the span, the oldest first.
func (m *Memory) eachPage(ctx context.Context, tenant switchboard.TenantID, part string, s DaySpan, see func(day Day, data []byte) error) error {
	s.From = max(s.From, oldest(time.Now()))
	for from := s.From; from <= s.To; {
		first := from.Start().AddDate(0, 0, 1-from.Start().Day())
		rows, err := m.o.Store.List(ctx, group(tenant, part, from.month()))
		if err != nil {
			return err
		}
		for _, row := range rows {
			n, err := strconv.Atoi(row.Name)
			day := DayOf(first) + Day(n) - 1
			if err != nil || day < s.From || day > s.To {
				continue
			}
			if err := see(day, row.Data); err != nil {
				return fmt.Errorf("the page of %s cannot be read: %w; \"switchboard memory rebuild\" counts its receipts again", day, err)
			}
		}
		from = DayOf(first.AddDate(0, 1, 0))
	}
	return nil
}
