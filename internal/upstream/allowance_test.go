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
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// allowanceFor returns the allowance of a call that has the only slot of a gate, and a minute of
// silence.
func allowanceFor(ctx context.Context, all time.Duration) (context.Context, *slot.Allowance) {
	g := &slot.Gate{}
	g.SetLimits(1, 0)
	_, _ = g.Enter(slot.Caller{}, false)
	ctx, a := slot.NewAllowance(ctx, slot.Limit{Name: "quiet", Time: time.Minute, BlamesServer: true}, slot.Limit{Name: "all", Time: all, BlamesServer: true}, g, slot.Caller{})
	a.TakeSlot()
	return ctx, a
}

// wantEndedBy checks which time limit has ended a call.
func wantEndedBy(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	if over, ok := errors.AsType[*slot.Limit](context.Cause(ctx)); !ok || over.Name != want {
		t.Errorf("ended by %v, want %s", context.Cause(ctx), want)
	}
}

func TestAClientThatReadsNothingIsNotTheServersFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), time.Hour)
		defer a.Close()
		f := &pendingRequest{ctx: ctx, allowance: a, notifications: notifier{notify: func(switchboard.Notification) { <-ctx.Done() }}}
		f.notifyNow(switchboard.Notification{})
		if !errors.Is(context.Cause(ctx), slot.ErrNotTaken) {
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
		defer a.Close()
		f := &pendingRequest{ctx: ctx, allowance: a, notifications: notifier{notify: func(switchboard.Notification) { time.Sleep(7 * time.Millisecond) }}}
		for ctx.Err() == nil {
			f.notifyNow(switchboard.Notification{})
		}
		wantEndedBy(t, ctx, "quiet")
		if e := callError(ctx, exchangeErrorf(kindSilent, true, "x")); !e.ServerFailed {
			t.Errorf("the server is not blamed: %v", e)
		}
	})
}

// quietServer adds a server with the single port p to the fleet.
func quietServer(f *Fleet, cfg switchboard.Server, p port) *server {
	s := newServer(f, cfg, nil)
	l := newLink(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	l.port, l.requests.endsPending = p, true
	l.greeting.Store(&serverHello{version: wire.LatestLegacy})
	s.connectors.connect = func(context.Context, linkScope) (*link, error) { return l, nil }
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
							s.connectors.main.current().inbox.handleNotification(wire.Message{Method: wire.MethodProgress, Params: []byte(tt.progress(string(fl.id)))}, nil)
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
		if got := time.Since(began); got != slot.TurnTimeout {
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
		if n := s.gate.InFlight(); n != 0 {
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
		s.connectors.main.current().inbox.handleNotification(wire.Message{Method: wire.MethodProgress, Params: []byte(`{"progressToken":` + string(fl.id) + `}`)}, nil)
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-call:
			t.Errorf("it returned during a notification: %v", err)
		default:
		}
		if n := s.gate.InFlight(); n != 0 {
			t.Errorf("%d slots are taken", n)
		}
		close(reads)
		wantCode(t, <-call, switchboard.CodeOutcomeUnknown)
		if n := s.gate.InFlight(); n != 0 {
			t.Errorf("its slot was released twice: %d", n)
		}
		s.cancel()
		f.Close(t.Context())
	})
}
