// Package run keeps the runs of tasks: who has bound which task, and what that
// shows now.
//
// What a client sees hangs on its run, never on a connection: a run is minted
// for each legacy session and stdio process, or on request, and only its
// principal can name it again. A modern request that names none uses the base
// run of its tenant, principal and task. When the catalog or the configuration
// changes, every run is bound again, and told where what it shows has changed;
// and so is one whose tenant's policy looks at the clock, before it is listed.
package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Binder decides what a run shows.
type Binder interface {
	// Resolve says which task p means by naming task ("" means the tenant's
	// default; the answer is "" where there is none). A task that p may not
	// bind, or that does not exist, is SB-TASK-001.
	Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error)

	// Bind decides for a resolved task. What prev shows keeps its name; prev
	// is nil at first. A task that cannot be met is an error, and shows
	// nothing.
	Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, prev *surface.Surface) (*surface.Surface, error)

	// Lasts reports whether what Bind gives for the tenant holds until the
	// next Rebind. Where it does not, it changes with time alone.
	Lasts(tenant switchboard.TenantID) bool
}

// Bounds of a Registry.
const (
	// MaxRuns is how many runs one principal may have. The one that was used
	// longest ago, and that nobody watches, makes room for a new one.
	MaxRuns = 1000

	// Idle is how long a run that nobody uses is kept for its principal to
	// name it again.
	Idle = time.Hour
)

// A Registry holds all runs of this process. Use New. It is safe for
// concurrent use.
type Registry struct {
	binder  Binder
	nothing *surface.Surface // what a run shows whose task cannot be met

	// rebind is held while runs are bound again, so that one change is dealt
	// with after the other.
	rebind sync.Mutex

	mu    sync.RWMutex
	runs  map[switchboard.RunID]*Run
	base  map[baseKey]*Run
	count map[owner]int

	// fresh holds what a first bind gives in this generation, so that 500
	// sessions of one task share one surface.
	fresh      map[baseKey]*surface.Surface
	generation int
}

type owner struct {
	tenant switchboard.TenantID
	id     string
}

type baseKey struct {
	owner
	task switchboard.TaskID
}

func ownerOf(p switchboard.Principal) owner { return owner{p.Tenant, p.ID} }

// New returns an empty Registry. A run whose task cannot be met any more shows
// nothing, which is a Surface too.
func New(b Binder, nothing *surface.Surface) *Registry {
	return &Registry{
		binder:  b,
		nothing: nothing,
		runs:    map[switchboard.RunID]*Run{},
		base:    map[baseKey]*Run{},
		count:   map[owner]int{},
		fresh:   map[baseKey]*surface.Surface{},
	}
}

// A Run is one client's use of a task. It is safe for concurrent use.
type Run struct {
	id        switchboard.RunID
	principal switchboard.Principal
	task      switchboard.TaskID

	shown atomic.Pointer[shown]
	used  atomic.Int64 // unix nanoseconds

	// binding holds one while the run is bound again: what is shown follows
	// what was shown before, names and all. bound is when that began last.
	binding chan struct{}
	bound   time.Time

	mu       sync.Mutex
	watchers map[*watch]struct{}
}

// A Watcher is told which kinds of what a run shows have changed. It does not
// wait for anything.
type Watcher interface{ Changed(switchboard.Kinds) }

type watch struct{ Watcher }

// shown is what a run shows, or why it shows nothing.
type shown struct {
	surface *surface.Surface
	err     error

	// named is the last surface that had names to keep: the run's own, unless
	// there is an error.
	named *surface.Surface
}

// ID returns the run's name.
func (r *Run) ID() switchboard.RunID { return r.id }

// Principal returns whose run it is.
func (r *Run) Principal() switchboard.Principal { return r.principal }

// Task returns the task that is bound, or "" for none.
func (r *Run) Task() switchboard.TaskID { return r.task }

// Surface returns what the run shows now. It is never nil. A call goes on with
// the Surface that it started with.
func (r *Run) Surface() *surface.Surface {
	r.used.Store(time.Now().UnixNano())
	return r.shown.Load().surface
}

// Err says why the run shows nothing, where a change of the catalog or the
// configuration has left its task unmet.
func (r *Run) Err() error { return r.shown.Load().err }

// Tools returns how many tools the run shows. Unlike Surface, it does not count
// as use of the run.
func (r *Run) Tools() int { return len(r.shown.Load().surface.Entries()) }

// Watch tells w of each change of what the run shows, until stop is called.
func (r *Run) Watch(w Watcher) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers == nil {
		r.watchers = map[*watch]struct{}{}
	}
	one := &watch{w}
	r.watchers[one] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, one)
		r.used.Store(time.Now().UnixNano())
	}
}

func (r *Run) show(s shown) {
	before := r.shown.Swap(&s)
	changed := before.surface.Differs(s.surface)
	if changed == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watchers {
		w.Changed(changed)
	}
}

func (r *Run) idleSince(t time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.watchers) == 0 && r.used.Load() < t.UnixNano()
}

// Open mints a run of the task for p and binds it. The error is a
// *switchboard.Error: SB-TASK-001 for a task that p may not bind, or why the
// task cannot be met.
func (g *Registry) Open(ctx context.Context, p switchboard.Principal, task switchboard.TaskID) (*Run, error) {
	task, err := g.binder.Resolve(p, task)
	if err != nil {
		return nil, err
	}
	return g.bind(ctx, p, task, func(r *Run) (*Run, error) {
		if !g.makeRoom(ownerOf(p)) {
			return nil, switchboard.Refuse(switchboard.CodeOverloaded, "you have %d runs open, which is all that one principal may have; end one", MaxRuns)
		}
		var b [16]byte
		rand.Read(b[:])
		r.id = switchboard.RunID(hex.EncodeToString(b[:]))
		g.runs[r.id] = r
		g.count[ownerOf(p)]++
		return r, nil
	})
}

// Base returns the run that modern requests of p for the task share, and binds
// it at first. Errors are those of Open.
func (g *Registry) Base(ctx context.Context, p switchboard.Principal, task switchboard.TaskID) (*Run, error) {
	task, err := g.binder.Resolve(p, task)
	if err != nil {
		return nil, err
	}
	key := baseKey{ownerOf(p), task}
	g.mu.RLock()
	r := g.base[key]
	g.mu.RUnlock()
	if r != nil && r.Err() == nil {
		return r, nil
	}
	return g.bind(ctx, p, task, func(r *Run) (*Run, error) {
		if was := g.base[key]; was != nil {
			was.show(*r.shown.Load())
			return was, nil
		}
		g.base[key] = r
		return r, nil
	})
}

// Find returns the minted run of that name, where it is p's own and p may
// still bind its task.
func (g *Registry) Find(p switchboard.Principal, id switchboard.RunID) (*Run, bool) {
	g.mu.RLock()
	r := g.runs[id]
	g.mu.RUnlock()
	if r == nil || ownerOf(r.principal) != ownerOf(p) {
		return nil, false
	}
	if r.task != "" {
		if _, err := g.binder.Resolve(p, r.task); err != nil {
			return nil, false
		}
	}
	return r, true
}

// bind makes a run, lets put place it under the lock, and returns what put
// returns. It binds again where the generation changed meanwhile, so that no
// run is left with what a change has overtaken.
func (g *Registry) bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, put func(*Run) (*Run, error)) (*Run, error) {
	key := baseKey{ownerOf(p), task}
	for {
		g.mu.RLock()
		generation, s := g.generation, g.fresh[key]
		g.mu.RUnlock()
		if s == nil || !g.binder.Lasts(p.Tenant) {
			var err error
			if s, err = g.binder.Bind(ctx, p, task, nil); err != nil {
				return nil, err
			}
		}
		g.mu.Lock()
		if g.generation != generation {
			g.mu.Unlock()
			continue
		}
		g.fresh[key] = s
		r := &Run{principal: p, task: task, binding: make(chan struct{}, 1)}
		r.used.Store(time.Now().UnixNano())
		r.shown.Store(&shown{surface: s, named: s})
		r, err := put(r)
		g.mu.Unlock()
		return r, err
	}
}

// makeRoom lets go of the owner's least recently used run where there are
// MaxRuns, and reports whether there is room. The caller holds g.mu.
func (g *Registry) makeRoom(o owner) bool {
	if g.count[o] < MaxRuns {
		return true
	}
	var oldest *Run
	for _, r := range g.runs {
		if ownerOf(r.principal) == o && r.idleSince(time.Now()) && (oldest == nil || r.used.Load() < oldest.used.Load()) {
			oldest = r
		}
	}
	if oldest != nil {
		g.drop(oldest)
	}
	return oldest != nil
}

// drop forgets r. The caller holds g.mu.
func (g *Registry) drop(r *Run) {
	o := ownerOf(r.principal)
	delete(g.runs, r.id)
	if g.count[o]--; g.count[o] <= 0 {
		delete(g.count, o)
	}
}

// Sweep lets go of runs that have been idle for longer than Idle. Whoever
// wires the program calls it from time to time.
func (g *Registry) Sweep() {
	limit := time.Now().Add(-Idle)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runs {
		if r.idleSince(limit) {
			g.drop(r)
		}
	}
	for key, r := range g.base {
		if r.idleSince(limit) {
			delete(g.base, key)
			delete(g.fresh, key)
		}
	}
}

// Rebind binds every run again and tells the watchers of those whose list has
// changed. A run whose task can no longer be met shows nothing, and Err says
// why, until a later Rebind can meet it.
func (g *Registry) Rebind(ctx context.Context) {
	g.rebind.Lock()
	defer g.rebind.Unlock()
	g.mu.Lock()
	g.generation++
	clear(g.fresh)
	runs := make([]*Run, 0, len(g.runs)+len(g.base))
	for _, r := range g.runs {
		runs = append(runs, r)
	}
	for _, r := range g.base {
		runs = append(runs, r)
	}
	g.mu.Unlock()

	g.again(ctx, runs, func(*Run) bool { return false }, func(_, now shown) shown { return now })
}

// Refresh binds those of the runs again whose lists would be others now though
// nothing else has changed: their tenant's policy looks at the clock, or could
// not be evaluated when they were bound. It tells the watchers as Rebind does,
// and is cheap for all other runs.
func (g *Registry) Refresh(ctx context.Context, runs ...*Run) {
	now := time.Now()
	g.again(ctx, runs, func(r *Run) bool {
		err, _ := errors.AsType[*switchboard.Error](r.Err())
		failed := err != nil && err.Code == switchboard.CodePolicyFailed
		return !failed && g.binder.Lasts(r.principal.Tenant) ||
			r.bound.After(now) // somebody else has done so meanwhile
	}, func(was, now shown) shown {
		if was.err == nil && now.err == nil && same(was.surface, now.surface) {
			return was // which others share, and whose lists are finished
		}
		return now
	})
}

// same reports whether both show the same things, each for the same reason.
func same(a, b *surface.Surface) bool {
	why := func(i, j *switchboard.Judgment) bool { return i.Requirement == j.Requirement }
	return a.Differs(b) == 0 && slices.EqualFunc(a.Entries(), b.Entries(), func(x, y surface.Entry) bool {
		return slices.EqualFunc(x.Judgments, y.Judgments, why)
	})
}

// again binds runs again, but for those that skip says while they are held, and
// shows what keep says. Where ctx ends first, they stay as they are. The tenants
// do not wait for each other: what a policy takes is its tenant's time.
func (g *Registry) again(ctx context.Context, runs []*Run, skip func(*Run) bool, keep func(was, now shown) shown) {
	of := map[switchboard.TenantID][]*Run{}
	for _, r := range runs {
		of[r.principal.Tenant] = append(of[r.principal.Tenant], r)
	}
	var work sync.WaitGroup
	defer work.Wait()
	for _, runs := range of {
		all := func() { g.againOf(ctx, runs, skip, keep) }
		if len(of) == 1 {
			all()
			return
		}
		work.Go(all)
	}
}

// againOf is again, for runs of one tenant.
func (g *Registry) againOf(ctx context.Context, runs []*Run, skip func(*Run) bool, keep func(was, now shown) shown) {
	// Runs that showed the same surface for the same principal go on sharing.
	type from struct {
		key  baseKey
		prev *surface.Surface
	}
	done := map[from]shown{}
	one := func(r *Run) {
		select {
		case r.binding <- struct{}{}:
			defer func() { <-r.binding }()
		case <-ctx.Done():
			return
		}
		if skip(r) {
			return
		}
		began, was := time.Now(), *r.shown.Load()
		f := from{baseKey{ownerOf(r.principal), r.task}, was.named}
		s, ok := done[f]
		if !ok {
			if s = g.next(ctx, r, f.prev); ctx.Err() != nil {
				return
			}
			s = keep(was, s)
			done[f] = s
		}
		r.show(s)
		r.bound = began
	}
	for _, r := range runs {
		one(r)
	}
}

// next is what r shows after prev.
func (g *Registry) next(ctx context.Context, r *Run, prev *surface.Surface) shown {
	if r.task != "" {
		if _, err := g.binder.Resolve(r.principal, r.task); err != nil {
			return shown{g.nothing, err, prev}
		}
	}
	s, err := g.binder.Bind(ctx, r.principal, r.task, prev)
	if err != nil {
		return shown{g.nothing, err, prev}
	}
	return shown{surface: s, named: s}
}

// All returns every run, for those who look in from the side.
func (g *Registry) All() []*Run {
	g.mu.RLock()
	defer g.mu.RUnlock()
	all := make([]*Run, 0, len(g.runs)+len(g.base))
	for _, r := range g.runs {
		all = append(all, r)
	}
	for _, r := range g.base {
		all = append(all, r)
	}
	return all
}
