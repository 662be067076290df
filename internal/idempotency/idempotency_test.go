package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A server counts the calls that it executes, and answers with answer if that is set.
type server struct {
	executed atomic.Int64
	took     time.Duration
	answer   func(c *switchboard.Call, n int64) (switchboard.Result, error)
}

func (s *server) Call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	n := s.executed.Add(1)
	if s.took > 0 {
		time.Sleep(s.took)
	}
	if s.answer != nil {
		return s.answer(c, n)
	}
	return switchboard.Result{JSON: fmt.Appendf(nil, `{"n":%d}`, n)}, nil
}

// A veto is a policy that denies one tool, while tool is set.
type veto struct {
	tool  atomic.Pointer[switchboard.ToolID]
	asked atomic.Int64
}

var denied = switchboard.Refuse(switchboard.CodeDenied, "denied")

func (v *veto) guard(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		v.asked.Add(1)
		if id := v.tool.Load(); id != nil && *id == c.Tool.ID {
			return switchboard.Result{}, denied
		}
		return next.Call(ctx, c)
	})
}

// keyed is the digest of a call's arguments.
var keyed = receipt.NewDigests(switchboard.NewSecret("a secret")).Arguments

// A house is one process: its own wrappers around servers that all processes share.
type house struct {
	*idempotency.Keys
	veto   veto
	caller switchboard.Caller
}

func newHouse(s idempotency.Store, server switchboard.Caller) *house {
	h := new(house)
	h.Keys = idempotency.New(s, h.veto.guard, keyed, uncounted, slog.New(slog.DiscardHandler))
	h.caller = h.Once(h.veto.guard(idempotency.Sent(server)))
	return h
}

var post = &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: "post"}}

func call(key, arguments string) *switchboard.Call {
	return &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "someone"}, Server: "s", Tool: post,
		Params:         []byte(`{"name":"post","arguments":` + arguments + `}`),
		IdempotencyKey: &switchboard.IdempotencyKey{Key: key, Tool: "post"},
	}
}

// does makes the call and returns its result or error as text.
func (h *house) does(c *switchboard.Call) string {
	r, err := h.caller.Call(context.Background(), c)
	text := string(r.JSON)
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		text = string(own.Code)
	} else if err != nil {
		text = err.Error()
	}
	if r.Repeated != nil {
		text += " again"
	}
	return text
}

func TestACallWithAKeyIsMadeOnce(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	s := new(server)
	shared := store.NewMemory()
	one, two := newHouse(shared, s), newHouse(shared, s)
	defer one.Close()
	defer two.Close()
	for _, tt := range []struct {
		what string
		in   *house
		call *switchboard.Call
		want string
	}{
		{"the first", one, call("k", `{"a":1,"b":"x"}`), `{"n":1}`},
		{"again", one, call("k", `{"a":1,"b":"x"}`), `{"n":1} again`},
		{"again, in another process, with other JSON spelling", two, call("k", ` {"b" : "\u0078", "a":1}`), `{"n":1} again`},
		{"with other arguments", two, call("k", `{"a":1.0,"b":"x"}`), "SB-CAP-006"},
		{"another key", one, call("K", `{"a":1,"b":"x"}`), `{"n":2}`},
		{"another principal", one, func() *switchboard.Call {
			c := call("k", `{"a":1,"b":"x"}`)
			c.Principal.ID = "other"
			return c
		}(), `{"n":3}`},
		{"another tenant", one, func() *switchboard.Call {
			c := call("k", `{"a":1,"b":"x"}`)
			c.Principal.Tenant = "other"
			return c
		}(), `{"n":4}`},
		{"the same tool under a new name", one, func() *switchboard.Call {
			c := call("k", `{"a":1,"b":"x"}`)
			c.IdempotencyKey.Tool = "s__post"
			return c
		}(), `{"n":1} again`},
		{"the same name of another tool: policy cannot judge the first one", one, func() *switchboard.Call {
			c := call("k", `{"a":1,"b":"x"}`)
			c.Tool = &switchboard.Tool{ID: switchboard.ToolID{Server: "z", Name: "post"}}
			return c
		}(), "SB-POL-001"},
		{"another tool", one, func() *switchboard.Call {
			c := call("k", `{"a":1,"b":"x"}`)
			c.IdempotencyKey.Tool, c.Tool = "get", &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: "get"}}
			return c
		}(), "SB-CAP-006"},
		{"without a key", one, func() *switchboard.Call {
			c := call("", `{"a":1,"b":"x"}`)
			c.IdempotencyKey = nil
			return c
		}(), `{"n":5}`},
		{"without arguments", one, func() *switchboard.Call {
			c := call("none", "")
			c.Params = []byte(`{"name":"post"}`)
			return c
		}(), `{"n":6}`},
		{"empty arguments equal no arguments", two, call("none", `{ }`), `{"n":6} again`},
	} {
		if got := tt.in.does(tt.call); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

func TestAnOutcomeIsStoredForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		h := newHouse(store.NewMemory(), s)
		defer h.Close()
		h.does(call("k", `{}`))
		time.Sleep(24*time.Hour - time.Second)
		if got := h.does(call("k", `{}`)); got != `{"n":1} again` {
			t.Errorf("before a day is over: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := h.does(call("k", `{}`)); got != `{"n":2}` {
			t.Errorf("after it: %s", got)
		}
	})
}

func TestACallThatWasNotExecutedFreesItsKey(t *testing.T) {
	unsent := &switchboard.Error{Code: switchboard.CodeServerUnreachable, Unsent: true}
	for name, answer := range map[string]func(*switchboard.Call, int64) (switchboard.Result, error){
		"it was not sent": func(*switchboard.Call, int64) (switchboard.Result, error) { return switchboard.Result{}, unsent },
		"the server asks for input": func(*switchboard.Call, int64) (switchboard.Result, error) {
			return switchboard.Result{JSON: []byte(`{"resultType":"input_required","inputRequests":{}}`)}, nil
		},
		"the server's rate limit": func(*switchboard.Call, int64) (switchboard.Result, error) {
			return switchboard.Result{}, switchboard.Refuse(switchboard.CodeRateLimit, "no")
		},
		"it was not sent to an equivalent": func(*switchboard.Call, int64) (switchboard.Result, error) {
			return switchboard.Result{}, fmt.Errorf("moved: %w", unsent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(server)
			s.answer = func(c *switchboard.Call, n int64) (switchboard.Result, error) {
				if n == 1 {
					return answer(c, n)
				}
				return switchboard.Result{JSON: []byte(`{}`)}, nil
			}
			h := newHouse(store.NewMemory(), s)
			defer h.Close()
			h.does(call("k", `{"a":1}`))
			if got := h.does(call("k", `{"a":2}`)); got != `{}` {
				t.Errorf("the next call with the key: %s", got)
			}
		})
	}
	s := new(server)
	h := newHouse(store.NewMemory(), s)
	defer h.Close()
	h.veto.tool.Store(&post.ID)
	if got := h.does(call("k", `{}`)); got != string(switchboard.CodeDenied) {
		t.Errorf("vetoed: %s", got)
	}
	h.veto.tool.Store(nil)
	if got := h.does(call("k", `{}`)); got != `{"n":1}` {
		t.Errorf("once it is allowed: %s", got)
	}
}

func TestEachOutcomeIsReplayedUnchanged(t *testing.T) {
	big := `{"text":"` + strings.Repeat("x", idempotency.MaxStoredResult) + `"}`
	for name, tt := range map[string]struct {
		result string
		err    error
		first  string
		again  string
	}{
		"a result":                     {`{"isError":false, "n": 1.0}`, nil, `{"isError":false, "n": 1.0}`, `{"isError":false, "n": 1.0} again`},
		"a tool's error":               {`{"isError":true}`, nil, `{"isError":true}`, `{"isError":true} again`},
		"a server's error":             {"", &switchboard.ServerError{Server: "s", Object: []byte(`{"code": -5}`)}, `server s answered: {"code": -5}`, `server s answered: {"code": -5}`},
		"an unknown outcome":           {"", switchboard.Refuse(switchboard.CodeOutcomeUnknown, "it died"), "SB-EXEC-004", "SB-EXEC-004"},
		"an invalid result":            {"", switchboard.Refuse(switchboard.CodeResultInvalid, "it is none"), "SB-EXEC-003", "SB-EXEC-003"},
		"an error without a code":      {"", errors.New("broken"), "broken", "SB-EXEC-004"},
		"a result that is too large":   {big, nil, big, "SB-EXEC-003"},
		"a result of the largest size": {big[:len(big)-13] + `"}`, nil, big[:len(big)-13] + `"}`, big[:len(big)-13] + `"} again`},
		"a call that was cancelled":    {"", context.Canceled, "context canceled", "SB-EXEC-004"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answer: func(*switchboard.Call, int64) (switchboard.Result, error) {
				return switchboard.Result{JSON: []byte(tt.result)}, tt.err
			}}
			h := newHouse(store.NewMemory(), s)
			defer h.Close()
			for i, want := range []string{tt.first, tt.again, tt.again} {
				if got := h.does(call("k", `{}`)); got != want {
					t.Errorf("%d: %.100s, want %.100s", i, got, want)
				}
			}
			if n := s.executed.Load(); n != 1 {
				t.Errorf("executed %d times", n)
			}
		})
	}
}

func TestAPanicLeavesTheOutcomeUnknown(t *testing.T) {
	s := &server{answer: func(*switchboard.Call, int64) (switchboard.Result, error) { panic("oh") }}
	h := newHouse(store.NewMemory(), s)
	defer h.Close()
	func() {
		defer func() { _ = recover() }()
		h.does(call("k", `{}`))
	}()
	if got := h.does(call("k", `{}`)); got != "SB-EXEC-004" || s.executed.Load() != 1 {
		t.Errorf("%s, executed %d times", got, s.executed.Load())
	}
}

func TestPolicyCanDenyAStoredOutcome(t *testing.T) {
	law.Hold(t, law.OneDecision)
	s := new(server)
	h := newHouse(store.NewMemory(), s)
	defer h.Close()
	h.does(call("k", `{}`))
	h.veto.tool.Store(&post.ID)
	for _, c := range []*switchboard.Call{call("k", `{}`), call("k", `{"a":1}`)} {
		if got := h.does(c); got != string(switchboard.CodeDenied) {
			t.Errorf("%s: %s", c.Params, got)
		}
	}
	h.veto.tool.Store(nil)
	if got := h.does(call("k", `{}`)); got != `{"n":1} again` {
		t.Errorf("allowed again: %s", got)
	}
}

func TestTheOutcomeOfAnotherToolNeedsPermissionForBothTools(t *testing.T) {
	law.Hold(t, law.OneDecision)
	other := &switchboard.Tool{ID: switchboard.ToolID{Server: "o", Name: "send"}}
	moved := &switchboard.Moved{To: other.ID, Tried: []switchboard.Attempt{{Tool: post.ID}}}
	s := &server{answer: func(*switchboard.Call, int64) (switchboard.Result, error) {
		return switchboard.Result{JSON: []byte(`{}`), Moved: moved}, nil
	}}
	h := newHouse(store.NewMemory(), s)
	defer h.Close()
	with := func(equivalents ...switchboard.Equivalent) *switchboard.Call {
		c := call("k", `{}`)
		c.Equivalents = equivalents
		return c
	}
	fits := switchboard.Equivalent{Tool: other, Params: func(p []byte) ([]byte, error) { return p, nil }}
	h.does(with(fits))
	r, err := h.caller.Call(t.Context(), with(fits))
	if err != nil || r.Repeated == nil || r.Moved == nil || r.Moved.To != other.ID {
		t.Errorf("again: %v %+v", err, r)
	}
	if got := h.does(with()); got != string(switchboard.CodeDenied) {
		t.Errorf("if it is no equivalent any more: %s", got)
	}
	no := fits
	no.Params = func([]byte) ([]byte, error) { return nil, errors.New("no") }
	if got := h.does(with(no)); got != string(switchboard.CodeDenied) {
		t.Errorf("if it cannot take the call's parameters any more: %s", got)
	}
	for _, id := range []*switchboard.ToolID{&other.ID, &post.ID} {
		h.veto.tool.Store(id)
		if got := h.does(with(fits)); got != string(switchboard.CodeDenied) {
			t.Errorf("if %s is vetoed: %s", id, got)
		}
	}
	if s.executed.Load() != 1 {
		t.Errorf("executed %d times", s.executed.Load())
	}
}

func TestAllCallsThatRaceForAKeyGetTheSameOutcome(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 40 * time.Second} // longer than a lease
		shared := store.NewMemory()
		var all sync.WaitGroup
		var again atomic.Int64
		began := time.Now()
		for i := range 50 {
			h := newHouse(shared, s)
			defer h.Close()
			all.Go(func() {
				switch got := h.does(call("k", `{}`)); got {
				case `{"n":1} again`:
					again.Add(1)
				case `{"n":1}`:
				default:
					t.Errorf("%d got %s", i, got)
				}
				if took := time.Since(began); took != s.took {
					t.Errorf("call %d returned after %s", i, took)
				}
			})
		}
		all.Wait()
		if s.executed.Load() != 1 || again.Load() != 49 {
			t.Errorf("executed %d times; replayed %d times", s.executed.Load(), again.Load())
		}
	})
}

func TestAWaitingCallCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Minute}
		h := newHouse(store.NewMemory(), s)
		defer h.Close()
		go h.does(call("k", `{}`))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := h.caller.Call(ctx, call("k", `{}`))
		if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Code != switchboard.CodeNotExecuted || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestARepetitionDoesNotWaitForACallThatWaitsForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(c *switchboard.Call, _ int64) (switchboard.Result, error) {
			answer, err := c.Client.Ask(t.Context(), "elicitation/create", nil)
			time.Sleep(time.Minute)
			return switchboard.Result{JSON: answer}, err
		}}
		h := newHouse(store.NewMemory(), s)
		defer h.Close()
		first := call("k", `{}`)
		answer := make(chan []byte)
		first.Client.Ask = func(context.Context, string, []byte) ([]byte, error) { return <-answer, nil }
		done := make(chan string)
		go func() { done <- h.does(first) }()
		time.Sleep(time.Hour)
		if got := h.does(call("k", `{}`)); got != string(switchboard.CodeKeyTaken) {
			t.Errorf("while the client is asked: %s", got)
		}
		answer <- []byte(`{}`)
		synctest.Wait()
		if got := h.does(call("k", `{}`)); got != `{} again` {
			t.Errorf("after the client has answered: %s", got)
		}
		if got := <-done; got != `{}` {
			t.Errorf("the first got %s", got)
		}
	})
}

// A cut store is the shared store as one process sees it. While off is set, that process cannot reach it.
type cut struct {
	*store.Memory
	off atomic.Bool
}

var errCut = fmt.Errorf("%w: cut off", store.ErrUnavailable)

func (s *cut) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.off.Load() {
		return store.Value{}, errCut
	}
	return s.Memory.Value(ctx, k)
}

func (s *cut) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.off.Load() {
		return 0, errCut
	}
	return s.Memory.Apply(ctx, c)
}

func (s *cut) Publish(ctx context.Context, topic string, data []byte) error {
	if s.off.Load() {
		return errCut
	}
	return s.Memory.Publish(ctx, topic, data)
}

func TestAKilledProcessLeavesAnUnknownOutcome(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Minute}
		shared := store.NewMemory()
		killed := &cut{Memory: shared}
		one, two := newHouse(killed, s), newHouse(shared, s)
		defer one.Close()
		defer two.Close()
		go one.does(call("k", `{}`))
		synctest.Wait()
		killed.off.Store(true)
		began := time.Now()
		if got := two.does(call("k", `{}`)); got != "SB-EXEC-004" || time.Since(began) > 20*time.Second {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
		if got := two.does(call("k", `{"a":1}`)); got != string(switchboard.CodeKeyTaken) {
			t.Errorf("with other arguments: %s", got)
		}
		time.Sleep(20 * time.Hour)
		if got := two.does(call("k", `{}`)); got != "SB-EXEC-004" || s.executed.Load() != 1 {
			t.Errorf("later: %s, executed %d times", got, s.executed.Load())
		}
	})
}

func TestAnOutcomeIsStoredWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 10 * time.Second}
		shared := store.NewMemory()
		away := &cut{Memory: shared}
		one, two := newHouse(away, s), newHouse(shared, s)
		defer one.Close()
		defer two.Close()
		go func() {
			time.Sleep(5 * time.Second)
			away.off.Store(true)
			time.Sleep(30 * time.Second)
			away.off.Store(false)
		}()
		began := time.Now()
		if got := one.does(call("k", `{}`)); got != `{"n":1}` || time.Since(began) > 13*time.Second {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
		if got := one.does(call("other", `{}`)); got != string(switchboard.CodeStoreUnavailable) {
			t.Errorf("a call with a key while the store is away: %s", got)
		}
		free := call("", `{}`)
		free.IdempotencyKey = nil
		if got := one.does(free); got != `{"n":2}` {
			t.Errorf("a call without a key while the store is away: %s", got)
		}
		time.Sleep(time.Minute)
		if got := two.does(call("k", `{}`)); got != `{"n":1} again` {
			t.Errorf("once it is back: %s", got)
		}
		if got := one.does(call("other", `{}`)); got != `{"n":3}` {
			t.Errorf("the key that could not be claimed: %s", got)
		}
	})
}

// A doubtful store makes a change and reports an error.
type doubtful struct {
	*store.Memory
	lies atomic.Int64 // how many more changes it reports as failed
}

func (s *doubtful) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	v, err := s.Memory.Apply(ctx, c)
	if err == nil && s.lies.Add(-1) >= 0 {
		return 0, errCut
	}
	return v, err
}

func TestAClaimThatMayHaveBeenWrittenIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		d := &doubtful{Memory: store.NewMemory()}
		h := newHouse(d, s)
		defer h.Close()
		d.lies.Store(1)
		if got := h.does(call("k", `{}`)); got != string(switchboard.CodeStoreUnavailable) {
			t.Errorf("the call with the doubtful claim: %s", got)
		}
		if got := h.does(call("k", `{}`)); got != `{"n":1}` {
			t.Errorf("the next call with the key: %s", got)
		}
		h.veto.asked.Store(0)
		s.answer = func(*switchboard.Call, int64) (switchboard.Result, error) {
			d.lies.Store(1) // of the outcome
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		}
		h.does(call("l", `{}`))
		if got := h.does(call("l", `{}`)); got != `{} again` {
			t.Errorf("after an outcome that may not be stored: %s", got)
		}
	})
}

// A twice store makes each change twice, as a proxy that repeats a request would, and returns the second
// answer.
type twice struct{ *store.Memory }

func (s *twice) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if _, err := s.Memory.Apply(ctx, c); err != nil {
		return 0, err
	}
	return s.Memory.Apply(ctx, c)
}

func TestAClaimThatWasWrittenTwiceIsValid(t *testing.T) {
	h := newHouse(&twice{store.NewMemory()}, new(server))
	defer h.Close()
	for _, want := range []string{`{"n":1}`, `{"n":1} again`} {
		if got := h.does(call("k", `{}`)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A forgetful store can lose the group that was changed last.
type forgetful struct {
	*store.Memory
	group atomic.Value // string
}

func (s *forgetful) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	s.group.Store(c.Group)
	return s.Memory.Apply(ctx, c)
}

func (s *forgetful) forget(t *testing.T) {
	if _, err := s.Memory.Apply(t.Context(), store.Change{Group: s.group.Load().(string), Writes: []store.Write{{Name: "claim", Was: store.Any}, {Name: "lease", Was: store.Any}}}); err != nil {
		t.Error(err)
	}
}

func TestTheOutcomeIsStoredAlsoIfTheStoreLostTheClaim(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	synctest.Test(t, func(t *testing.T) {
		f := &forgetful{Memory: store.NewMemory()}
		s := new(server)
		h := newHouse(f, s)
		defer h.Close()
		s.answer = func(_ *switchboard.Call, n int64) (switchboard.Result, error) {
			f.forget(t)
			return switchboard.Result{JSON: fmt.Appendf(nil, `{"n":%d}`, n)}, nil
		}
		h.does(call("k", `{}`))
		if got := h.does(call("k", `{}`)); got != `{"n":1} again` {
			t.Errorf("after the claim was lost: %s", got)
		}

		// If another call has claimed the key since, its claim is not touched.
		s.answer = func(_ *switchboard.Call, n int64) (switchboard.Result, error) {
			if n == 2 {
				f.forget(t)
				go h.does(call("l", `{}`))
				time.Sleep(time.Second)
				return switchboard.Result{}, &switchboard.Error{Code: switchboard.CodeServerUnreachable, Unsent: true}
			}
			time.Sleep(2 * time.Second)
			return switchboard.Result{JSON: fmt.Appendf(nil, `{"n":%d}`, n)}, nil
		}
		h.does(call("l", `{}`))
		if got := h.does(call("l", `{}`)); got != `{"n":3} again` {
			t.Errorf("while another call has the key: %s", got)
		}
	})
}

func uncounted(string) {}
