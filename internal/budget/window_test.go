package budget_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestAWindowContainsItsInstantsAndNoOther(t *testing.T) {
	for _, tt := range []struct {
		window     switchboard.BudgetWindow
		zone       string
		at         string
		start, end string
		label      string
	}{
		{"1h", "UTC", "2026-11-27T10:59:59Z", "2026-11-27T10:00:00Z", "2026-11-27T11:00:00Z", "2026-11-27T10Z"},
		{"1h", "Asia/Kolkata", "2026-11-27T10:59:59Z", "2026-11-27T10:00:00Z", "2026-11-27T11:00:00Z", "2026-11-27T10Z"},
		{"1h", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T00Z"}, // 02:30 for the first time
		{"1h", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T01Z"}, // 02:30 for the second time
		{"1d", "UTC", "2026-11-27T23:59:59Z", "2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z", "2026-11-27"},
		{"1d", "Europe/Berlin", "2026-11-27T23:30:00Z", "2026-11-27T23:00:00Z", "2026-11-28T23:00:00Z", "2026-11-28"},
		{"1d", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-29"},    // 23 hours
		{"1d", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-25"},    // 25 hours
		{"1d", "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z", "2026-09-06"}, // no midnight
		{"1d", "America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "2026-11-01"},   // two midnights
		{"7d", "UTC", "2026-11-27T12:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", "2026-11-23"},
		{"7d", "UTC", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z", "2026-11-30"},
		{"7d", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-23"},
		{"7d", "UTC", "1969-12-31T12:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z", "1969-12-29"},
		{"30d", "UTC", "1970-02-03T23:59:59Z", "1970-01-05T00:00:00Z", "1970-02-04T00:00:00Z", "1970-01-05"},
		{"month", "Europe/Berlin", "2026-12-31T23:30:00Z", "2026-12-31T23:00:00Z", "2027-01-31T23:00:00Z", "2027-01"},
		{"month", "UTC", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-02"},
	} {
		z := zone(t, tt.zone)
		parse := func(s string) time.Time {
			at, err := time.Parse(time.RFC3339, s)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		w := budget.WindowAt(tt.window, z, parse(tt.at))
		if !w.Start.Equal(parse(tt.start)) || !w.End.Equal(parse(tt.end)) || w.Label != tt.label {
			t.Errorf("%s in %s at %s: got %v to %v, %s; want %s to %s, %s", tt.window, tt.zone, tt.at, w.Start.UTC(), w.End.UTC(), w.Label, tt.start, tt.end, tt.label)
			continue
		}
		for _, edge := range []struct {
			at     time.Time
			inside bool
		}{{w.Start.Add(-time.Millisecond), false}, {w.Start, true}, {w.End.Add(-time.Millisecond), true}, {w.End, false}} {
			if got := budget.WindowAt(tt.window, z, edge.at).Label == w.Label; got != edge.inside {
				t.Errorf("%s in %s: %v is in the window %s: %v", tt.window, tt.zone, edge.at.UTC(), w.Label, got)
			}
		}
	}
}

func TestAWindowWithoutEndIsTheSameForever(t *testing.T) {
	for _, at := range []time.Time{time.Unix(0, 0), time.Date(2112, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if w := budget.WindowAt(switchboard.WindowForever, nil, at); w != (budget.Window{Label: "forever"}) {
			t.Errorf("at %v: %+v", at, w)
		}
	}
}

// Each instant is in one window, and windows follow each other without a gap, in each zone that sets its clocks in another way.
func TestWindowsFollowEachOther(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "America/Havana", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "Atlantic/Azores"} {
		z := zone(t, name)
		for _, kind := range []switchboard.BudgetWindow{"1h", "1d", "7d", "30d", "month"} {
			at, end := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
			for at.Before(end) {
				w := budget.WindowAt(kind, z, at)
				next := budget.WindowAt(kind, z, w.End)
				if at.Before(w.Start) || !at.Before(w.End) || !next.Start.Equal(w.End) || next.Label <= w.Label {
					t.Fatalf("%s in %s at %v: %+v, then %+v", kind, name, at, w, next)
				}
				at = w.End
			}
		}
	}
}
