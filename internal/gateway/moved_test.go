package gateway_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// waits are the calls of the tool "wait", told apart by a mark in their arguments. Each reports
// when it has begun, and why it ended.
type waits struct{ began, ended chan string }

func (w *world) waits() *waits {
	all := &waits{make(chan string, 100), make(chan string, 100)}
	w.play("wait", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		all.began <- string(c.Params)
		<-ctx.Done()
		all.ended <- string(c.Params) + " " + context.Cause(ctx).Error()
		return switchboard.Result{}, ctx.Err()
	})
	return all
}

// begin starts a call of the tool "wait", through any replica. The channel is closed when the call is
// answered: then no replica has it in flight.
func (r *replica) begin(t *testing.T, all *waits, id, mark string, in head) (answered <-chan struct{}) {
	t.Helper()
	over := make(chan struct{})
	ctx, hangUp := context.WithCancel(context.Background()) // it may outlive the test
	t.Cleanup(hangUp)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/mcp", strings.NewReader(legacyCall(id, "wait", `,"arguments":{"mark":"`+mark+`"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range in {
		req.Header.Set(name, value)
	}
	go func() {
		defer close(over)
		if res, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}()
	if got := wait.Receive(t, "the call begins", all.began); !strings.Contains(got, `"`+mark+`"`) {
		t.Fatalf("call %s begins instead of %s", got, mark)
	}
	return over
}

func cancel(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

func bobsAnswer(question string) string {
	return `{"jsonrpc":"2.0","id":` + idOf(question) + `,"result":` + bobSays + `}`
}

// moveTo lets another replica take the session over while its owner lives, because the owner was
// taken for dead for a moment.
func moveTo(t *testing.T, st store.Store, owner, other *replica, in head) {
	t.Helper()
	before := other.TakenOver()
	wait.Until(t, "the session has moved", func() bool {
		if _, err := st.Apply(t.Context(), store.Change{Group: "replicas", Writes: []store.Write{{Name: owner.cluster.Self(), Was: store.Any}}}); err != nil {
			t.Fatal(err)
		}
		if res, body := other.post(legacyCall(`"moves"`, "echo", ""), in); res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", res.Status, body)
		}
		return other.TakenOver() > before
	})
	wait.Until(t, "the earlier owner is known again", func() bool {
		all, err := other.cluster.Others(t.Context())
		for _, one := range all {
			if one.ID == owner.cluster.Self() {
				return true
			}
		}
		return err != nil
	})
}

// stopping lets another replica take the session over while its owner stops.
func stopping(t *testing.T, _ store.Store, owner, other *replica, in head) {
	t.Helper()
	go owner.Drain(t.Context().Done())
	wait.Until(t, "the session has moved", func() bool {
		if res, body := other.post(legacyCall(`"moves"`, "echo", ""), in); res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", res.Status, body)
		}
		return other.TakenOver() > 0
	})
}

func TestRequestsOfAMovedSessionAreReachedThroughAnyReplica(t *testing.T) {
	for how, move := range map[string]func(t *testing.T, st store.Store, owner, other *replica, in head){"its owner stops": stopping, "its owner was taken for dead": moveTo} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			st := store.NewMemory()
			all := replicasOf(t, st, st, st)
			owner := all[0]
			bob := head{"Authorization": "Bearer bob"}
			in, other := owner.able(bob), all[1].able(bob)
			stolen := maps.Clone(in)
			stolen["Authorization"] = "Bearer eve"
			came, waiting, steps := owner.asks(), owner.waits(), owner.steps()
			var asked []*stream
			var questions []string
			for i, r := range all {
				r.begin(t, waiting, fmt.Sprint("10", i), fmt.Sprint("mark", i), in)
				s := r.stream(legacyCall(fmt.Sprint("20", i), "ask", ""), in)
				defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
				asked, questions = append(asked, s), append(questions, s.next())
			}
			ctx, hangUp := context.WithCancel(t.Context())
			go func() { steps <- 1 }()
			heard := all[2].listen(ctx, http.MethodPost, legacyCall("1", "steps", ""), in)
			heard.hears(1)
			move(t, st, owner, all[1], in)

			last := heard.events.LastID()
			hangUp()
			for i, r := range all {
				for what, h := range map[string]head{"another session": other, "another principal": stolen} {
					if res, body := r.post(bobsAnswer(questions[i]), h); res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusNotFound {
						t.Errorf("%s answers: %s %s", what, res.Status, body)
					}
					r.post(cancel(fmt.Sprint("10", i)), h) //nolint:bodyclose // post has read it
					if res, body := r.do(http.MethodGet, "/mcp", "", after(h, last)); res.StatusCode == http.StatusOK {
						t.Errorf("%s gets the call: %s %s", what, res.Status, body)
					}
				}
				for what, id := range map[string]string{"was never asked": "77", "belongs to an owner that does not exist yet": "5000001", "is none of ours": `"1"`, "is odd": "-1000001"} {
					if res, body := r.post(`{"jsonrpc":"2.0","id":`+id+`,"result":`+bobSays+`}`, in); res.StatusCode != http.StatusBadRequest {
						t.Errorf("an answer to what %s: %s %s", what, res.Status, body)
					}
				}
				if res, body := r.post(cancel(`"no such"`), in); res.StatusCode != http.StatusAccepted {
					t.Errorf("a cancellation of a request that is not in flight: %s %s", res.Status, body)
				}
			}
			if len(came)+len(waiting.ended) > 0 {
				t.Fatal("a call got an answer that its client did not send")
			}
			for i, r := range all {
				if res, body := r.post(bobsAnswer(questions[i]), in); res.StatusCode != http.StatusAccepted {
					t.Errorf("the answer through replica %d: %s %s", i, res.Status, body)
				}
				if got := wait.Receive(t, "the result", asked[i].messages); !strings.Contains(got, "Bob") {
					t.Errorf("the result: %s", got)
				}
				if res, _ := r.post(bobsAnswer(questions[i]), in); res.StatusCode != http.StatusBadRequest {
					t.Errorf("a second answer: %s", res.Status)
				}
				if res, body := r.post(cancel(fmt.Sprint("10", i)), in); res.StatusCode != http.StatusAccepted {
					t.Errorf("cancelled through replica %d: %s %s", i, res.Status, body)
				}
				if got := wait.Receive(t, "the call that is cancelled ends", waiting.ended); !strings.Contains(got, fmt.Sprintf(`"mark%d"`, i)) || !strings.Contains(got, "cancelled by the client") {
					t.Errorf("ended: %s", got)
				}
			}

			steps <- 2 // without a reader
			again := all[2].listen(wait.Context(t), http.MethodGet, "", after(in, last))
			again.hears(2)
			go func() { steps <- 3; close(steps) }()
			again.hears(3)
			again.hearsTheResult()
			for _, r := range all { // the connection may have been lost again
				again := r.listen(wait.Context(t), http.MethodGet, "", after(in, last))
				again.hears(2, 3)
				again.hearsTheResult()
			}
		})
	}
}

func TestASessionThatMovesBackAndForthLosesNoCall(t *testing.T) {
	st := store.NewMemory()
	all := replicasOf(t, st, st, st)
	came := all[0].asks()
	all[1].play("ask", all[0].act["ask"])
	waiting := all[0].waits()
	all[1].play("wait", all[0].act["wait"])
	in := all[0].able(nil)
	var asked []*stream
	var questions []string
	for i := range 4 {
		at := all[i%2]
		s := at.stream(legacyCall(fmt.Sprint("20", i), "ask", ""), in)
		defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
		asked, questions = append(asked, s), append(questions, s.next())
		at.begin(t, waiting, fmt.Sprint("10", i), fmt.Sprint("mark", i), in)
		if i == 3 {
			break
		}
		moveTo(t, st, at, all[(i+1)%2], in)
		all[(i+1)%2].Sweep(t.Context()) // saves the session again
	}
	for i, r := range []*replica{all[2], all[1], all[0], all[2]} {
		if want := fmt.Sprint(i*1_000_000 + 1); idOf(questions[i]) != want {
			t.Errorf("question %d is asked as %s", i, questions[i])
		}
		if res, body := r.post(bobsAnswer(questions[i]), in); res.StatusCode != http.StatusAccepted {
			t.Errorf("answer %d: %s %s", i, res.Status, body)
		}
		if got := wait.Receive(t, "the result", asked[i].messages); !strings.Contains(got, "Bob") {
			t.Errorf("the result: %s", got)
		}
		if err := <-came; err != nil {
			t.Error(err)
		}
		r.post(cancel(fmt.Sprint("10", i)), in) //nolint:bodyclose // post has read it
		if got := wait.Receive(t, "the call that is cancelled ends", waiting.ended); !strings.Contains(got, fmt.Sprintf(`"mark%d"`, i)) {
			t.Errorf("ended: %s", got)
		}
	}
}

func TestALateMoveNoticeDoesNotMoveASessionThatHasComeBack(t *testing.T) {
	st := store.NewMemory()
	all := replicasOf(t, st, st)
	notices := make(chan []byte, 1)
	stop := st.Subscribe("sessions", func(data []byte) { notices <- data })
	in := all[0].session(nil)
	moveTo(t, st, all[0], all[1], in)
	late := wait.Receive(t, "the notice of the move", notices)
	stop()
	moveTo(t, st, all[1], all[0], in)
	e := all[0].listen(wait.Context(t), http.MethodGet, "", in)
	for i := range 20 {
		if err := st.Publish(t.Context(), "sessions", late); err != nil {
			t.Fatal(err)
		}
		all[0].change(fmt.Sprint("tool", i))
		for got := e.next(); got != listChanged; got = e.next() {
			t.Logf("heard %s", got)
		}
	}
}

// A client may use an id again while a request with it is in flight at the earlier owner. The id
// then means the later request.
func TestTheLatestOfTwoRequestsWithOneIDIsCancelledFirst(t *testing.T) {
	st := store.NewMemory()
	all := replicasOf(t, st, st, st)
	waiting := all[0].waits()
	all[1].play("wait", all[0].act["wait"])
	in := all[0].session(nil)
	first := all[0].begin(t, waiting, "5", "first", in)
	moveTo(t, st, all[0], all[1], in)
	second := all[2].begin(t, waiting, "5", "second", in)
	for _, call := range []struct {
		mark     string
		answered <-chan struct{}
	}{{"second", second}, {"first", first}} {
		all[2].post(cancel("5"), in) //nolint:bodyclose // post has read it
		if got := wait.Receive(t, "one of them ends", waiting.ended); !strings.Contains(got, `"`+call.mark+`"`) {
			t.Errorf("instead of %s: %s", call.mark, got)
		}
		wait.Receive(t, "its answer", call.answered)
	}
}

func TestAFormerOwnerForwardsMessagesBeforeItLearnsOfTheMove(t *testing.T) {
	st := store.NewMemory()
	first, second := newShaky(st), newShaky(st)
	second.silent = true
	all := replicasOf(t, first, second)
	came, waiting := all[1].asks(), all[1].waits()
	in := all[0].able(nil)
	moveTo(t, st, all[0], all[1], in)
	s := all[1].stream(legacyCall("1", "ask", ""), in)
	defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
	question := s.next()
	all[1].begin(t, waiting, "2", "mark", in)
	if open, _ := all[0].CountOpen(); open != 1 {
		t.Fatalf("%d sessions are open at the earlier owner", open)
	}
	if res, body := all[0].post(bobsAnswer(question), in); res.StatusCode != http.StatusAccepted {
		t.Errorf("the answer: %s %s", res.Status, body)
	}
	if err := wait.Receive(t, "the answer", came); err != nil {
		t.Error(err)
	}
	all[0].post(cancel("2"), in) //nolint:bodyclose // post has read it
	wait.Receive(t, "the call that is cancelled ends", waiting.ended)
}

func TestTheEndOfASessionCancelsItsRequestsAtEarlierOwners(t *testing.T) {
	st := store.NewMemory()
	all := replicasOf(t, st, st, st)
	waiting := all[0].waits()
	in := all[0].session(nil)
	all[0].begin(t, waiting, "1", "mark", in)
	moveTo(t, st, all[0], all[1], in)
	if res, _ := all[2].do(http.MethodDelete, "/mcp", "", in); res.StatusCode != http.StatusNoContent {
		t.Fatal(res.Status)
	}
	wait.Receive(t, "the call ends", waiting.ended)
}

// Law 7.
func TestMessagesAboutACallOfADeadReplicaAreAnswered(t *testing.T) {
	st := store.NewMemory()
	all := replicasOf(t, st, st, st)
	all[0].asks()
	in := all[0].able(nil)
	s := all[0].stream(legacyCall("1", "ask", ""), in)
	question := s.next()
	moveTo(t, st, all[0], all[1], in)
	all[0].kill()
	defer all[0].CutCalls()
	defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
	for i, r := range all[1:] {
		wait.Until(t, "an answer to no question is refused", func() bool { // messages that are on their way when it is killed are lost
			res, body := r.post(bobsAnswer(question), in)
			return res.StatusCode == http.StatusBadRequest && strings.Contains(body, "no open question")
		})
		if res, body := r.post(cancel("1"), in); res.StatusCode != http.StatusAccepted {
			t.Errorf("replica %d, cancelled: %s %s", i, res.Status, body)
		}
		if res, body := r.do(http.MethodGet, "/mcp", "", after(in, "1-1")); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "can be resumed") {
			t.Errorf("replica %d, resumed: %s %s", i, res.Status, body)
		}
	}
	if n := all[1].TakenOver() + all[2].TakenOver(); n != 1 {
		t.Errorf("the session has moved %d times", n)
	}
}
