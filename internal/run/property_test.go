package run_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A flaky store is slow. Of a hundred uses some fail before they are done, and as many after.
type flaky struct {
	*store.Memory
	mu    sync.Mutex
	luck  *rand.Rand
	fails int
}

var errFlaky = fmt.Errorf("%w: it is flaky", store.ErrUnavailable)

func (f *flaky) fault() (before, after bool) {
	f.mu.Lock()
	n, took, fails := f.luck.IntN(100), f.luck.IntN(3), f.fails
	f.mu.Unlock()
	time.Sleep(time.Duration(took) * 10 * time.Millisecond) // so that other requests come in between
	return n < fails, n >= fails && n < 2*fails
}

func (f *flaky) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if before, after := f.fault(); before || after {
		return store.Value{}, errFlaky
	}
	return f.Memory.Value(ctx, k)
}

func (f *flaky) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	before, after := f.fault()
	if before {
		return 0, errFlaky
	}
	v, err := f.Memory.Apply(ctx, c)
	if after && err == nil {
		return 0, errFlaky
	}
	return v, err
}

func (f *flaky) Publish(ctx context.Context, topic string, data []byte) error {
	if before, after := f.fault(); before || after {
		return errFlaky
	}
	return f.Memory.Publish(ctx, topic, data)
}

// A step is one action on a run through a process.
type step struct {
	process int
	do      string
	run     int // an index
	who     int
	tool    int
	after   time.Duration // the step before; all together are less than run.Idle
}

// Laws 8 and 9: for each behavior of the store, and for each process that serves or ends: an
// acknowledged change of a run stays, no change appears without a request, no other principal
// finds it, and each refusal has its code.
func TestNoStoreFailureLosesAnAcknowledgedChangeOfARun(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			process: rapid.IntRange(0, 1).Draw(t, "process"),
			do:      rapid.SampledFrom([]string{"open", "expand", "expand", "expand", "end", "sweep", "rebind"}).Draw(t, "do"),
			run:     rapid.IntRange(0, 3).Draw(t, "run"),
			who:     rapid.IntRange(0, 1).Draw(t, "who"),
			tool:    rapid.IntRange(0, 5).Draw(t, "tool"),
			after:   time.Duration(rapid.SampledFrom([]int{0, 0, 1, 140}).Draw(t, "after")) * time.Second,
		}
	}), 1, 25)
	rapid.Check(t, func(r *rapid.T) {
		plan, fails, seed := steps.Draw(r, "steps"), rapid.SampledFrom([]int{0, 5, 25}).Draw(r, "fails"), rapid.Uint64().Draw(r, "seed")
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = follow(t, plan, fails, seed) })
		for _, f := range faults {
			r.Error(f)
		}
	})
}

// known is what the clients of a run know about it.
type known struct {
	id    switchboard.RunID // "" for a base run
	who   switchboard.Principal
	has   map[string]bool // what was acknowledged to be expanded
	asked map[string]bool // what was asked for
}

func follow(t *testing.T, plan []step, fails int, seed uint64) (faults []string) {
	var mu sync.Mutex // of faults, runs and what is known of them
	fault := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	refusal := func(what string, err error) {
		if e, ok := errors.AsType[*switchboard.Error](err); err != nil && (!ok || e.Code != switchboard.CodeStoreUnavailable) {
			fault("%s: %v", what, err)
		}
	}
	people := []switchboard.Principal{{Tenant: "acme", ID: "alice"}, {Tenant: "acme-alice", ID: "bob"}}
	tools := []string{"a/0", "a/1", "a/2", "b/3", "b/4", "b/5"}
	st := &flaky{Memory: store.NewMemory(), luck: rand.New(rand.NewPCG(seed, 0)), fails: fails}
	ctx, over := context.WithCancel(t.Context())
	defer over()
	type process struct {
		*run.Runs
		end     context.CancelFunc
		rebinds chan struct{} // a lock for one; waiting for a sync.Mutex would stop the clock of the bubble
	}
	start := func() process {
		own, end := context.WithCancel(ctx)
		p := process{run.New(&grouped{tools: tools}, surface.New(surface.Input{}), st), end, make(chan struct{}, 1)}
		go p.FollowStore(own)
		return p
	}
	now := []process{start(), start()}
	runs := []*known{newKnown("", people[0]), newKnown("", people[1])}
	find := func(p process, k *known) (*run.Run, error) {
		if k.id == "" {
			return p.Base(ctx, k.who, "browse")
		}
		return p.Find(ctx, k.who, k.id)
	}
	expand := func(p process, k *known, tool string) {
		r, err := find(p, k)
		if refusal("find", err); err != nil {
			return
		}
		if r == nil {
			fault("run %q of %s is not found", k.id, k.who.ID)
			return
		}
		mu.Lock()
		k.asked[tool] = true
		mu.Unlock()
		id, _ := switchboard.ParseToolID(tool)
		err = r.Change(ctx, func(s *surface.Surface) (*surface.Surface, error) {
			if slices.ContainsFunc(s.Expanded(), func(x *surface.Expansion) bool { return x.Tool == id }) {
				return nil, nil
			}
			return s.WithExpanded(append(slices.Clone(s.Expanded()), surface.Expand(id)), nil), nil
		})
		if refusal("expand", err); err == nil {
			mu.Lock()
			k.has[tool] = true
			mu.Unlock()
		}
	}
	var work sync.WaitGroup
	for _, s := range plan {
		time.Sleep(s.after)
		p := now[s.process]
		mu.Lock()
		k := runs[s.run%len(runs)]
		mu.Unlock()
		switch s.do {
		case "open":
			work.Go(func() {
				r, err := p.Open(ctx, people[s.who], "browse", "")
				if refusal("open", err); err == nil {
					mu.Lock()
					defer mu.Unlock()
					runs = append(runs, newKnown(r.ID(), people[s.who]))
				}
			})
		case "expand":
			work.Go(func() { expand(p, k, tools[s.tool]) })
		case "end":
			p.end()
			now[s.process] = start()
		case "sweep":
			work.Go(func() { p.Sweep(ctx) })
		case "rebind":
			work.Go(func() {
				p.rebinds <- struct{}{}
				p.Rebind(ctx)
				<-p.rebinds
			})
		}
	}
	work.Wait()
	st.mu.Lock()
	st.fails = 0
	st.mu.Unlock()
	now = append(now, start()) // a process that has seen none of it
	for i, p := range now {
		for _, k := range runs {
			who := fmt.Sprintf("process %d: run %q of %s", i, k.id, k.who.ID)
			r, err := find(p, k)
			if err != nil || r == nil {
				fault("%s: %v, %v", who, r, err)
				continue
			}
			p.CatchUp(ctx, r)
			shows := map[string]bool{}
			for _, x := range r.PeekSurface().Expanded() {
				if shows[x.Tool.String()] = true; !k.asked[x.Tool.String()] {
					fault("%s shows %s, for which nobody has asked", who, x.Tool)
				}
			}
			for tool := range k.has {
				if !shows[tool] {
					fault("%s has lost %s", who, tool)
				}
			}
			for _, other := range people {
				if other.ID != k.who.ID && k.id != "" {
					if r, _ := p.Find(ctx, other, k.id); r != nil {
						fault("%s is found by %s", who, other.ID)
					}
				}
			}
		}
	}
	return faults
}

func newKnown(id switchboard.RunID, who switchboard.Principal) *known {
	return &known{id: id, who: who, has: map[string]bool{}, asked: map[string]bool{}}
}
