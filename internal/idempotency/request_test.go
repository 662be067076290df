package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A desk carries requests out: each takes some time and gets a number.
type desk struct {
	done   atomic.Int64
	took   time.Duration
	answer func(n int64) (string, bool)
}

// asks sends a request, and returns the answer or the code of the refusal as text.
func (d *desk) asks(h *house, sender, key, content string) string {
	answer, repeated, err := h.Answer(context.Background(), idempotency.Request{Sender: sender, Key: key, Digest: content}, func() ([]byte, bool) {
		n := d.done.Add(1)
		if d.took > 0 {
			time.Sleep(d.took)
		}
		if d.answer != nil {
			text, keep := d.answer(n)
			return []byte(text), keep
		}
		return fmt.Appendf(nil, "%d", n), true
	})
	text := string(answer)
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		text = string(own.Code)
	} else if err != nil {
		text = err.Error()
	}
	if errors.Is(err, idempotency.ErrInFlight) {
		text += " in flight"
	}
	if repeated {
		text += " again"
	}
	return text
}

func TestARequestWithAKeyIsCarriedOutOnce(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory()
		one, two := newHouse(shared, new(server)), newHouse(shared, new(server))
		defer one.Close()
		defer two.Close()
		d := new(desk)
		for _, step := range []struct {
			at                         *house
			sender, key, content, want string
		}{
			{one, "ann", "k", "x", "1"},
			{one, "ann", "k", "x", "1 again"},
			{two, "ann", "k", "x", "1 again"}, // at another replica
			{two, "ann", "k", "y", "SB-CAP-006"},
			{two, "bob", "k", "x", "2"}, // another sender's key is another key
			{two, "ann", "l", "x", "3"},
			{one, "an", "nk", "x", "4"},
		} {
			if got := d.asks(step.at, step.sender, step.key, step.content); got != step.want {
				t.Errorf("%s sends %s with the key %s: %s, want %s", step.sender, step.content, step.key, got, step.want)
			}
		}
		time.Sleep(idempotency.Retention - time.Minute)
		if got := d.asks(one, "ann", "k", "x"); got != "1 again" {
			t.Errorf("within a day: %s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := d.asks(one, "ann", "k", "x"); got != "5" {
			t.Errorf("after a day: %s", got)
		}
	})
}

func TestARepeatOfARequestInFlightDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory()
		one, two := newHouse(shared, new(server)), newHouse(shared, new(server))
		defer one.Close()
		defer two.Close()
		d := &desk{took: time.Minute}
		first := make(chan string, 1)
		go func() { first <- d.asks(one, "ann", "k", "x") }()
		synctest.Wait()
		for range 5 { // for longer than the lease lasts
			began := time.Now()
			if got := d.asks(two, "ann", "k", "x"); got != "SB-CAP-006 in flight" || time.Since(began) > 0 {
				t.Errorf("after %s: %s", time.Since(began), got)
			}
			if got := d.asks(two, "ann", "k", "y"); got != "SB-CAP-006" {
				t.Errorf("another request: %s", got)
			}
			time.Sleep(10 * time.Second)
		}
		if got := <-first; got != "1" {
			t.Errorf("the first: %s", got)
		}
		if got := d.asks(two, "ann", "k", "x"); got != "1 again" {
			t.Errorf("then: %s", got)
		}
	})
}

func TestAKilledProcessLeavesTheAnswerUnknown(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory()
		killed := &cut{Memory: shared}
		one, two := newHouse(killed, new(server)), newHouse(shared, new(server))
		defer one.Close()
		defer two.Close()
		d := &desk{took: time.Minute}
		end := make(chan string, 1)
		go func() { end <- d.asks(one, "ann", "k", "x") }()
		synctest.Wait()
		killed.off.Store(true)
		if got := d.asks(two, "ann", "k", "x"); got != "SB-CAP-006 in flight" {
			t.Errorf("at once: %s", got)
		}
		time.Sleep(16 * time.Second)
		for range 2 {
			if got := d.asks(two, "ann", "k", "x"); got != "SB-EXEC-004" || d.done.Load() != 1 {
				t.Errorf("when the lease is over: %s, carried out %d times", got, d.done.Load())
			}
		}
		<-end
	})
}

func TestARequestThatDidNothingFreesItsKeyAndALongAnswerIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(store.NewMemory(), new(server))
		defer h.Close()
		busy := &desk{answer: func(n int64) (string, bool) { return fmt.Sprint("busy ", n), n == 2 }}
		for _, want := range []string{"busy 1", "busy 2", "busy 2 again"} {
			if got := busy.asks(h, "ann", "k", "x"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		for size, want := range map[int]string{idempotency.MaxStoredAnswer: " again", idempotency.MaxStoredAnswer + 1: "SB-EXEC-003"} {
			long := &desk{answer: func(int64) (string, bool) { return strings.Repeat("x", size), true }}
			if got := long.asks(h, "ann", fmt.Sprint(size), "x"); len(got) != size {
				t.Errorf("the first answer has %d bytes, want %d", len(got), size)
			}
			if got := strings.TrimLeft(long.asks(h, "ann", fmt.Sprint(size), "x"), "x"); got != want || long.done.Load() != 1 {
				t.Errorf("a repeat of an answer of %d bytes: %s, want %s", size, got, want)
			}
		}
		panics := &desk{answer: func(int64) (string, bool) { panic("a defect") }}
		func() {
			defer func() { _ = recover() }() // the server answers with a broken connection then
			panics.asks(h, "ann", "p", "x")
		}()
		if got := panics.asks(h, "ann", "p", "x"); got != "SB-EXEC-004" || panics.done.Load() != 1 {
			t.Errorf("after a panic: %s", got)
		}
	})
}

func TestASenderHasABoundedNumberOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(store.NewMemory(), new(server))
		defer h.Close()
		d := new(desk)
		for i := range idempotency.RequestsPerDay {
			if got := d.asks(h, "ann", fmt.Sprint(i), "x"); got != fmt.Sprint(i+1) {
				t.Fatalf("request %d: %s", i, got)
			}
		}
		for range 2 {
			if got := d.asks(h, "ann", "new", "x"); got != "SB-ROUT-003" {
				t.Fatalf("one more: %s", got)
			}
		}
		if got := d.asks(h, "ann", "7", "x"); got != "8 again" { // repeats do not count
			t.Errorf("a repeat: %s", got)
		}
		if got := d.asks(h, "bob", "new", "x"); got != fmt.Sprint(idempotency.RequestsPerDay+1) {
			t.Errorf("another sender: %s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := d.asks(h, "ann", "new", "x"); got != fmt.Sprint(idempotency.RequestsPerDay+2) {
			t.Errorf("later, with the key that was refused: %s", got)
		}
	})
}

func TestNothingIsDoneWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &cut{Memory: store.NewMemory()}
		h := newHouse(away, new(server))
		defer h.Close()
		d := new(desk)
		away.off.Store(true)
		if got := d.asks(h, "ann", "k", "x"); got != "SB-ROUT-004" || d.done.Load() != 0 {
			t.Errorf("%s, carried out %d times", got, d.done.Load())
		}
		away.off.Store(false)
		time.Sleep(time.Minute)
		if got := d.asks(h, "ann", "k", "x"); got != "1" {
			t.Errorf("when it is back: %s", got)
		}
	})
}
