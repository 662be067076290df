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

// firstLook is how soon a server is looked for that was there and is gone.
const firstLook = 50 * time.Millisecond

// lookout returns the wait after so many looks at where a server was that found
// nobody there, which costs next to nothing. It grows by a third, so that one that
// is back is found within a third of the time for which it was away; a quarter of
// it is left to chance. After two dozen looks it is as long as any.
func lookout(looks int) time.Duration {
	d := firstLook
	for i := 1; i < looks && d < longestWait; i++ {
		d += d / 3
	}
	d = min(d, longestWait)
	return d - d/4 + rand.N(d/4+1)
}

// retries says when a server is tried again. The zero retries are of one that was
// never there.
type retries struct {
	fails, looks int // in a row
	served       bool
}

// next returns the wait after the stage has ended with err, which took so long.
// One that served for a while and is gone is looked for; one that answers badly,
// or ends again and again as soon as it serves, is left in peace for longer.
func (r *retries) next(stage Stage, err error, took time.Duration) time.Duration {
	r.served = r.served || stage == StageServe
	kind := asFault(err).kind
	steady := stage == StageServe && took >= steadyAfter
	if r.served && (steady || stage == StageConnect) && (kind == kindUnreachable || kind == kindLost) {
		r.looks++
		if steady {
			r.fails, r.looks = 0, 1
			took = 0
		}
		return max(lookout(r.looks), took) // to start a program has cost something
	}
	r.looks = 0
	if r.fails++; steady {
		r.fails = 1
	}
	return backoff(r.fails)
}

// again returns the number of failures in a row after one more, of something
// that began at the time.
func again(fails int, began time.Time) int {
	if time.Since(began) >= steadyAfter {
		return 1
	}
	return fails + 1
}
