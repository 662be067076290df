package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheTimeOfACallStandsStillWhileItsClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Int64
		busy.Store(1)
		ctx, a := newAllowance(t.Context(), time.Minute, &busy)
		defer a.end()
		time.Sleep(40 * time.Second)
		first := a.pause()
		time.Sleep(10 * time.Minute)
		second := a.pause() // two questions at once
		if busy.Load() != 0 {
			t.Errorf("%d calls count while the client is asked", busy.Load())
		}
		first()
		first() // counts once
		time.Sleep(59 * time.Minute)
		if ctx.Err() != nil {
			t.Fatalf("it has ended while the client was asked: %v", context.Cause(ctx))
		}
		second()
		if busy.Load() != 1 {
			t.Errorf("%d calls count after that", busy.Load())
		}
		time.Sleep(19 * time.Second)
		if ctx.Err() != nil {
			t.Errorf("it has lost time while the client was asked")
		}
		time.Sleep(2 * time.Second)
		if !errors.Is(context.Cause(ctx), errTimeout) {
			t.Errorf("it goes on for longer than it may: %v", context.Cause(ctx))
		}
	})
}

func TestOnlyWhatAClientHasDeclaredIsOffered(t *testing.T) {
	for _, tt := range []struct {
		capabilities, method, params string
		want                         bool
	}{
		{`{"elicitation":{}}`, "elicitation/create", `{}`, true},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"form"}`, true},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"url"}`, false},
		{`{"elicitation":{"form":{}}}`, "elicitation/create", `{"mode":"url"}`, false},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{"mode":"\u0075rl"}`, true},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{}`, false},
		{`{"elicitation":{"form":{},"url":{}}}`, "elicitation/create", `{}`, true},
		{`{"elicitation":true}`, "elicitation/create", `{}`, false},
		{`{"elicitation":{}}`, "sampling/createMessage", `{}`, false},
		{`{"elicitation":{}}`, "roots/list", ``, false},
		{`{"roots":{}}`, "roots/list", ``, true},
		{`{"sampling":{"tools":{}}}`, "sampling/createMessage", `{}`, true},
		{`{"roots":{}}`, "tools/list", ``, false},
		{``, "roots/list", ``, false},
	} {
		if got := offered([]byte(tt.capabilities), tt.method, []byte(tt.params)); got != tt.want {
			t.Errorf("%s of a client with %s: %v, want %v", tt.method+tt.params, tt.capabilities, got, tt.want)
		}
	}
}
