package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/summit-switchboard/switchboard/internal/cache"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A server counts its calls, and answers with answer if that is set.
type server struct {
	calls  atomic.Int64
	took   time.Duration
	answer func(c *switchboard.Call, n int64) (switchboard.Result, error)
}

func (s *server) Call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	n := s.calls.Add(1)
	if s.took > 0 {
		select {
		case <-time.After(s.took):
		case <-ctx.Done():
			return switchboard.Result{}, ctx.Err()
		}
	}
	if s.answer != nil {
		return s.answer(c, n)
	}
	return switchboard.Result{JSON: fmt.Appendf(nil, `{"n":%d}`, n)}, nil
}

// keyed is the digest of a call's arguments.
var keyed = receipt.NewDigests(switchboard.NewSecret("a secret")).Arguments

func constant(t cache.Terms) func(*switchboard.Call) cache.Terms {
	return func(*switchboard.Call) cache.Terms { return t }
}

var shared = cache.Terms{TTL: time.Minute, Bytes: 64 << 20, Shared: true}

var sure = switchboard.Fact{Holds: true, Source: switchboard.FromOverlay, Trusted: true}

func call(arguments string, with ...func(*switchboard.Call)) *switchboard.Call {
	t := &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: "get"}, Digest: "sha256:d"}
	t.Contract.Deterministic = sure
	c := &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "someone"}, Method: "tools/call", Server: "s", Tool: t,
		Params: []byte(`{"name":"get","arguments":` + arguments + `}`),
	}
	for _, f := range with {
		f(c)
	}
	return c
}

// says makes the call and returns its result or error as text.
func says(c switchboard.Caller, call *switchboard.Call) string {
	r, err := c.Call(context.Background(), call)
	if err != nil {
		return err.Error()
	}
	if r.Repeated != nil {
		return string(r.JSON) + " again"
	}
	return string(r.JSON)
}

// CA-01, CA-02: only an equal call of the same caller gets the stored result.
func TestAResultIsGivenAgainToTheSameCallAlone(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	first := call(`{"a":1,"b":"x"}`)
	for name, tt := range map[string]struct {
		call  *switchboard.Call
		terms cache.Terms
		same  bool
	}{
		"the same":                         {call(`{"a":1,"b":"x"}`), shared, true},
		"spelt another way":                {call(` {"b" : "\u0078", "a" : 1}`), shared, true},
		"of another principal, shared":     {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Principal.ID = "other" }), shared, true},
		"with metadata without effect":     {call(`{"a":1,"b":"x"}, "_meta":{"progressToken":1,"traceparent":"t","io.switchboard/idempotency-key":"k"}`), shared, true},
		"another number":                   {call(`{"a":1.0,"b":"x"}`), shared, false},
		"a text for a number":              {call(`{"a":"1","b":"x"}`), shared, false},
		"names that run together":          {call(`{"a":1,"bx":""}`), shared, false},
		"another tenant":                   {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Principal.Tenant = "other" }), shared, false},
		"another tier":                     {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Principal.Tier = "pro" }), shared, false},
		"other roles":                      {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Principal.Roles = []string{"dev"} }), shared, false},
		"another tool":                     {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Tool.ID.Name = "got" }), shared, false},
		"another definition":               {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Tool.Digest = "sha256:e" }), shared, false},
		"other credentials":                {call(`{"a":1,"b":"x"}`), cache.Terms{TTL: time.Minute, Bytes: 64 << 20, Shared: true, Credentials: [32]byte{1}}, false},
		"results of each principal":        {call(`{"a":1,"b":"x"}`), cache.Terms{TTL: time.Minute, Bytes: 64 << 20}, false},
		"a tool that is not deterministic": {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Tool.Contract.Deterministic = switchboard.Fact{} }), shared, false},
		"an untrusted source says so":      {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Tool.Contract.Deterministic.Trusted = false }), shared, false},
		"a stateful tool":                  {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Tool.Contract.Stateful = sure }), shared, false},
		"one that answers a question":      {call(`{"a":1,"b":"x"}, "requestState":"s"`), shared, false},
		"one that asks for a task":         {call(`{"a":1,"b":"x"}, "task":{}`), shared, false},
		"other metadata":                   {call(`{"a":1,"b":"x"}, "_meta":{"com.example/user":"u"}`), shared, false},
		"no tool":                          {call(`{"a":1,"b":"x"}`, func(c *switchboard.Call) { c.Tool = nil }), shared, false},
		"terms without a TTL":              {call(`{"a":1,"b":"x"}`), cache.Terms{Bytes: 64 << 20, Shared: true}, false},
		"terms with less than a bucket":    {call(`{"a":1,"b":"x"}`), cache.Terms{TTL: time.Minute, Bytes: 1000, Shared: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(server)
			all := store.NewMemory()
			if got := says(cache.New(all, constant(shared), keyed, uncounted).Serve(s), first); got != `{"n":1}` {
				t.Fatalf("the first call: %s", got)
			}
			want := `{"n":2}`
			if tt.same {
				want = `{"n":1} again`
			}
			if got := says(cache.New(all, constant(tt.terms), keyed, uncounted).Serve(s), tt.call); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestPrincipalsShareNoResultsIfTheServerTellsThemApart(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	s := new(server)
	c := cache.New(store.NewMemory(), constant(cache.Terms{TTL: time.Minute, Bytes: 1 << 20}), keyed, uncounted).Serve(s)
	other := func(c *switchboard.Call) { c.Principal.ID = "other" }
	for i, want := range []string{`{"n":1}`, `{"n":2}`, `{"n":1} again`, `{"n":2} again`} {
		var with []func(*switchboard.Call)
		if i%2 == 1 {
			with = append(with, other)
		}
		if got := says(c, call(`{}`, with...)); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

// CA-03.
func TestOnlyWholeGoodResultsAreKept(t *testing.T) {
	for name, tt := range map[string]struct {
		result string
		err    error
		kept   bool
	}{
		"a result":                {`{"content":[]}`, nil, true},
		"one that says so":        {`{"isError":false,"resultType":"complete"}`, nil, true},
		"a tool's error":          {`{"isError":true}`, nil, false},
		"perhaps an error":        {`{"isError":"no"}`, nil, false},
		"one that asks for more":  {`{"resultType":"input_required"}`, nil, false},
		"one of an unknown kind":  {`{"resultType":"task"}`, nil, false},
		"a server's error":        {"", &switchboard.ServerError{Object: []byte(`{}`)}, false},
		"a refusal":               {"", switchboard.Refuse(switchboard.CodeNoneHealthy, "no"), false},
		"one that is too large":   {`{"text":"` + strings.Repeat("x", cache.MaxResult) + `"}`, nil, false},
		"one of the largest size": {`{"text":"` + strings.Repeat("x", cache.MaxResult-11) + `"}`, nil, true},
		"one after a question":    {`{"asked":true}`, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answer: func(c *switchboard.Call, _ int64) (switchboard.Result, error) {
				if strings.Contains(tt.result, "asked") {
					_, _ = c.Client.Ask(t.Context(), "elicitation/create", nil)
				}
				return switchboard.Result{JSON: []byte(tt.result)}, tt.err
			}}
			c := cache.New(store.NewMemory(), constant(shared), keyed, uncounted).Serve(s)
			for range 3 {
				says(c, call(`{}`, func(c *switchboard.Call) {
					c.Client.Ask = func(context.Context, string, []byte) ([]byte, error) { return nil, nil }
				}))
			}
			if kept := s.calls.Load() == 1; kept != tt.kept {
				t.Errorf("called %d times", s.calls.Load())
			}
		})
	}
}

func TestStoredResultsExpireAndBucketsLimitTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		terms := shared
		terms.Bytes = 2 * cache.MaxResult
		all := store.NewMemory()
		c := cache.New(all, func(*switchboard.Call) cache.Terms { return terms }, keyed, uncounted).Serve(s)
		says(c, call(`{}`))
		time.Sleep(time.Minute - time.Second)
		if got := says(c, call(`{}`)); got != `{"n":1} again` {
			t.Errorf("before it expires: %s", got)
		}
		terms.TTL = 30 * time.Second
		if got := says(c, call(`{}`)); got != `{"n":2}` {
			t.Errorf("after the TTL was shortened: %s", got)
		}
		for i := range 50 {
			if got, want := says(c, call(fmt.Sprintf(`{"i":%d}`, i))), fmt.Sprintf(`{"n":%d}`, i+3); got != want {
				t.Errorf("in a bucket that another result had: %s, want %s", got, want)
			}
		}
		n := 0
		for i := range 10 {
			values, err := all.List(t.Context(), fmt.Sprint("cache/acme/", i))
			if err != nil {
				t.Fatal(err)
			}
			n += len(values)
		}
		if n != 2 {
			t.Errorf("two buckets hold %d values", n)
		}
	})
}

func TestManyEqualMissesMakeOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := `{"text":"` + strings.Repeat("x", 2*cache.MaxResult) + `"}`
		for _, result := range []string{`{"n":1}`, big} {
			processes := 5
			if result == big { // too large for the store: shared within one process only
				processes = 1
			}
			s := &server{took: 20 * time.Second, answer: func(*switchboard.Call, int64) (switchboard.Result, error) {
				return switchboard.Result{JSON: []byte(result)}, nil
			}}
			all := store.NewMemory()
			var asking sync.WaitGroup
			began := time.Now()
			var again atomic.Int64
			for range processes {
				c := cache.New(all, constant(shared), keyed, uncounted).Serve(s)
				for range 10 {
					asking.Go(func() {
						got := says(c, call(`{}`))
						if got == result+" again" {
							again.Add(1)
						} else if got != result {
							t.Errorf("%.100s", got)
						}
						if time.Since(began) != s.took {
							t.Errorf("after %s", time.Since(began))
						}
					})
				}
			}
			asking.Wait()
			if want := int64(processes*10 - 1); s.calls.Load() != 1 || again.Load() != want {
				t.Errorf("%d calls; %d got the stored result, want %d", s.calls.Load(), again.Load(), want)
			}
		}
	})
}

// Clients must see a history as if they had asked one after the other: one gets a new result, and all after
// it the same stored one.
func TestTheHistoryOfAResultIsLinearizable(t *testing.T) {
	type seen struct {
		result string
		again  bool
	}
	model := porcupine.Model{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			by := map[any][]porcupine.Operation{}
			for _, op := range all {
				by[op.Input] = append(by[op.Input], op)
			}
			for _, ops := range by {
				parts = append(parts, ops)
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(state, _, output any) (bool, any) {
			got := output.(seen)
			if got.again {
				return state == got.result, state
			}
			return state == "", got.result
		},
	}
	seed := law.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 50 * time.Millisecond}
		all := store.NewMemory()
		var mu sync.Mutex
		var history []porcupine.Operation
		began := time.Now()
		var asking sync.WaitGroup
		for id := range 12 {
			c := cache.New(all, constant(shared), keyed, uncounted).Serve(s)
			luck := rand.New(rand.NewPCG(seed, uint64(id)))
			asking.Go(func() {
				for key := range 30 {
					time.Sleep(time.Duration(luck.IntN(60)) * time.Millisecond)
					op := porcupine.Operation{ClientId: id, Input: key, Call: time.Since(began).Nanoseconds()}
					r, err := c.Call(t.Context(), call(fmt.Sprintf(`{"key":%d}`, key)))
					if err != nil {
						t.Error(err)
					}
					op.Return, op.Output = time.Since(began).Nanoseconds(), seen{string(r.JSON), r.Repeated != nil}
					mu.Lock()
					history = append(history, op)
					mu.Unlock()
				}
			})
		}
		asking.Wait()
		if !porcupine.CheckOperations(model, history) {
			t.Errorf("the history of %d calls is not linearizable", len(history))
		}
	})
}

func TestAFailedCallIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 3 * time.Second, answer: func(_ *switchboard.Call, n int64) (switchboard.Result, error) {
			if n == 1 {
				return switchboard.Result{}, errors.New("no")
			}
			return switchboard.Result{JSON: fmt.Appendf(nil, `{"n":%d}`, n)}, nil
		}}
		all := store.NewMemory()
		one, two := cache.New(all, constant(shared), keyed, uncounted).Serve(s), cache.New(all, constant(shared), keyed, uncounted).Serve(s)
		go says(one, call(`{}`))
		synctest.Wait()
		var asking sync.WaitGroup
		for _, c := range []switchboard.Caller{one, one, two} {
			asking.Go(func() {
				began := time.Now()
				if got := says(c, call(`{}`)); !strings.HasPrefix(got, `{"n":`) || time.Since(began) > 7*time.Second {
					t.Errorf("after %s: %s", time.Since(began), got)
				}
			})
		}
		asking.Wait()
	})
}

// A broken store fails at once, or after a long time.
type broken struct {
	*store.Memory
	takes time.Duration
	uses  atomic.Int64
}

func (s *broken) fail(ctx context.Context) error {
	s.uses.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	return store.ErrUnavailable
}

func (s *broken) Value(ctx context.Context, _ store.Key) (store.Value, error) {
	return store.Value{}, s.fail(ctx)
}

func (s *broken) Apply(ctx context.Context, _ store.Change) (store.Version, error) {
	return 0, s.fail(ctx)
}

func TestWithoutTheStoreCallsAreMadeAtOnce(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := new(server)
			b := &broken{Memory: store.NewMemory(), takes: takes}
			c := cache.New(b, constant(shared), keyed, uncounted).Serve(s)
			began := time.Now()
			for i := range 100 {
				if got := says(c, call(`{}`)); got != fmt.Sprintf(`{"n":%d}`, i+1) {
					t.Errorf("%d: %s", i, got)
				}
			}
			if took := time.Since(began); took > 250*time.Millisecond || b.uses.Load() != 1 {
				t.Errorf("100 calls took %s, and used the store %d times, want once", took, b.uses.Load())
			}
		})
	}
}

func TestTheLeaseOfAKilledLeaderExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := store.NewMemory()
		ctx, kill := context.WithCancel(t.Context())
		dead := &mute{Memory: all}
		s := &server{took: time.Hour}
		go func() { _, _ = cache.New(dead, constant(shared), keyed, uncounted).Serve(s).Call(ctx, call(`{}`)) }()
		synctest.Wait()
		dead.off.Store(true)
		began := time.Now()
		if got := says(cache.New(all, constant(shared), keyed, uncounted).Serve(new(server)), call(`{}`)); got != `{"n":1}` || time.Since(began) > 6*time.Second {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
		kill()
		synctest.Wait()
	})
}

// A mute store refuses all changes once off is set.
type mute struct {
	*store.Memory
	off atomic.Bool
}

func (s *mute) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.off.Load() {
		return 0, store.ErrUnavailable
	}
	return s.Memory.Apply(ctx, c)
}

func uncounted(string) {}

// CA-02: a role with the name of another part of the key does not give access to another principal's result.
func TestRolesCannotImitateAPrincipal(t *testing.T) {
	s := new(server)
	all := store.NewMemory()
	own := cache.Terms{TTL: time.Minute, Bytes: 64 << 20}
	says(cache.New(all, constant(own), keyed, uncounted).Serve(s), call(`{}`, func(c *switchboard.Call) { c.Principal.Auth = "some" }))
	got := says(cache.New(all, constant(shared), keyed, uncounted).Serve(s), call(`{}`, func(c *switchboard.Call) { c.Principal.Roles = []string{"principal", "some", "someone"} }))
	if got != `{"n":2}` {
		t.Errorf("it got %s", got)
	}
}

func TestWhenTheLeaderOfASharedCallLeavesOneWaiterMakesTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second}
		c := cache.New(store.NewMemory(), constant(shared), keyed, uncounted).Serve(s)
		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = c.Call(ctx, call(`{}`)) }()
		synctest.Wait()
		var others sync.WaitGroup
		for range 20 {
			others.Go(func() {
				if got := says(c, call(`{}`)); !strings.HasPrefix(got, `{"n":2}`) {
					t.Errorf("a waiter got %s", got)
				}
			})
		}
		synctest.Wait()
		leave()
		others.Wait()
		if n := s.calls.Load(); n != 2 {
			t.Errorf("the server was called %d times", n)
		}
	})
}
