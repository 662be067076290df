package upstream

import (
	"math/rand/v2"
	"time"
)

// How long to wait before something that failed is tried again.
const (
	firstDelay  = 200 * time.Millisecond
	longestWait = 30 * time.Second

	// steadyAfter is how long something must have held for its failure to
	// count as the first.
	steadyAfter = 10 * time.Second
)

// backoff returns the wait after so many failures in a row: it doubles, and
// half of it is left to chance, so that what failed together does not come
// back together.
func backoff(fails int) time.Duration {
	d := longestWait
	if fails <= 8 {
		d = min(firstDelay<<max(fails-1, 0), longestWait)
	}
	return d/2 + rand.N(d/2+1)
}

// again returns the number of failures in a row after one more, of something
// that began at the time.
func again(fails int, began time.Time) int {
	if time.Since(began) >= steadyAfter {
		return 1
	}
	return fails + 1
}
