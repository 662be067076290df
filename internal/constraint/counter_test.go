package constraint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/constraint"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// free is a server that does nothing.
var free = switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
	return switchboard.Result{}, nil
})

var limited = []switchboard.Constraint{switchboard.RateLimited}

// under returns a Caller that counts in s, under the limits that *of holds at each call.
func under(s constraint.Store, of *[]switchboard.Limit) switchboard.Caller {
	return constraint.NewLimiter(s, func(switchboard.TenantID) []switchboard.Limit { return *of }).Limit(free)
}

func perSecond(n, burst int) []switchboard.Limit {
	return []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: time.Second / time.Duration(n), Burst: burst}}
}

// A distant store takes some time before it counts, and some time before it returns.
type distant struct {
	store.Store
	delay func() time.Duration // nil: none

	mu    sync.Mutex
	wants []store.Want
	at    map[time.Time]time.Time // by the time of the return: when the store counted
}

func (d *distant) Take(ctx context.Context, group string, want store.Want, limits ...store.Limit) (int, time.Duration, error) {
	if d.delay != nil {
		time.Sleep(d.delay())
	}
	counted := time.Now()
	got, wait, err := d.Store.Take(ctx, group, want, limits...)
	if d.delay != nil {
		time.Sleep(d.delay() + time.Microsecond) // so that no two answers come at once
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wants = append(d.wants, want)
	if d.at == nil {
		d.at = map[time.Time]time.Time{}
	}
	d.at[time.Now()] = counted
	return got, wait, err
}

// let returns the instant to count for a call that came at came and is allowed now: now, unless the call
// waited for a store that had counted it before.
func (d *distant) let(came time.Time) time.Time {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, ok := d.at[now]; ok && came.Before(now) && !at.Before(came) {
		return at
	}
	return now
}

func TestProcessesThatTakeAheadNeverExceedALimit(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		ahead := 0
		rapid.Check(struct{ rapid.TB }{t}, func(r *rapid.T) { // in a bubble, the test's deadline cannot be read
			every := rapid.SampledFrom([]time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}).Draw(r, "every")
			burst := rapid.SampledFrom([]int{20, 150, 400}).Draw(r, "burst")
			limits := []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: every, Burst: burst}}
			shared := store.NewMemory()
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "delays"), 0))
			longest := rapid.SampledFrom([]int{0, 0, 10, 40, 100}).Draw(r, "longest delay")
			var mu sync.Mutex
			delay := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(random.IntN(longest+1)) * time.Millisecond
			}
			var stores []*distant
			var callers []switchboard.Caller
			for range rapid.IntRange(1, 3).Draw(r, "processes") {
				stores = append(stores, &distant{Store: shared, delay: delay})
				callers = append(callers, under(stores[len(stores)-1], &limits))
			}
			var let []time.Time
			var all sync.WaitGroup
			post := tool("post", limited, nil)
			for range rapid.IntRange(1, 40).Draw(r, "steps") {
				time.Sleep(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 10 * time.Millisecond, 45 * time.Millisecond, 49 * time.Millisecond, 55 * time.Millisecond, time.Second}).Draw(r, "pause"))
				p := rapid.IntRange(0, len(callers)-1).Draw(r, "process")
				for range rapid.SampledFrom([]int{1, 5, 30, 2 * burst}).Draw(r, "calls") {
					all.Go(func() {
						came := time.Now()
						if _, err := callers[p].Call(t.Context(), call("acme", post)); err == nil {
							at := stores[p].let(came)
							mu.Lock()
							defer mu.Unlock()
							let = append(let, at)
						}
					})
				}
				if rapid.Bool().Draw(r, "one after the other") {
					all.Wait()
				}
			}
			all.Wait()
			for _, s := range stores {
				for _, w := range s.wants {
					ahead += w.Ahead
				}
			}
			var whole time.Time // when a limit that counts each allowed call is fully available
			slices.SortFunc(let, time.Time.Compare)
			for i, at := range let {
				if whole.Before(at) {
					whole = at
				}
				if whole = whole.Add(every); whole.After(at.Add(every * time.Duration(burst))) {
					r.Fatalf("call %d of %d is one too many, by %s", i+1, len(let), whole.Sub(at.Add(every*time.Duration(burst))))
				}
			}
		})
		if ahead == 0 {
			t.Error("nothing was taken ahead")
		}
	})
}

func TestAProcessThatUsesALimitOftenRarelyAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store.NewMemory()}
		limits := perSecond(1000, 1000)
		c := under(d, &limits)
		const calls = 2000
		for i := range calls {
			time.Sleep(2 * time.Millisecond)
			if _, err := c.Call(t.Context(), call("acme", tool("post", limited, nil))); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		if n := len(d.wants); n > calls/20 {
			t.Errorf("%d calls asked the store %d times", calls, n)
		}
	})
}

func TestASlowLimitIsCountedExactly(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store.NewMemory()}
		limits := perSecond(19, 40)
		c := under(d, &limits)
		for i := range 50 {
			_, err := c.Call(t.Context(), call("acme", tool("post", limited, nil)))
			if (err == nil) != (i < 40) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for _, w := range d.wants {
			if w.Ahead > 0 {
				t.Errorf("took %+v", w)
			}
		}
	})
}

func TestUnusedPermitsAreReplacedWithinATenthOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := perSecond(100, 100)
		shared := store.NewMemory()
		c, beside := under(shared, &limits), under(shared, &limits)
		given := 0
		try := func(c switchboard.Caller, n int) {
			for range n {
				if _, err := c.Call(t.Context(), call("acme", tool("post", limited, nil))); err == nil {
					given++
				}
			}
		}
		try(c, 20)       // and takes some ahead
		try(beside, 200) // the permits taken ahead are missing here
		if given > 100 || given < 88 {
			t.Errorf("%d of 100 permits were given", given)
		}
		time.Sleep(time.Second + 100*time.Millisecond)
		given = 0
		try(beside, 200)
		if given > 100 || given < 88 {
			t.Errorf("%d of 100 were given, of a limit that is fully available", given)
		}
	})
}

// A held store returns when the test says so.
type held struct {
	distant
	begun, answer chan struct{}
}

func (h *held) Take(ctx context.Context, group string, want store.Want, limits ...store.Limit) (int, time.Duration, error) {
	h.begun <- struct{}{}
	<-h.answer
	return h.distant.Take(ctx, group, want, limits...)
}

func TestCallsThatComeDuringARequestAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{distant{Store: store.NewMemory()}, make(chan struct{}), make(chan struct{})}
		limits := []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: time.Hour, Burst: 15}}
		c := under(h, &limits)
		var all sync.WaitGroup
		var mu sync.Mutex
		ends := map[switchboard.Code]int{}
		come := func(ctx context.Context, n int) {
			for range n {
				all.Go(func() {
					_, err := c.Call(ctx, call("acme", tool("post", limited, nil)))
					mu.Lock()
					defer mu.Unlock()
					ends[code(err)]++
				})
			}
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		come(t.Context(), 1)
		<-h.begun
		come(t.Context(), 10)
		come(ctx, 5)
		cancel()
		synctest.Wait()
		if ends[switchboard.CodeNotExecuted] != 5 {
			t.Errorf("a cancelled call still waits: %v", ends)
		}
		h.answer <- struct{}{}
		<-h.begun
		ctx, cancel = context.WithCancel(t.Context())
		come(ctx, 1)
		come(t.Context(), 5)
		h.answer <- struct{}{}
		<-h.begun
		cancel() // after the request began: another call gets its permit
		synctest.Wait()
		h.answer <- struct{}{}
		all.Wait()
		if want := fmt.Sprint([]store.Want{{Now: 1}, {Now: 10}, {Now: 6}}); fmt.Sprint(withoutHold(h.wants)) != want {
			t.Errorf("the store was asked for %v, want %v", h.wants, want)
		}
		if ends[""] != 15 || ends[switchboard.CodeRateLimit] != 1 || ends[switchboard.CodeNotExecuted] != 6 {
			t.Errorf("the calls ended with %v", ends)
		}
	})
}

func withoutHold(all []store.Want) []store.Want {
	for i := range all {
		all[i].Hold = 0
	}
	return all
}

// use makes calls until some permits are taken ahead.
func use(t *testing.T, c switchboard.Caller, post *switchboard.Call) {
	t.Helper()
	for range 20 {
		if _, err := c.Call(t.Context(), post); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPermitsOfAnOldLimitAreNotUsedUnderANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, limits := &distant{Store: store.NewMemory()}, perSecond(1000, 1000)
		c, post := under(d, &limits), call("acme", tool("post", limited, nil))
		use(t, c, post)
		asked := len(d.wants)
		if _, err := c.Call(t.Context(), post); err != nil || len(d.wants) != asked {
			t.Fatalf("%v; nothing was taken ahead", err)
		}
		limits = []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: 20 * time.Millisecond, Burst: 1}}
		if _, err := c.Call(t.Context(), post); code(err) != switchboard.CodeRateLimit || len(d.wants) != asked+1 {
			t.Errorf("under the new limit, which is used up: %v", err)
		}
		limits = perSecond(1000, 1000)
		if _, err := c.Call(t.Context(), post); err != nil || len(d.wants) != asked+1 {
			t.Errorf("under the old limit again, before its permits expire: %v", err)
		}
	})
}

func TestACancelledCallUsesNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, limits := &distant{Store: store.NewMemory()}, perSecond(1000, 1000)
		c, post := under(d, &limits), call("acme", tool("post", limited, nil))
		use(t, c, post)
		asked := len(d.wants)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			if _, err := c.Call(ctx, post); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if _, err := c.Call(t.Context(), post); err != nil || len(d.wants) != asked {
			t.Errorf("no permit is left that was taken ahead: %v", err)
		}
	})
}

func TestPermitsTakenAheadExpireFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delay time.Duration
		d := &distant{Store: store.NewMemory(), delay: func() time.Duration { return delay }}
		limits := perSecond(1000, 1000)
		c := under(d, &limits)
		var all sync.WaitGroup
		try := func() {
			all.Go(func() {
				if _, err := c.Call(t.Context(), call("acme", tool("post", limited, nil))); err != nil {
					t.Error(err)
				}
			})
		}
		asks := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.wants) != want {
				t.Errorf("%s: asked %d times, want %d", what, len(d.wants), want)
			}
			d.wants = nil
		}
		much := func() {
			for range 20 {
				try()
				all.Wait()
			}
			d.wants = nil
			time.Sleep(51 * time.Millisecond)
		}
		much()
		delay = 10 * time.Millisecond // there, and back
		try()
		all.Wait()
		asks("the permits taken before have expired", 1)
		time.Sleep(29 * time.Millisecond)
		try()
		asks("before they expire", 0)
		time.Sleep(time.Millisecond)
		delay = 0
		try()
		all.Wait()
		asks("after they expired", 1)

		much()
		delay = 30 * time.Millisecond
		try()
		time.Sleep(delay)
		try() // waits for the next request
		time.Sleep(delay + time.Millisecond)
		asks("the result came too late to use the permits taken ahead", 1)
		all.Wait()
		asks("a call that came since is counted by itself", 1)
		try()
		all.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, w := range d.wants {
			if w.Ahead != 0 {
				t.Errorf("took %+v ahead of a store that is slow", w)
			}
		}
	})
}

func TestWithoutTheStoreOnlyPermitsTakenAheadAreUsed(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		limits := perSecond(1000, 1000)
		c := under(s, &limits)
		post := call("acme", tool("post", limited, nil))
		for range 20 {
			if _, err := c.Call(t.Context(), post); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.Close()
		if _, err := c.Call(t.Context(), post); err != nil {
			t.Errorf("a permit that was taken ahead: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
		if _, err := c.Call(t.Context(), post); code(err) != switchboard.CodeStoreUnavailable {
			t.Errorf("after the permits expired: %v", err)
		}
	})
}
