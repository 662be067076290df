package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
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
	lacks, err := m.eachTool(ctx, tenant, []switchboard.ToolID{id}, s, func(_ switchboard.ToolID, day Day, t *Totals) {
		days = append(days, ToolDay{Day: day})
		days[len(days)-1].Add(t)
	})
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

// eachTool calls see with the days of the tools: of each tool, the oldest first. The totals are valid until see returns.
func (m *Memory) eachTool(ctx context.Context, tenant switchboard.TenantID, ids []switchboard.ToolID, s DaySpan, see func(switchboard.ToolID, Day, *Totals)) (lacks Missing, err error) {
	byPart := map[string]map[string]switchboard.ToolID{}
	for _, id := range ids {
		part := partOf(id.String())
		if byPart[part] == nil {
			byPart[part] = map[string]switchboard.ToolID{}
		}
		byPart[part][id.String()] = id
	}
	type decoded struct {
		id switchboard.ToolID
		Totals
	}
	room := make([]decoded, maxTools+1) // reused for each page: 400 days of many tools are many totals
	for _, part := range slices.Sorted(maps.Keys(byPart)) {
		wanted := byPart[part]
		err := m.eachPage(ctx, tenant, part, s, &lacks, func(day Day, data []byte) error {
			found, crowded := room[:0], false
			err := readPage(data, nil, func(tool, totals []byte) bool {
				crowded = crowded || len(tool) == 0
				id, ok := wanted[string(tool)]
				if !ok {
					return true
				}
				found = room[:len(found)+1]
				last := &found[len(found)-1]
				last.id = id
				return last.decode(totals)
			}, nil, nil)
			if err != nil {
				return err
			}
			if crowded {
				lacks.Crowded = append(lacks.Crowded, day)
			}
			for i := range found {
				see(found[i].id, day, &found[i].Totals)
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
	all := map[GapKind]map[string]*SeenGap{Requirement: {}, Request: {}}
	err = m.eachPage(ctx, tenant, gapPart, s, &lacks, func(_ Day, data []byte) error {
		if err := readPage(data, nil, nil, nil, nil); err != nil {
			return err
		}
		return readPage(data, nil, nil, func(kind GapKind, name []byte, s Sightings) {
			g := all[kind][string(name)]
			if g == nil {
				g = &SeenGap{Gap: Gap{kind, string(name)}}
				all[kind][g.Name] = g
			}
			g.Sightings = g.add(s)
			g.Days++
		}, nil)
	})
	var rows []SeenGap
	for _, ofKind := range all {
		for _, g := range ofKind {
			rows = append(rows, *g)
		}
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

// Changes returns the changes of the days that receipts of the tenant name, the oldest first; for the empty tenant those of the whole installation.
func (m *Memory) Changes(ctx context.Context, tenant switchboard.TenantID, days []Day) (all []ServedChange, lacks Missing, err error) {
	days = slices.Clone(days)
	slices.Sort(days)
	for _, day := range slices.Compact(days) {
		k := pageKey{tenant, gapPart, day}
		v, err := m.o.Store.Value(ctx, k.key())
		if ignoreUnopened(err) != nil {
			return nil, Missing{}, err
		}
		p, damaged := decodePage(v.Data)
		if err = cmp.Or(err, damaged); err == nil {
			all = append(all, p.changes...)
		}
		if err != nil || p.anew {
			m.leaveOut(k, err, &lacks)
		}
	}
	return all, lacks, nil
}

// eachPage calls see with the pages of a part in the span, the oldest first. A page that see cannot read is left out, and its day is noted in lacks; also one that the
// store cannot open.
func (m *Memory) eachPage(ctx context.Context, tenant switchboard.TenantID, part string, s DaySpan, lacks *Missing, see func(day Day, data []byte) error) error {
	s.From = max(s.From, oldest(time.Now()))
	for from := s.From; from <= s.To; {
		first := from.Start().AddDate(0, 0, 1-from.Start().Day())
		unopened := m.o.Store.Status().Unopened
		rows, err := m.o.Store.List(ctx, group(tenant, part, from.month()))
		if err == nil && m.o.Store.Status().Unopened != unopened { // List leaves out what does not open
			err = m.leaveOutUnopened(ctx, tenant, part, from, s.To, rows, lacks)
		}
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
				m.leaveOut(pageKey{tenant, part, day}, err, lacks)
			}
		}
		from = DayOf(first.AddDate(0, 1, 0))
	}
	return nil
}

// leaveOutUnopened notes the pages of a part that do not open: from the day on, to the end of its month or to the other day. rows are those that do.
func (m *Memory) leaveOutUnopened(ctx context.Context, tenant switchboard.TenantID, part string, from, to Day, rows []store.NamedValue, lacks *Missing) error {
	for day := from; day <= to && day.month() == from.month(); day++ {
		k := pageKey{tenant, part, day}
		if slices.ContainsFunc(rows, func(v store.NamedValue) bool { return v.Name == k.key().Name }) {
			continue
		}
		_, err := m.o.Store.Value(ctx, k.key())
		switch {
		case errors.Is(err, store.ErrUnopened):
			m.leaveOut(k, err, lacks)
		case err != nil:
			return err
		}
	}
	return nil
}

// leaveOut notes that a page cannot be read, or began anew after it could not. It logs each page that cannot be read once.
func (m *Memory) leaveOut(k pageKey, err error, lacks *Missing) {
	lacks.Unreadable = append(lacks.Unreadable, k.day)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil || m.told[k] || len(m.told) >= maxTold {
		return
	}
	m.told[k] = true
	m.o.Log.Warn("a page of the memory cannot be read, so answers lack what it has counted; \"switchboard memory rebuild\" counts its receipts again if none was removed", "tenant", k.tenant, "part", k.part, "day", k.day, "err", err)
}
