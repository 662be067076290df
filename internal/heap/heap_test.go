package heap

import (
	"testing"
	"time"
)

const mib = 1 << 20

// after returns the load of a process that allocates rate bytes a second for so long.
func after(l load, rate uint64, lasting time.Duration) load {
	for end := l.at.Add(lasting); l.at.Before(end); {
		l = l.next(l.at.Add(100*time.Millisecond), l.allocated+rate/10)
	}
	return l
}

func TestOnlyAProcessThatAllocatesMuchForAWhileGetsSlack(t *testing.T) {
	t.Parallel()
	start := load{}.next(time.Unix(0, 0), 50*mib) // what the start allocates does not count
	for _, tt := range []struct {
		name    string
		rate    uint64
		lasting time.Duration
		busy    bool
	}{
		{"idle", 0, time.Hour, false},
		{"a few calls a second, for hours", 3 * mib, 3 * time.Hour, false},
		{"five hundred sessions that are opened", 50 * mib, time.Second, false},
		{"full load for a moment", 130 * mib, 300 * time.Millisecond, false},
		{"full load for a second", 130 * mib, time.Second, true},
		{"half a thousand calls a second, for a minute", 6 * mib, time.Minute, true},
	} {
		if got := after(start, tt.rate, tt.lasting); got.busy != tt.busy {
			t.Errorf("%s: busy %v", tt.name, got.busy)
		}
	}
}

func TestABusyProcessIsCalmAgainHalfAMinuteAfterItsLoad(t *testing.T) {
	t.Parallel()
	l := after(load{}.next(time.Unix(0, 0), 0), 130*mib, time.Minute)
	if l = after(l, 0, 10*time.Second); !l.busy {
		t.Error("a pause of ten seconds made it calm")
	}
	if l = after(l, 0, 25*time.Second); l.busy || l.percent(10*mib) != calmPercent {
		t.Error("it is busy 35 seconds after its load")
	}
}

func TestTheSlackOfABusyProcessIsBounded(t *testing.T) {
	t.Parallel()
	l := load{busy: true}
	for live, want := range map[uint64]int{0: maxPercent, 4 * mib: maxPercent, 16 * mib: 200, 32 * mib: calmPercent, 1024 * mib: calmPercent} {
		if got := l.percent(live); got != want {
			t.Errorf("%d MiB live: %d percent, want %d", live/mib, got, want)
		}
	}
}

// Not parallel: it sets the collector of the process.
func TestABusyWatcherLooksAgainAndStopRestoresTheDefault(t *testing.T) {
	w := &watcher{set: calmPercent}
	w.look()
	w.load.level = maxLevel
	w.look()
	if w.set == calmPercent || w.timer == nil {
		t.Errorf("%d percent under load", w.set)
	}
	if w.stop(); w.set != calmPercent || w.look() {
		t.Errorf("%d percent after stop", w.set)
	}
}
