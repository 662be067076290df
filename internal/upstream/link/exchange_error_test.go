package link

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
)

func TestEachErrorSaysWhoFailedAndWhetherTheCallWasSent(t *testing.T) {
	lasting := context.Background()
	ended := func(why error) context.Context {
		ctx, cancel := context.WithCancelCause(lasting)
		cancel(why)
		return ctx
	}
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		kind   ErrorKind
		status int
		sent   [2]bool // whether the server has failed: if the call was not sent, and if it was
	}{
		{"no connection", lasting, KindUnreachable, 0, [2]bool{true, true}},
		{"the connection broke", lasting, KindLost, 0, [2]bool{true, true}},
		{"the session is forgotten", lasting, KindGone, 404, [2]bool{true, true}},
		{"4xx, also when we connect", lasting, KindRefused, 403, [2]bool{true, false}},
		{"a redirect", lasting, KindRefused, 307, [2]bool{true, true}},
		{"5xx", lasting, KindBroken, 503, [2]bool{true, true}},
		{"429", lasting, KindLimited, 429, [2]bool{false, false}},
		{"no valid answer", lasting, KindInvalid, 0, [2]bool{true, true}},
		{"no protocol", lasting, KindProtocol, 0, [2]bool{true, true}},
		{"silence", lasting, KindSilent, 0, [2]bool{true, true}},
		{"the server's own time is over", ended(&slot.TimeLimit{BlamesServer: true}), KindSilent, 0, [2]bool{true, true}},
		{"a policy's time is over", ended(&slot.TimeLimit{}), KindSilent, 0, [2]bool{false, false}},
		{"the client went away", ended(context.Canceled), KindSilent, 0, [2]bool{false, false}},
		{"the client's time is over", ended(context.DeadlineExceeded), KindLost, 0, [2]bool{false, false}},
	} {
		for i, sent := range []bool{false, true} {
			f := Errorf(tt.kind, sent, "%s", tt.name)
			f.Status = tt.status
			e := CallError(tt.ctx, f)
			if e.Unsent == sent || e.ServerFailed != tt.sent[i] {
				t.Errorf("%s, sent %v: unsent %v, and the server failed %v", tt.name, sent, e.Unsent, e.ServerFailed)
			}
			f.Ours = true
			if CallError(tt.ctx, f).ServerFailed {
				t.Errorf("%s, sent %v: the server is blamed for our error", tt.name, sent)
			}
		}
	}
}

// allowanceFor returns the allowance of a call that has the only slot of a gate, and a minute of
// silence.
func allowanceFor(ctx context.Context, all time.Duration) (context.Context, *slot.Allowance) {
	g := &slot.Gate{}
	g.SetLimits(1, 0)
	_, _ = g.Enter(slot.CallKey{}, false)
	a := slot.NewAllowance(ctx, slot.TimeLimit{Name: "quiet", Time: time.Minute, BlamesServer: true}, slot.TimeLimit{Name: "all", Time: all, BlamesServer: true}, g, slot.CallKey{})
	a.TakeSlot()
	return a.Context(), a
}

// wantEndedBy checks which time limit has ended a call.
func wantEndedBy(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	if over, ok := errors.AsType[*slot.TimeLimit](context.Cause(ctx)); !ok || over.Name != want {
		t.Errorf("ended by %v, want %s", context.Cause(ctx), want)
	}
}

func TestAClientThatReadsNothingIsNotTheServersFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), time.Hour)
		defer a.Close()
		f := &Request{ctx: ctx, allowance: a, notifications: notificationQueue{notify: func(switchboard.Notification) { <-ctx.Done() }}}
		f.notifyNow(switchboard.Notification{})
		if !errors.Is(context.Cause(ctx), slot.ErrNotTaken) {
			t.Errorf("%v", context.Cause(ctx))
		}
		if e := CallError(ctx, Errorf(KindSilent, true, "x")); e.ServerFailed {
			t.Errorf("the server is blamed: %v", e)
		}
	})
}

func TestAServerThatNotifiesWithoutEndAndNeverAnswersIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, a := allowanceFor(t.Context(), time.Hour)
		defer a.Close()
		f := &Request{ctx: ctx, allowance: a, notifications: notificationQueue{notify: func(switchboard.Notification) { time.Sleep(7 * time.Millisecond) }}}
		for ctx.Err() == nil {
			f.notifyNow(switchboard.Notification{})
		}
		wantEndedBy(t, ctx, "quiet")
		if e := CallError(ctx, Errorf(KindSilent, true, "x")); !e.ServerFailed {
			t.Errorf("the server is not blamed: %v", e)
		}
	})
}
