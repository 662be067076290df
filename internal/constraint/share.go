package constraint

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// hold is how long what was taken ahead may be spent, by our own clock and from before it
// was asked for. The store counts it to the end of storeHold, which is more by as much as
// its clock may go faster than ours.
const (
	hold      = 50 * time.Millisecond
	storeHold = hold + hold/50
)

// maxFlows is how many flows there are at once. What comes beside them asks the store by itself.
const maxFlows = 1024

// A share counts calls in a store: those that come while it is asked are counted together,
// by the next request, and what is used often is taken ahead.
type share struct {
	store Store
	mu    sync.RWMutex
	flows map[string]*flow // by group and limits, so that a limit that changed has another one
}

// A flow is the calls that are counted against the same limits of the same group.
type flow struct {
	group  string
	limits []store.Limit

	mu      sync.Mutex
	waiting []*waiter // for an answer to the next request, in the order in which they came
	asking  bool      // a request is under way
	slow    bool      // the last one took so long that little was left of hold

	ahead int       // is taken, and may be spent
	until time.Time // before this

	pace pace
}

// A waiter is a call that waits until it is counted.
type waiter struct {
	left   bool // it waits no longer
	answer chan answer
}

// An answer is that a call is counted; or how long to wait, or why that is not known.
type answer struct {
	wait time.Duration
	err  error
}

// count counts one call against the limits; or against none, and says how long to wait.
func (s *share) count(ctx context.Context, group string, limits []store.Limit) (wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now := time.Now()
	f := s.flow(group, limits, now)
	if f == nil {
		_, wait, err = s.store.Take(ctx, group, store.Want{Now: 1}, limits...)
		return wait, err
	}
	f.mu.Lock()
	f.pace.roll(now)
	if f.ahead > 0 && now.Before(f.until) {
		f.ahead--
		f.pace.now++
		f.mu.Unlock()
		return 0, nil
	}
	w := &waiter{answer: make(chan answer, 1)}
	f.waiting = append(f.waiting, w)
	if !f.asking {
		f.asking = true
		go s.ask(f)
	}
	f.mu.Unlock()
	select {
	case a := <-w.answer:
		return a.wait, a.err
	case <-ctx.Done():
		f.mu.Lock()
		w.left = true
		f.mu.Unlock()
		return 0, ctx.Err()
	}
}

// flow returns the flow of the limits; nil where there are too many others. One that was
// idle may be let go of while somebody comes to use it: it counts rightly to its end, as
// another process would.
func (s *share) flow(group string, limits []store.Limit, now time.Time) *flow {
	var room [256]byte
	key := appendText(room[:0], group)
	for _, l := range limits {
		key = appendText(key, l.Name)
		key = binary.AppendVarint(key, int64(l.Every))
		key = binary.AppendVarint(key, int64(l.Burst))
	}
	s.mu.RLock()
	f := s.flows[string(key)]
	s.mu.RUnlock()
	if f != nil {
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flows[string(key)]; f != nil {
		return f
	}
	if len(s.flows) >= maxFlows {
		for key, f := range s.flows {
			if f.idle(now) {
				delete(s.flows, key)
			}
		}
		if len(s.flows) >= maxFlows {
			return nil
		}
	}
	f = &flow{group: group, limits: limits}
	s.flows[string(key)] = f
	return f
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// ask asks the store, once and again, until nobody waits for its answer.
func (s *share) ask(f *flow) {
	for {
		f.mu.Lock()
		asked := f.waiting
		f.waiting = nil
		now := 0
		for _, w := range asked {
			if !w.left {
				now++
			}
		}
		if now == 0 {
			f.asking = false
			f.mu.Unlock()
			return
		}
		began := time.Now()
		want := store.Want{Now: now, Ahead: f.wanted(began), Hold: storeHold}
		f.mu.Unlock()
		// No caller's context: all of them wait for it, and who leaves takes it from nobody.
		got, wait, err := s.store.Take(context.Background(), f.group, want, f.limits...)
		f.mu.Lock()
		f.answered(asked, began, want, got, answer{wait, err})
		f.mu.Unlock()
	}
}

// answered hands out what was got. What was counted at once is for those who asked: of them,
// who gets nothing is refused, and the count of one who has left is lost. What was taken
// ahead is for those who have come since, and who are yet to come.
func (f *flow) answered(asked []*waiter, began time.Time, want store.Want, got int, refused answer) {
	now := time.Now()
	f.pace.roll(now)
	f.slow = now.Sub(began) > hold/2
	f.until = began.Add(hold)
	f.ahead = max(0, got-want.Now)
	if !now.Before(f.until) {
		f.ahead = 0
	}
	got = min(got, want.Now)
	for _, w := range asked {
		switch {
		case w.left:
		case got == 0:
			w.answer <- refused
		default:
			got--
			f.spend(w)
		}
	}
	for ; len(f.waiting) > 0 && f.ahead > 0; f.waiting = f.waiting[1:] {
		if w := f.waiting[0]; !w.left {
			f.ahead--
			f.spend(w)
		}
	}
}

// spend tells w that it is counted.
func (f *flow) spend(w *waiter) {
	f.pace.now++
	w.answer <- answer{}
}

// wanted is how many to take ahead: as many as were spent in the time for which they can be
// spent. No more than become free in that time, so that those that nobody spends are soon made
// up for; and none where that would be less than one, or the store is slow.
func (f *flow) wanted(now time.Time) int {
	f.pace.roll(now)
	n := max(f.pace.before, f.pace.now)
	for _, l := range f.limits {
		n = min(n, int(hold/max(l.Every, 1)))
	}
	if f.slow {
		n = 0
	}
	return n
}

// A pace is how many were spent since an instant that is less than hold ago, and in the hold
// before it.
type pace struct {
	since       time.Time
	now, before int
}

func (p *pace) roll(now time.Time) {
	switch age := now.Sub(p.since); {
	case age < hold:
	case age < 2*hold:
		*p = pace{since: p.since.Add(hold), before: p.now}
	default:
		*p = pace{since: now}
	}
}

// idle reports whether nothing came for so long that nothing can be left of what was taken ahead.
func (f *flow) idle(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.asking && now.Sub(f.pace.since) >= 2*hold
}
