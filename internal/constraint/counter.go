package constraint

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// aheadTTL is how long permits that were taken ahead may be used, by our own clock and from before the store
// was asked. The store reserves them for storeAheadTTL, which is longer by more than its clock may run faster
// than ours.
const (
	aheadTTL      = 50 * time.Millisecond
	storeAheadTTL = aheadTTL + aheadTTL/50
)

// maxQueues limits how many queues there are. Calls beyond that ask the store one by one.
const maxQueues = 1024

// A batchedCounter counts calls in a store. Calls that come while the store is being asked are counted
// together, by the next request. Permits of limits that are used often are taken ahead.
type batchedCounter struct {
	store  Store
	mu     sync.RWMutex
	queues map[string]*limitQueue // by group and limits: a changed limit has a new queue
}

// A limitQueue is the queue of the calls that are counted against the same limits of the same group.
type limitQueue struct {
	group  string
	limits []store.Limit

	mu              sync.Mutex
	waitingCalls    []*waitingCall // for the next request, in the order of their arrival
	requestInFlight bool           // the store is being asked
	storeIsSlow     bool           // the last request took so long that little was left of aheadTTL

	aheadLeft   int       // permits that were taken ahead and are not used yet
	aheadExpiry time.Time // aheadLeft may be used before this instant

	rate spendRate
}

// A waitingCall is a call that waits to be counted.
type waitingCall struct {
	gaveUp bool // its context ended
	result chan takeResult
}

// A takeResult says that a call was counted (both fields are zero), how long to wait, or why that is unknown.
type takeResult struct {
	wait time.Duration
	err  error
}

// countCall counts one call against all limits; or against none, and returns how long to wait.
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

// queueFor returns the queue of the limits; nil if there are too many queues. An idle queue may be deleted
// just before a call uses it. It then counts correctly until that call is done, as another process would.
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

// askStore asks the store until no call waits.
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
		// No caller's context: all of them wait for the result, so one cancelled call must not end the request.
		got, wait, err := s.store.Take(context.Background(), f.group, want, f.limits...)
		f.mu.Lock()
		f.distribute(asked, began, want, got, takeResult{wait, err})
		f.mu.Unlock()
	}
}

// distribute gives out the permits that were taken. The permits that were wanted now are for the calls in
// asked: if they are too few, the last calls are refused, and the permit of a call that gave up is lost. The
// permits that were taken ahead are for the calls that came since, and for later ones.
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

// amountAhead returns how many permits to take ahead: as many as were used within the last aheadTTL. It is at
// most what becomes free in that time, so that unused permits are soon replaced. It is 0 if that would be
// less than one permit, or if the store is slow.
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

// A spendRate counts the permits that were used since an instant less than aheadTTL ago, and in the aheadTTL
// before that instant.
type spendRate struct {
	since             time.Time
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

// isIdle reports whether no call came for so long that all permits taken ahead have expired.
func (f *limitQueue) isIdle(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.requestInFlight && now.Sub(f.rate.since) >= 2*aheadTTL
}
