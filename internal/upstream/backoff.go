package upstream

import (
	"math/rand/v2"
	"time"

	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

// firstLookDelay is the wait before the first look for a server that was up and is gone.
const firstLookDelay = 50 * time.Millisecond

// lookDelay returns the wait after that many attempts that found no server. Such an attempt is
// cheap. The wait grows by a third, so that a server is found within a third of its downtime. A
// quarter of the wait is random. After two dozen attempts it stays at longestWait.
func lookDelay(looks int) time.Duration {
	d := firstLookDelay
	for i := 1; i < looks && d < task.LongestDelay; i++ {
		d += d / 3
	}
	d = min(d, task.LongestDelay)
	return d - d/4 + rand.N(d/4+1)
}

// A retrySchedule says when to try a server again. The zero value is for a server that was never
// up.
type retrySchedule struct {
	fails, looks int // in a row
	served       bool
}

// nextWait returns the wait after a stage that took that long and ended with err. A server that was
// up for a while and is gone is looked for soon. A server that answers badly, or that ends again as
// soon as it is up, waits longer.
func (r *retrySchedule) nextWait(stage FailureStage, err error, took time.Duration) time.Duration {
	r.served = r.served || stage == StageServe
	kind := link.AsError(err).Kind
	steady := stage == StageServe && took >= task.SteadyTime
	if r.served && (steady || stage == StageConnect) && (kind == link.KindUnreachable || kind == link.KindLost) {
		r.looks++
		if steady {
			r.fails, r.looks = 0, 1
			took = 0
		}
		return max(lookDelay(r.looks), took) // starting a program has a cost
	}
	r.looks = 0
	if r.fails++; steady {
		r.fails = 1
	}
	return task.Backoff(r.fails)
}
