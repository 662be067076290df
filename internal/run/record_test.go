package run_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
)

func found(t *testing.T, g *run.Runs, p switchboard.Principal, id switchboard.RunID) bool {
	t.Helper()
	r, err := g.Find(t.Context(), p, id)
	if err != nil {
		t.Fatal(err)
	}
	return r != nil
}

// grouped binds tools that are all members of one group; what is declared shows one
// tool more.
type grouped struct {
	mu    sync.Mutex
	tools []string // server/tool; !server/tool is one that is always listed
}

func (g *grouped) set(tools ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tools = tools
}

func (*grouped) Resolve(_ switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return task, nil
}

func (*grouped) Lasts(switchboard.TenantID) bool { return true }

func (*grouped) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	return nil, nil
}

func (g *grouped) Bind(_ context.Context, _ switchboard.Principal, _ switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in := surface.Input{Task: &switchboard.Task{Requirements: []switchboard.Requirement{{}}}, Prev: was.Surface}
	tools := g.tools
	if was.Declared != nil {
		tools = append(slices.Clone(tools), "own/"+string(was.Declared.Requirements[0].Resource))
	}
	for _, name := range tools {
		name, listed := strings.CutPrefix(name, "!")
		id, err := switchboard.ParseToolID(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(was.Abandoned, id.Server) {
			continue
		}
		in.Selected = append(in.Selected, decide.Selected{Tool: &switchboard.Tool{ID: id, Definition: []byte(`{"name":"` + id.Name + `"}`)}, Requirements: []int{0}})
		in.Memberships = append(in.Memberships, surface.Membership{Group: map[bool]string{false: "all"}[listed]})
	}
	return surface.New(in), nil
}

// A process is one of several that have the same store.
type process struct {
	*run.Runs
	*grouped
}

func start(t *testing.T, st store.Store, tools ...string) process {
	t.Helper()
	b := &grouped{tools: tools}
	g := run.New(b, surface.New(surface.Input{}), st)
	go g.FollowStore(t.Context())
	synctest.Wait()
	return process{g, b}
}

func expand(t *testing.T, r *run.Run, tool string) error {
	t.Helper()
	id, err := switchboard.ParseToolID(tool)
	if err != nil {
		t.Fatal(err)
	}
	return r.Change(t.Context(), func(s *surface.Surface) (*surface.Surface, error) {
		if len(s.Expanded()) >= 3 {
			return nil, errors.New("no room")
		}
		return s.WithExpanded(append(slices.Clone(s.Expanded()), surface.Expand(id)), s.Withheld()), nil
	})
}

func expanded(r *run.Run) string {
	var all []string
	for _, x := range r.PeekSurface().Expanded() {
		all = append(all, x.Tool.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// A program of ours that has chosen the id of a run continues the run in a later process. No other principal gets it.
func TestARunThatWasOpenedUnderAnIDIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, id := store.NewMemory(), run.NewID()
		first, second := start(t, st, "a/x", "a/y"), start(t, st, "a/x", "a/y")
		ctx := t.Context()
		here, err := first.Open(ctx, alice, "browse", id)
		if err != nil || here.ID() != id {
			t.Fatalf("%v, %v", here, err)
		}
		if err := expand(t, here, "a/x"); err != nil {
			t.Fatal(err)
		}
		here.Forget()
		for who, g := range map[string]process{"the same process": first, "another process": second} {
			again, err := g.Open(ctx, alice, "browse", id)
			if err != nil || again.ID() != id || expanded(again) != "a/x" {
				t.Errorf("%s: %v, %v", who, again, err)
			}
		}
		if r, err := second.Open(ctx, switchboard.Principal{Tenant: "acme", ID: "bob"}, "browse", id); err == nil {
			t.Errorf("bob gets the run of %s", r.Principal().ID)
		}
		if r, err := first.Open(ctx, alice, "browse", "x"); err == nil {
			t.Errorf("%q is no id, and it is given a run", r.ID())
		}
	})
}

func TestARunContinuesInAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		first, second := start(t, st, "a/x", "a/y", "b/z"), start(t, st, "a/x", "a/y", "b/z")
		ctx := t.Context()
		here, err := first.Open(ctx, alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := expand(t, here, "a/x"); err != nil {
			t.Fatal(err)
		}
		there, err := second.Find(ctx, alice, here.ID())
		if err != nil || there == nil {
			t.Fatalf("found %v, %v", there, err)
		}
		if got := expanded(there); got != "a/x" || there.Task() != "browse" {
			t.Errorf("task %s, expanded %q", there.Task(), got)
		}
		heard := &watcher{}
		defer here.Watch(heard, false)()
		if err := expand(t, there, "b/z"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := expanded(here); got != "a/x b/z" || heard.times.Load() != 1 {
			t.Errorf("in the first process %q is expanded, and its client was notified of %d changes", got, heard.times.Load())
		}
		if found(t, second.Runs, switchboard.Principal{Tenant: "acme", ID: "mallory"}, here.ID()) {
			t.Error("another principal has found the run")
		}
		for _, id := range []switchboard.RunID{"", "x", here.ID()[1:], "../" + here.ID(), switchboard.RunID(strings.Repeat("0", 32))} {
			if found(t, second.Runs, alice, id) {
				t.Errorf("%q is a run", id)
			}
		}
	})
}

func TestTwoProcessesTogetherExpandNoMoreThanTheRoomAllows(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		var tools []string
		for i := range 20 {
			tools = append(tools, fmt.Sprintf("a/t%d", i))
		}
		var work sync.WaitGroup
		var runs []*run.Run
		for p := range 4 {
			r, err := start(t, st, tools...).Base(t.Context(), alice, "browse")
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
			for i := range 5 {
				work.Go(func() { _ = expand(t, r, tools[5*p+i]) }) // some find no room
			}
		}
		work.Wait()
		synctest.Wait()
		for _, r := range runs {
			if n := len(r.PeekSurface().Expanded()); n != 3 || expanded(r) != expanded(runs[0]) {
				t.Errorf("%d are expanded: %s; the first shows %s", n, expanded(r), expanded(runs[0]))
			}
		}
	})
}

func TestADeclaredTaskAndAbandonedServersOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		ctx := t.Context()
		first := start(t, st, "a/x", "b/x")
		r, err := first.Base(ctx, alice, "")
		if err != nil {
			t.Fatal(err)
		}
		task := &switchboard.Task{ID: switchboard.DeclaredTask, Requirements: []switchboard.Requirement{{Verb: "read", Resource: "code"}}}
		if err := first.Declare(ctx, r, task); err != nil {
			t.Fatal(err)
		}
		first.ReplaceServers(ctx, func(*surface.Surface) []switchboard.ServerID { return []switchboard.ServerID{"b"} })

		second := start(t, st, "a/x", "b/x")
		again, err := second.Base(ctx, alice, "")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := names(again), names(r); got != want || again.Task() != switchboard.DeclaredTask {
			t.Errorf("task %s, shows %q, was %q", again.Task(), got, want)
		}
		other := &switchboard.Task{ID: switchboard.DeclaredTask, Requirements: []switchboard.Requirement{{Verb: "read", Resource: "logs"}}}
		if err := second.Declare(ctx, again, other); err == nil || codeOf(err) != switchboard.CodeTaskRefused {
			t.Errorf("it was bound twice: %v", err)
		}
		if err := second.Declare(ctx, again, task); err != nil {
			t.Errorf("declared as it is: %v", err)
		}
	})
}

func codeOf(err error) switchboard.Code {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Code
	}
	return ""
}

// A muffled store applies a change and returns ErrUnavailable once.
type muffled struct {
	store.Store
	on atomic.Bool
}

func (m *muffled) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	v, err := m.Store.Apply(ctx, c)
	if strings.HasPrefix(c.Group, "runs/") && m.on.Swap(false) {
		return 0, store.ErrUnavailable
	}
	return v, err
}

func TestAChangeThatMayHaveBeenSavedIsReportedAsSuchAndCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &muffled{Store: store.NewMemory()}
		ctx := t.Context()
		first, second := start(t, st, "a/x", "b/x"), start(t, st, "a/x", "b/x")
		r, err := first.Open(ctx, alice, "", "")
		if err != nil {
			t.Fatal(err)
		}
		unsure := func(what string, do func() error) {
			t.Helper()
			st.on.Store(true)
			switch err := do(); {
			case codeOf(err) != switchboard.CodeStoreUnavailable || !strings.Contains(err.Error(), "may have been done") || strings.Contains(err.Error(), "nothing was done"):
				t.Errorf("%s: %v", what, err)
			case do() != nil:
				t.Errorf("%s, once more: %v", what, do())
			}
		}
		task := func() *switchboard.Task {
			return &switchboard.Task{ID: switchboard.DeclaredTask, Requirements: []switchboard.Requirement{{Verb: "read", Resource: "code"}}}
		}
		unsure("declared", func() error { return first.Declare(ctx, r, task()) })
		unsure("expanded", func() error {
			return r.Change(ctx, func(s *surface.Surface) (*surface.Surface, error) {
				if len(s.Expanded()) > 0 {
					return nil, nil
				}
				return s.WithExpanded([]*surface.Expansion{surface.Expand(switchboard.ToolID{Server: "a", Name: "x"})}, nil), nil
			})
		})
		there, err := second.Find(ctx, alice, r.ID())
		if err != nil || there == nil {
			t.Fatal(there, err)
		}
		for _, r := range []*run.Run{r, there} {
			if r.Task() != switchboard.DeclaredTask || expanded(r) != "a/x" {
				t.Errorf("task %q, expanded %s", r.Task(), expanded(r))
			}
		}
		other := task()
		other.Requirements[0].Resource = "logs"
		if err := first.Declare(ctx, r, other); codeOf(err) != switchboard.CodeTaskRefused {
			t.Errorf("another task: %v", err)
		}
	})
}

// A client that does not list again calls names that were shown to it by another process, which is gone.
func TestAnotherProcessKnowsWhichToolsAClientWasShown(t *testing.T) {
	law.Hold(t, law.OneDecision)
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		ctx := t.Context()
		first := start(t, st, "a/search")
		minted, err := first.Open(ctx, alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		base, err := first.Base(ctx, alice, "browse")
		if err != nil {
			t.Fatal(err)
		}
		for _, client := range []string{"one", "two"} {
			first.RecordListed(ctx, base, client, base.Surface().Table(true))
		}
		if err := expand(t, minted, "a/search"); err != nil {
			t.Fatal(err)
		}
		e, _ := base.Surface().Lookup("search")
		first.RecordShown(ctx, base, "two", surface.SightOf(e))

		second := start(t, st, "a/search", "b/search")
		for _, was := range []struct {
			*run.Run
			client, name string
			goes         bool
		}{
			{minted, "", "search", true}, // it is not known whether it was listed
			{base, "two", "search", true},
			{base, "one", "search", false},   // a member, of which it was shown the stub alone
			{base, "three", "search", false}, // nobody
		} {
			now, err := second.Base(ctx, alice, "browse")
			if was.ID() != "" {
				now, err = second.Find(ctx, alice, was.ID())
			}
			if err != nil {
				t.Fatal(err)
			}
			way := now.Surface().Route(now.Seen(was.client), was.name, false)
			if goes := way.Kind == surface.Forward && way.Entry.Tool.ID.Server == "a"; goes != was.goes {
				t.Errorf("run %q, client %q: %s goes to a: %v, want %v", was.ID(), was.client, was.name, goes, was.goes)
			}
		}
	})
}

// Clients of one base run that are shown things at once, by two processes: nothing is lost.
func TestBothProcessesKnowWhichToolsTheirClientsWereShownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		ctx := t.Context()
		var bases []*run.Run
		var processes []process
		for range 2 {
			p := start(t, st, "a/search")
			r, err := p.Base(ctx, alice, "browse")
			if err != nil {
				t.Fatal(err)
			}
			processes, bases = append(processes, p), append(bases, r)
		}
		var work sync.WaitGroup
		for i, p := range processes {
			for n := range 10 {
				work.Go(func() {
					p.RecordListed(ctx, bases[i], fmt.Sprintf("client %d of %d", n, i), bases[i].Surface().Table(true))
				})
			}
		}
		work.Wait()
		synctest.Wait()
		for i, r := range bases {
			for j := range processes {
				for n := range 10 {
					if r.Seen(fmt.Sprintf("client %d of %d", n, j)) == nil {
						t.Errorf("process %d does not know what client %d of process %d was shown", i, n, j)
					}
				}
			}
		}
		third := start(t, st, "a/search")
		for n := range run.MaxClients + 1 {
			third.RecordListed(ctx, bases[0], fmt.Sprint("more ", n), bases[0].Surface().Table(true))
		}
		if bases[0].Seen("more 0") != nil || bases[0].Seen("more 1") == nil { // it knows the list
			t.Errorf("with more than %d clients, the run does not remember those with the latest lists", run.MaxClients)
		}
		// A client that lists again and again is not the one that makes room.
		for n := range run.MaxClients {
			third.RecordListed(ctx, bases[0], fmt.Sprint("other ", n), bases[0].Surface().Table(true))
			third.RecordListed(ctx, bases[0], "more 1", bases[0].Surface().Table(true))
		}
		if bases[0].Seen("more 1") == surface.Lost {
			t.Error("a client that has just listed is forgotten")
		}
	})
}

func TestARunLivesAsLongAsAnyProcessUsesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		first := start(t, st, "a/x")
		r, err := first.Open(t.Context(), alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		for range 30 { // five hours
			time.Sleep(10 * time.Minute)
			r.Surface()
			first.Sweep(t.Context())
		}
		if !found(t, start(t, st, "a/x").Runs, alice, r.ID()) {
			t.Error("the run is in use, and was evicted")
		}
		for range 7 {
			time.Sleep(10 * time.Minute)
			first.Sweep(t.Context())
		}
		if found(t, start(t, st, "a/x").Runs, alice, r.ID()) {
			t.Error("the run is found although it was unused for longer than Idle")
		}
	})
}

func TestWithoutTheStoreARunShowsNoUnsavedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		g := start(t, st, "a/x")
		r, err := g.Base(t.Context(), alice, "browse")
		if err != nil {
			t.Fatal(err)
		}
		_ = st.Close() // it stays unavailable
		refused := func(what string, err error) {
			if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != switchboard.CodeStoreUnavailable {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("expanding", expand(t, r, "a/x"))
		if got := expanded(r); got != "" {
			t.Errorf("%q is expanded", got)
		}
		_, err = g.Open(t.Context(), alice, "browse", "")
		refused("minting", err)
		_, err = g.Find(t.Context(), alice, switchboard.RunID(strings.Repeat("0", 32)))
		refused("finding", err)
		if _, err := g.Base(t.Context(), alice, "other"); err != nil {
			t.Errorf("a base run without a record: %v", err)
		}
	})
}

// emptied is a store that loses all its values at some moment.
type emptied struct{ store.Store }

func TestARunThatTheStoreHasLostIsSavedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &emptied{store.NewMemory()}
		ctx := t.Context()
		first := start(t, st, "a/search")
		r, err := first.Open(ctx, alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		first.set("a/search", "b/search")
		first.Rebind(ctx)
		st.Store = store.NewMemory()
		for range 2 { // the first notices the loss, the second saves the run
			time.Sleep(15 * time.Minute)
			r.Surface()
			first.Sweep(ctx)
		}
		second := start(t, st, "a/search", "b/search")
		now, err := second.Find(ctx, alice, r.ID())
		if err != nil || now == nil {
			t.Fatalf("found %v, %v", now, err)
		}
		if got, want := names(now), names(r); got != want {
			t.Errorf("it shows %q, was %q", got, want)
		}
	})
}

// slow is an unavailable store that takes a second to answer.
type slow struct {
	store.Store
	uses int
}

func (s *slow) Apply(context.Context, store.Change) (store.Version, error) {
	s.uses++
	time.Sleep(time.Second)
	return 0, store.ErrUnavailable
}

func TestASweepWaitsForAnUnavailableStoreOnceAndNotForEachRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slow{Store: store.NewMemory()}
		gone := &emptied{st.Store}
		g := start(t, gone, "a/x")
		var runs []*run.Run
		for range 20 {
			r, err := g.Open(t.Context(), alice, "browse", "")
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		time.Sleep(30 * time.Minute)
		for _, r := range runs {
			r.Surface()
		}
		gone.Store = st
		g.Sweep(t.Context())
		if st.uses != 1 {
			t.Errorf("it was asked %d times", st.uses)
		}
	})
}

func TestAProcessKeepsExpansionsOfAServerThatItDoesNotKnowYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		first := start(t, st, "a/x", "b/z")
		here, err := first.Open(t.Context(), alice, "browse", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"a/x", "b/z"} {
			if err := expand(t, here, tool); err != nil {
				t.Fatal(err)
			}
		}
		late := start(t, st, "a/x")
		there, err := late.Find(t.Context(), alice, here.ID())
		if err != nil || there == nil {
			t.Fatalf("found %v, %v", there, err)
		}
		for range 3 {
			time.Sleep(10 * time.Minute)
			if !found(t, late.Runs, alice, here.ID()) || !found(t, first.Runs, alice, here.ID()) {
				t.Fatal("the run is gone")
			}
			late.Sweep(t.Context())
			first.Sweep(t.Context())
			synctest.Wait()
		}
		if got := expanded(there); got != "a/x" {
			t.Errorf("without the server %q is expanded", got)
		}
		if got := expanded(here); got != "a/x b/z" {
			t.Errorf("where the server is, %q is expanded", got)
		}
		late.set("a/x", "b/z")
		late.Rebind(t.Context())
		if got := expanded(there); got != "a/x b/z" {
			t.Errorf("when the server is there %q is expanded", got)
		}
	})
}

// chatty is a store that sends notices during Subscribe.
type chatty struct{ store.Store }

func (c chatty) Subscribe(topic string, heard func([]byte)) (stop func()) {
	for range 3 {
		heard(nil)
	}
	return c.Store.Subscribe(topic, heard)
}

func TestFollowIsNotBlockedByNoticesDuringItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			run.New(&grouped{}, surface.New(surface.Input{}), chatty{store.NewMemory()}).FollowStore(ctx)
		}()
		synctest.Wait()
		cancel()
		<-ended
	})
}
