package slot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// allowanceFor returns the allowance of a call that has the only slot of a gate, and a minute of
// silence.
func allowanceFor(ctx context.Context, all time.Duration) (context.Context, *Allowance) {
	g := &Gate{}
	g.SetLimits(1, 0)
	_, _ = g.Enter(CallKey{}, false)
	a := NewAllowance(ctx, TimeLimit{"quiet", time.Minute, true}, TimeLimit{"all", all, true}, g, CallKey{})
	a.TakeSlot()
	return a.Context(), a
}

// wantEndedBy checks which time limit has ended a call.
func wantEndedBy(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	if over, ok := errors.AsType[*TimeLimit](context.Cause(ctx)); !ok || over.Name != want {
		t.Errorf("ended by %v, want %s", context.Cause(ctx), want)
	}
}

func TestTheTimeOfACallStopsWhileItsClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), time.Hour)
		defer a.Close()
		time.Sleep(40 * time.Second)
		first := a.Pause()
		time.Sleep(10 * time.Minute)
		second := a.Pause() // two open questions
		if n := a.gate.InFlight(); n != 0 {
			t.Errorf("%d calls count while the client is asked", n)
		}
		first()
		first() // counts once
		time.Sleep(59 * time.Minute)
		if ctx.Err() != nil {
			t.Fatalf("it ended while the client was asked: %v", context.Cause(ctx))
		}
		second()
		if n := a.gate.InFlight(); n != 1 {
			t.Errorf("%d calls count after that", n)
		}
		time.Sleep(19 * time.Second)
		if ctx.Err() != nil {
			t.Errorf("it lost time while the client was asked")
		}
		time.Sleep(2 * time.Second)
		wantEndedBy(t, ctx, "quiet")
	})
}

func TestProgressGivesACallMoreTimeUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), 10*time.Minute)
		defer a.Close()
		for range 5 {
			time.Sleep(59 * time.Second)
			a.ResetSilence()
		}
		began := time.Now()
		<-ctx.Done()
		if got := time.Since(began); got != time.Minute {
			t.Errorf("it ended %s after the last sign of life", got)
		}
		wantEndedBy(t, ctx, "quiet")

		ctx, a = allowanceFor(t.Context(), 10*time.Minute)
		defer a.Close()
		began = time.Now()
		for ctx.Err() == nil {
			a.ResetSilence()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		if got := time.Since(began); got != 10*time.Minute {
			t.Errorf("with signs of life it ended after %s", got)
		}
		wantEndedBy(t, ctx, "all")

		// The time of questions does not count in the total either.
		ctx, a = allowanceFor(t.Context(), 2*time.Minute)
		defer a.Close()
		time.Sleep(30 * time.Second)
		resume := a.Pause()
		time.Sleep(time.Hour)
		a.ResetSilence()
		resume()
		time.Sleep(59 * time.Second)
		a.ResetSilence()
		time.Sleep(30 * time.Second)
		if ctx.Err() != nil {
			t.Error("the time of the client was counted")
		}
		time.Sleep(2 * time.Second)
		wantEndedBy(t, ctx, "all")
	})
}

func TestTheTimeLimitsOfACall(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name                        string
		server, most, tool, obliged time.Duration
		quiet, all                  time.Duration
		quietOf, allOf              string
		theirs                      bool // of the total
	}{
		{"none is configured", 0, 0, 0, 0, 60 * s, 600 * s, "its server's timeout", "its server's max_timeout", true},
		{"the server's", 5 * s, 0, 0, 0, 5 * s, 50 * s, "its server's timeout", "its server's max_timeout", true},
		{"at most an hour", 1800 * s, 0, 0, 0, 1800 * s, 3600 * s, "its server's timeout", "its server's max_timeout", true},
		{"the tool's wins", 5 * s, 0, 30 * s, 0, 30 * s, 300 * s, "its timeout", "its server's max_timeout", true},
		{"also over the server's most", 5 * s, 20 * s, 30 * s, 0, 30 * s, 30 * s, "its timeout", "its server's max_timeout", true},
		{"the server's most", 5 * s, 20 * s, 3 * s, 0, 3 * s, 20 * s, "its timeout", "its server's max_timeout", true},
		{"policy's is for the whole", 5 * s, 0, 0, 7 * s, 5 * s, 7 * s, "its server's timeout", "the time limit that policy sets", false},
		{"policy's is the shortest", 5 * s, 0, 0, s, 5 * s, s, "its server's timeout", "the time limit that policy sets", false},
		{"policy does not give more", 5 * s, 0, 0, 60 * s, 5 * s, 50 * s, "its server's timeout", "its server's max_timeout", true},
	} {
		c := &switchboard.Call{Tool: &switchboard.Tool{}}
		c.Tool.Contract.Timeout, c.Obligations.Timeout = tt.tool, tt.obliged
		quiet, all := LimitsOf(c, &switchboard.Server{Timeout: tt.server, MaxTimeout: tt.most})
		if want := (TimeLimit{tt.quietOf, tt.quiet, true}); quiet != want {
			t.Errorf("%s: %+v, want %+v", tt.name, quiet, want)
		}
		if want := (TimeLimit{tt.allOf, tt.all, tt.theirs}); all != want {
			t.Errorf("%s: %+v, want %+v", tt.name, all, want)
		}
	}
	// If only a tenant's limit passes, the server has not failed.
	for tool, theirs := range map[time.Duration]bool{4 * s: false, 6 * s: true} {
		c := &switchboard.Call{Tool: &switchboard.Tool{Contract: switchboard.Contract{Timeout: tool, Hurried: true}}}
		if quiet, _ := LimitsOf(c, &switchboard.Server{Timeout: 5 * s}); quiet.Time != tool || quiet.BlamesServer != theirs {
			t.Errorf("a tenant's %s: %+v", tool, quiet)
		}
	}
	if quiet, _ := LimitsOf(&switchboard.Call{}, &switchboard.Server{}); quiet.Time != time.Minute {
		t.Errorf("without a tool: %+v", quiet)
	}
}

func TestAGateNeverExceedsItsLimitAndAdmitsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		g.SetLimits(3, 5)
		var wg sync.WaitGroup
		var mu sync.Mutex
		most, inside := 0, 0
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%97) * time.Millisecond)
				c := CallKey{"acme", fmt.Sprint(i % 3), Neighbors{Principals: i%3 > 0}}
				turn, err := g.Enter(c, i%7 != 0)
				if err != nil {
					return
				}
				if turn != nil {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%13)*time.Millisecond)
					defer cancel()
					if g.WaitTurn(ctx, turn, 8*time.Millisecond) != nil {
						return
					}
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				mu.Lock()
				inside--
				mu.Unlock()
				g.Leave(c)
			})
		}
		wg.Wait()
		if most != 3 || g.InFlight() != 0 || g.Waiting() != 0 || len(g.queues)+len(g.counts) != 0 {
			t.Errorf("at most %d were in flight, %d are left and %d wait", most, g.InFlight(), g.Waiting())
		}
	})
}

func TestTheEndOfACallIsReportedWhateverEndsIt(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(cancel func(), a *Allowance)
		calls bool
	}{
		"its time passes":                       {func(func(), *Allowance) { time.Sleep(2 * time.Minute) }, true},
		"its client cancels":                    {func(cancel func(), _ *Allowance) { cancel(); time.Sleep(2 * watchAge) }, true},
		"its client cancels later":              {func(cancel func(), _ *Allowance) { time.Sleep(2 * watchAge); cancel() }, true},
		"its client has cancelled before":       {nil, true},
		"it has its answer, and is closed":      {func(_ func(), a *Allowance) { a.Close() }, false},
		"nothing ends it before the stop":       {func(func(), *Allowance) {}, false},
		"its time has passed before the report": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(t.Context())
				defer cancel()
				g := &Gate{}
				g.SetLimits(1, 0)
				limit := TimeLimit{"quiet", time.Minute, true}
				a := NewAllowance(parent, limit, limit, g, CallKey{})
				defer a.Close()
				switch {
				case tt.end != nil:
				case strings.HasSuffix(name, "cancelled before"):
					cancel()
				default:
					time.Sleep(2 * time.Minute)
				}
				called := false
				stop := a.OnEnd(func() { called = true })
				if tt.end != nil {
					tt.end(cancel, a)
				}
				synctest.Wait()
				if stop(); called != tt.calls {
					t.Errorf("called: %v", called)
				}
				if name != "nothing ends it before the stop" && (!a.Ended() || a.Context().Err() == nil) {
					t.Error("it does not say that it has ended")
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if called != tt.calls {
					t.Error("called after the stop")
				}
			})
		})
	}
}

func TestOnlyACallThatIsNotOverSoonIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		begin := func() *Allowance {
			limit := TimeLimit{"quiet", time.Minute, true}
			a := NewAllowance(t.Context(), limit, limit, g, CallKey{})
			a.OnEnd(func() {})
			return a
		}
		short := begin()
		time.Sleep(watchAge / 2)
		long := begin()
		short.Close()
		time.Sleep(2 * watchAge)
		synctest.Wait()
		if short.timer != nil || long.timer == nil || long.end.forget == nil {
			t.Error("the short call is watched, or the long one is not")
		}
		long.Close()
		time.Sleep(2 * watchAge)
		synctest.Wait()
		if w := &g.young; w.timer != nil || w.older != nil || w.younger != nil {
			t.Errorf("without calls it still looks: %+v", w)
		}
		again := begin()
		defer again.Close()
		time.Sleep(2 * watchAge)
		synctest.Wait()
		if again.timer == nil {
			t.Error("a call after a pause is not watched")
		}
	})
}

func TestACallWithLittleTimeEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), watchAge/2)
		defer a.Close()
		began := time.Now()
		if <-ctx.Done(); time.Since(began) != watchAge/2 {
			t.Errorf("it ended after %s", time.Since(began))
		}
	})
}

// BenchmarkAllowance is the allowance of a call that ends in time, and waits for its end as a round trip does.
func BenchmarkAllowance(b *testing.B) {
	g := &Gate{}
	g.SetLimits(1, 0)
	limit := TimeLimit{"quiet", time.Minute, true}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		a := NewAllowance(ctx, limit, limit, g, CallKey{})
		stop := a.OnEnd(func() {})
		stop()
		a.Close()
	}
}
