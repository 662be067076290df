package budget

import (
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Window is one window of a budget: the instants from Start until before End. The zero Start and End are those of
// WindowForever.
type Window struct {
	Start, End time.Time

	// Label names the window among those of one kind. It is the same for all instants of the window. Labels of days and longer windows are dates of
	// the zone. So if the zone changes, a date that has been counted is not counted again.
	Label string
}

// Windows of a number of days begin on the days that are a multiple of that number after firstDay, a Monday.
var firstDay = time.Date(1970, time.January, 5, 0, 0, 0, 0, time.UTC)

// WindowAt returns the window that now is in. Hours are those of UTC in every zone: so none of them is counted twice if the
// zone changes or a clock is set back for the winter. The other windows begin with a day of the zone, at its first instant.
func WindowAt(kind switchboard.BudgetWindow, zone *time.Location, now time.Time) Window {
	if zone == nil {
		zone = time.UTC
	}
	local := now.In(zone)
	days := 1
	switch kind {
	case switchboard.WindowForever:
		return Window{Label: "forever"}
	case switchboard.WindowHour:
		start := now.UTC().Truncate(time.Hour)
		return Window{start, start.Add(time.Hour), start.Format("2006-01-02T15Z")}
	case switchboard.WindowMonth:
		y, m, _ := local.Date()
		return Window{startOfDay(y, m, 1, zone), startOfDay(y, m+1, 1, zone), local.Format("2006-01")}
	case switchboard.WindowWeek:
		days = 7
	case switchboard.Window30Days:
		days = 30
	}
	y, m, d := local.Date()
	since := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Sub(firstDay) / (24 * time.Hour))
	d -= ((since % days) + days) % days
	return Window{startOfDay(y, m, d, zone), startOfDay(y, m, d+days, zone), time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Format("2006-01-02")}
}

// startOfDay returns the first instant of a date in the zone. It is not midnight where a clock skips midnight, and it is the
// first midnight where a clock passes two.
func startOfDay(y int, m time.Month, d int, zone *time.Location) time.Time {
	t, date := time.Date(y, m, d, 0, 0, 0, 0, zone), time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	reached := func(t time.Time) bool { // the date, or a later one
		y, m, d := t.In(zone).Date()
		return !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(date)
	}
	if reached(t) && !reached(t.Add(-time.Second)) {
		return t // midnight
	}
	low, high := t.Add(-48*time.Hour), t.Add(48*time.Hour)
	for high.Sub(low) > time.Second {
		if mid := low.Add(high.Sub(low) / 2).Truncate(time.Second); reached(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// keepAccounts is how long an account is kept after its window: clocks that differ by less find it.
const keepAccounts = 48 * time.Hour

// keepRuns is how long the account of a run is kept after its last call, if its budget has no window. It is longer than a run
// can be unused.
const keepRuns = 90 * 24 * time.Hour

// forgetAt returns when the account can be forgotten that gets a call at now; zero means never.
func (w Window) forgetAt(per switchboard.BudgetPer, now time.Time) time.Time {
	switch {
	case !w.End.IsZero():
		return w.End.Add(keepAccounts)
	case per == switchboard.PerRun:
		return now.Add(keepRuns)
	}
	return time.Time{}
}
