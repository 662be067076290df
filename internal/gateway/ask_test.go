package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

const (
	whoParams = `{"message":"who?","requestedSchema":{"type":"object"}}`
	bobSays   = `{"action":"accept","content":{"name":"Bob","n":1.0}}`
	cancelsIt = `{"action":"cancel"}`
)

// asks lets the tool "ask" ask its client for elicitation, and then give the
// answer as its result. What asking came to is sent to the channel.
func (w *world) asks() chan error {
	came := make(chan error, 1000)
	w.play("ask", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Client.Ask == nil {
			return switchboard.Result{JSON: []byte(`{"content":[],"answer":"cannot be asked"}`)}, nil
		}
		answer, err := c.Client.Ask(ctx, "elicitation/create", []byte(whoParams))
		came <- err
		if err != nil {
			return switchboard.Result{}, switchboard.Refuse(switchboard.CodeServerFailed, "nobody answered")
		}
		return switchboard.Result{JSON: []byte(`{"content":[],"answer":` + string(answer) + `}`)}, nil
	})
	return came
}

// able returns the headers of a legacy session whose client can be asked.
func (w *world) able(h head) head {
	w.t.Helper()
	res, body := w.post(strings.Replace(initialize, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1), h)
	if res.StatusCode != http.StatusOK {
		w.t.Fatalf("initialize: %s %s", res.Status, body)
	}
	in := head{"Mcp-Session-Id": res.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"}
	maps.Copy(in, h)
	return in
}

// A stream is an event stream of which the messages are read one by one.
type stream struct {
	body     io.Closer
	messages chan string
}

// stream makes a request whose answer is a stream. It is read at once: what waits
// for a pipe waits for its reader.
func (w *world) stream(body string, h head) *stream {
	w.t.Helper()
	res := w.open(w.t.Context(), http.MethodPost, "/mcp", body, h)
	s := &stream{res.Body, make(chan string, 100)}
	go func() {
		defer close(s.messages)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "" {
				s.messages <- data
			}
		}
	}()
	return s
}

// next returns the next message, "" at the end.
func (s *stream) next() string { return <-s.messages }

// A try is a modern request of the tool "ask".
type try struct {
	state, answers, arguments, meta string
	h                               head
}

func (w *world) try(r try) string {
	w.t.Helper()
	params := `"name":"ask","arguments":{` + r.arguments + `},`
	if r.state != "" {
		params += `"requestState":"` + r.state + `",`
	}
	if r.answers != "" {
		params += `"inputResponses":` + r.answers + `,`
	}
	body, h := modern("1", "tools/call", params, "ask")
	maps.Copy(h, r.h)
	body = strings.Replace(body, `"io.modelcontextprotocol/clientCapabilities":{}`, r.meta+`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`, 1)
	_, got := w.post(body, h)
	return got
}

// asked takes a result that asks the client, and returns how it is answered.
func asked(t *testing.T, body string) (state, key string) {
	t.Helper()
	var m struct {
		Result struct {
			ResultType    string
			RequestState  string
			InputRequests map[string]struct {
				Method string
				Params json.RawMessage
			}
		}
	}
	_ = json.Unmarshal([]byte(body), &m)
	if m.Result.ResultType != "input_required" || len(m.Result.InputRequests) != 1 || m.Result.RequestState == "" {
		t.Fatalf("asks for nothing: %s", body)
	}
	for k, q := range m.Result.InputRequests {
		if q.Method != "elicitation/create" || string(q.Params) != whoParams {
			t.Errorf("asks for something else: %s", body)
		}
		key = k
	}
	return m.Result.RequestState, key
}

// nothingLeft fails where the gateway still counts something of calls.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if n := w.Calls(); n != 0 {
		t.Errorf("%d calls are still counted", n)
	}
}

func TestAnAnswerIsWaitedForAsLongAsAPersonTakes(t *testing.T) {
	for _, wait := range []time.Duration{31 * time.Second, 5 * time.Minute, 59 * time.Minute} {
		t.Run("legacy "+wait.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, _ *pipes) {
				came, in := w.asks(), w.able(nil)
				s := w.stream(legacyCall(`"c"`, "ask", ""), in)
				defer s.body.Close() //nolint:errcheck // it has served
				if got := s.next(); got != `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":`+whoParams+`}` {
					t.Fatalf("the question: %s", got)
				}
				time.Sleep(wait)
				response := `{"jsonrpc":"2.0","id":1,"result":` + bobSays + `}`
				if res, body := w.post(response, in); res.StatusCode != http.StatusAccepted || body != "" {
					t.Errorf("the answer is taken with %s %s", res.Status, body)
				}
				if got := s.next(); got != `{"jsonrpc":"2.0","id":"c","result":{"content":[],"answer":`+bobSays+`}}` {
					t.Errorf("the result: %s", got)
				}
				if err := <-came; err != nil {
					t.Error(err)
				}
				if res, body := w.post(response, in); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "no open question") {
					t.Errorf("a second answer: %s %s", res.Status, body)
				}
				w.nothingLeft(t)
			})
		})
		t.Run("modern "+wait.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, _ *pipes) {
				came := w.asks()
				state, key := asked(t, w.try(try{}))
				w.nothingLeft(t) // while a person thinks, nothing is counted
				time.Sleep(wait)
				again := try{state: state, answers: `{"` + key + `":` + bobSays + `}`}
				if got := w.try(again); !strings.Contains(got, `"answer":`+bobSays) || !strings.Contains(got, `"resultType":"complete"`) {
					t.Errorf("the result: %s", got)
				}
				if err := <-came; err != nil {
					t.Error(err)
				}
				if got := w.try(again); !strings.Contains(got, `"code":-32602`) || !strings.Contains(got, "it was used already") {
					t.Errorf("a second answer: %s", got)
				}
				if w.calls() != 1 {
					t.Errorf("%d calls were made", w.calls())
				}
				w.nothingLeft(t)
			})
		})
	}
}

func TestAQuestionThatNobodyAnswersEndsAfterAnHour(t *testing.T) {
	t.Run("legacy", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			came, in := w.asks(), w.able(nil)
			start := time.Now()
			s := w.stream(legacyCall("1", "ask", ""), in)
			defer s.body.Close() //nolint:errcheck // it has served
			s.next()
			if got := s.next(); !strings.Contains(got, `"notifications/cancelled","params":{"requestId":1,`) {
				t.Errorf("the client is not told that nobody waits: %s", got)
			}
			if got := s.next(); !strings.Contains(got, "nobody answered") {
				t.Errorf("the call ends with %s", got)
			}
			if err := <-came; err == nil || time.Since(start) != gateway.ParkedFor {
				t.Errorf("the server hears %v after %s", err, time.Since(start))
			}
			w.nothingLeft(t)
		})
	})
	t.Run("modern", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			came := w.asks()
			start := time.Now()
			state, key := asked(t, w.try(try{}))
			if err := <-came; err == nil || time.Since(start) != gateway.ParkedFor {
				t.Errorf("the server hears %v after %s", err, time.Since(start))
			}
			if got := w.try(try{state: state, answers: `{"` + key + `":` + bobSays + `}`}); !strings.Contains(got, "has expired") {
				t.Errorf("an answer after that: %s", got)
			}
			w.nothingLeft(t)
		})
	})
	t.Run("modern, which asks again without an answer now and then", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			came := w.asks()
			start := time.Now()
			state, _ := asked(t, w.try(try{}))
			for range 3 {
				time.Sleep(15 * time.Minute)
				state, _ = asked(t, w.try(try{state: state}))
			}
			if err := <-came; err == nil || time.Since(start) != gateway.ParkedFor {
				t.Errorf("the server hears %v after %s", err, time.Since(start))
			}
		})
	})
}

func TestOnlyTheClientThatWasAskedAnswers(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	bob, eve := head{"Authorization": "Bearer bob"}, head{"Authorization": "Bearer eve"}
	t.Run("legacy", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			w.asks()
			in, other := w.able(bob), w.able(bob)
			s := w.stream(legacyCall("1", "ask", ""), in)
			defer s.body.Close() //nolint:errcheck // it has served
			s.next()
			response := `{"jsonrpc":"2.0","id":1,"result":` + cancelsIt + `}`
			stolen := maps.Clone(in)
			maps.Copy(stolen, eve)
			if res, _ := w.post(response, stolen); res.StatusCode != http.StatusNotFound {
				t.Errorf("somebody else: %s", res.Status)
			}
			if res, _ := w.post(response, other); res.StatusCode != http.StatusBadRequest {
				t.Errorf("another session: %s", res.Status)
			}
			for _, id := range []string{"2", "0", `"1"`} {
				if res, _ := w.post(strings.Replace(response, `"id":1`, `"id":`+id, 1), in); res.StatusCode != http.StatusBadRequest {
					t.Errorf("id %s: %s", id, res.Status)
				}
			}
			w.post(`{"jsonrpc":"2.0","id":1,"result":`+bobSays+`}`, in)
			if got := s.next(); !strings.Contains(got, "Bob") {
				t.Errorf("the right one: %s", got)
			}
		})
	})
	t.Run("modern", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			w.asks()
			state, key := asked(t, w.try(try{h: bob, arguments: `"a":1,"b":2`}))
			answers := `{"` + key + `":` + cancelsIt + `}`
			last := state[len(state)-2:]
			flipped := map[bool]string{true: "BB", false: "AA"}[last == "AA"]
			_, rest, _ := strings.Cut(strings.TrimPrefix(state, "switchboard-1."), ".")
			_, seal, _ := strings.Cut(rest, ".")
			other, _ := asked(t, w.try(try{h: bob, arguments: `"a":1,"b":2`}))
			for what, r := range map[string]try{
				"somebody else":          {state: state, answers: answers, h: eve, arguments: `"a":1,"b":2`},
				"other arguments":        {state: state, answers: answers, h: bob, arguments: `"a":1,"b":3`},
				"a seal that is changed": {state: state[:len(state)-2] + flipped, answers: answers, h: bob, arguments: `"a":1,"b":2`},
				"the seal of another":    {state: other[:len(other)-len(seal)] + seal, answers: answers, h: bob, arguments: `"a":1,"b":2`},
				"no seal":                {state: strings.TrimSuffix(state, seal), answers: answers, h: bob, arguments: `"a":1,"b":2`},
				"nothing but the prefix": {state: strings.TrimSuffix(state, rest), answers: answers, h: bob, arguments: `"a":1,"b":2`},
			} {
				if got := w.try(r); !strings.Contains(got, `"code":-32602`) {
					t.Errorf("%s: %s", what, got)
				}
			}
			if w.calls() != 2 {
				t.Errorf("%d calls were made", w.calls())
			}
			again := try{state: state, h: bob, arguments: `"b": 2, "a":1`, answers: `{"` + key + `":` + bobSays + `}`}
			if got := w.try(again); !strings.Contains(got, "Bob") {
				t.Errorf("the right one: %s", got)
			}
		})
	})
}

func TestAModernClientIsAskedAgainForWhatItLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("ask", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			answers := make(chan string)
			for _, method := range []string{"elicitation/create", "roots/list"} {
				go func() {
					answer, err := c.Client.Ask(ctx, method, nil)
					answers <- fmt.Sprintf("%s %s %v", method, answer, err)
				}()
				synctest.Wait() // two questions, which the client gets as one
			}
			text, _ := json.Marshal([]string{<-answers, <-answers})
			return switchboard.Result{JSON: []byte(`{"content":[],"answers":` + string(text) + `}`)}, nil
		})
		first := w.try(try{})
		state := memberOf(t, first, "requestState")
		var seen []string
		for _, answers := range []string{`{"nobody":` + bobSays + `}`, `{"1":"no object"}`, `{"1":` + bobSays + `}`, `{"1":` + cancelsIt + `,"2":{"roots":[]}}`} {
			got := w.try(try{state: state, answers: answers})
			seen = append(seen, got)
			if strings.Contains(got, "requestState") {
				next := memberOf(t, got, "requestState")
				if next == state {
					t.Error("a state is used twice")
				}
				state = next
			}
		}
		last := seen[len(seen)-1]
		if !strings.Contains(last, "Bob") || strings.Contains(last, "cancel") || !strings.Contains(last, `{\"roots\":[]}`) {
			t.Errorf("asked\n%s\nand after\n%s", first, strings.Join(seen, "\n"))
		}
		w.nothingLeft(t)
	})
}

// memberOf returns a string of the result.
func memberOf(t *testing.T, body, name string) string {
	t.Helper()
	var m struct{ Result map[string]any }
	_ = json.Unmarshal([]byte(body), &m)
	s, ok := m.Result[name].(string)
	if !ok {
		t.Fatalf("no %s in %s", name, body)
	}
	return s
}

func TestParkedCallsAreCappedForEachPrincipal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		bob := head{"Authorization": "Bearer bob"}
		came := w.asks()
		var state, key string
		for range gateway.MaxParked {
			state, key = asked(t, w.try(try{h: bob}))
		}
		if got := w.try(try{h: bob}); !strings.Contains(got, "nobody answered") {
			t.Errorf("one too many: %s", got)
		}
		if err := <-came; err == nil {
			t.Error("the server is not told")
		}
		if got := w.try(try{h: bob, state: state}); !strings.Contains(got, "input_required") {
			t.Errorf("one that had a place has lost it: %s", got)
		} else {
			state, key = asked(t, got)
		}
		asked(t, w.try(try{h: head{"Authorization": "Bearer eve"}})) // who is not bob
		w.try(try{h: bob, state: state, answers: `{"` + key + `":` + bobSays + `}`})
		asked(t, w.try(try{h: bob})) // in its place
		if got := w.try(try{h: bob}); !strings.Contains(got, "nobody answered") {
			t.Errorf("one too many again: %s", got)
		}
		time.Sleep(gateway.ParkedFor + time.Second)
		for range gateway.MaxParked {
			asked(t, w.try(try{h: bob}))
		}
	})
}

func TestAClientThatCancelsWhileItIsAskedEndsTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		came, in := w.asks(), w.able(nil)
		s := w.stream(legacyCall("7", "ask", ""), in)
		defer s.body.Close() //nolint:errcheck // it has served
		s.next()
		w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, in)
		if err := <-came; err == nil {
			t.Error("the server is not told")
		}
		if got := s.next(); !strings.Contains(got, `"requestId":1,`) {
			t.Errorf("the question is not taken back: %s", got)
		}
		if got := s.next(); got != "" {
			t.Errorf("a call that was cancelled is answered: %s", got)
		}
		if res, _ := w.post(`{"jsonrpc":"2.0","id":1,"result":{}}`, in); res.StatusCode != http.StatusBadRequest {
			t.Errorf("an answer after that: %s", res.Status)
		}
		w.nothingLeft(t)
	})
}

func TestTheEndOfASessionEndsItsQuestions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		came, in := w.asks(), w.able(nil)
		s := w.stream(legacyCall("7", "ask", ""), in)
		defer s.body.Close() //nolint:errcheck // it has served
		s.next()
		w.do(http.MethodDelete, "/mcp", "", in)
		if err := <-came; err == nil {
			t.Error("the server is not told")
		}
		w.nothingLeft(t)
	})
}

func TestNothingIsParkedOnceTheGatewayStops(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		came := w.asks()
		asked(t, w.try(try{}))
		goOn := make(chan struct{})
		w.play("late", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			<-goOn
			_, err := c.Client.Ask(ctx, "elicitation/create", []byte(whoParams))
			came <- err
			return switchboard.Result{JSON: []byte(`{"content":[],"late":true}`)}, nil
		})
		w.runs.Rebind(t.Context())
		answer := make(chan string)
		go func() {
			body, h := modern("1", "tools/call", `"name":"late",`, "late")
			_, got := w.post(strings.Replace(body, `/clientCapabilities":{}`, `/clientCapabilities":{"elicitation":{}}`, 1), h)
			answer <- got
		}()
		synctest.Wait()
		w.Close()
		if err := <-came; err == nil {
			t.Error("the server of a parked call is not told")
		}
		close(goOn)
		if err := <-came; err == nil {
			t.Error("a question after that waits for somebody who cannot come")
		}
		if got := <-answer; !strings.Contains(got, `"late":true`) {
			t.Errorf("the call that was left to finish: %s", got)
		}
		w.nothingLeft(t)
	})
}

func TestWhatIsSaidBeforeAndAfterAQuestionIsHeard(t *testing.T) {
	progress := func(n int) switchboard.Notification {
		return switchboard.Notification{Method: "notifications/progress", Params: fmt.Appendf(nil, `{"progressToken":1,"progress":%d}`, n)}
	}
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("ask", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			c.Notify(progress(1))
			_, err := c.Client.Ask(ctx, "elicitation/create", []byte(whoParams))
			c.Notify(progress(2))
			return switchboard.Result{JSON: []byte(`{"content":[]}`)}, err
		})
		in := w.able(nil)
		s := w.stream(legacyCall("1", "ask", `,"_meta":{"progressToken":1}`), in)
		defer s.body.Close() //nolint:errcheck // it has served
		got := s.next() + s.next()
		w.post(`{"jsonrpc":"2.0","id":1,"result":`+bobSays+`}`, in)
		got += s.next() + s.next()
		for _, want := range []string{`"progress":1`, `elicitation/create`, `"progress":2`, `"content"`} {
			_, rest, ok := strings.Cut(got, want)
			if !ok {
				t.Fatalf("legacy: no %s in its place: %s", want, got)
			}
			got = rest
		}

		first := w.try(try{meta: `"progressToken":1,`})
		begin := strings.Index(first, `{"jsonrpc":"2.0","id":1`)
		if !strings.Contains(first, `"progressToken":1,"progress":1}`) || begin < 0 {
			t.Fatalf("before the question: %s", first)
		}
		state, key := asked(t, strings.TrimSpace(first[begin:]))
		again := try{state: state, answers: `{"` + key + `":` + bobSays + `}`, meta: `"progressToken":"b",`}
		if got := w.try(again); !strings.Contains(got, `"progressToken":"b","progress":2}`) {
			t.Errorf("after the answer: %s", got)
		}
		state, key = asked(t, afterProgress(w.try(try{meta: `"progressToken":1,`})))
		again = try{state: state, answers: `{"` + key + `":` + bobSays + `}`}
		if got := w.try(again); strings.Contains(got, `notifications/progress`) {
			t.Errorf("a request that wants no progress: %s", got)
		}
	})
}

func afterProgress(body string) string {
	return strings.TrimSpace(body[strings.Index(body, `{"jsonrpc":"2.0","id":1`):])
}

func TestACallThatPanicsWhileItCouldBeAskedEndsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("ask", func(context.Context, *switchboard.Call) (switchboard.Result, error) { panic("oh") })
		if got := w.try(try{}); !strings.Contains(got, `"code":-32603`) {
			t.Errorf("it is answered with %s", got)
		}
		w.nothingLeft(t)
	})
}

func TestWhatHappensToACallWhileItIsParkedIsToldToItsClient(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("ask", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			own, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err := c.Client.Ask(own, "elicitation/create", []byte(whoParams))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it was asked until %v", err)
			}
			return switchboard.Result{}, switchboard.Refuse(switchboard.CodeOutcomeUnknown, "the server has died")
		})
		state, _ := asked(t, w.try(try{}))
		time.Sleep(10 * time.Minute)
		// Even where it has left something out: nobody waits for that now.
		if got := w.try(try{state: state}); !strings.Contains(got, "SB-EXEC-004") || !strings.Contains(got, "the server has died") {
			t.Errorf("it is told %s", got)
		}
		w.nothingLeft(t)
	})
}

func TestWhoHasDeclaredNothingIsNotAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.asks()
		for what, h := range map[string]head{
			"legacy": w.session(nil),
			"legacy, which reads no events": func() head {
				in := w.able(nil)
				in["Accept"] = "application/json"
				return in
			}(),
		} {
			if _, got := w.post(legacyCall("1", "ask", ""), h); !strings.Contains(got, "cannot be asked") {
				t.Errorf("%s: %s", what, got)
			}
		}
		body, h := modern("1", "tools/call", `"name":"ask",`, "ask")
		if _, got := w.post(body, h); !strings.Contains(got, "cannot be asked") {
			t.Errorf("modern: %s", got)
		}
		// A state that is none of ours is a server's, which knows what it is.
		body, h = modern("1", "tools/call", `"name":"ask","requestState":"switchboard-1.ELSEWHERE.a.b",`, "ask")
		if _, got := w.post(body, h); !strings.Contains(got, "cannot be asked") {
			t.Errorf("somebody else's state: %s", got)
		}
	})
}
