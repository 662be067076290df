package task

import (
	"testing"
	"time"
)

func TestTheBackoffDoublesWithJitterUpToALimit(t *testing.T) {
	for fails, most := range map[int]time.Duration{0: FirstDelay, 1: FirstDelay, 2: 2 * FirstDelay, 5: 16 * FirstDelay, 8: 128 * FirstDelay, 9: LongestDelay, 1000: LongestDelay} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := Backoff(fails)
			if d < most/2 || d > most {
				t.Fatalf("after %d failures %s, want %s to %s", fails, d, most/2, most)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("after %d failures it is always the same", fails)
		}
	}
}
