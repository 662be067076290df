package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// idOf returns the id of a message.
func idOf(message string) string {
	id, _ := wire.Field([]byte(message), "id")
	return string(id)
}

func TestADrainRefusesNewRequestsAndFinishesTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		s, came, steps := w.stalls(), w.asks(), w.steps()
		in := w.able(nil)
		stalled := make(chan string)
		go func() {
			_, body := w.post(legacyCall("4", "stall", ""), in)
			stalled <- body
		}()
		<-s.in
		asking := w.stream(legacyCall("2", "ask", ""), in)
		question := asking.next()
		dropped := make(chan string)
		go func() {
			_, body := w.post(legacyCall("3", "stall", ""), in)
			dropped <- body
		}()
		<-s.in
		first := w.listen(t.Context(), http.MethodPost, legacyCall("1", "steps", ""), in)
		steps <- 1
		first.hears(1)

		drained := make(chan int)
		go func() { drained <- w.Drain(nil) }()
		synctest.Wait()

		list, modernHead := modern("9", "tools/list", "", "")
		for name, get := range map[string]func() (*http.Response, string){
			"a legacy call":    func() (*http.Response, string) { return w.post(legacyCall("9", "echo", ""), in) },
			"a modern list":    func() (*http.Response, string) { return w.post(list, modernHead) },
			"a session":        func() (*http.Response, string) { return w.post(initialize, nil) },
			"a stream":         func() (*http.Response, string) { return w.do(http.MethodGet, "/mcp", "", in) },
			"a run":            func() (*http.Response, string) { return w.do(http.MethodPost, "/v1/tasks/work/runs", "", nil) },
			"readiness":        func() (*http.Response, string) { return w.do(http.MethodGet, "/readyz", "", nil) },
			"the same, a HEAD": func() (*http.Response, string) { return w.do(http.MethodHead, "/readyz", "", nil) },
		} {
			res, body := get()
			probe := res.Request.URL.Path == "/readyz"
			if res.StatusCode != http.StatusServiceUnavailable || !probe && (res.Header.Get("Retry-After") == "" || !res.Close || !strings.Contains(body, "SB-ROUT-003") || !strings.Contains(body, `"retryable":"later"`)) {
				t.Errorf("%s: %s, Retry-After %q, closes %v: %s", name, res.Status, res.Header.Get("Retry-After"), res.Close, body)
			}
		}
		if res, body := w.do(http.MethodGet, "/healthz", "", nil); res.StatusCode != http.StatusOK {
			t.Errorf("/healthz: %s %s", res.Status, body)
		}

		if res, body := w.post(`{"jsonrpc":"2.0","id":"1","result":{"action":"decline"}}`, in); res.StatusCode != http.StatusBadRequest {
			t.Errorf("an answer to no question: %s %s", res.Status, body)
		}
		if res, body := w.post(`{"jsonrpc":"2.0","id":`+idOf(question)+`,"result":`+bobSays+`}`, in); res.StatusCode != http.StatusAccepted {
			t.Errorf("the answer to a question: %s %s", res.Status, body)
		}
		if err := <-came; err != nil {
			t.Errorf("asking returned %v", err)
		}
		if got := asking.next(); !strings.Contains(got, "Bob") {
			t.Errorf("the call that asked: %s", got)
		}
		w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`, in)
		if got := <-dropped; strings.Contains(got, `"id":3`) {
			t.Errorf("the call that was cancelled: %s", got)
		}
		second := w.listen(t.Context(), http.MethodGet, "", after(in, first.events.LastID()))
		close(steps)
		second.hearsTheResult()

		select {
		case <-drained:
			t.Error("Drain did not wait for the last call")
		default:
		}
		close(s.out)
		if got := <-stalled; !strings.Contains(got, "went on") {
			t.Errorf("a call before: %s", got)
		}
		if n := <-drained; n != 0 {
			t.Errorf("%d calls were cut", n)
		}
	})
}

func TestADrainWithoutRequestsEndsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		e := w.listen(t.Context(), http.MethodGet, "", w.session(nil))
		body, h := modern(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`, "")
		m := w.listen(t.Context(), http.MethodPost, body, h)
		m.next()
		legacy := make(chan string)
		go func() {
			rest, _ := io.ReadAll(e.res.Body)
			legacy <- string(rest)
		}()
		start := time.Now()
		if n := w.Drain(nil); n != 0 || time.Since(start) != 0 {
			t.Errorf("after %v, %d calls cut", time.Since(start), n)
		}
		if rest := <-legacy; !strings.HasSuffix(rest, "retry: 1000\n\n") {
			t.Errorf("the legacy stream ends with %q", rest)
		}
		if got := m.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete",`) {
			t.Errorf("the modern stream ends with %s", got)
		}
	})
}

func TestQueuedNotificationsAreSentBeforeAStreamEnds(t *testing.T) {
	for range 20 { // a single try may pass by chance
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			e := w.listen(t.Context(), http.MethodGet, "", w.session(nil))
			if ev, err := e.events.Next(); err != nil || len(ev.Data) > 0 {
				t.Fatalf("the stream begins with %+v, %v", ev, err)
			}
			w.change("one")
			w.Close()
			if got := e.next(); got != listChanged {
				t.Errorf("heard %s", got)
			}
			e.ends()
		})
	}
}

func TestADrainCutsCallsWhenItsTimeIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		s := w.stalls()
		in := w.session(nil)
		answers := make(chan string, 3)
		for i := range 3 {
			go func() {
				_, body := w.post(legacyCall(fmt.Sprint(i), "stall", ""), in)
				answers <- body
			}()
			<-s.in
		}
		start := time.Now()
		if n := w.Drain(closedAfter(3 * time.Second)); n != 3 || time.Since(start) != 3*time.Second {
			t.Errorf("after %v %d calls were cut", time.Since(start), n)
		}
		for range 3 {
			if got := <-answers; !strings.Contains(got, "SB-EXEC-004") || !strings.Contains(got, "Switchboard was stopped") {
				t.Errorf("a client got %s", got)
			}
		}
	})
}

// record answers a modern request without a connection.
func (w *world) record(body string, h head) string {
	req := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", both)
	for name, value := range h {
		req.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, req)
	return rec.Body.String()
}

func TestAShutGateAdmitsNoRequestAndForgetsNone(t *testing.T) {
	for range 200 {
		w := newGateway(t)
		s := w.stalls()
		served := make(chan string)
		go func() {
			body, h := modern("1", "tools/call", `"name":"stall",`, "stall")
			served <- w.record(body, h)
		}()
		drained := make(chan int)
		go func() { drained <- w.Drain(nil) }()
		let := false
		select {
		case <-s.in:
			let = true
			select {
			case <-drained:
				t.Fatal("a request is in flight, and the gate does not wait for it")
			default:
			}
			close(s.out)
		case body := <-served:
			if !strings.Contains(body, "SB-ROUT-003") {
				t.Fatalf("answered with %s", body)
			}
		}
		<-drained
		if let {
			<-served
		}
	}
}

func TestStoppingStdioRefusesNewRequestsAndReadsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		s, came := w.stalls(), w.asks()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := w.stdio(ctx, "")
		c.send(strings.Replace(initialize, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1))
		c.next()
		c.send(legacyCall("1", "stall", ""))
		<-s.in
		c.send(legacyCall("2", "ask", ""))
		question := c.next()
		stop()
		synctest.Wait()

		c.send(legacyCall("3", "echo", ""))
		if got := c.next(); !strings.Contains(got, `"id":3,"error"`) || !strings.Contains(got, "SB-ROUT-003") || !strings.Contains(got, `"retryable":"later"`) {
			t.Errorf("a call after: %s", got)
		}
		c.send(`{"jsonrpc":"2.0","id":` + idOf(question) + `,"result":` + bobSays + `}`)
		if err := <-came; err != nil {
			t.Errorf("asking returned %v", err)
		}
		if got := c.next(); !strings.Contains(got, "Bob") {
			t.Errorf("the call that asked: %s", got)
		}
		close(s.out)
		if got := c.next(); !strings.Contains(got, "went on") {
			t.Errorf("a call before: %s", got)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if w.calls() != 2 {
			t.Errorf("%d calls were made", w.calls())
		}
	})
}

func TestAStdioClientThatReadsNothingDoesNotPreventTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		ctx, stop := context.WithCancel(t.Context())
		c := w.stdio(ctx, "")
		go func() { // each line gets an error as its answer, until the pipe is full
			for {
				if _, err := io.WriteString(c.in, "no message\n"); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		stop()
		start := time.Now()
		if err := <-c.done; err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		_ = c.outR.Close()
		_ = c.in.Close()
	})
}
