package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// quietServer adds a server with the single port p to the fleet.
func quietServer(f *Fleet, cfg switchboard.Server, p link.Port) *server {
	s := newServer(f, cfg, nil)
	l := link.New(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	l.Use(p, true)
	l.SetHello(link.Hello{Version: wire.LatestLegacy})
	s.connectors.connect = func(context.Context, linkScope) (*link.Link, error) { return l, nil }
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers = map[switchboard.ServerID]*server{cfg.ID: s}
	return s
}

// A talkingPort accepts requests and sends the given progress for each.
type talkingPort struct {
	deafPort
	taken chan *link.Request
	ended chan *link.Request
}

func (p *talkingPort) StartBlocking(f *link.Request) {
	f.Sending.Claim()
	p.taken <- f
}

func (p *talkingPort) Cancel(f *link.Request, _ bool) { p.ended <- f }

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
				p := &talkingPort{taken: make(chan *link.Request, 1), ended: make(chan *link.Request, 1)}
				s := quietServer(f, switchboard.Server{ID: "one", MaxTimeout: 5 * time.Minute}, p)
				c := echoCall("one", "{}")
				c.Params = []byte(`{"name":"x","_meta":{"progressToken":"mine"}}`)
				c.Obligations.Timeout = tt.obliged
				began := time.Now()
				call := startAsync(func() error { _, err := f.Call(t.Context(), c); return err })
				req := <-p.taken
				tick := time.NewTicker(40 * time.Second)
				defer tick.Stop()
				var err error
				for err == nil {
					select {
					case err = <-call:
					case <-tick.C:
						if tt.progress != nil {
							s.connectors.main.current().Receive(wire.Message{Kind: wire.Notification, Method: wire.MethodProgress, Params: []byte(tt.progress(string(req.ID)))})
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
				if <-p.ended != req {
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
		p := &talkingPort{taken: make(chan *link.Request, 1), ended: make(chan *link.Request, 10)}
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
		under := func() *link.Request {
			t.Helper()
			synctest.Wait()
			select {
			case req := <-p.taken:
				mu.Lock()
				defer mu.Unlock()
				params, _ := wire.Field(req.Body, "params")
				who, _ := wire.Field(params, "who")
				order = append(order, string(who))
				return req
			default:
				t.Fatal("no request is in flight")
				return nil
			}
		}
		finish := func(req *link.Request) { req.Finish(wire.Message{Result: []byte("{}")}, 0, nil) }

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
		for _, req := range []*link.Request{third, fourth, fifth} {
			finish(req)
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
		p := &talkingPort{taken: make(chan *link.Request, 1), ended: make(chan *link.Request, 1)}
		s := quietServer(f, switchboard.Server{ID: "one", MaxCalls: 1}, p)
		reads := make(chan struct{})
		c := echoCall("one", "{}")
		c.Params = []byte(`{"name":"x","_meta":{"progressToken":"mine"}}`)
		c.Notify = func(switchboard.Notification) { <-reads }
		ctx, cancel := context.WithCancel(t.Context())
		call := startAsync(func() error { _, err := f.Call(ctx, c); return err })
		req := <-p.taken
		s.connectors.main.current().Receive(wire.Message{Kind: wire.Notification, Method: wire.MethodProgress, Params: []byte(`{"progressToken":` + string(req.ID) + `}`)})
		synctest.Wait()
		cancel()
		time.Sleep(time.Second) // a call that has just begun is told late
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
