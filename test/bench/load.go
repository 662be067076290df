package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A tally counts answers by their correctness.
type tally struct {
	right, wrong, lost, cut int

	first error // the first that was not right
}

func (t *tally) count(err error) {
	switch {
	case err == nil:
		t.right++
		return
	case errors.Is(err, errCut):
		t.cut++
	case errors.Is(err, errWrong):
		t.wrong++
	default:
		t.lost++
	}
	if t.first == nil {
		t.first = err
	}
}

func (t *tally) add(o tally) {
	t.right += o.right
	t.wrong += o.wrong
	t.lost += o.lost
	t.cut += o.cut
	if t.first == nil {
		t.first = o.first
	}
}

func (t *tally) bad() int { return t.wrong + t.lost + t.cut }

func (t *tally) String() string {
	s := fmt.Sprintf("%d wrong, %d lost, %d cut of %d", t.wrong, t.lost, t.cut, t.right+t.bad())
	if t.first != nil {
		s += fmt.Sprintf(" (first: %.200v)", t.first)
	}
	return s
}

// A burst is what one stretch of load measured. Calls that went wrong have no
// latency.
type burst struct {
	tally
	took    time.Duration
	latency []time.Duration // sorted
}

// at returns the latency that the share q of all answers kept.
func (b *burst) at(q float64) time.Duration {
	if len(b.latency) == 0 {
		return 0
	}
	return b.latency[min(int(q*float64(len(b.latency))), len(b.latency)-1)]
}

func (b *burst) perSecond() float64 { return float64(b.right) / b.took.Seconds() }

// run has n workers call work until it says that there is no more, and puts
// together what they saw. i is the number of the worker.
func run(n int, work func(i int) (took time.Duration, more bool, err error)) *burst {
	var mu sync.Mutex
	var wg sync.WaitGroup
	b := &burst{}
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			mine := burst{latency: make([]time.Duration, 0, 1024)}
			for {
				took, more, err := work(i)
				if !more {
					break
				}
				mine.count(err)
				if err == nil {
					mine.latency = append(mine.latency, took)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			b.add(mine.tally)
			b.latency = append(b.latency, mine.latency...)
		})
	}
	wg.Wait()
	b.took = time.Since(began)
	slices.Sort(b.latency)
	return b
}

// An action is one thing that a client does, checked and timed.
type action func(*client) (took time.Duration, err error)

// closed has each client do one thing after the other, for so long and at least
// once. How long an answer takes decides when the next question is asked: the
// figure to look at is how many there were.
func closed(clients []*client, lasting time.Duration, do action) *burst {
	until := time.Now().Add(lasting)
	done := make([]bool, len(clients))
	return run(len(clients), func(i int) (time.Duration, bool, error) {
		if done[i] && time.Now().After(until) {
			return 0, false, nil
		}
		done[i] = true
		took, err := do(clients[i])
		return took, true, err
	})
}

// counted has the clients do n things between them.
func counted(clients []*client, n int, do action) *burst {
	var next atomic.Int64
	return run(len(clients), func(i int) (time.Duration, bool, error) {
		if next.Add(1) > int64(n) {
			return 0, false, nil
		}
		took, err := do(clients[i])
		return took, true, err
	})
}

// open makes the clients start rate actions a second, independent of the answers. Latency begins when an action was due, not when a client was
// free. So an answer that delays the following ones makes all of them late.
func open(clients []*client, rate float64, lasting time.Duration, do action) *burst {
	var next atomic.Int64
	n := int64(rate * lasting.Seconds())
	began := time.Now()
	return run(len(clients), func(i int) (time.Duration, bool, error) {
		k := next.Add(1) - 1
		if k >= n {
			return 0, false, nil
		}
		due := began.Add(time.Duration(float64(k) / rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		_, err := do(clients[i])
		return time.Since(due), true, err
	})
}

// median returns the middle of xs, and the smallest and largest.
func median(xs []float64) (middle, least, most float64) {
	if len(xs) == 0 {
		return 0, 0, 0
	}
	xs = slices.Sorted(slices.Values(xs))
	n := len(xs)
	return (xs[(n-1)/2] + xs[n/2]) / 2, xs[0], xs[n-1]
}
