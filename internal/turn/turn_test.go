package turn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/turn"
)

// callOf is a call of the tenant with parameters of size bytes.
func callOf(tenant string, size int) *switchboard.Call {
	return &switchboard.Call{Principal: switchboard.Principal{Tenant: switchboard.TenantID(tenant)}, Params: make([]byte, size)}
}

// began makes the calls at the same time, runs work for each, and returns when each work began, sorted.
func began(t *testing.T, chain func(work switchboard.Caller) switchboard.Caller, work func(), calls ...*switchboard.Call) (after []time.Duration) {
	t.Helper()
	start, times := time.Now(), make(chan time.Duration, len(calls))
	caller := chain(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		times <- time.Since(start)
		work()
		return switchboard.Result{}, nil
	}))
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			if _, err := caller.Call(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	for range calls {
		after = append(after, <-times)
	}
	all.Wait()
	return after
}

func TestAttack1LargeCallsOfATenantAreWorkedOnOneAfterTheOther(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		sends bool          // the work is the server's
		takes time.Duration // the work
		calls []*switchboard.Call
		last  time.Duration // when the last call begins
	}{
		"large calls":                          {false, 10 * ms, []*switchboard.Call{callOf("a", turn.Large), callOf("a", turn.Large), callOf("a", turn.Large)}, 20 * ms},
		"small calls":                          {false, 10 * ms, []*switchboard.Call{callOf("a", turn.Large), callOf("a", turn.Large-1)}, 0},
		"another tenant":                       {false, 10 * ms, []*switchboard.Call{callOf("a", turn.Large), callOf("b", turn.Large)}, 0},
		"behind a call that waits":             {false, time.Hour, []*switchboard.Call{callOf("a", turn.Large), callOf("a", turn.Large)}, turn.MaxTurn},
		"while the server works on the call":   {true, time.Hour, []*switchboard.Call{callOf("a", turn.Large), callOf("a", turn.Large)}, 0},
		"while the server works on many calls": {true, 50 * ms, []*switchboard.Call{callOf("a", turn.Large), callOf("a", turn.Large), callOf("a", turn.Large)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var turns turn.Turns
				chain := turns.Take
				if tt.sends {
					chain = func(work switchboard.Caller) switchboard.Caller { return turns.Take(turn.End(work)) }
				}
				after := began(t, chain, func() { time.Sleep(tt.takes) }, tt.calls...)
				if got := after[len(after)-1]; got != tt.last {
					t.Errorf("the last call begins after %v, want %v", got, tt.last)
				}
			})
		})
	}
}

func TestAttack1ACallThatDoesNotGetItsTurnIsRefusedAndOneThatIsCancelledIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 60 * time.Millisecond
		var turns turn.Turns
		ctx, cancel := context.WithCancel(t.Context())
		made := 0
		caller := turns.Take(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			made++
			time.Sleep(each)
			return switchboard.Result{}, nil
		}))
		const waiting = int(turn.Patience/each) + 1 // as many as get a turn in time, with the first
		var all sync.WaitGroup
		for range waiting {
			all.Go(func() {
				if _, err := caller.Call(t.Context(), callOf("a", turn.Large)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		late, gone := make(chan error, 1), make(chan error, 1)
		go func() { _, err := caller.Call(t.Context(), callOf("a", turn.Large)); late <- err }()
		go func() { _, err := caller.Call(ctx, callOf("a", turn.Large)); gone <- err }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that is cancelled: %v", err)
		}
		if e, ok := errors.AsType[*switchboard.Error](<-late); !ok || e.Code != switchboard.CodeOverloaded || !e.Unsent || e.RetryAfter == 0 {
			t.Errorf("a call that waits too long: %v", e)
		}
		all.Wait()
		if made != waiting {
			t.Errorf("%d calls are made, want %d", made, waiting)
		}
	})
}

// BenchmarkTurn measures what turns add to a call: a small one has none.
func BenchmarkTurn(b *testing.B) {
	nothing := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, nil })
	for name, size := range map[string]int{"small": 1 << 10, "large": turn.Large} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var turns turn.Turns
			c, caller := callOf("a", size), turns.Take(turn.End(nothing))
			for b.Loop() {
				if _, err := caller.Call(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
