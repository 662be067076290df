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

	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

const (
	whoParams = `{"message":"who?","requestedSchema":{"type":"object"}}`
	bobSays   = `{"action":"accept","content":{"name":"Bob","n":1.0}}`
	cancelsIt = `{"action":"cancel"}`
)

// asks makes the tool "ask" ask its client for elicitation and return the answer as its result. It
// sends the error of asking to the channel.
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

// able returns the headers of a legacy session with a client that can be asked.
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

// A stream is an event stream. The test reads its messages one by one.
type stream struct {
	body     io.Closer
	messages chan string
}

// stream makes a request that is answered with a stream, and reads the stream at once, because a
// pipe blocks its writer.
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

// asked takes a result that asks the client, and returns its state and the key of the question.
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
		t.Fatalf("no question in the result: %s", body)
	}
	for k, q := range m.Result.InputRequests {
		if q.Method != "elicitation/create" || string(q.Params) != whoParams {
			t.Errorf("another question: %s", body)
		}
		key = k
	}
	return m.Result.RequestState, key
}

// nothingLeft fails if the gateway still counts calls.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if n := w.CallsInFlight(); n != 0 {
		t.Errorf("%d calls are still counted", n)
	}
}

func TestAQuestionWaitsAsLongAsAPersonNeeds(t *testing.T) {
	for _, wait := range []time.Duration{31 * time.Second, 5 * time.Minute, 59 * time.Minute} {
		t.Run("legacy "+wait.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, _ *pipes) {
				came, in := w.asks(), w.able(nil)
				s := w.stream(legacyCall(`"c"`, "ask", ""), in)
				defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
				if got := s.next(); got != `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":`+whoParams+`}` {
					t.Fatalf("the question: %s", got)
				}
				time.Sleep(wait)
				response := `{"jsonrpc":"2.0","id":1,"result":` + bobSays + `}`
				if res, body := w.post(response, in); res.StatusCode != http.StatusAccepted || body != "" {
					t.Errorf("the answer gets %s %s", res.Status, body)
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
				w.nothingLeft(t) // while the person thinks, no call is counted
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

func TestAnUnansweredQuestionEndsAfterAnHour(t *testing.T) {
	t.Run("legacy", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			came, in := w.asks(), w.able(nil)
			start := time.Now()
			s := w.stream(legacyCall("1", "ask", ""), in)
			defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
			s.next()
			if got := s.next(); !strings.Contains(got, `"notifications/cancelled","params":{"requestId":1,`) {
				t.Errorf("the question is not cancelled: %s", got)
			}
			if got := s.next(); !strings.Contains(got, "nobody answered") {
				t.Errorf("the call ends with %s", got)
			}
			if err := <-came; err == nil || time.Since(start) != session.ParkedFor {
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
			if err := <-came; err == nil || time.Since(start) != session.ParkedFor {
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
			if err := <-came; err == nil || time.Since(start) != session.ParkedFor {
				t.Errorf("the server hears %v after %s", err, time.Since(start))
			}
		})
	})
}

func TestOnlyTheClientThatWasAskedCanAnswer(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	bob, eve := head{"Authorization": "Bearer bob"}, head{"Authorization": "Bearer eve"}
	t.Run("legacy", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, _ *pipes) {
			w.asks()
			in, other := w.able(bob), w.able(bob)
			s := w.stream(legacyCall("1", "ask", ""), in)
			defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
			s.next()
			response := `{"jsonrpc":"2.0","id":1,"result":` + cancelsIt + `}`
			stolen := maps.Clone(in)
			maps.Copy(stolen, eve)
			if res, _ := w.post(response, stolen); res.StatusCode != http.StatusNotFound {
				t.Errorf("another principal: %s", res.Status)
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
				"another principal":      {state: state, answers: answers, h: eve, arguments: `"a":1,"b":2`},
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

func TestAModernClientIsAskedAgainForMissingAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("ask", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			answers := make(chan string)
			for _, method := range []string{"elicitation/create", "roots/list"} {
				go func() {
					answer, err := c.Client.Ask(ctx, method, nil)
					answers <- fmt.Sprintf("%s %s %v", method, answer, err)
				}()
				synctest.Wait() // two questions, which the client gets in one result
			}
			text, _ := json.Marshal([]string{<-answers, <-answers})
			return switchboard.Result{JSON: []byte(`{"content":[],"answers":` + string(text) + `}`)}, nil
		})
		first := w.try(try{})
		state := stringMember(t, first, "requestState")
		var seen []string
		for _, answers := range []string{`{"nobody":` + bobSays + `}`, `{"1":"no object"}`, `{"1":` + bobSays + `}`, `{"1":` + cancelsIt + `,"2":{"roots":[]}}`} {
			got := w.try(try{state: state, answers: answers})
			seen = append(seen, got)
			if strings.Contains(got, "requestState") {
				next := stringMember(t, got, "requestState")
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

// stringMember returns a string member of the result.
func stringMember(t *testing.T, body, name string) string {
	t.Helper()
	var m struct{ Result map[string]any }
	_ = json.Unmarshal([]byte(body), &m)
	s, ok := m.Result[name].(string)
	if !ok {
		t.Fatalf("no %s in %s", name, body)
	}
	return s
}

func TestEachPrincipalHasALimitOfParkedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		bob := head{"Authorization": "Bearer bob"}
		came := w.asks()
		var state, key string
		for range session.MaxParked {
			state, key = asked(t, w.try(try{h: bob}))
		}
		if got := w.try(try{h: bob}); !strings.Contains(got, "nobody answered") {
			t.Errorf("one too many: %s", got)
		}
		if err := <-came; err == nil {
			t.Error("the server is not told")
		}
		if got := w.try(try{h: bob, state: state}); !strings.Contains(got, "input_required") {
			t.Errorf("a parked call has lost its slot: %s", got)
		} else {
			state, key = asked(t, got)
		}
		asked(t, w.try(try{h: head{"Authorization": "Bearer eve"}})) // another principal
		w.try(try{h: bob, state: state, answers: `{"` + key + `":` + bobSays + `}`})
		asked(t, w.try(try{h: bob})) // in the free slot
		if got := w.try(try{h: bob}); !strings.Contains(got, "nobody answered") {
			t.Errorf("one too many again: %s", got)
		}
		time.Sleep(session.ParkedFor + time.Second)
		for range session.MaxParked {
			asked(t, w.try(try{h: bob}))
		}
	})
}

func TestACancellationDuringAQuestionEndsTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		came, in := w.asks(), w.able(nil)
		s := w.stream(legacyCall("7", "ask", ""), in)
		defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
		s.next()
		w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, in)
		if err := <-came; err == nil {
			t.Error("the server is not told")
		}
		if got := s.next(); !strings.Contains(got, `"requestId":1,`) {
			t.Errorf("the question is not cancelled: %s", got)
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
		defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
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
			t.Error("a later question still waits for the client")
		}
		if got := <-answer; !strings.Contains(got, `"late":true`) {
			t.Errorf("the call that may finish: %s", got)
		}
		w.nothingLeft(t)
	})
}

func TestNotificationsBeforeAndAfterAQuestionArrive(t *testing.T) {
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
		defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
		got := s.next() + s.next()
		w.post(`{"jsonrpc":"2.0","id":1,"result":`+bobSays+`}`, in)
		got += s.next() + s.next()
		for _, want := range []string{`"progress":1`, `elicitation/create`, `"progress":2`, `"content"`} {
			_, rest, ok := strings.Cut(got, want)
			if !ok {
				t.Fatalf("legacy: no %s at its position: %s", want, got)
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

func TestAParkableCallThatPanicsEndsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("ask", func(context.Context, *switchboard.Call) (switchboard.Result, error) { panic("oh") })
		if got := w.try(try{}); !strings.Contains(got, `"code":-32603`) {
			t.Errorf("the answer: %s", got)
		}
		w.nothingLeft(t)
	})
}

func TestTheClientLearnsHowItsParkedCallEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("ask", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			own, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err := c.Client.Ask(own, "elicitation/create", []byte(whoParams))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the question ended at %v", err)
			}
			return switchboard.Result{}, switchboard.Refuse(switchboard.CodeOutcomeUnknown, "the server has died")
		})
		state, _ := asked(t, w.try(try{}))
		time.Sleep(10 * time.Minute)
		// Even if an answer is missing: the call has ended, so no further question is needed.
		if got := w.try(try{state: state}); !strings.Contains(got, "SB-EXEC-004") || !strings.Contains(got, "the server has died") {
			t.Errorf("the client gets %s", got)
		}
		w.nothingLeft(t)
	})
}

func TestAClientWithoutCapabilitiesIsNotAsked(t *testing.T) {
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
		// A state of another server passes through.
		body, h = modern("1", "tools/call", `"name":"ask","requestState":"switchboard-1.ELSEWHERE.a.b",`, "ask")
		if _, got := w.post(body, h); !strings.Contains(got, "cannot be asked") {
			t.Errorf("another server's state: %s", got)
		}
	})
}
