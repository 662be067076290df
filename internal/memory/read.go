package memory

import (
	"context"
	"maps"
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

// Missing says what an answer lacks. Both lists are sorted.
type Missing struct {
	Unreadable []Day // a page of the day is damaged, or began anew after it was
	Crowded    []Day // more tools were called than the page of a part keeps, so any tool may lack calls
}

// Tool returns the days of the span with attempts at the tool or results that were kept, the oldest first.
func (m *Memory) Tool(ctx context.Context, tenant switchboard.TenantID, id switchboard.ToolID, s DaySpan) (days []ToolDay, _ Missing, err error) {
	lacks, err := m.eachTool(ctx, tenant, []switchboard.ToolID{id}, s, func(_ switchboard.ToolID, day Day, t *Totals) { days = append(days, ToolDay{day, *t}) })
	return days, lacks, err
}

// Tools returns the totals of each of the tools in the span. It reads each page once.
func (m *Memory) Tools(ctx context.Context, tenant switchboard.TenantID, ids []switchboard.ToolID, s DaySpan) (map[switchboard.ToolID]*Totals, Missing, error) {
	sums := map[switchboard.ToolID]*Totals{}
	for _, id := range ids {
		sums[id] = &Totals{}
	}
	lacks, err := m.eachTool(ctx, tenant, ids, s, func(id switchboard.ToolID, _ Day, t *Totals) { sums[id].Add(t) })
	return sums, lacks, err
}

// eachTool calls see with the days of the tools: of each tool, the oldest first.
func (m *Memory) eachTool(ctx context.Context, tenant switchboard.TenantID, ids []switchboard.ToolID, s DaySpan, see func(switchboard.ToolID, Day, *Totals)) (lacks Missing, err error) {
	byPart := map[string]map[string]switchboard.ToolID{}
	for _, id := range ids {
		part := partOf(id.String())
		if byPart[part] == nil {
			byPart[part] = map[string]switchboard.ToolID{}
		}
		byPart[part][id.String()] = id
	}
	for _, part := range slices.Sorted(maps.Keys(byPart)) {
		wanted := byPart[part]
		err := m.eachPage(ctx, tenant, part, s, &lacks, func(day Day, data []byte) error {
			found, crowded := map[switchboard.ToolID]*Totals{}, false
			err := readPage(data, nil, func(tool string, totals []byte) bool {
				crowded = crowded || tool == ""
				id, ok := wanted[tool]
				if !ok {
					return true
				}
				found[id], ok = decodeTotals(totals)
				return ok
			}, nil, nil)
			if err != nil {
				return err
			}
			if crowded {
				lacks.Crowded = append(lacks.Crowded, day)
			}
			for id, t := range found {
				see(id, day, t)
			}
			return nil
		})
		if err != nil {
			return Missing{}, err
		}
	}
	slices.Sort(lacks.Unreadable)
	slices.Sort(lacks.Crowded)
	return Missing{slices.Compact(lacks.Unreadable), slices.Compact(lacks.Crowded)}, nil
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
func (m *Memory) Gaps(ctx context.Context, tenant switchboard.TenantID, s DaySpan) (_ []SeenGap, lacks Missing, err error) {
	all := map[Gap]*SeenGap{}
	err = m.eachPage(ctx, tenant, gapPart, s, &lacks, func(_ Day, data []byte) error {
		p, err := decodePage(data)
		if err != nil {
			return err
		}
		for g, s := range p.gaps {
			if all[g] == nil {
				all[g] = &SeenGap{Gap: g}
			}
			all[g].Sightings = all[g].add(s)
			all[g].Days++
		}
		return nil
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
		return a.compare(b.Gap)
	})
	return rows, lacks, err
}

// Changes returns the changes of the span that receipts of the tenant name, the oldest first; for the empty tenant those of the whole installation.
func (m *Memory) Changes(ctx context.Context, tenant switchboard.TenantID, s DaySpan) (all []ServedChange, lacks Missing, err error) {
	err = m.eachPage(ctx, tenant, gapPart, s, &lacks, func(_ Day, data []byte) error {
		p, err := decodePage(data)
		if err == nil {
			all = append(all, p.changes...)
		}
		return err
	})
	return all, lacks, err
}

// eachPage calls see with the pages of a part in the span, the oldest first. A page that see cannot read is left out, and its day is noted in lacks.
func (m *Memory) eachPage(ctx context.Context, tenant switchboard.TenantID, part string, s DaySpan, lacks *Missing, see func(day Day, data []byte) error) error {
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
			if err := see(day, row.Data); err != nil || isAnew(row.Data) {
				lacks.Unreadable = append(lacks.Unreadable, day)
			}
		}
		from = DayOf(first.AddDate(0, 1, 0))
	}
	return nil
}
