package run_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// binder binds every task to the tools that it holds at the moment.
type binder struct {
	mu     sync.Mutex
	tools  []string
	err    error
	gone   switchboard.TaskID
	binds  int
	turns  bool             // what Bind gives changes with time
	failed string           // the tool that policy cannot judge
	prev   *surface.Surface // of the last bind

	starting []switchboard.ServerID
	waits    bool // for servers that do not start
	next     chan struct{}
}

func (b *binder) Resolve(_ switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if task == "secret" || task == b.gone && task != "" {
		return "", switchboard.Refuse(switchboard.CodeNoSuchTask, "no")
	}
	return task, nil
}

func (b *binder) Bind(_ context.Context, _ switchboard.Principal, _ switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.binds++
	b.prev = was.Surface
	if b.err != nil && len(b.starting) > 0 {
		return surface.New(surface.Input{}), &run.Waiting{Task: "browse", Servers: b.starting}
	}
	if unmet, ok := errors.AsType[*switchboard.Error](b.err); ok && b.waits {
		return surface.New(surface.Input{}), &run.Waiting{Task: "browse", Unmet: unmet}
	}
	if b.err != nil {
		return nil, b.err
	}
	var selected []decide.Selected
	tools := b.tools
	for _, a := range was.Added {
		if a.Capability == "" {
			continue // nothing offers it
		}
		tools = append(slices.Clone(tools), a.Capability)
	}
	for _, name := range tools {
		selected = append(selected, decide.Selected{Tool: &switchboard.Tool{
			ID:         switchboard.ToolID{Server: "s", Name: name},
			Definition: []byte(`{"name":"` + name + `"}`),
		}, Requirements: []int{0}})
	}
	task := &switchboard.Task{Requirements: []switchboard.Requirement{{}}}
	in := surface.Input{Task: task, Selected: selected, Prev: was.Surface}
	if b.failed != "" {
		in.Unjudged = map[switchboard.ToolID]bool{{Server: "s", Name: b.failed}: true}
	}
	return surface.New(in), nil
}

func (b *binder) Lasts(switchboard.TenantID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.turns
}

func (b *binder) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.starting, b.next
}

// start sets the starting servers and wakes those that wait.
func (b *binder) start(servers ...switchboard.ServerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting = servers
	if b.next != nil {
		close(b.next)
	}
	b.next = make(chan struct{})
}

func (b *binder) set(err error, tools ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tools, b.err = tools, err
}

func registry(b *binder) *run.Runs {
	return run.New(b, surface.New(surface.Input{}), store.NewMemory())
}

var alice = switchboard.Principal{Tenant: "acme", ID: "alice"}

func names(r *run.Run) (names string) {
	for _, e := range r.Surface().Entries() {
		names += e.Name + " "
	}
	return names
}

func open(t *testing.T, g *run.Runs, p switchboard.Principal) *run.Run {
	t.Helper()
	r, err := g.Open(t.Context(), p, "browse", "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOnlyItsPrincipalCanNameARun(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	g := registry(&binder{})
	r := open(t, g, alice)
	for _, tt := range []struct {
		name string
		p    switchboard.Principal
		id   switchboard.RunID
		want bool
	}{
		{"its principal", alice, r.ID(), true},
		{"its principal by another key", switchboard.Principal{Tenant: "acme", ID: "alice", Auth: switchboard.AuthAPIKey}, r.ID(), true},
		{"somebody else of the tenant", switchboard.Principal{Tenant: "acme", ID: "bob"}, r.ID(), false},
		{"AZ-01 the same name in another tenant", switchboard.Principal{Tenant: "other", ID: "alice"}, r.ID(), false},
		{"SE-01 an id that was never minted", alice, "00112233445566778899aabbccddeeff", false},
		{"the empty id", alice, "", false},
	} {
		if ok := found(t, g, tt.p, tt.id); ok != tt.want {
			t.Errorf("%s: found = %v, want %v", tt.name, ok, tt.want)
		}
	}
}

func TestARunHas128RandomBits(t *testing.T) {
	g := registry(&binder{})
	seen := map[switchboard.RunID]bool{}
	for range 500 {
		r := open(t, g, alice)
		if len(r.ID()) != 32 || seen[r.ID()] {
			t.Fatalf("run %q", r.ID())
		}
		seen[r.ID()] = true
	}
}

func TestATaskThatThePrincipalMayNotBindIsRefused(t *testing.T) {
	g := registry(&binder{})
	for name, f := range map[string]func(context.Context, switchboard.Principal, switchboard.TaskID) (*run.Run, error){"Open": func(ctx context.Context, p switchboard.Principal, task switchboard.TaskID) (*run.Run, error) {
		return g.Open(ctx, p, task, "")
	}, "Base": g.Base} {
		var refused *switchboard.Error
		if _, err := f(t.Context(), alice, "secret"); !errors.As(err, &refused) || refused.Code != switchboard.CodeNoSuchTask {
			t.Errorf("%s: error %v, want %s", name, err, switchboard.CodeNoSuchTask)
		}
	}
}

func TestModernRequestsShareTheBaseRunOfTheirPrincipalAndTask(t *testing.T) {
	g := registry(&binder{})
	a1, _ := g.Base(t.Context(), alice, "browse")
	a2, _ := g.Base(t.Context(), alice, "browse")
	other, _ := g.Base(t.Context(), alice, "code")
	bob, _ := g.Base(t.Context(), switchboard.Principal{Tenant: "acme", ID: "bob"}, "browse")
	if a1 != a2 || a1 == other || a1 == bob {
		t.Error("base runs are shared wrongly")
	}
}

func TestSessionsOfOneTaskShareOneSurface(t *testing.T) {
	b := &binder{tools: []string{"a"}}
	g := registry(b)
	r1, r2 := open(t, g, alice), open(t, g, alice)
	if r1.Surface() != r2.Surface() || b.binds != 1 {
		t.Errorf("two sessions of one task were bound %d times", b.binds)
	}
	b.set(nil, "a", "b")
	g.Rebind(t.Context())
	if r1.Surface() != r2.Surface() || b.binds != 2 {
		t.Errorf("after a change they were bound %d times in all, want 2", b.binds)
	}
}

// A watcher remembers which kinds it has heard of.
type watcher struct{ heard, times atomic.Uint32 }

func (w *watcher) Changed(ks switchboard.Kinds) {
	w.heard.Or(uint32(ks))
	w.times.Add(1)
}

func TestWatchersAreNotifiedOfChangesForTheirEraOnly(t *testing.T) {
	b := &binder{tools: []string{"a"}}
	g := registry(b)
	r := open(t, g, alice)
	w := &watcher{}
	stop := r.Watch(w, false)
	heard := func() bool { return w.heard.Swap(0) == uint32(switchboard.Kinds(0).With(switchboard.Tools)) }
	g.Rebind(t.Context())
	if heard() {
		t.Error("notified without a change")
	}
	b.set(nil, "a", "b")
	g.Rebind(t.Context())
	if !heard() || names(r) != "a b " {
		t.Errorf("not told, or shows %q", names(r))
	}
	b.set(nil, "b")
	g.Rebind(t.Context())
	b.set(nil, "b", "c")
	g.Rebind(t.Context())
	if !heard() || heard() || names(r) != "b c " {
		t.Errorf("two changes were not merged into one, or shows %q", names(r))
	}
	stop()
	b.set(nil)
	g.Rebind(t.Context())
	if heard() {
		t.Error("told after stop")
	}
}

func TestARunWithAnUnmetTaskShowsNothingAndSaysWhy(t *testing.T) {
	b := &binder{tools: []string{"a"}}
	g := registry(b)
	r := open(t, g, alice)
	started := r.Surface()

	unmet := switchboard.Refuse(switchboard.CodeUnmet, "no")
	b.set(unmet)
	g.Rebind(t.Context())
	if names(r) != "" || !errors.Is(r.Err(), unmet) {
		t.Errorf("shows %q, says %v", names(r), r.Err())
	}
	if _, ok := started.Lookup("a"); !ok {
		t.Error("a call that had started lost its surface")
	}
	b.set(nil, "a")
	g.Rebind(t.Context())
	if names(r) != "a " || r.Err() != nil {
		t.Errorf("met again, but shows %q, says %v", names(r), r.Err())
	}
	if b.prev != started {
		t.Error("the names that it had shown were forgotten")
	}
	b.gone = "browse"
	g.Rebind(t.Context())
	if names(r) != "" || r.Err() == nil {
		t.Errorf("its task was removed, but it shows %q", names(r))
	}
	if ok := found(t, g, alice, r.ID()); ok {
		t.Error("a run of a task that was removed is still found")
	}
}

func TestABaseRunRecoversByItself(t *testing.T) {
	b := &binder{tools: []string{"a"}}
	g := registry(b)
	r, _ := g.Base(t.Context(), alice, "browse")
	b.set(errors.New("stage cannot tell"))
	g.Rebind(t.Context())
	if _, err := g.Base(t.Context(), alice, "browse"); err == nil {
		t.Error("a task that cannot be met was bound")
	}
	b.set(nil, "a", "b")
	again, err := g.Base(t.Context(), alice, "browse")
	if err != nil || again != r || names(again) != "a b " {
		t.Errorf("got %v, %v", again, err)
	}
}

func TestARecoveredBaseRunHasItsDeclaredTaskAndSurface(t *testing.T) {
	b := &binder{tools: []string{"a"}}
	g := registry(b)
	r, _ := g.Base(t.Context(), alice, "")
	declared := &switchboard.Task{ID: switchboard.DeclaredTask}
	if err := g.Declare(t.Context(), r, declared); err != nil {
		t.Fatal(err)
	}
	shown := r.Surface()
	b.set(errors.New("nothing serves this"))
	g.Rebind(t.Context())
	b.set(nil, "a")
	again, err := g.Base(t.Context(), alice, "")
	if err != nil || again.Task() != declared.ID || b.prev != shown {
		t.Errorf("%v; task %q; follows what it had shown: %v", err, again.Task(), b.prev == shown)
	}
}

func TestARebindKeepsAnEarlierChangeOfTheRun(t *testing.T) {
	b := &binder{tools: []string{"a"}}
	g := registry(b)
	r := open(t, g, alice)
	var changed *surface.Surface
	if err := r.Change(t.Context(), func(s *surface.Surface) (*surface.Surface, error) {
		changed = s.WithExpanded(nil, nil)
		return changed, nil
	}); err != nil {
		t.Fatal(err)
	}
	g.Rebind(t.Context())
	if b.prev != changed {
		t.Error("the change was forgotten")
	}
	if err := g.Declare(t.Context(), r, &switchboard.Task{ID: switchboard.DeclaredTask}); err == nil || r.Task() != "browse" {
		t.Errorf("a run that has a task was bound to another: %v", err)
	}
}

func TestATaskIsDeclaredWithoutWaitingForTheRunsOfOthers(t *testing.T) {
	b := &stuckBinder{stuck: make(chan struct{}), entered: make(chan struct{})}
	g := run.New(b, surface.New(surface.Input{}), store.NewMemory())
	open(t, g, switchboard.Principal{Tenant: "slow", ID: "bob"})
	r, err := g.Open(t.Context(), alice, "", "")
	if err != nil {
		t.Fatal(err)
	}
	b.on.Store(true)
	rebound := make(chan struct{})
	go func() { g.Rebind(t.Context()); close(rebound) }()
	<-b.entered
	unstick := sync.OnceFunc(func() { close(b.stuck) })
	defer unstick()
	done := make(chan error, 1)
	go func() { done <- g.Declare(t.Context(), r, &switchboard.Task{ID: switchboard.DeclaredTask}) }()
	if err := wait.Receive(t, "a tenant that has nothing to do with what is stuck is not held up", done); err != nil || r.Task() != switchboard.DeclaredTask {
		t.Errorf("%v; task %q", err, r.Task())
	}
	unstick()
	<-rebound
}

// stuckBinder binds nothing of the tenant slow once on, until stuck is closed.
type stuckBinder struct {
	binder
	on             atomic.Bool
	stuck, entered chan struct{}
}

func (b *stuckBinder) Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	if p.Tenant == "slow" && b.on.Load() {
		close(b.entered)
		<-b.stuck
	}
	return b.binder.Bind(ctx, p, task, was)
}

func TestAnIdleRunIsEvictedUnlessItIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := registry(&binder{})
		idle, used, watched := open(t, g, alice), open(t, g, alice), open(t, g, alice)
		defer watched.Watch(&watcher{}, false)()
		time.Sleep(run.Idle)
		used.Surface()
		time.Sleep(time.Minute)
		g.Sweep(t.Context())
		for name, want := range map[*run.Run]bool{idle: false, used: true, watched: true} {
			if ok := found(t, g, alice, name.ID()); ok != want {
				t.Errorf("found = %v, want %v", ok, want)
			}
		}
	})
}

func TestRunsOfOnePrincipalAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := registry(&binder{})
		first := open(t, g, alice)
		for range run.MaxRuns - 1 {
			time.Sleep(time.Nanosecond)
			open(t, g, alice).Watch(&watcher{}, false)
		}
		time.Sleep(run.Idle - time.Minute)
		var full *switchboard.Error
		if _, err := g.Open(t.Context(), alice, "browse", ""); !errors.As(err, &full) || full.Code != switchboard.CodeOverloaded {
			t.Errorf("run %d: error %v, want %s", run.MaxRuns+1, err, switchboard.CodeOverloaded)
		}
		if ok := found(t, g, alice, first.ID()); !ok {
			t.Error("a run that its client may still name is gone")
		}
		time.Sleep(run.Idle + time.Minute)
		last := open(t, g, alice)
		if ok := found(t, g, alice, first.ID()); ok {
			t.Error("the run that was unused for an hour was not evicted")
		}
		last.Watch(&watcher{}, false)
		var refused *switchboard.Error
		if _, err := g.Open(t.Context(), alice, "browse", ""); !errors.As(err, &refused) || refused.Code != switchboard.CodeOverloaded {
			t.Errorf("with all of them watched: error %v, want %s", err, switchboard.CodeOverloaded)
		}
		if _, err := g.Open(t.Context(), switchboard.Principal{Tenant: "acme", ID: "bob"}, "browse", ""); err != nil {
			t.Errorf("another principal is kept out: %v", err)
		}
	})
}

// A client that opens one session after another is not locked out, and a run that somebody can name is kept.
func TestAReleasedRunMakesRoomUnlessSomebodyNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := registry(&binder{})
		ended, named, watched := open(t, g, alice), open(t, g, alice), open(t, g, alice)
		watched.Watch(&watcher{}, false)
		for range run.MaxRuns - 3 {
			open(t, g, alice)
		}
		for _, r := range []*run.Run{ended, named, watched} {
			run.Release(r)
		}
		run.Keep(named)
		open(t, g, alice)
		var full *switchboard.Error
		if _, err := g.Open(t.Context(), alice, "browse", ""); !errors.As(err, &full) || full.Code != switchboard.CodeOverloaded {
			t.Errorf("error %v, want %s", err, switchboard.CodeOverloaded)
		}
		for r, want := range map[*run.Run]bool{ended: false, named: true, watched: true} {
			if got := found(t, g, alice, r.ID()); got != want {
				t.Errorf("found = %t, want %t (ended %t, named %t, watched %t)", got, want, r == ended, r == named, r == watched)
			}
		}
	})
}

// No run may show an old surface after a change during its bind.
func TestNoRunMissesAChangeDuringItsBind(t *testing.T) {
	b := &binder{tools: []string{"old"}}
	g := registry(b)
	var wg sync.WaitGroup
	runs := make(chan *run.Run, 400)
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if r, err := g.Open(t.Context(), alice, "browse", ""); err == nil {
					runs <- r
				}
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			g.Rebind(t.Context())
		}
		b.set(nil, "new")
		g.Rebind(t.Context())
	})
	wg.Wait()
	close(runs)
	for r := range runs {
		if names(r) != "new " {
			t.Fatalf("a run shows %q", names(r))
		}
	}
}

func TestRefreshBindsOnlyRunsThatChangeWithTime(t *testing.T) {
	b := &binder{tools: []string{"one"}}
	g := registry(b)
	r, other := open(t, g, alice), open(t, g, alice)
	var w watcher
	defer r.Watch(&w, false)()
	before := r.Surface()

	b.set(nil, "two")
	g.Refresh(t.Context(), r)
	if got := names(r); got != "one " || b.binds != 1 {
		t.Errorf("a stable run was bound again: %s, %d binds", got, b.binds)
	}
	b.turns = true
	b.set(nil, "one")
	g.Refresh(t.Context(), r)
	if r.Surface() != before || w.times.Load() != 0 {
		t.Error("an unchanged surface was replaced")
	}
	b.set(nil, "two")
	g.Refresh(t.Context(), r)
	if got := names(r) + names(other); got != "two one " || w.times.Load() != 1 {
		t.Errorf("shown %s; %d changes were told", got, w.times.Load())
	}
	if got := names(open(t, g, alice)); got != "two " {
		t.Errorf("a new run shows %s, which is outdated", got)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	b.set(context.Canceled)
	g.Refresh(gone, r)
	if got := names(r); got != "two " || r.Err() != nil {
		t.Errorf("a client that went away took the list with it: %s, %v", got, r.Err())
	}
}

func TestARunIsBoundAgainAfterItsPolicyFailed(t *testing.T) {
	for code, want := range map[switchboard.Code]string{switchboard.CodePolicyFailed: "one ", switchboard.CodeUnmet: ""} {
		b := &binder{tools: []string{"one"}}
		g := registry(b)
		r := open(t, g, alice)
		b.set(&switchboard.Error{Code: code})
		g.Rebind(t.Context())
		b.set(nil, "one")
		g.Refresh(t.Context(), r)
		if got := names(r); got != want {
			t.Errorf("after %s it shows %q, want %q", code, got, want)
		}
	}
}

// A tool that policy could not judge comes back once policy can judge it. If policy fails each time, a run costs one bind a second.
func TestARunIsBoundAgainForAToolThatPolicyCouldNotJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &binder{tools: []string{"one"}, failed: "two"}
		g := registry(b)
		r := open(t, g, alice)
		for range 10 {
			time.Sleep(1100 * time.Millisecond)
			for range 5 {
				g.Refresh(t.Context(), r)
			}
		}
		if got := names(r); got != "one " || b.binds != 11 {
			t.Errorf("while policy fails: %q, %d binds", got, b.binds)
		}
		b.failed = ""
		b.set(nil, "one", "two")
		time.Sleep(1100 * time.Millisecond)
		g.Refresh(t.Context(), r)
		g.Refresh(t.Context(), r)
		if got := names(r); got != "one two " || b.binds != 12 {
			t.Errorf("when policy works again: %q, %d binds", got, b.binds)
		}
	})
}

// A tool that policy denies at last is missing for good.
func TestARunIsNotBoundAgainOnceTheToolIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &binder{tools: []string{"one"}, failed: "two"}
		g := registry(b)
		r := open(t, g, alice)
		b.failed = ""
		for range 3 {
			time.Sleep(1100 * time.Millisecond)
			g.Refresh(t.Context(), r)
		}
		if b.binds != 2 {
			t.Errorf("%d binds, want the first and the one that found it denied", b.binds)
		}
	})
}

// Each list is decided after its request, but there are fewer decisions than lists.
func TestConcurrentListsShareADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBinder{binder: binder{tools: []string{"one"}, turns: true}}
		g := run.New(b, surface.New(surface.Input{}), store.NewMemory())
		r := open(t, g, alice)
		b.binds = 0
		var work sync.WaitGroup
		for i := range 50 {
			work.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				g.Refresh(t.Context(), r)
			})
		}
		work.Wait()
		// The first decision begins at 0. One more serves all requests that came
		// during its second, because each of them came before that one began.
		if b.binds != 2 {
			t.Errorf("bound %d times", b.binds)
		}
	})
}

// slowBinder takes a second.
type slowBinder struct{ binder }

func (b *slowBinder) Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	time.Sleep(time.Second)
	return b.binder.Bind(ctx, p, task, was)
}
