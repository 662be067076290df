package health_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A tool whose repeat is harmless, and one of which nobody says so.
var (
	harmless = switchboard.Contract{ReadOnly: switchboard.Fact{Holds: true, Trusted: true, Source: switchboard.FromOverlay}}
	stateful = switchboard.Contract{Stateful: switchboard.Fact{Holds: true}}
)

func TestACallMovesOnlyIfThatIsSafe(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	var (
		vetoed  = &switchboard.Error{Code: switchboard.CodeDenied, Text: "no"}
		waiting = &switchboard.Error{Code: switchboard.CodeApprovalPending, Text: "ask"}
		shed    = &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "full", Unsent: true}
		spent   = &switchboard.Error{Code: switchboard.CodeBudgetExceeded, Text: "nothing is left", Unsent: true}
		limited = &switchboard.Error{Code: switchboard.CodeRateLimit, Text: "slow down"}
		rubbish = &switchboard.Error{Code: switchboard.CodeResultInvalid, Text: "odd", ServerFailed: true}
	)
	for _, tt := range []struct {
		name     string
		contract switchboard.Contract
		first    error // how the call ends at a, which it is meant for
		second   error // at b
		want     string
	}{
		{"it works", harmless, nil, nil, "a ok"},
		{"nothing was sent", stateful, refused, nil, "a, b ok"},
		{"the server had no room", stateful, shed, nil, "a, b ok"},
		{"it may have run, and that is harmless", harmless, hung, nil, "a, b ok"},
		{"it may have run, and nobody says that it is harmless", switchboard.Contract{}, hung, nil, "a SB-EXEC-004"},
		{"it may have run, and changes something", stateful, hung, nil, "a SB-EXEC-004"},
		{"its own word alone counts for nothing", switchboard.Contract{ReadOnly: switchboard.Fact{Holds: true, Source: switchboard.FromHint}}, hung, nil, "a SB-EXEC-004"},
		{"less free wins", switchboard.Contract{ReadOnly: harmless.ReadOnly, Stateful: stateful.Stateful}, hung, nil, "a SB-EXEC-004"},
		{"its result is rubbish, and a repeat is harmless", harmless, rubbish, nil, "a, b ok"},
		{"its result is rubbish", stateful, rubbish, nil, "a SB-EXEC-003"},
		{"the server answered with an error", harmless, answer, nil, "a answered"},
		{"policy has said no", harmless, vetoed, nil, "a SB-POL-001"},
		{"somebody has to say yes first", harmless, waiting, nil, "a SB-APPR-001"},
		{"its limit is used up", harmless, limited, nil, "a SB-ROUT-002"},
		{"its price is more than is left", stateful, spent, nil, "a, b ok"},
		{"and that of the other too", stateful, spent, spent, "a, b, c ok"},
		{"policy says no to the other", harmless, hung, vetoed, "a, b, c ok"},
		{"the other answers with an error", harmless, hung, answer, "a, b answered"},
		{"the other cannot be reached either", harmless, refused, refused, "a, b, c ok"},
		{"the other is silent too", harmless, hung, hung, "a, b, c ok"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c")
			ends := map[switchboard.ServerID]error{"a": tt.first, "b": tt.second}
			var went []string
			caller := w.Fallback(w.Admit(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
				went = append(went, string(c.Server))
				if c.Server != c.Tool.ID.Server || c.Target != c.Tool.ID.Name {
					t.Errorf("%s: a call of %s goes to %s/%s", tt.name, c.Tool.ID, c.Server, c.Target)
				}
				return switchboard.Result{JSON: []byte(`{}`)}, ends[c.Server]
			})))
			r, err := caller.Call(t.Context(), callOf(tt.contract, "a", "b", "c"))
			got := strings.Join(went, ", ")
			switch _, answered := errors.AsType[*switchboard.ServerError](err); {
			case answered:
				got += " answered"
			case err != nil:
				got += " " + string(code(err))
			default:
				got += " ok"
			}
			if got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
			last := went[len(went)-1]
			if moved := r.Moved != nil; moved != (err == nil && last != "a") || moved && (string(r.Moved.To.Server) != last || len(r.Moved.Tried) != len(went)-1) {
				t.Errorf("%s: the result says that it was moved: %+v", tt.name, r.Moved)
			}
		})
	}
}

// callOf is a call of a tool of the first server, whose equivalents the others
// have; all say the same of a repeat.
func callOf(contract switchboard.Contract, servers ...switchboard.ServerID) *switchboard.Call {
	var c *switchboard.Call
	for _, id := range servers {
		tool := &switchboard.Tool{ID: switchboard.ToolID{Server: id, Name: "search-" + string(id)}, Contract: contract}
		if c == nil {
			c = &switchboard.Call{Server: id, Tool: tool, Target: tool.ID.Name, Params: []byte(`{"name":"search","arguments":{"q":"x"}}`)}
			continue
		}
		c.Equivalents = append(c.Equivalents, switchboard.Equivalent{Tool: tool, Params: func(p []byte) ([]byte, error) { return p, nil }})
	}
	return c
}

func TestTheTrailOfACallThatNoServerAnswersHasAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		c := callOf(harmless, "a", "b", "c")
		c.Trail = &switchboard.Trail{}
		_, err := w.Fallback(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			if c.Server == "a" {
				return switchboard.Result{}, hung
			}
			return switchboard.Result{}, refused
		})).Call(t.Context(), c)
		const want = "[{a/search-a SB-EXEC-004 true} {b/search-b SB-DISC-002 false} {c/search-c SB-DISC-002 false}]"
		if got := fmt.Sprint(c.Trail.Marks().Tried); err == nil || got != want {
			t.Errorf("%v; the trail has %s, want %s", err, got, want)
		}
	})
}

func TestAMovedCallHasTheArgumentsOfTheEquivalent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		w.set("a", refused)
		c := callOf(stateful, "a", "b", "c")
		c.Client = switchboard.Client{Session: "s", Ask: func(context.Context, string, []byte) ([]byte, error) { return nil, nil }, TakesQuestions: true}
		c.Equivalents[0].Params = func([]byte) ([]byte, error) { return nil, errors.New("it has no such argument") }
		c.Equivalents[1].Params = func(p []byte) ([]byte, error) { return []byte(strings.Replace(string(p), "q", "query", 1)), nil }
		judged := []*switchboard.Judgment{{}}
		c.Equivalents[1].Judgments = judged
		c.Trail = &switchboard.Trail{}
		var got *switchboard.Call
		r, err := w.Fallback(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			if c.Server == "a" {
				return switchboard.Result{}, refused
			}
			got = c
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		})).Call(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Params) != `{"name":"search","arguments":{"query":"x"}}` || got.Judgments[0] != judged[0] || got.Server != "c" {
			t.Errorf("the call is %+v", got)
		}
		if got.Client.Ask != nil || got.Client.TakesQuestions {
			t.Error("the other server can ask the client, who would answer to the first")
		}
		if fmt.Sprint(r.Moved.Tried) != "[{a/search-a SB-DISC-002 false} {b/search-b  false}]" || fmt.Sprint(c.Trail.Marks().Tried) != fmt.Sprint(r.Moved.Tried) || got.Attempt != 2 {
			t.Errorf("tried %v, in its trail %v; it is attempt %d", r.Moved.Tried, c.Trail.Marks().Tried, got.Attempt)
		}
	})
}

func TestACallThatNoEquivalentCanTakeIsACallWithoutEquivalents(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		w.ReportLink("a", true, health.Cause{})
		w.ReportLink("a", false, health.Cause{Stage: "serve", Message: "it has ended", Gone: true})
		if got := w.told(); got != "a lost" {
			t.Fatal(got)
		}
		c := callOf(stateful, "a", "b", "c")
		for i := range c.Equivalents {
			c.Equivalents[i].Params = func([]byte) ([]byte, error) { return nil, errors.New("it has no such argument") }
		}
		misfit := &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "they do not fit", Unsent: true}
		var went []string
		_, err := w.Fallback(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			went = append(went, fmt.Sprint(c.Server, c.Attempt, c.NoWait, len(c.Equivalents)))
			return switchboard.Result{}, misfit
		})).Call(t.Context(), c)
		if got := fmt.Sprint(went); got != "[a0 false 0]" || !errors.Is(err, error(misfit)) {
			t.Errorf("%v after %s", err, got)
		}
	})
}

func TestTheLogListsTheAttemptsOfAMovedCall(t *testing.T) {
	var log bytes.Buffer
	m := health.New(health.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(m.Close)
	m.SetServers([]switchboard.Server{{ID: "a"}, {ID: "b"}, {ID: "c"}})
	for _, id := range []switchboard.ServerID{"a", "c"} {
		m.ReportLink(id, true, health.Cause{})
	}
	c := callOf(harmless, "a", "b", "c")
	c.Principal.Tenant, c.Principal.ID, c.Task, c.Run = "acme", "ann", "look", "r1"
	if _, err := m.Fallback(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Server == "a" {
			return switchboard.Result{}, hung
		}
		return switchboard.Result{JSON: []byte(`{}`)}, nil
	})).Call(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	m.Close() // nobody writes any more
	want := `msg="call moved" tenant=acme principal=ann task=look run=r1 from=a/search-a to=c/search-c tried="a/search-a SB-EXEC-004 sent, b/search-b passed over"`
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log:\n%s\nwant:\n%s", &log, want)
	}
}

func TestACallThatContinuesAnotherRequestDoesNotMove(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	for _, params := range []string{`{"name":"x","requestState":"s"}`, `{"name":"x","inputResponses":{}}`} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			w.set("a", refused)
			c := callOf(harmless, "a", "b")
			c.Params = []byte(params)
			if _, err := w.Fallback(w.caller).Call(t.Context(), c); code(err) != switchboard.CodeServerUnreachable || len(w.calls) != 1 {
				t.Errorf("%s: %v after %v", params, err, w.calls)
			}
		})
	}
}

func TestACallIsNotRepeatedAfterItsClientWasAsked(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		c := callOf(harmless, "a", "b")
		c.Client.Ask = func(context.Context, string, []byte) ([]byte, error) { return nil, nil }
		calls := 0
		_, err := w.Fallback(switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			calls++
			_, _ = c.Client.Ask(ctx, "elicitation/create", nil)
			return switchboard.Result{}, hung
		})).Call(t.Context(), c)
		if calls != 1 || code(err) != switchboard.CodeOutcomeUnknown {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestACallOfAQuarantinedServerGoesToTheEquivalentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.set("a", hung)
		caller := w.Fallback(w.caller)
		for range 20 {
			if _, err := caller.Call(t.Context(), callOf(harmless, "a", "b")); err != nil {
				t.Fatal(err)
			}
		}
		at := map[string]int{}
		for _, c := range w.calls {
			at[c]++
		}
		if at["a/search-a"] != 1 || at["b/search-b"] != 20 {
			t.Errorf("calls: %v", at)
		}
		a, _ := w.Status("a")
		b, _ := w.Status("b")
		if a.Calls != 20 || a.MovedAway != 20 || b.MovedHere != 20 {
			t.Errorf("a: %+v; b: %+v", a, b)
		}
	})
}

// A call that changes something is nobody's trial while there is somebody else.
func TestATrialIsARepeatableCall(t *testing.T) {
	for _, tt := range []struct {
		contract switchboard.Contract
		want     string
	}{{harmless, "[a/search-a]"}, {stateful, "[b/search-b]"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			w.set("a", hung)
			for range 5 {
				_ = w.call(t, "a/other")
			}
			w.set("a", nil)
			w.ReportLink("a", false, health.Cause{})
			w.ReportLink("a", true, health.Cause{})
			if st, _ := w.Status("a"); st.State != health.Probation {
				t.Fatalf("it is not on probation: %+v", st)
			}
			w.calls = nil
			time.Sleep(time.Millisecond)
			if _, err := w.Fallback(w.caller).Call(t.Context(), callOf(tt.contract, "a", "b")); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(w.calls); got != tt.want {
				t.Errorf("it was %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAtMostAFifthOfAllCallsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		var first, again int
		caller := w.Fallback(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			if c.Server == "a" {
				first++
				return switchboard.Result{}, hung
			}
			again++
			return switchboard.Result{}, nil
		}))
		for range 1000 {
			_, _ = caller.Call(t.Context(), callOf(harmless, "a", "b"))
		}
		if first != 1000 || again > 210 || again < 190 {
			t.Errorf("of %d calls that failed %d were made again", first, again)
		}
	})
}

func TestProgressNeverGoesBackWhenACallMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		c := callOf(harmless, "a", "b")
		var got []string
		c.Notify = func(n switchboard.Notification) { got = append(got, string(n.Params)) }
		_, err := w.Fallback(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			for _, p := range []string{`{"progress":1}`, `{"progress":2}`, `{"progress":3}`} {
				if c.Server == "a" && p == `{"progress":3}` {
					return switchboard.Result{}, hung
				}
				c.Notify(switchboard.Notification{Method: "notifications/progress", Params: []byte(p)})
			}
			c.Notify(switchboard.Notification{Method: "notifications/message", Params: []byte(`{}`)})
			return switchboard.Result{}, nil
		})).Call(t.Context(), c)
		if want := `[{"progress":1} {"progress":2} {"progress":3} {}]`; err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	})
}

func TestACallOfAnEndedClientDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var mu sync.Mutex
		var went []string
		_, _ = w.Fallback(switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			mu.Lock()
			went = append(went, string(c.Server))
			mu.Unlock()
			<-ctx.Done()
			return switchboard.Result{}, refused
		})).Call(ctx, callOf(harmless, "a", "b"))
		if fmt.Sprint(went) != "[a]" {
			t.Errorf("it went to %v", went)
		}
	})
}

// A line for each call that is moved stays, but no client waits for it; where more
// are moved than can wait, one does. None is lost, also of those that are moved as
// all ends.
func TestEachMovedCallIsReportedOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var runs []switchboard.RunID
		m := health.New(health.Options{Moved: func(v health.Move) {
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, v.Run)
		}})
		m.SetServers([]switchboard.Server{{ID: "a"}, {ID: "b"}})
		m.ReportLink("b", true, health.Cause{})
		call := m.Fallback(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		}))
		made := 0
		move := func(n int) {
			for range n {
				c := callOf(harmless, "a", "b")
				c.Run = switchboard.RunID(fmt.Sprint(made))
				if r, err := call.Call(t.Context(), c); err != nil || r.Moved == nil {
					t.Fatal(err, r)
				}
				made++
			}
		}
		told := func(want int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if len(runs) != want {
				t.Errorf("%d calls were told of, want %d of %d", len(runs), want, made)
			}
			for i, run := range runs {
				if string(run) != fmt.Sprint(i) {
					t.Fatalf("the call told of as the %dth is %s", i, run)
				}
			}
		}
		move(3)
		told(0)
		time.Sleep(time.Second)
		synctest.Wait()
		told(3)
		move(1000)
		told(3)
		move(1)
		told(1004)
		move(2)
		m.Close()
		told(1006)
		move(1)
		told(1007)
	})
}
