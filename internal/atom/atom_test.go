package atom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "canary-7f3a9c51"

// A wire is a store that can be disconnected.
type wire struct {
	store.Store
	gone atomic.Bool
	mute atomic.Bool // notices are lost

	mu     sync.Mutex
	before map[string]func() // by the first part of a value's name: is called once, before such a value is stored
}

var errPulled = fmt.Errorf("%w: pulled", store.ErrUnavailable)

func (w *wire) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if w.gone.Load() {
		return store.Value{}, errPulled
	}
	return w.Store.Value(ctx, k)
}

func (w *wire) List(ctx context.Context, group string) ([]store.NamedValue, error) {
	if w.gone.Load() {
		return nil, errPulled
	}
	return w.Store.List(ctx, group)
}

func (w *wire) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if w.gone.Load() {
		return 0, errPulled
	}
	w.mu.Lock()
	kind, _, _ := strings.Cut(c.Writes[0].Name, "/")
	before := w.before[kind]
	delete(w.before, kind)
	w.mu.Unlock()
	if before != nil {
		before()
		ctx = context.WithoutCancel(ctx) // the deadline passed while the process was paused
	}
	return w.Store.Apply(ctx, c)
}

func (w *wire) Publish(ctx context.Context, topic string, data []byte) error {
	if w.gone.Load() {
		return errPulled
	}
	if w.mute.Load() {
		return nil
	}
	return w.Store.Publish(ctx, topic, data)
}

// A world has atoms that a tool probes, whose answers the test sets, and replicas that probe them.
type world struct {
	t     testing.TB
	store *wire
	log   lockedBuffer

	mu     sync.Mutex
	sick   map[string]bool          // by tool
	lasts  map[string]time.Duration // how long a probe lasts
	absent map[string]bool          // tools that no server has
	calls  map[string]int
	now    map[string]int // calls in flight
	most   int            // calls in flight at once, of one tool
	peak   int            // of all tools
}

// A lockedBuffer collects log output.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t testing.TB, s store.Store) *world {
	return &world{
		t: t, store: &wire{Store: s}, sick: map[string]bool{}, lasts: map[string]time.Duration{}, absent: map[string]bool{}, calls: map[string]int{}, now: map[string]int{},
	}
}

// inWorld runs f in a bubble, with a store in memory.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		t.Cleanup(func() { _ = s.Close() })
		f(t, newWorld(t, s))
	})
}

func (w *world) find(id switchboard.ToolID) (*switchboard.Tool, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	yes := switchboard.Fact{Holds: true, Trusted: true, Source: "overlay"}
	return &switchboard.Tool{ID: id, Contract: switchboard.Contract{ReadOnly: yes}}, !w.absent[id.Name]
}

func (w *world) call(ctx context.Context, tool *switchboard.Tool, _ json.RawMessage) (switchboard.Result, error) {
	name := tool.ID.Name
	w.mu.Lock()
	w.calls[name]++
	w.now[name]++
	all := 0
	for _, n := range w.now {
		all += n
	}
	w.most, w.peak = max(w.most, w.now[name]), max(w.peak, all)
	lasts := w.lasts[name]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now[name]--
	}()
	if lasts > 0 {
		select {
		case <-ctx.Done():
			return switchboard.Result{}, ctx.Err()
		case <-time.After(lasts):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return switchboard.Result{JSON: fmt.Appendf(nil, `{"isError":%v}`, w.sick[name])}, nil
}

func (w *world) set(name string, sick bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sick[name] = sick
}

func (w *world) last(name string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lasts[name] = d
}

// lose takes the tool from the catalog, so that no probe can be made.
func (w *world) lose(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.absent[name] = true
}

// called returns how often the tool a was called since the last time.
func (w *world) called() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.calls["a"]
	w.calls["a"] = 0
	return n
}

func (w *world) options() atom.Options {
	return atom.Options{Store: w.store, Find: w.find, Call: w.call, Log: slog.New(slog.NewJSONHandler(&w.log, nil))}
}

// replica returns a Prober of these atoms.
func (w *world) replica(atoms ...*capability.Atom) *atom.Prober {
	w.t.Helper()
	p := atom.Open(w.options())
	w.t.Cleanup(p.Close)
	p.Use(registry(w.t, atoms...))
	return p
}

func registry(t testing.TB, atoms ...*capability.Atom) *capability.Registry {
	t.Helper()
	all := map[string]*capability.Atom{}
	for _, a := range atoms {
		all[a.ID] = a
	}
	r, err := capability.New(nil, all, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// account returns an atom that the tool of its own name probes.
func account(id string, freshFor, every time.Duration) *capability.Atom {
	return &capability.Atom{ID: id, Kind: "account", FreshFor: freshFor, Every: every, Probe: capability.AtomProbe{Tool: switchboard.ToolID{Server: "s", Name: id}}}
}

// state returns the state of an atom now.
func state(p *atom.Prober, id string) capability.State { return p.View(time.Now()).State(id, 0) }

// settled is state, once nothing happens any more at this instant.
func settled(p *atom.Prober, id string) capability.State {
	synctest.Wait()
	return state(p, id)
}

func TestAFailedProbeIsMadeOnceMoreAfterASecond(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.replica(account("a", time.Hour, 0))
		w.set("a", true)
		p.Want("a")
		if got := settled(p, "a"); got != capability.Unknown || w.called() != 1 {
			t.Errorf("after one failure it is %s", got)
		}
		w.set("a", false)
		time.Sleep(time.Second)
		if got := settled(p, "a"); got != capability.Fresh || w.called() != 1 {
			t.Errorf("after a second attempt that succeeds it is %s", got)
		}
		w.set("a", true)
		time.Sleep(time.Second)
		p.Due(t.Context(), "a")
		if got := settled(p, "a"); got != capability.Red || w.called() != 2 {
			t.Errorf("after two failures it is %s", got)
		}
	})
}

func TestAHangingProbeIsRed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.replica(account("a", time.Hour, 0))
		w.last("a", time.Hour)
		begun := time.Now()
		p.Due(t.Context(), "a")
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("a caller waits for %s", took)
		}
		time.Sleep(6 * time.Second)
		if got := settled(p, "a"); got != capability.Red {
			t.Errorf("it is %s", got)
		}
		if got := p.Report(time.Now())[0].Reason; got != "it did not answer within 5s" {
			t.Errorf("the reason is %q", got)
		}
	})
}

func TestAnAtomIsFreshAsLongAsTheSmallerOfItsTimesSays(t *testing.T) {
	for _, tt := range []struct {
		freshFor, every, within, want time.Duration
	}{
		{freshFor: 9 * time.Minute, want: 9 * time.Minute},
		{freshFor: 9 * time.Minute, within: time.Minute, want: time.Minute},
		{freshFor: time.Minute, within: 9 * time.Minute, want: time.Minute},
		{every: 9 * time.Minute, want: 18 * time.Minute},
		{want: time.Minute},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			p := w.replica(account("a", tt.freshFor, tt.every))
			p.Due(t.Context(), "a")
			at := time.Now() // if the schedule has probed it just before, the probe waited for a rest
			w.lose("a")      // no later probe has a result
			for d, want := range map[time.Duration]capability.State{tt.want: capability.Fresh, tt.want + 1: capability.Stale} {
				time.Sleep(time.Until(at.Add(tt.want - time.Second)))
				synctest.Wait()
				if got := p.View(at.Add(d)).State("a", tt.within); got != want {
					t.Errorf("%+v: after %s it is %s, want %s", tt, d, got, want)
				}
			}
		})
	}
}

func TestAnAtomWithoutAResultIsUnknown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.lose("absent") // before a replica can probe it
		p := w.replica(account("never", time.Hour, 0), &capability.Atom{ID: "none"}, account("absent", time.Hour, time.Minute))
		time.Sleep(10 * time.Minute)
		for _, id := range []string{"never", "none", "absent", "undefined"} {
			p.Due(t.Context(), id)
			if want := map[bool]capability.State{true: capability.Fresh, false: capability.Unknown}[id == "never"]; settled(p, id) != want {
				t.Errorf("%s is %s", id, settled(p, id))
			}
		}
		if got := (atom.View{}).State("never", 0); got != capability.Unknown {
			t.Errorf("in the zero View it is %s", got)
		}
	})
}

func TestAServersHealthCountsAtOnceAndIsNeverStored(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := w.options()
		var why string
		var known bool
		o.Server = func(id switchboard.ServerID) (string, bool) { return why, known && id == "files" }
		p := atom.Open(o)
		defer p.Close()
		p.Use(registry(t, &capability.Atom{ID: "srv.files", Kind: "server", Probe: capability.AtomProbe{Server: "files"}}))
		for _, tt := range []struct {
			why   string
			known bool
			want  capability.State
		}{{"", false, capability.Unknown}, {"", true, capability.Fresh}, {"quarantine", true, capability.Red}} {
			before := p.View(time.Now())
			was := before.State("srv.files", 0)
			why, known = tt.why, tt.known
			if got := state(p, "srv.files"); got != tt.want {
				t.Errorf("%+v: it is %s", tt, got)
			}
			if got := before.State("srv.files", 0); got != was {
				t.Errorf("a View has changed from %s to %s", was, got)
			}
		}
		if got := p.Report(time.Now())[0]; got.Reason != "quarantine" {
			t.Errorf("the report says %+v", got)
		}
		rows, _ := w.store.List(t.Context(), atom.Group)
		for _, row := range rows {
			if row.Name != "salt" {
				t.Errorf("the store has %s", row.Name)
			}
		}
	})
}

func TestAllCallersWaitForOneProbeWhichGoesOnWithoutThem(t *testing.T) {
	for _, mute := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.mute.Store(mute)
			testManyCallers(t, w)
		})
	}
}

func testManyCallers(t *testing.T, w *world) {
	a := account("a", time.Hour, 0)
	one, two := w.replica(a), w.replica(a)
	w.last("a", 4*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() { []*atom.Prober{one, two}[i%2].Due(ctx, "a") })
	}
	callers.Wait() // all give up
	if got := settled(one, "a"); got != capability.Unknown {
		t.Errorf("before the answer it is %s", got)
	}
	for i := range 64 {
		callers.Go(func() { []*atom.Prober{one, two}[i%2].Due(t.Context(), "a") })
	}
	callers.Wait()
	if a, b := settled(one, "a"), settled(two, "a"); a != capability.Fresh || b != capability.Fresh {
		t.Errorf("after the answer it is %s and %s", a, b)
	}
	if n := w.called(); n != 1 {
		t.Errorf("it was probed %d times", n)
	}
}

func TestCallersCannotProbeAnAtomMoreThanOnceASecond(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.replica(account("a", time.Millisecond, 0))
		begun := time.Now()
		for time.Since(begun) < 10*time.Second {
			p.Due(t.Context(), "a")
			time.Sleep(10 * time.Millisecond)
		}
		if n := w.called(); n != 11 { // at the start, and at the end of each second
			t.Errorf("it was probed %d times", n)
		}
	})
}

func TestACallerThatComesRightAfterAProbeWaitsForTheNextOne(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.replica(account("a", 100*time.Millisecond, 0))
		p.Due(t.Context(), "a")
		time.Sleep(200 * time.Millisecond)
		if got := state(p, "a"); got != capability.Stale {
			t.Fatalf("it is %s", got)
		}
		if p.Due(t.Context(), "a"); state(p, "a") != capability.Fresh {
			t.Errorf("after the wait it is %s", state(p, "a"))
		}
	})
}

func TestACallerWaitsASecondAfterAProbeThatCouldNotBeMade(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.replica(account("a", time.Hour, 0))
		w.lose("a")
		p.Due(t.Context(), "a")
		begun := time.Now()
		p.Due(t.Context(), "a")
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it waits for %s", took)
		}
	})
}

func TestAnAtomThatIsGoneAfterItsRestIsNotProbed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.replica(account("a", time.Hour, 0))
		p.Due(t.Context(), "a")
		p.Want("a")
		p.Use(registry(t))
		time.Sleep(time.Minute)
		if n := w.called(); n != 1 {
			t.Errorf("it was probed %d times", n)
		}
	})
}

func TestReplicasThatStartAtOnceAgreeOnTheSalt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := account("a", time.Hour, 0)
		var other *atom.Prober
		w.store.before = map[string]func(){"salt": func() {
			other = w.replica(a)
			other.Due(context.Background(), "a")
		}}
		one := w.replica(a)
		time.Sleep(time.Second)
		if state(one, "a") != capability.Fresh || state(other, "a") != capability.Fresh {
			t.Errorf("it is %s and %s", state(one, "a"), state(other, "a"))
		}
	})
}

func TestAnAtomIsProbedByItsScheduleAndARedOneMoreOftenAtFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := account("a", 0, 12*time.Minute)
		one, two := w.replica(a), w.replica(a)
		synctest.Wait()
		if n := w.called(); n != 1 {
			t.Errorf("at the start it is probed %d times", n)
		}
		time.Sleep(12*time.Minute*9/10 - time.Second)
		if n := w.called(); n != 0 {
			t.Errorf("before it is due, it is probed %d times", n)
		}
		w.set("a", true)
		for settled(two, "a") != capability.Red {
			time.Sleep(time.Second)
		}
		red := one.Report(time.Now())[0].Probed
		if took := time.Since(red); w.called() != 2 || took > 2*time.Second {
			t.Errorf("when it is due, it is not probed twice, or this is heard %s later", took)
		}
		time.Sleep(time.Until(red.Add(11 * time.Minute)))
		if n := w.called(); n != 2*3 { // after 1, 3 and 7 minutes
			t.Errorf("in its first red minutes it is probed %d times", n)
		}
		time.Sleep(20 * time.Minute)
		if n := w.called(); n != 2*2 { // after 15 and 27 minutes
			t.Errorf("in the next 20 minutes it is probed %d times", n)
		}
		w.set("a", false)
		time.Sleep(13 * time.Minute)
		if got := settled(one, "a"); got != capability.Fresh {
			t.Errorf("it is %s", got)
		}
		if w.most > 1 {
			t.Errorf("%d probes ran at once", w.most)
		}
	})
}

func TestAtMostEightProbesOfAReplicaRunAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var atoms []*capability.Atom
		for i := range 20 {
			a := account(fmt.Sprint("a", i), time.Hour, time.Hour)
			atoms = append(atoms, a)
			w.lasts[a.ID] = time.Second
		}
		p := w.replica(atoms...)
		time.Sleep(3*time.Second + time.Millisecond)
		for _, a := range atoms {
			if got := settled(p, a.ID); got != capability.Fresh {
				t.Errorf("%s is %s", a.ID, got)
			}
		}
		if w.peak != 8 {
			t.Errorf("%d probes ran at once", w.peak)
		}
	})
}

func TestAResultOutlivesAReloadAndARestartUnlessItsProbeChanges(t *testing.T) {
	t.Setenv("ATOM_TEST_SET", "x")
	inWorld(t, func(t *testing.T, w *world) {
		env := func(secret string) *capability.Atom {
			return &capability.Atom{ID: "env", FreshFor: time.Hour, Probe: capability.AtomProbe{
				Env: "ATOM_TEST_SET", Headers: map[string]switchboard.Secret{"Authorization": switchboard.NewSecret(secret)},
			}}
		}
		a, b := account("a", time.Hour, 0), account("b", time.Hour, 0)
		p := w.replica(a, b, env("one"))
		p.Due(t.Context(), "a", "b", "env")
		changed := account("b", time.Hour, 0)
		changed.Probe.Arguments = json.RawMessage(`{"x":1}`)
		other := account("a", time.Minute, 0) // only its times differ
		next := registry(t, other, changed, env("two"))
		p.Use(next)
		for i, p := range []*atom.Prober{p, w.replica(other, changed, env("two"))} {
			for id, want := range map[string]capability.State{"a": capability.Fresh, "b": capability.Unknown, "env": capability.Unknown} {
				if got := state(p, id); got != want {
					t.Errorf("replica %d: %s is %s, want %s", i, id, got, want)
				}
			}
		}
		p.Use(registry(t, a, b, env("one")))
		for _, id := range []string{"a", "b", "env"} {
			if got := state(p, id); got != capability.Fresh {
				t.Errorf("with its first probe, %s is %s", id, got)
			}
		}
		p.Use(registry(t))
		if got := state(p, "a"); got != capability.Unknown {
			t.Errorf("without an atom it is %s", got)
		}
	})
}

func TestWithoutTheStoreAnAtomIsUnknownUnlessThisProcessHasProbedItJustNow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		well, red := account("well", 24*time.Hour, 0), account("red", 24*time.Hour, 0)
		one, two := w.replica(well, red), w.replica(well, red)
		w.set("red", true)
		one.Due(t.Context(), "well", "red")
		synctest.Wait()
		w.store.gone.Store(true)
		time.Sleep(6 * time.Second)
		for i, p := range []*atom.Prober{one, two} {
			if a, b := settled(p, "well"), settled(p, "red"); a != capability.Unknown || b != capability.Red {
				t.Errorf("replica %d: they are %s and %s", i, a, b)
			}
		}
		two.Due(t.Context(), "well")
		if a, b := settled(one, "well"), settled(two, "well"); a != capability.Unknown || b != capability.Fresh {
			t.Errorf("after a probe of the second replica: %s and %s", a, b)
		}
		time.Sleep(6 * time.Second)
		if got := settled(two, "well"); got != capability.Unknown {
			t.Errorf("six seconds after it: %s", got)
		}
		// A red result that the store did not take counts here at once, and for all when the store is back.
		w.set("well", true)
		two.Due(t.Context(), "well")
		if got := settled(two, "well"); got != capability.Red {
			t.Errorf("after a failed probe: %s", got)
		}
		w.store.gone.Store(false)
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			if got := settled(two, "well"); got != capability.Red {
				t.Fatalf("with the store again: %s", got)
			}
		}
		if got := settled(one, "well"); got != capability.Red {
			t.Errorf("the first replica has it as %s", got)
		}
	})
}

func TestWithoutTheStoreAtTheStartAtomsAreUnknownUntilTheStoreIsBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := account("a", 24*time.Hour, 0)
		w.replica(a).Due(t.Context(), "a")
		w.store.gone.Store(true)
		late := w.replica(a)
		if got := settled(late, "a"); got != capability.Unknown {
			t.Errorf("without the store it is %s", got)
		}
		w.store.gone.Store(false)
		time.Sleep(time.Second)
		if got := settled(late, "a"); got != capability.Fresh {
			t.Errorf("with the store it is %s", got)
		}
	})
}

func TestAReplicaThatWasPausedDoesNotReplaceANewerResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := account("a", time.Hour, 0)
		one, two := w.replica(a), w.replica(a)
		w.store.before = map[string]func(){"result": func() { // the first replica has probed it, and is paused for longer than its lease lasts
			time.Sleep(30 * time.Second)
			w.set("a", true)
			two.Due(context.Background(), "a")
		}}
		one.Want("a")
		time.Sleep(30 * time.Second)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if a, b := settled(one, "a"), settled(two, "a"); a == capability.Fresh || b == capability.Fresh {
				t.Fatalf("it is %s and %s", a, b)
			}
		}
		if a, b := settled(one, "a"), settled(two, "a"); a != capability.Red || b != capability.Red {
			t.Errorf("it is %s and %s", a, b)
		}
	})
}

func TestAResultFromAClockThatIsFarAheadDoesNotCount(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := account("a", time.Hour, 0)
		p := w.replica(a)
		p.Due(t.Context(), "a")
		rows, err := w.store.List(t.Context(), atom.Group)
		if err != nil {
			t.Fatal(err)
		}
		set := func(ahead time.Duration) {
			for _, row := range rows {
				if strings.HasPrefix(row.Name, "result/") {
					text := fmt.Appendf(nil, `{"well":true,"at":%q}`, time.Now().Add(ahead).Format(time.RFC3339Nano))
					if _, err := w.store.Apply(t.Context(), store.Change{Group: atom.Group, Writes: []store.Write{{Name: row.Name, Was: store.Any, Data: text}}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(time.Second)
		}
		for ahead, want := range map[time.Duration]capability.State{time.Second: capability.Fresh, time.Hour: capability.Unknown} {
			if set(ahead); settled(p, "a") != want {
				t.Errorf("with a result from %s ahead it is %s", ahead, settled(p, "a"))
			}
		}
		// What this process has found red itself later stays red.
		set(30 * time.Second)
		w.store.gone.Store(true)
		w.set("a", true)
		p.Due(t.Context(), "a")
		w.store.gone.Store(false)
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			if got := settled(p, "a"); got != capability.Red {
				t.Fatalf("after a failed probe without the store it is %s", got)
			}
		}
	})
}

// Two processes that share a file hear each other without notices.
func TestAllReplicasHearAResultWithinASecond(t *testing.T) {
	hear := func(t *testing.T, w *world, replicas []*atom.Prober) {
		var late wait.Lateness
		for _, want := range []capability.State{capability.Fresh, capability.Red} {
			if want == capability.Red {
				w.set("a", true)
				time.Sleep(1100 * time.Millisecond) // the rest after the probe before
			}
			replicas[0].Due(t.Context(), "a")
			begun := time.Now()
			for i, p := range replicas {
				wait.Until(t, "a replica hears the result", func() bool { return state(p, "a") == want })
				if took := time.Since(begun); took > time.Second {
					late.Add("replica %d hears it after %s", i, took)
				}
			}
		}
		late.State(t)
	}
	a := account("a", time.Hour, 0)
	t.Run("memory", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) { hear(t, w, []*atom.Prober{w.replica(a), w.replica(a), w.replica(a)}) })
	})
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store.db")
		synctest.Test(t, func(t *testing.T) {
			var all []*atom.Prober
			w := newWorld(t, nil)
			for range 3 {
				f, err := store.OpenFile(path, store.FileOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Close() })
				w.store = &wire{Store: f}
				all = append(all, w.replica(a))
			}
			hear(t, w, all)
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redistest.Need(t)
		url := redistest.Start(t).URL()
		var all []*atom.Prober
		w := newWorld(t, nil)
		for range 3 {
			r, err := store.OpenRedis(t.Context(), url, store.RedisOptions{Relaxed: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Close() })
			w.store = &wire{Store: r}
			all = append(all, w.replica(a))
		}
		hear(t, w, all)
	})
}

func TestCloseEndsTheProbesInFlight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.replica(account("a", time.Hour, time.Hour))
		w.last("a", time.Hour)
		p.Want("a")
		time.Sleep(time.Second)
		begun := time.Now()
		p.Close()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("Close takes %s", took)
		}
		p.Due(t.Context(), "a")
		if _, err := w.store.List(t.Context(), atom.Group); errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
	})
}
