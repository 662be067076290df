package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A process is a house that can be killed: after that, nothing that it does reaches the store, a server or a
// client. Its store may fail before and after a change.
type process struct {
	*house
	*store.Memory
	dead  atomic.Bool
	mu    sync.Mutex
	luck  *rand.Rand
	fails int // percent of the uses of the store
}

func (p *process) injectFault() (before, after bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.luck.IntN(200)
	return p.dead.Load() || n < p.fails, n >= p.fails && n < 2*p.fails
}

func (p *process) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if before, _ := p.injectFault(); before {
		return store.Value{}, errCut
	}
	return p.Memory.Value(ctx, k)
}

func (p *process) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	before, after := p.injectFault()
	if before {
		return 0, errCut
	}
	v, err := p.Memory.Apply(ctx, c)
	if after && err == nil {
		return 0, errCut
	}
	return v, err
}

func (p *process) Publish(ctx context.Context, topic string, data []byte) error {
	if before, after := p.injectFault(); before || after {
		return errCut
	}
	return p.Memory.Publish(ctx, topic, data)
}

// A ledger counts the calls that the servers have executed, by key.
type ledger struct {
	mu       sync.Mutex
	executed map[string]int
}

// An act is one use of a key by a process.
type act struct {
	after   time.Duration // since the act before
	process int
	kill    bool
	key     int
	fate    string // of the call, if it is made
	took    time.Duration
}

var fates = []string{"answers", "answers", "dies", "unsent", "asks", "fails", "panics"}

func (l *ledger) server(p *process) switchboard.Caller {
	return switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		fate, took, _ := strings.Cut(c.Target, " ")
		d, _ := time.ParseDuration(took)
		unsent := &switchboard.Error{Code: switchboard.CodeServerUnreachable, Unsent: true}
		if p.dead.Load() { // it was killed before it could send
			return switchboard.Result{}, unsent
		}
		switch fate {
		case "unsent":
			time.Sleep(d)
			return switchboard.Result{}, unsent
		case "asks":
			time.Sleep(d)
			return switchboard.Result{JSON: []byte(`{"resultType":"input_required"}`)}, nil
		}
		l.mu.Lock()
		l.executed[c.IdempotencyKey.Key]++
		n := l.executed[c.IdempotencyKey.Key]
		l.mu.Unlock()
		time.Sleep(d)
		switch fate {
		case "dies":
			return switchboard.Result{}, switchboard.Refuse(switchboard.CodeOutcomeUnknown, "it died")
		case "fails":
			return switchboard.Result{}, &switchboard.ServerError{Object: []byte(`{"code":1}`)}
		case "panics":
			panic("oh")
		}
		return switchboard.Result{JSON: fmt.Appendf(nil, `{"%s":%d}`, c.IdempotencyKey.Key, n)}, nil
	})
}

// use makes the call and returns its result as the client sees it.
func (p *process) use(a *act) (told string) {
	defer func() { _ = recover() }()
	c := call(fmt.Sprint("k", a.key), `{}`)
	c.Target = fmt.Sprint(a.fate, " ", a.took)
	return p.does(c)
}

func TestNoInterleavingOfClaimsCrashesAndFaultsExecutesACallTwice(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	const processes, keys = 4, 2
	acts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) act {
		return act{
			after:   time.Duration(rapid.SampledFrom([]int{0, 0, 1, 3000, 7000, 20000, 3600_000}).Draw(t, "after")) * time.Millisecond,
			process: rapid.IntRange(0, processes-1).Draw(t, "process"),
			kill:    rapid.IntRange(0, 9).Draw(t, "kill") == 0,
			key:     rapid.IntRange(1, keys).Draw(t, "key"),
			fate:    rapid.SampledFrom(fates).Draw(t, "fate"),
			took:    time.Duration(rapid.SampledFrom([]int{0, 1, 4000, 6000, 40000}).Draw(t, "took")) * time.Millisecond,
		}
	}), 1, 14)
	rapid.Check(t, func(r *rapid.T) {
		plan, fails, seed := acts.Draw(r, "acts"), rapid.SampledFrom([]int{0, 0, 5, 30}).Draw(r, "fails"), rapid.Uint64().Draw(r, "seed")
		var l *ledger
		var told map[string]map[string]bool
		synctest.Test(t, func(*testing.T) { l, told = play(plan, processes, fails, seed) })
		for key, n := range l.executed {
			if n > 1 {
				r.Errorf("%s was executed %d times", key, n)
			}
			if len(told[key]) > 1 {
				r.Errorf("%s has several results: %v", key, told[key])
			}
		}
	})
}

// play performs the plan with some processes. Each use of their stores fails with a probability of fails
// percent. play returns the executed calls, and the results that clients got, by key.
func play(plan []act, processes, fails int, seed uint64) (*ledger, map[string]map[string]bool) {
	shared := store.NewMemory()
	l := &ledger{executed: map[string]int{}}
	var all []*process
	start := func() *process {
		p := &process{Memory: shared, luck: rand.New(rand.NewPCG(seed, uint64(len(all)))), fails: fails}
		p.house = newHouse(p, l.server(p))
		all = append(all, p)
		return p
	}
	now := make([]*process, processes)
	for i := range now {
		now[i] = start()
	}
	var calls sync.WaitGroup
	var mu sync.Mutex
	told := map[string]map[string]bool{}
	for i := range plan {
		a := &plan[i]
		time.Sleep(a.after)
		p := now[a.process]
		if a.kill {
			p.dead.Store(true)
			now[a.process] = start()
			continue
		}
		calls.Go(func() {
			got := p.use(a)
			if p.dead.Load() {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			key := fmt.Sprint("k", a.key)
			if told[key] == nil {
				told[key] = map[string]bool{}
			}
			if result := strings.TrimSuffix(got, " again"); strings.HasPrefix(result, `{"k`) {
				told[key][result] = true
			}
		})
	}
	calls.Wait()
	for _, p := range all {
		p.Keys.Close()
	}
	return l, told
}

// Clients must see the history of a key as if they had used it one after the other: at most one gets a new
// result, and all after it that same result.
func TestTheHistoryOfAKeyIsLinearizable(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	for name, stores := range map[string]func(t *testing.T) (open func() store.Store){
		"memory": func(*testing.T) func() store.Store {
			shared := store.NewMemory()
			return func() store.Store { return shared }
		},
		"file": func(t *testing.T) func() store.Store {
			return opening(t, "file:"+filepath.Join(t.TempDir(), "store.db"))
		},
		"cluster": func(t *testing.T) func() store.Store {
			return opening(t, redistest.StartCluster(t, 3).URL())
		},
	} {
		t.Run(name, func(t *testing.T) { checkHistory(t, stores(t)) })
	}
}

// opening returns a function that opens the store, once for each process.
func opening(t *testing.T, url string) func() store.Store {
	return func() store.Store {
		s, err := store.Open(t.Context(), url, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() }) // the store is deleted after the test
		return s
	}
}

func checkHistory(t *testing.T, open func() store.Store) {
	type seen struct {
		result string // "" if the call was not executed
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
			kept, got := state.(string), output.(seen)
			switch {
			case got.result == "": // the key was free
				return kept == "", kept
			case got.again:
				return kept == got.result, kept
			}
			return kept == "", got.result
		},
	}
	var n, executed atomic.Int64
	s := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		if n.Add(1)%3 != 0 {
			return switchboard.Result{}, &switchboard.Error{Code: switchboard.CodeServerUnreachable, Unsent: true}
		}
		return switchboard.Result{JSON: fmt.Appendf(nil, `{"n":%d}`, executed.Add(1))}, nil
	})
	const clients, keys = 8, 40
	var mu sync.Mutex
	var history []porcupine.Operation
	began := time.Now()
	var all sync.WaitGroup
	for id := range clients {
		h := newHouse(open(), s)
		defer h.Close()
		all.Go(func() {
			for key := range keys {
				op := porcupine.Operation{ClientId: id, Input: key, Call: time.Since(began).Nanoseconds()}
				r, err := h.caller.Call(t.Context(), call(fmt.Sprint(key), `{}`))
				op.Return = time.Since(began).Nanoseconds()
				own, ok := errors.AsType[*switchboard.Error](err)
				if ok && !own.Unsent || err != nil && !ok {
					t.Errorf("key %d: %v", key, err)
				}
				if ok && own.Code == switchboard.CodeStoreUnavailable { // this says nothing about the key
					continue
				}
				op.Output = seen{string(r.JSON), r.Repeated != nil}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if executed.Load() > keys {
		t.Errorf("executed %d times with %d keys", executed.Load(), keys)
	}
	switch got := porcupine.CheckOperationsTimeout(model, history, 30*time.Second); got {
	case porcupine.Ok:
	case porcupine.Unknown:
		wait.Late(t, "the history of %d uses is %s", len(history), got)
	default:
		t.Errorf("the history of %d uses is %s", len(history), got)
	}
}

func TestARedisThatDiesAndStopsUnderLoadLetsNothingBeExecutedTwice(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	r := redistest.Start(t)
	open := opening(t, r.URL())
	var mu sync.Mutex
	executed := map[string]int{}
	s := switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		executed[c.IdempotencyKey.Key]++
		return switchboard.Result{JSON: fmt.Appendf(nil, `{"%s":%d}`, c.IdempotencyKey.Key, len(executed))}, nil
	})
	told := map[string]map[string]bool{} // by key
	var calls, answered atomic.Int64
	tell := func(key, result string) {
		calls.Add(1)
		if result = strings.TrimSuffix(result, " again"); !strings.HasPrefix(result, "{") {
			return
		}
		answered.Add(1)
		mu.Lock()
		defer mu.Unlock()
		if told[key] == nil {
			told[key] = map[string]bool{}
		}
		told[key][result] = true
	}
	const clients, keys = 8, 300
	over := make(chan struct{})
	var all sync.WaitGroup
	var houses []*house
	for range clients {
		h := newHouse(open(), s)
		defer h.Close()
		houses = append(houses, h)
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				key := fmt.Sprint(i % keys)
				got := h.does(call(key, `{}`))
				if tell(key, got); got == string(switchboard.CodeStoreUnavailable) {
					<-time.After(20 * time.Millisecond) // sooner than RetryAfter says
				}
			}
		})
	}
	halt := sync.OnceFunc(func() {
		close(over)
		all.Wait()
	})
	defer func() { // also if the test stops early because it is late
		halt()
		for key, n := range executed {
			if n > 1 || len(told[key]) > 1 {
				t.Errorf("%s was executed %d times: %v", key, n, told[key])
			}
		}
	}()
	more := func() {
		want := answered.Load() + 100
		wait.UntilNil(t, "calls are answered", func() error {
			if n := answered.Load(); n < want {
				return fmt.Errorf("%d, want %d", n, want)
			}
			return nil
		})
	}
	more()
	for range 3 {
		r.Kill()
		<-time.After(100 * time.Millisecond)
		r.Start()
		more()
		r.Pause()
		<-time.After(100 * time.Millisecond)
		r.Resume()
		more()
	}
	halt()
	for key := range keys {
		key := fmt.Sprint(key)
		tell(key, houses[0].does(call(key, `{}`)))
	}
	t.Logf("%d calls with %d keys: %d answered, %d executed", calls.Load(), keys, answered.Load(), len(executed))
}
