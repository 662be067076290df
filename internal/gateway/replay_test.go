package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// steps makes a tool that sends progress once for each step, and ends when there are no more.
func (w *world) steps() chan<- int {
	steps := make(chan int)
	w.play("steps", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		for i := range steps {
			c.Notify(switchboard.Notification{Method: "notifications/progress", Params: fmt.Appendf(nil, `{"progressToken":1,"progress":%d}`, i)})
		}
		return switchboard.Result{JSON: []byte(`{"content":["done"]}`)}, nil
	})
	w.runs.Rebind(w.t.Context())
	return steps
}

// after returns the headers of a client that has read events up to id.
func after(in head, id string) head {
	h := head{"Last-Event-ID": id}
	maps.Copy(h, in)
	return h
}

func (e *ear) hears(numbers ...int) {
	e.t.Helper()
	for _, n := range numbers {
		if got := e.next(); !strings.HasSuffix(got, fmt.Sprintf(`"progress":%d}}`, n)) {
			e.t.Fatalf("instead of %d: %s", n, got)
		}
	}
}

func (e *ear) hearsTheResult() {
	e.t.Helper()
	if got := e.next(); got != `{"jsonrpc":"2.0","id":1,"result":{"content":["done"]}}` {
		e.t.Errorf("instead of the result: %s", got)
	}
	e.ends()
}

func TestALostStreamIsResumedUpToItsResult(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		in, steps := w.session(nil), w.steps()
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { steps <- 1; steps <- 2 }()
		first := w.listen(ctx, http.MethodPost, legacyCall("1", "steps", ""), in)
		first.hears(1, 2)
		last := first.events.LastID()
		hangUp()
		synctest.Wait()
		steps <- 3 // without a reader
		steps <- 4
		second := w.listen(t.Context(), http.MethodGet, "", after(in, last))
		second.hears(3, 4)
		synctest.Wait()
		go func() { steps <- 5; close(steps) }()
		second.hears(5)
		second.hearsTheResult()

		third := w.listen(t.Context(), http.MethodGet, "", after(in, last))
		third.hears(3, 4, 5) // the result may have been lost too
		third.hearsTheResult()

		time.Sleep(6 * time.Minute)
		if res, body := w.do(http.MethodGet, "/mcp", "", after(in, last)); res.StatusCode != http.StatusBadRequest || errorCode(t, body) != -32600 {
			t.Errorf("long after the end of the stream: %s %s", res.Status, body)
		}
	})
}

func TestNoEventIsSentOnTwoStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		in, steps := w.session(nil), w.steps()
		go func() { steps <- 1 }()
		first := w.listen(t.Context(), http.MethodPost, legacyCall("1", "steps", ""), in)
		first.hears(1)
		second := w.listen(t.Context(), http.MethodGet, "", after(in, first.events.LastID()))
		synctest.Wait()
		go func() { steps <- 2 }()
		second.hears(2)
		third := w.listen(t.Context(), http.MethodGet, "", after(in, second.events.LastID()))
		second.ends()
		go func() { steps <- 3; close(steps) }()
		third.hears(3)
		third.hearsTheResult()
		first.ends()
	})
}

func TestAPrimerFollowsASecondOfSilence(t *testing.T) {
	for version, primes := range map[string]bool{"2025-11-25": true, "2025-06-18": false} {
		t.Run(version, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, _ *pipes) {
				steps := w.steps()
				res, _ := w.post(strings.Replace(initialize, "2025-11-25", version, 1), nil)
				in := head{"Mcp-Session-Id": res.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": version}
				start := time.Now()
				ctx, hangUp := context.WithCancel(t.Context())
				e := w.listen(ctx, http.MethodPost, legacyCall("1", "steps", ""), in)
				if primed := time.Since(start) < 2*time.Second; primed != primes {
					t.Fatalf("the stream begins after %v", time.Since(start))
				}
				if !primes {
					hangUp()
					close(steps)
					return
				}
				if ev, err := e.events.Next(); err != nil || len(ev.Data) > 0 || ev.ID == "" {
					t.Fatalf("the stream begins with %+v, %v", ev, err)
				}
				hangUp()
				close(steps)
				w.listen(t.Context(), http.MethodGet, "", after(in, e.events.LastID())).hearsTheResult()
			})
		})
	}
}

func TestAnEventIDMeansNothingInAnotherSession(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		bob := w.session(head{"Authorization": "Bearer bob"})
		steps := w.steps()
		go func() { steps <- 1; close(steps) }()
		e := w.listen(t.Context(), http.MethodPost, legacyCall("1", "steps", ""), bob)
		e.hears(1)
		e.hearsTheResult()
		id := e.events.LastID()
		for name, h := range map[string]head{
			"of the same principal": w.session(head{"Authorization": "Bearer bob"}),
			"of another":            w.session(head{"Authorization": "Bearer eve"}),
		} {
			if res, body := w.do(http.MethodGet, "/mcp", "", after(h, id)); res.StatusCode != http.StatusBadRequest || strings.Contains(body, "done") {
				t.Errorf("a session %s: %s %s", name, res.Status, body)
			}
		}
		stolen := after(bob, id)
		stolen["Authorization"] = "Bearer eve"
		if res, body := w.do(http.MethodGet, "/mcp", "", stolen); res.StatusCode != http.StatusNotFound {
			t.Errorf("another principal in bob's session: %s %s", res.Status, body)
		}
		for _, id := range []string{"1-99", "7-1", "99999999-0"} {
			if res, body := w.do(http.MethodGet, "/mcp", "", after(bob, id)); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s %s", id, res.Status, body)
			}
		}
	})
}

func TestChangesSentOnALostStreamAreSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		in := w.session(nil)
		first := w.listen(t.Context(), http.MethodGet, "", in)
		if ev, err := first.events.Next(); err != nil || len(ev.Data) > 0 || ev.ID == "" {
			t.Fatalf("the stream begins with %+v, %v", ev, err)
		}
		before := first.events.LastID()
		w.change("one")
		if got := first.next(); got != listChanged {
			t.Fatalf("heard %s", got)
		}
		second := w.listen(t.Context(), http.MethodGet, "", after(in, before)) // the event was lost on its way
		if got := second.next(); got != listChanged {
			t.Errorf("heard %s", got)
		}
		third := w.listen(t.Context(), http.MethodGet, "", after(in, second.events.LastID()))
		w.change("two")
		if got := third.next(); got != listChanged {
			t.Errorf("heard %s", got)
		}
		w.Close()
		third.ends() // one more time is enough
	})
}

func TestKeptEventsAreLimitedAndTheResultIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		in, steps := w.session(nil), w.steps()
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { steps <- -1 }()
		first := w.listen(ctx, http.MethodPost, legacyCall("1", "steps", ""), in)
		first.hears(-1)
		hangUp()
		synctest.Wait()
		const said, kept = 10_000, 4096
		for i := range said {
			steps <- i
		}
		close(steps)
		synctest.Wait()
		second := w.listen(t.Context(), http.MethodGet, "", after(in, first.events.LastID()))
		for i := said - kept + 1; i < said; i++ {
			second.hears(i)
		}
		second.hearsTheResult()
	})
}
