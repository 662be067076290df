package task

import (
	"math/rand/v2"
	"time"
)

// How long to wait before something that failed is tried again.
const (
	FirstDelay   = 200 * time.Millisecond
	LongestDelay = 30 * time.Second

	// SteadyTime is how long something must work before its next failure counts as the first one.
	SteadyTime = 10 * time.Second
)

// Backoff returns the wait after that many failures in a row. It doubles with each failure. Half of
// it is random, so that servers that failed together are not retried together.
func Backoff(fails int) time.Duration {
	d := LongestDelay
	if fails <= 8 {
		d = min(FirstDelay<<max(fails-1, 0), LongestDelay)
	}
	return d/2 + rand.N(d/2+1)
}

// FailsInRow returns the number of failures in a row, including that of something that began at the
// given time.
func FailsInRow(fails int, began time.Time) int {
	if time.Since(began) >= SteadyTime {
		return 1
	}
	return fails + 1
}
