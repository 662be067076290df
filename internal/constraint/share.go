package constraint

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// aheadTTL is how long what was taken ahead may be spent, by our own clock and from before it
// was asked for. The store counts it to the end of storeAheadTTL, which is more by as much as
// its clock may go faster than ours.
const (
	aheadTTL      = 50 * time.Millisecond
	storeAheadTTL = aheadTTL + aheadTTL/50
)

// maxQueues is how many flows there are at once. What comes beside them asks the store by itself.
const maxQueues = 1024

// A share counts calls in a store: those that come while it is asked are counted together,
// by the next request, and what is used often is taken ahead.
type batchedCounter struct {
	store Store
	mu    sync.RWMutex
	queues map[string]*limitQueue // by group and limits, so that a limit that changed has another one
}

// A flow is the calls that are counted against the same limits of the same group.
type limitQueue struct {
	group  string
	limits []store.Limit

	mu      sync.Mutex
	waitingCalls []*waitingCall // for an answer to the next request, in the order in which they came
	requestInFlight  bool      // a request is under way
	storeIsSlow    bool      // the last one took so long that little was left of hold

	aheadLeft int       // is taken, and may be spent
	aheadExpiry time.Time // before this

	rate spendRate
}

// A waiter is a call that waits until it is counted.
type waitingCall struct {
	gaveUp   bool // it waits no longer
	result chan takeResult
}

// An answer is that a call is counted; or how long to wait, or why that is not known.
type takeResult struct {
	wait time.Duration
	err  error
}

// countCall counts one call against the limits; or against none, and says how long to wait.
func (s *batchedCounter) countCall(ctx context.Context, group string, limits []store.Limit) (wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now := time.Now()
	f := s.queueFor(group, limits, now)
	if f == nil {
		_, wait, err = s.store.Take(ctx, group, store.Want{Now: 1}, limits...)
		return wait, err
	}
	f.mu.Lock()
	f.rate.advance(now)
	if f.aheadLeft > 0 && now.Before(f.aheadExpiry) {
		f.aheadLeft--
		f.rate.current++
		f.mu.Unlock()
		return 0, nil
	}
	w := &waitingCall{result: make(chan takeResult, 1)}
	f.waitingCalls = append(f.waitingCalls, w)
	if !f.requestInFlight {
		f.requestInFlight = true
		go s.askStore(f)
	}
	f.mu.Unlock()
	select {
	case a := <-w.result:
		return a.wait, a.err
	case <-ctx.Done():
		f.mu.Lock()
		w.gaveUp = true
		f.mu.Unlock()
		return 0, ctx.Err()
	}
}

// queueFor returns the flow of the limits; nil where there are too many others. One that was
// idle may be let go of while somebody comes to use it: it counts rightly to its end, as
// another process would.
func (s *batchedCounter) queueFor(group string, limits []store.Limit, now time.Time) *limitQueue {
	var room [256]byte
	key := appendText(room[:0], group)
	for _, l := range limits {
		key = appendText(key, l.Name)
		key = binary.AppendVarint(key, int64(l.Every))
		key = binary.AppendVarint(key, int64(l.Burst))
	}
	s.mu.RLock()
	f := s.queues[string(key)]
	s.mu.RUnlock()
	if f != nil {
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.queues[string(key)]; f != nil {
		return f
	}
	if len(s.queues) >= maxQueues {
		for key, f := range s.queues {
			if f.isIdle(now) {
				delete(s.queues, key)
			}
		}
		if len(s.queues) >= maxQueues {
			return nil
		}
	}
	f = &limitQueue{group: group, limits: limits}
	s.queues[string(key)] = f
	return f
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// askStore asks the store, once and again, until nobody waits for its answer.
func (s *batchedCounter) askStore(f *limitQueue) {
	for {
		f.mu.Lock()
		asked := f.waitingCalls
		f.waitingCalls = nil
		now := 0
		for _, w := range asked {
			if !w.gaveUp {
				now++
			}
		}
		if now == 0 {
			f.requestInFlight = false
			f.mu.Unlock()
			return
		}
		began := time.Now()
		want := store.Want{Now: now, Ahead: f.amountAhead(began), Hold: storeAheadTTL}
		f.mu.Unlock()
		// No caller's context: all of them wait for it, and who leaves takes it from nobody.
		got, wait, err := s.store.Take(context.Background(), f.group, want, f.limits...)
		f.mu.Lock()
		f.distribute(asked, began, want, got, takeResult{wait, err})
		f.mu.Unlock()
	}
}

// distribute hands out what was got. What was counted at once is for those who asked: of them,
// who gets nothing is refused, and the count of one who has left is lost. What was taken
// ahead is for those who have come since, and who are yet to come.
func (f *limitQueue) distribute(asked []*waitingCall, began time.Time, want store.Want, got int, refused takeResult) {
	now := time.Now()
	f.rate.advance(now)
	f.storeIsSlow = now.Sub(began) > aheadTTL/2
	f.aheadExpiry = began.Add(aheadTTL)
	f.aheadLeft = max(0, got-want.Now)
	if !now.Before(f.aheadExpiry) {
		f.aheadLeft = 0
	}
	got = min(got, want.Now)
	for _, w := range asked {
		switch {
		case w.gaveUp:
		case got == 0:
			w.result <- refused
		default:
			got--
			f.admit(w)
		}
	}
	for ; len(f.waitingCalls) > 0 && f.aheadLeft > 0; f.waitingCalls = f.waitingCalls[1:] {
		if w := f.waitingCalls[0]; !w.gaveUp {
			f.aheadLeft--
			f.admit(w)
		}
	}
}

// admit tells w that it is counted.
func (f *limitQueue) admit(w *waitingCall) {
	f.rate.current++
	w.result <- takeResult{}
}

// amountAhead is how many to take ahead: as many as were spent in the time for which they can be
// spent. No more than become free in that time, so that those that nobody spends are soon made
// up for; and none where that would be less than one, or the store is slow.
func (f *limitQueue) amountAhead(now time.Time) int {
	f.rate.advance(now)
	n := max(f.rate.previous, f.rate.current)
	for _, l := range f.limits {
		n = min(n, int(aheadTTL/max(l.Every, 1)))
	}
	if f.storeIsSlow {
		n = 0
	}
	return n
}

// A pace is how many were spent since an instant that is less than hold ago, and in the hold
// before it.
type spendRate struct {
	since       time.Time
	current, previous int
}

func (p *spendRate) advance(now time.Time) {
	switch age := now.Sub(p.since); {
	case age < aheadTTL:
	case age < 2*aheadTTL:
		*p = spendRate{since: p.since.Add(aheadTTL), previous: p.current}
	default:
		*p = spendRate{since: now}
	}
}

// isIdle reports whether nothing came for so long that nothing can be left of what was taken ahead.
func (f *limitQueue) isIdle(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.requestInFlight && now.Sub(f.rate.since) >= 2*aheadTTL
}
