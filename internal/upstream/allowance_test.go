package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// inFlight returns how many calls have a slot.
func (g *callGate) inFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// allowanceFor returns the allowance of a call that has the only slot of a gate, and a minute of
// silence.
func allowanceFor(ctx context.Context, all time.Duration) (context.Context, *callAllowance) {
	g := &callGate{}
	g.setLimits(1, 0)
	_, _ = g.enter(callerKey{}, false)
	ctx, a := newAllowance(ctx, timeLimit{"quiet", time.Minute, true}, timeLimit{"all", all, true}, g, callerKey{})
	a.takeSlot()
	return ctx, a
}

// wantEndedBy checks which time limit has ended a call.
func wantEndedBy(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	if over, ok := errors.AsType[*timeLimit](context.Cause(ctx)); !ok || over.name != want {
		t.Errorf("ended by %v, want %s", context.Cause(ctx), want)
	}
}

func TestTheTimeOfACallStopsWhileItsClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), time.Hour)
		defer a.close()
		time.Sleep(40 * time.Second)
		first := a.pause()
		time.Sleep(10 * time.Minute)
		second := a.pause() // two open questions
		if n := a.gate.inFlight(); n != 0 {
			t.Errorf("%d calls count while the client is asked", n)
		}
		first()
		first() // counts once
		time.Sleep(59 * time.Minute)
		if ctx.Err() != nil {
			t.Fatalf("it ended while the client was asked: %v", context.Cause(ctx))
		}
		second()
		if n := a.gate.inFlight(); n != 1 {
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
		defer a.close()
		for range 5 {
			time.Sleep(59 * time.Second)
			a.resetSilence()
		}
		began := time.Now()
		<-ctx.Done()
		if got := time.Since(began); got != time.Minute {
			t.Errorf("it ended %s after the last sign of life", got)
		}
		wantEndedBy(t, ctx, "quiet")

		ctx, a = allowanceFor(t.Context(), 10*time.Minute)
		defer a.close()
		began = time.Now()
		for ctx.Err() == nil {
			a.resetSilence()
			_ = sleep(ctx, time.Second)
		}
		if got := time.Since(began); got != 10*time.Minute {
			t.Errorf("with signs of life it ended after %s", got)
		}
		wantEndedBy(t, ctx, "all")

		// The time of questions does not count in the total either.
		ctx, a = allowanceFor(t.Context(), 2*time.Minute)
		defer a.close()
		time.Sleep(30 * time.Second)
		resume := a.pause()
		time.Sleep(time.Hour)
		a.resetSilence()
		resume()
		time.Sleep(59 * time.Second)
		a.resetSilence()
		time.Sleep(30 * time.Second)
		if ctx.Err() != nil {
			t.Error("the time of the client was counted")
		}
		time.Sleep(2 * time.Second)
		wantEndedBy(t, ctx, "all")
	})
}

func TestAClientThatReadsNothingIsNotTheServersFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), time.Hour)
		defer a.close()
		f := &pendingRequest{ctx: ctx, allowance: a, notify: func(switchboard.Notification) { <-ctx.Done() }}
		f.notifyNow(switchboard.Notification{})
		if !errors.Is(context.Cause(ctx), errNotTaken) {
			t.Errorf("%v", context.Cause(ctx))
		}
		if e := callError(ctx, exchangeErrorf(kindSilent, true, "x")); e.ServerFailed {
			t.Errorf("the server is blamed: %v", e)
		}
	})
}

func TestAServerThatNotifiesWithoutEndAndNeverAnswersIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), time.Hour)
		defer a.close()
		f := &pendingRequest{ctx: ctx, allowance: a, notify: func(switchboard.Notification) { time.Sleep(7 * time.Millisecond) }}
		for ctx.Err() == nil {
			f.notifyNow(switchboard.Notification{})
		}
		wantEndedBy(t, ctx, "quiet")
		if e := callError(ctx, exchangeErrorf(kindSilent, true, "x")); !e.ServerFailed {
			t.Errorf("the server is not blamed: %v", e)
		}
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
		quiet, all := limitsOf(c, &switchboard.Server{Timeout: tt.server, MaxTimeout: tt.most})
		if want := (timeLimit{tt.quietOf, tt.quiet, true}); quiet != want {
			t.Errorf("%s: %+v, want %+v", tt.name, quiet, want)
		}
		if want := (timeLimit{tt.allOf, tt.all, tt.theirs}); all != want {
			t.Errorf("%s: %+v, want %+v", tt.name, all, want)
		}
	}
	// If only a tenant's limit passes, the server has not failed.
	for tool, theirs := range map[time.Duration]bool{4 * s: false, 6 * s: true} {
		c := &switchboard.Call{Tool: &switchboard.Tool{Contract: switchboard.Contract{Timeout: tool, Hurried: true}}}
		if quiet, _ := limitsOf(c, &switchboard.Server{Timeout: 5 * s}); quiet.limit != tool || quiet.blamesServer != theirs {
			t.Errorf("a tenant's %s: %+v", tool, quiet)
		}
	}
	if quiet, _ := limitsOf(&switchboard.Call{}, &switchboard.Server{}); quiet.limit != time.Minute {
		t.Errorf("without a tool: %+v", quiet)
	}
}

// quietServer adds a server with the single port p to the fleet.
func quietServer(f *Fleet, cfg switchboard.Server, p port) *server {
	s := newServer(f, cfg, nil)
	l := newLink(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	l.port, l.endsPending = p, true
	l.greeting.Store(&serverHello{version: wire.LatestLegacy})
	s.connect = func(context.Context, linkScope) (*link, error) { return l, nil }
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers = map[switchboard.ServerID]*server{cfg.ID: s}
	return s
}

// A talkingPort accepts requests and sends the given progress for each.
type talkingPort struct {
	deafPort
	taken chan *pendingRequest
	ended chan *pendingRequest
}

func (p *talkingPort) startBlocking(f *pendingRequest) {
	f.sending.Claim()
	p.taken <- f
}

func (p *talkingPort) cancel(f *pendingRequest, _ bool) { p.ended <- f }

func TestTheErrorNamesTheTimeLimitAndOnlyItsOwnProgressExtendsACall(t *testing.T) {
	of := func(id string) string { return `{"progressToken":` + id + `,"progress":1}` }
	for _, tt := range []struct {
		name     string
		obliged  time.Duration
		progress func(id string) string // returns the params; sent each 40s
		after    time.Duration
		text     string
		theirs   bool
	}{
		{"silence", 0, nil, time.Minute, "(its server's timeout of 1m0s is over)", true},
		{"progress of another", 0, func(string) string { return `{"progressToken":"x","progress":1}` }, time.Minute, "its server's timeout of 1m0s is over", true},
		{"progress", 0, of, 5 * time.Minute, "(its server's max_timeout of 5m0s is over)", true},
		{"progress, though policy says otherwise", 90 * time.Second, of, 90 * time.Second, "(the time limit that policy sets of 1m30s is over)", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := New(Options{OnePrincipal: true})
				p := &talkingPort{taken: make(chan *pendingRequest, 1), ended: make(chan *pendingRequest, 1)}
				s := quietServer(f, switchboard.Server{ID: "one", MaxTimeout: 5 * time.Minute}, p)
				c := echoCall("one", "{}")
				c.Params = []byte(`{"name":"x","_meta":{"progressToken":"mine"}}`)
				c.Obligations.Timeout = tt.obliged
				began := time.Now()
				call := startAsync(func() error { _, err := f.Call(t.Context(), c); return err })
				fl := <-p.taken
				tick := time.NewTicker(40 * time.Second)
				defer tick.Stop()
				var err error
				for err == nil {
					select {
					case err = <-call:
					case <-tick.C:
						if tt.progress != nil {
							s.main.current().handleNotification(wire.Message{Method: wire.MethodProgress, Params: []byte(tt.progress(string(fl.id)))}, nil)
						}
					}
				}
				if got := time.Since(began); got != tt.after {
					t.Errorf("it ended after %s, want %s", got, tt.after)
				}
				e := wantRefusal(t, err, switchboard.CodeOutcomeUnknown)
				if !strings.Contains(e.Text, tt.text) {
					t.Errorf("%s\nwant %s", e.Text, tt.text)
				}
				checkBlame(t, err, false, tt.theirs)
				if <-p.ended != fl {
					t.Error("the server is not notified")
				}
				s.cancel()
				f.Close(t.Context())
			})
		})
	}
}

func TestWaitingCallsGetSlotsInOrderAndFurtherCallsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{OnePrincipal: true})
		p := &talkingPort{taken: make(chan *pendingRequest, 1), ended: make(chan *pendingRequest, 10)}
		s := quietServer(f, switchboard.Server{ID: "one", MaxCalls: 2, MaxWaiting: 3}, p)
		var order []string
		var mu sync.Mutex
		call := func(ctx context.Context, name string, hurried bool) <-chan error {
			c := echoCall("one", "{}")
			c.Params, c.NoWait = fmt.Appendf(nil, `{"name":"x","who":%q}`, name), hurried
			ended := startAsync(func() error { _, err := f.Call(ctx, c); return err })
			synctest.Wait()
			return ended
		}
		// under returns the next request that has reached the server.
		under := func() *pendingRequest {
			t.Helper()
			synctest.Wait()
			select {
			case fl := <-p.taken:
				mu.Lock()
				defer mu.Unlock()
				params, _ := wire.Field(fl.body, "params")
				who, _ := wire.Field(params, "who")
				order = append(order, string(who))
				return fl
			default:
				t.Fatal("no request is in flight")
				return nil
			}
		}
		finish := func(fl *pendingRequest) { fl.finish(wire.Message{Result: []byte("{}")}, 0, nil) }

		a := call(t.Context(), "a", false)
		first := under()
		b := call(t.Context(), "b", false)
		second := under()
		gone, leave := context.WithCancel(t.Context())
		c := call(gone, "c", false)
		d := call(t.Context(), "d", false)
		e := call(t.Context(), "e", false)
		if n := s.status().Waiting; n != 3 {
			t.Errorf("%d wait", n)
		}
		began := time.Now()
		for _, err := range []<-chan error{call(t.Context(), "too many", false), call(t.Context(), "in a hurry", true)} {
			refusal := wantRefusal(t, <-err, switchboard.CodeOverloaded)
			if refusal.RetryAfter <= 0 || time.Since(began) != 0 {
				t.Errorf("after %s: %+v", time.Since(began), refusal)
			}
			checkBlame(t, refusal, true, false)
		}
		leave() // leaves its place in the queue at once
		wantCode(t, <-c, switchboard.CodeNotExecuted)
		g := call(t.Context(), "g", false)
		finish(first)
		if err := <-a; err != nil {
			t.Error(err)
		}
		third := under()
		finish(second)
		fourth := under()
		if want := []string{`"a"`, `"b"`, `"d"`, `"e"`}; !slices.Equal(order, want) {
			t.Errorf("their order is %v", order)
		}

		// The last call has waited for the longest allowed time.
		began = time.Now()
		err := <-g
		if got := time.Since(began); got != turnTimeout {
			t.Errorf("it waited %s", got)
		}
		wantCode(t, err, switchboard.CodeOverloaded)
		checkBlame(t, err, true, false)

		// A higher limit admits more calls.
		h := call(t.Context(), "h", false)
		s.update(switchboard.Server{ID: "one", MaxCalls: 3, MaxWaiting: 3})
		fifth := under()
		for _, fl := range []*pendingRequest{third, fourth, fifth} {
			finish(fl)
		}
		for _, ended := range []<-chan error{b, d, e, h} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := s.gate.inFlight(); n != 0 {
			t.Errorf("%d slots are still taken", n)
		}
		s.cancel()
		f.Close(t.Context())
	})
}

func TestACallThatEndsReleasesItsSlotWhileANotificationBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{OnePrincipal: true})
		p := &talkingPort{taken: make(chan *pendingRequest, 1), ended: make(chan *pendingRequest, 1)}
		s := quietServer(f, switchboard.Server{ID: "one", MaxCalls: 1}, p)
		reads := make(chan struct{})
		c := echoCall("one", "{}")
		c.Params = []byte(`{"name":"x","_meta":{"progressToken":"mine"}}`)
		c.Notify = func(switchboard.Notification) { <-reads }
		ctx, cancel := context.WithCancel(t.Context())
		call := startAsync(func() error { _, err := f.Call(ctx, c); return err })
		fl := <-p.taken
		s.main.current().handleNotification(wire.Message{Method: wire.MethodProgress, Params: []byte(`{"progressToken":` + string(fl.id) + `}`)}, nil)
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-call:
			t.Errorf("it returned during a notification: %v", err)
		default:
		}
		if n := s.gate.inFlight(); n != 0 {
			t.Errorf("%d slots are taken", n)
		}
		close(reads)
		wantCode(t, <-call, switchboard.CodeOutcomeUnknown)
		if n := s.gate.inFlight(); n != 0 {
			t.Errorf("its slot was released twice: %d", n)
		}
		s.cancel()
		f.Close(t.Context())
	})
}

func TestAGateNeverExceedsItsLimitAndAdmitsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &callGate{}
		g.setLimits(3, 5)
		var wg sync.WaitGroup
		var mu sync.Mutex
		most, inside := 0, 0
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%97) * time.Millisecond)
				c := callerKey{"acme", fmt.Sprint(i % 3), Neighbors{Principals: i%3 > 0}}
				turn, err := g.enter(c, i%7 != 0)
				if err != nil {
					return
				}
				if turn != nil {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%13)*time.Millisecond)
					defer cancel()
					if g.waitTurn(ctx, turn, 8*time.Millisecond) != nil {
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
				g.leave(c)
			})
		}
		wg.Wait()
		if most != 3 || g.inFlight() != 0 || g.waitingCount() != 0 || len(g.queues)+len(g.counts) != 0 {
			t.Errorf("at most %d were in flight, %d are left and %d wait", most, g.inFlight(), g.waitingCount())
		}
	})
}
