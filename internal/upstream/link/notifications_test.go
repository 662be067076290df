package link

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
)

// A heldPort blocks the goroutine of a call until the test releases it.
type heldPort struct {
	deafPort
	held chan *Request
	free chan struct{}
}

func (p *heldPort) StartBlocking(f *Request) {
	p.held <- f
	<-p.free
}

func TestNotificationsOnAnotherStreamReachTheCallInOrderAndNoneAfterItsEnd(t *testing.T) {
	p := &heldPort{held: make(chan *Request), free: make(chan struct{})}
	l := New(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	l.Use(p, false)
	f := l.newRequest("x", nil)
	var said []string
	slow := make(chan struct{})
	ended := startAsync(func() error {
		return l.roundTrip(t.Context(), f, func(n switchboard.Notification) {
			<-slow
			said = append(said, n.Method) // the race detector finds concurrent calls
		})
	})
	<-p.held
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprint(i))
		l.inbox.deliver(f, nil, switchboard.Notification{Method: want[i]})
	}
	own := startAsync(func() error {
		for range 100 {
			l.inbox.deliver(f, f, switchboard.Notification{Method: "own"})
		}
		return nil
	})
	f.Finish(f.response.answer, 0, nil)
	close(slow) // most notifications are not delivered yet
	if err := <-own; err != nil {
		t.Fatal(err)
	}
	close(p.free)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	l.inbox.deliver(f, nil, switchboard.Notification{Method: "late"})
	if n := len(said); n != 1100 {
		t.Errorf("%d notifications", n)
	}
	said = slices.DeleteFunc(said, func(s string) bool { return s == "own" })
	if !slices.Equal(said, want) {
		t.Errorf("said %.100v", said)
	}
}

func TestASharedStreamDoesNotWaitForASlowClient(t *testing.T) {
	p := &heldPort{held: make(chan *Request), free: make(chan struct{})}
	l := New(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	l.Use(p, false)
	f := l.newRequest("x", nil)
	hears := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := startAsync(func() error {
		return l.roundTrip(ctx, f, func(switchboard.Notification) {
			close(hears) // it gets at most one more
			<-ctx.Done()
		})
	})
	<-p.held
	l.inbox.deliver(f, nil, switchboard.Notification{Method: "first"})
	<-hears
	for range maxQueued + 100 {
		l.inbox.deliver(f, nil, switchboard.Notification{Method: "x"})
	}
	if n := l.inbox.dropped.Load(); n != 100 {
		t.Errorf("%d were dropped", n)
	}
	cancel()
	close(p.free)
	if err := AsError(<-ended); err.Kind != KindSilent || err.Sent {
		t.Errorf("%+v", err)
	}
}

func TestACallDoesNotReturnDuringANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
		l.Use(deafPort{}, false)
		f := l.newRequest("x", nil)
		told := make(chan struct{})
		ended := startAsync(func() error {
			return l.roundTrip(t.Context(), f, func(switchboard.Notification) { <-told })
		})
		synctest.Wait()
		l.inbox.deliver(f, nil, switchboard.Notification{Method: "x"})
		f.Finish(f.response.answer, 0, nil)
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("it has returned")
		}
		close(told)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// RX-06
func TestAttack10TheNotificationsOfACallHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Request
		told := 0
		for f.notifications.allowMore(1, 1<<20) {
			told++
		}
		if told != notifyBurst {
			t.Errorf("%d at once", told)
		}
		time.Sleep(time.Second)
		for f.notifications.allowMore(1, 1<<20) {
			told++
		}
		if told != notifyBurst+notifyRate {
			t.Errorf("%d after a second", told)
		}
		var long Request
		if !long.notifications.allowMore(900, 1000) || long.notifications.allowMore(101, 1000) || !long.notifications.allowMore(100, 1000) {
			t.Error("their bytes are not counted")
		}
	})
}
