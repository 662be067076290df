package run_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// counted counts the operations on a store, and can make them fail.
type counted struct {
	store.Store
	reads, writes atomic.Int64
	broken        atomic.Bool
}

func (c *counted) Value(ctx context.Context, k store.Key) (store.Value, error) {
	c.reads.Add(1)
	if c.broken.Load() {
		return store.Value{}, store.ErrUnavailable
	}
	return c.Store.Value(ctx, k)
}

func (c *counted) Apply(ctx context.Context, ch store.Change) (store.Version, error) {
	c.writes.Add(1)
	if c.broken.Load() {
		return 0, store.ErrUnavailable
	}
	return c.Store.Apply(ctx, ch)
}

// took returns the operations since the last call of it.
func (c *counted) took() string {
	return fmt.Sprintf("%d reads, %d writes", c.reads.Swap(0), c.writes.Swap(0))
}

func touch(t *testing.T, r *run.Run, bits switchboard.FlowBits) {
	t.Helper()
	if err := r.Flows().Touch(t.Context(), bits, true); err != nil {
		t.Fatal(err)
	}
}

func touchedBy(t *testing.T, r *run.Run) switchboard.FlowBits {
	t.Helper()
	got, err := r.Flows().Known(t.Context(), true)
	if err != nil || !got.Known {
		t.Fatal(got, err)
	}
	return got.Bits
}

// twoReplicas returns a run as two replicas have it.
func twoReplicas(t *testing.T, st store.Store) (here, there *run.Run) {
	t.Helper()
	first, second := start(t, st, "a/x"), start(t, st, "a/x")
	here, err := first.Open(t.Context(), alice, "browse", "")
	if err != nil {
		t.Fatal(err)
	}
	if there, err = second.Find(t.Context(), alice, here.ID()); err != nil || there == nil {
		t.Fatal(there, err)
	}
	return here, there
}

func TestWhatARunHasTouchedIsKnownOnEveryReplicaAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &counted{Store: store.NewMemory()}
		here, there := twoReplicas(t, st)
		if got := touchedBy(t, there); got != 0 {
			t.Errorf("a new run has touched %v", got)
		}
		st.took()
		touch(t, here, switchboard.Sees)
		if took := st.took(); took != "0 reads, 1 writes" {
			t.Errorf("the first bit took %s", took)
		}
		if got := touchedBy(t, there); got != switchboard.Sees {
			t.Errorf("the other replica knows %v", got)
		}
		touch(t, there, switchboard.Brings)
		touch(t, here, switchboard.Brings) // it does not know yet
		for _, r := range []*run.Run{here, there} {
			if got := touchedBy(t, r); got != switchboard.Touches {
				t.Errorf("known are %v", got)
			}
		}
		other, err := start(t, st, "a/x").Open(t.Context(), alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := touchedBy(t, other); got != 0 {
			t.Errorf("another run of the principal has touched %v", got)
		}
	})
}

func TestARunThatHasTouchedBothNeedsNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &counted{Store: store.NewMemory()}
		here, _ := twoReplicas(t, st)
		touch(t, here, switchboard.Sees)
		touch(t, here, switchboard.Brings)
		st.took()
		for range 10 {
			touch(t, here, switchboard.Touches)
			if got := touchedBy(t, here); got != switchboard.Touches || !here.Flows().Has(switchboard.Touches) {
				t.Errorf("known are %v", got)
			}
		}
		if took := st.took(); took != "0 reads, 0 writes" {
			t.Errorf("it took %s", took)
		}
	})
}

func TestBaseRunsOfAPrincipalShareWhatTheyHaveTouchedByTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		var runs []*run.Run
		for _, task := range []switchboard.TaskID{"browse", "browse", "other"} {
			r, err := start(t, st, "a/x").Base(t.Context(), alice, task)
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		touch(t, runs[0], switchboard.Sees)
		if got := touchedBy(t, runs[1]); got != switchboard.Sees {
			t.Errorf("the same run on another replica has touched %v", got)
		}
		if got := touchedBy(t, runs[2]); got != 0 {
			t.Errorf("the run of another task has touched %v", got)
		}
	})
}

func TestWithoutTheStoreACallThatPolicyJudgesByItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &counted{Store: store.NewMemory()}
		here, there := twoReplicas(t, st)
		touch(t, here, switchboard.Sees)
		st.broken.Store(true)
		_, err := here.Flows().Known(t.Context(), true)
		for what, err := range map[string]error{"to know": err, "to touch": here.Flows().Touch(t.Context(), switchboard.Brings, true)} {
			if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != switchboard.CodeStoreUnavailable || !e.Unsent {
				t.Errorf("%s: %v", what, err)
			}
		}
		touch(t, here, switchboard.Sees) // which every replica knows
		st.broken.Store(false)
		if got := touchedBy(t, there); got != switchboard.Sees {
			t.Errorf("after a refusal the other replica knows %v", got)
		}
	})
}

// Where no rule reads it, an unavailable store refuses and delays nothing, and what was touched is not forgotten.
func TestWithoutTheStoreWhatNoRuleReadsIsNotedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &counted{Store: store.NewMemory()}
		first := start(t, st, "a/x")
		here, err := first.Open(t.Context(), alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		there, err := start(t, st, "a/x").Find(t.Context(), alice, here.ID())
		if err != nil {
			t.Fatal(err)
		}
		st.broken.Store(true)
		st.took()
		for range 10 {
			if err := here.Flows().Touch(t.Context(), switchboard.Sees, false); err != nil {
				t.Error(err)
			}
			if got, err := here.Flows().Known(t.Context(), false); err != nil || got != (switchboard.Touched{Bits: switchboard.Sees}) {
				t.Errorf("known are %v, %v", got, err)
			}
		}
		if took := st.took(); took != "0 reads, 1 writes" {
			t.Errorf("within a second after the failure it took %s", took)
		}
		if here.Flows().Has(switchboard.Sees) {
			t.Error("it is said that every replica knows")
		}
		st.broken.Store(false)
		first.Sweep(t.Context())
		if got := touchedBy(t, there); got != switchboard.Sees {
			t.Errorf("when the store was back, the other replica has learnt %v", got)
		}
	})
}

func TestAValueThatCannotBeReadCountsAsBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{`["sees","carry"]`, `{`, `"sees"`, `7`} {
			st := store.NewMemory()
			here, there := twoReplicas(t, st)
			key := store.Key{Group: "runs/" + string(alice.Tenant) + "/" + alice.ID, Name: "touched/run/" + string(here.ID())}
			if _, err := st.Apply(t.Context(), store.Change{Group: key.Group, Writes: []store.Write{{Name: key.Name, Was: store.Any, Data: []byte(text)}}}); err != nil {
				t.Fatal(err)
			}
			if got := touchedBy(t, there); got != switchboard.Touches {
				t.Errorf("%s is %v", text, got)
			}
		}
	})
}

// The value must live as long as any replica uses the run, also if the replica that has set it is gone.
func TestWhatARunHasTouchedLivesAsLongAsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		here, there := twoReplicas(t, st)
		touch(t, here, switchboard.Sees)
		second := start(t, st, "a/x")
		used, err := second.Find(t.Context(), alice, there.ID())
		if err != nil {
			t.Fatal(err)
		}
		for range 5 * 60 { // five hours of a run in use, on a replica where nothing asks what it has touched
			time.Sleep(time.Minute)
			used.Surface()
			second.Sweep(t.Context())
		}
		third, err := start(t, st, "a/x").Find(t.Context(), alice, there.ID())
		if err != nil || third == nil {
			t.Fatal(third, err)
		}
		if got := touchedBy(t, third); got != switchboard.Sees {
			t.Errorf("after five hours known are %v", got)
		}
	})
}

// A slowStore takes a random time before and after each operation, so that operations of several replicas mix.
type slowStore struct {
	store.Store
	mu     sync.Mutex
	random *rand.Rand
}

func (s *slowStore) wait() {
	s.mu.Lock()
	d := time.Duration(s.random.IntN(20)) * time.Millisecond
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *slowStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	s.wait()
	defer s.wait()
	return s.Store.Value(ctx, k)
}

func (s *slowStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	s.wait()
	defer s.wait()
	return s.Store.Apply(ctx, c)
}

// Calls of one run at three replicas, in 1,000 random orders: a call that carries data out and that begins after others were sent
// is judged by what they touch.
func TestNoCallCarriesDataOutBeforeATouchIsKnown(t *testing.T) {
	layer, err := policy.Compile(policy.Operator, policysource.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.NewEngine(10*time.Second, 0).NewPolicy(&switchboard.Tenant{ID: alice.Tenant, Flows: switchboard.FlowsNever}, layer)
	if err != nil {
		t.Fatal(err)
	}
	tools := map[switchboard.FlowBits]*switchboard.Tool{}
	for _, bits := range []switchboard.FlowBits{switchboard.Brings, switchboard.Sees, switchboard.Carries} {
		tools[bits] = &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: bits.String()}, Contract: switchboard.Contract{Flow: switchboard.Flow{Bits: bits}}}
	}
	judgments := judgmentsOf(t, rules, alice, tools)
	orders := 1000
	if testing.Short() {
		orders = 100
	}
	passed, denied, mixed := 0, 0, 0
	for seed := range orders {
		synctest.Test(t, func(t *testing.T) {
			st := &slowStore{Store: store.NewMemory(), random: rand.New(rand.NewPCG(uint64(seed), 1))}
			random := rand.New(rand.NewPCG(uint64(seed), 2))
			var replicas []*run.Run
			id := run.NewID()
			for range 3 {
				r, err := start(t, st, "a/x").Open(t.Context(), alice, "browse", id)
				if err != nil {
					t.Fatal(err)
				}
				replicas = append(replicas, r)
			}
			var sent atomic.Uint32 // the bits of the calls that were sent so far
			send := switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
				sent.Or(uint32(c.Flow()))
				return switchboard.Result{}, nil
			})
			current := func(who switchboard.Principal) (switchboard.Principal, *policy.Policy, error) { return who, rules, nil }
			chain := policy.Guard(current, nil, nil, policy.Touch(current, send))
			var calls sync.WaitGroup
			var mu sync.Mutex
			for range 12 {
				bits := []switchboard.FlowBits{switchboard.Brings, switchboard.Sees, switchboard.Carries, switchboard.Carries}[random.IntN(4)]
				r, after := replicas[random.IntN(3)], time.Duration(random.IntN(120))*time.Millisecond
				calls.Go(func() {
					time.Sleep(after)
					before := switchboard.FlowBits(sent.Load())
					_, err := chain.Call(t.Context(), &switchboard.Call{
						Principal: alice, Task: "browse", Run: r.ID(), Server: "a", Tool: tools[bits], Judgments: judgments, Flows: r.Flows(),
					})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case bits != switchboard.Carries:
						if err != nil {
							t.Errorf("seed %d: %v", seed, err)
						}
					case before.Has(switchboard.Touches):
						denied++
						if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != switchboard.CodeDenied {
							t.Errorf("seed %d: data leaves a run that has sent both: %v", seed, err)
						}
					case err == nil:
						passed++
					default:
						mixed++
					}
				})
			}
			calls.Wait()
		})
	}
	t.Logf("%d calls passed, %d were denied as they must be, %d while others were being sent", passed, denied, mixed)
	if passed == 0 || denied == 0 || mixed == 0 {
		t.Error("the orders were all of one kind")
	}
}

// judgmentsOf selects the tools for one requirement.
func judgmentsOf(t testing.TB, p *policy.Policy, who switchboard.Principal, tools map[switchboard.FlowBits]*switchboard.Tool) []*switchboard.Judgment {
	t.Helper()
	var in []decide.Candidate
	for _, bits := range slices.Sorted(maps.Keys(tools)) {
		in = append(in, decide.Candidate{Tool: tools[bits]})
	}
	left, err := p.Stage().Apply(t.Context(), &decide.Question{Principal: who, Task: &switchboard.Task{ID: "browse"}, Requirement: &switchboard.Requirement{Tools: []string{"a/*"}}, Now: time.Now()}, slices.Clone(in), decide.Ignore)
	if err != nil || len(left) != len(in) {
		t.Fatal(left, err)
	}
	return []*switchboard.Judgment{left[0].Judgment}
}

// A client that opens one session after another leaves no more in the store than its runs may have.
func TestTheStoreKeepsNothingOfARunThatMadeRoom(t *testing.T) {
	st := store.NewMemory()
	g := run.New(&binder{}, surface.New(surface.Input{}), st)
	for range 2 * run.MaxRuns {
		r, err := g.Open(t.Context(), alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		touch(t, r, switchboard.Sees)
		run.Release(r)
	}
	all, err := st.List(t.Context(), "runs/acme/alice")
	if err != nil || len(all) != 2*run.MaxRuns { // a record, and what the run has touched
		t.Errorf("the store has %d values of %d runs, %v", len(all), run.MaxRuns, err)
	}
}
