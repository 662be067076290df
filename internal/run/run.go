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
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Binder decides what a run shows.
type Binder interface {
	// Resolve says which task p means by naming task ("" means the tenant's
	// default; the answer is "" where there is none). A task that p may not
	// bind, or that does not exist, is SB-TASK-001.
	Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error)

	// Bind decides for a resolved task. What was expanded before stays so. A
	// task that cannot be met is an error, and shows nothing. With the error *Starting it
	// returns what is shown meanwhile.
	Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was Before) (*surface.Surface, error)

	// Lasts reports whether what Bind gives for the tenant holds until the
	// next Rebind. Where it does not, it changes with time alone.
	Lasts(tenant switchboard.TenantID) bool

	// Starting returns the tenant's servers that are starting and have no known offer. next
	// is closed after servers have answered and all runs are bound again.
	Starting(tenant switchboard.TenantID) (servers []switchboard.ServerID, next <-chan struct{})
}

// Before is what a run showed until now. The zero Before is of a run that is bound
// for the first time.
type Before struct {
	Surface *surface.Surface // nil at first

	// Left are the servers that were given up for others: sorted, and none of
	// them shown. They are not gone back to while others serve.
	Left []switchboard.ServerID

	// Declared, where set, is the task, which the client has declared itself.
	Declared *switchboard.Task
}

// Bounds of a Registry.
const (
	// MaxRuns is how many runs one principal may have in one process. One that was not
	// used for Idle makes room for a new one. Others stay: their clients have their ids.
	MaxRuns = 1000

	// Idle is how long a run that nobody uses is kept for its principal to
	// name it again.
	Idle = time.Hour

	runBytes = 16 // of a RunID
)

// A Registry holds all runs that this process has seen. Use New. It is safe for
// concurrent use.
type Registry struct {
	binder  Binder
	keep    keeper
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

	restored atomic.Int64
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

// New returns a Registry of the runs that st keeps. A run whose task cannot be met any
// more shows nothing, which is a Surface too.
func New(b Binder, nothing *surface.Surface, st Store) *Registry {
	return &Registry{
		binder:  b,
		keep:    newKeeper(st),
		nothing: nothing,
		runs:    map[switchboard.RunID]*Run{},
		base:    map[baseKey]*Run{},
		count:   map[owner]int{},
		fresh:   map[baseKey]*surface.Surface{},
	}
}

// Bill returns what the run has cost.
func (r *Run) Bill() *Bill { return &r.bill }

// A Run is one client's use of a task. It is safe for concurrent use.
type Run struct {
	of        *Registry
	id        switchboard.RunID
	principal switchboard.Principal
	task      switchboard.TaskID

	bill     Bill
	shown    atomic.Pointer[shown]
	used     atomic.Int64 // unix nanoseconds
	patience atomic.Int64 // unix nanoseconds until which lists wait for servers; 0 before the first such list

	// binding holds one while the run is bound again: what is expanded stays so. bound is when
	// that began last, and kept what of the run is in the store.
	binding  chan struct{}
	bound    time.Time
	kept     kept
	restored bool // another process has shown it

	seen    atomic.Pointer[clients]            // what its clients were shown; written by the holder of binding
	forgot  atomic.Bool                        // a client that was shown something is not among them any more
	unread  atomic.Bool                        // nobody could read what clients were shown before r was made
	dropped atomic.Pointer[switchboard.Digest] // the list that the others know that are not among them any more

	synced int64        // unix nanoseconds when it was last compared with the store for a call; for the holder of binding
	tells  atomic.Int64 // unix nanoseconds until which any name in told counts

	listed atomic.Bool // a client has had a list of it from this process

	mu       sync.Mutex
	watchers map[*watch]struct{}
	told     map[telling]time.Time // until when calls were written before the client knew; zero has not ended
}

// A Watcher is told which kinds of what a run shows have changed. It does not
// wait for anything.
type Watcher interface{ Changed(switchboard.Kinds) }

type watch struct {
	Watcher
	modern bool
}

// shown is what a run shows, or why it shows nothing.
type shown struct {
	surface *surface.Surface
	err     error

	// named is the last surface that had expansions to keep: the run's own, unless
	// there is an error.
	named *surface.Surface

	left     []switchboard.ServerID // see Before
	declared *switchboard.Task

	replaced chan struct{} // closed when something else is shown
}

// ID returns the run's name.
func (r *Run) ID() switchboard.RunID { return r.id }

// Principal returns whose run it is.
func (r *Run) Principal() switchboard.Principal { return r.principal }

// Task returns the task that is bound, or "" for none.
func (r *Run) Task() switchboard.TaskID {
	if d := r.shown.Load().declared; d != nil {
		return d.ID
	}
	return r.task
}

// Surface returns what the run shows now. It is never nil. A call goes on with
// the Surface that it started with.
func (r *Run) Surface() *surface.Surface {
	r.used.Store(time.Now().UnixNano())
	return r.shown.Load().surface
}

// Err says why the run shows nothing, where a change of the catalog or the
// configuration has left its task unmet; or, as a *Starting, why it shows our own tools
// only.
func (r *Run) Err() error { return r.shown.Load().err }

// Peek is Surface for those who look in from the side: it does not count as use of
// the run.
func (r *Run) Peek() *surface.Surface { return r.shown.Load().surface }

// Watch tells w of each change of what the run shows to a client of the era, until
// stop is called.
func (r *Run) Watch(w Watcher, modern bool) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers == nil {
		r.watchers = map[*watch]struct{}{}
	}
	one := &watch{w, modern}
	r.watchers[one] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, one)
		r.used.Store(time.Now().UnixNano())
	}
}

// AwaitChange waits until r shows another surface than s, or ctx is done, and reports whether it does.
func (r *Run) AwaitChange(ctx context.Context, s *surface.Surface) bool {
	for {
		now := r.shown.Load()
		if now.surface != s {
			return true
		}
		select {
		case <-now.replaced:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *Run) show(s shown) {
	s.replaced = make(chan struct{})
	before := r.shown.Swap(&s)
	defer close(before.replaced)
	legacy, modern := before.surface.Differs(s.surface, false), before.surface.Differs(s.surface, true)
	if legacy|modern == 0 || isStarting(before.err) && !r.listed.Load() && !r.restored {
		return // its client has no list that could have changed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watchers {
		changed := legacy
		if w.modern {
			changed = modern
		}
		if changed != 0 {
			w.Changed(changed)
		}
	}
}

// Change shows what change makes of what is shown now, keeps that, and tells the
// watchers. Nothing else changes the run meanwhile, so change is quick; where another
// process was quicker, it is called again with what that has left. Where Change returns an
// error, or change nil, nothing has changed; but SB-ROUT-004 says that it may have.
func (r *Run) Change(ctx context.Context, change func(*surface.Surface) (*surface.Surface, error)) error {
	err := r.hold(ctx, func() error {
		return r.of.update(ctx, r, func(now shown) (shown, error) {
			if now.err != nil {
				return now, now.err
			}
			s, err := change(now.surface)
			if err == nil && s == nil {
				err = errNothing
			}
			now.surface, now.named = s, s
			return now, err
		})
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
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
	var b [runBytes]byte
	rand.Read(b[:])
	var gone *Run
	r, err := g.bind(ctx, p, task, nil, g.place(switchboard.RunID(hex.EncodeToString(b[:])), &gone))
	if err != nil {
		return nil, err
	}
	if gone != nil {
		_ = gone.hold(ctx, func() error { return g.keep.forget(ctx, gone) }) // or it expires
	}
	if err := r.hold(ctx, func() error { return g.keep.save(ctx, r, r.shown.Load()) }); err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.drop(r)
		return nil, needed(err)
	}
	return r, nil
}

// place puts a minted run where it is found by its id, and says which one has made
// room for it, if any.
func (g *Registry) place(id switchboard.RunID, gone **Run) func(*Run) (*Run, error) {
	return func(r *Run) (*Run, error) {
		if was := g.runs[id]; was != nil {
			return was, nil
		}
		var ok bool
		if *gone, ok = g.makeRoom(ownerOf(r.principal)); !ok {
			return nil, switchboard.Refuse(switchboard.CodeOverloaded, "you have %d runs open, which is all that one principal may have; use one of them, or wait until one has not been used for %s", MaxRuns, Idle)
		}
		r.id = id
		g.runs[id] = r
		g.count[ownerOf(r.principal)]++
		return r, nil
	}
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
	if r != nil {
		if err := r.Err(); err != nil && !isStarting(err) {
			now := time.Now()
			g.again(ctx, []*Run{r}, change{skip: func(r *Run) bool { return r.bound.After(now) }})
		}
		if err := r.Err(); err != nil && !isStarting(err) {
			return nil, err
		}
		return r, nil
	}
	// Where nobody knows what was kept, it begins as for whoever comes first: that
	// shows nothing that it may not. Follow hears when the store is back.
	was, unread := g.kept(ctx, (&Run{principal: p, task: task}).key())
	if r, err = g.bind(ctx, p, task, was, func(r *Run) (*Run, error) {
		if was := g.base[key]; was != nil {
			return was, nil
		}
		r.unread.Store(unread != nil)
		g.base[key] = r
		return r, nil
	}); err != nil {
		return nil, err
	}
	return r, g.settled(ctx, r)
}

// settled shows what another process has made of r between the moment at which it was
// read and now, from when on Follow hears of it.
func (g *Registry) settled(ctx context.Context, r *Run) error {
	_ = r.hold(ctx, func() error { return g.sync(ctx, r) }) // or when Follow hears that the store is back
	return ctx.Err()
}

// restored is a run of which something was kept.
type restored struct {
	record
	kept
	seen clients
}

// kept returns what is kept under the key; nil where nothing is.
func (g *Registry) kept(ctx context.Context, key store.Key) (*restored, error) {
	rec, was, err := g.keep.load(ctx, key)
	if err != nil || was.version == 0 {
		return nil, err
	}
	seen, err := g.keep.readSeen(ctx, &rec, nil)
	if err != nil {
		return nil, err
	}
	return &restored{rec, was, seen}, nil
}

// Declare binds a run that has no task to one that its client has declared. A run
// is bound once: SB-TASK-002 where it has a task; but to declare the same again changes
// nothing, since whoever was answered with SB-ROUT-004 has to. Errors are those of Open else,
// and then nothing has changed, which SB-ROUT-004 does not promise.
func (g *Registry) Declare(ctx context.Context, r *Run, task *switchboard.Task) error {
	err := r.hold(ctx, func() error { // a change that comes meanwhile binds it again behind this
		return g.update(ctx, r, func(was shown) (shown, error) {
			if was.declared != nil && was.err == nil && sameTask(was.declared, task) {
				return was, errNothing
			}
			if id := r.Task(); id != "" {
				return was, switchboard.Refuse(switchboard.CodeTaskRefused, "task %s is bound already, and a run is bound once", id)
			}
			s, err := g.binder.Bind(ctx, r.principal, task.ID, Before{Surface: was.named, Declared: task})
			return shown{surface: s, named: s, declared: task}, err
		})
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// sameTask compares what was declared here with what was declared before, maybe elsewhere,
// which is as it was kept.
func sameTask(a, b *switchboard.Task) bool {
	return textOf(record{Declared: a}) == textOf(record{Declared: b})
}

// Find returns the minted run of that name, where it is p's own and p may
// still bind its task; nil where there is none. It may be one that another process has
// minted. The error is SB-ROUT-004 where nobody can tell.
func (g *Registry) Find(ctx context.Context, p switchboard.Principal, id switchboard.RunID) (*Run, error) {
	g.mu.RLock()
	r := g.runs[id]
	g.mu.RUnlock()
	if r == nil {
		if b, err := hex.DecodeString(string(id)); err != nil || len(b) != runBytes {
			return nil, nil // nobody has minted that
		}
		was, err := g.kept(ctx, (&Run{principal: p, id: id}).key())
		if errors.Is(err, store.ErrUnopened) {
			return nil, nil // nobody knows what its task was
		}
		if err != nil {
			return nil, needed(err)
		}
		if was == nil || !g.mayBind(p, was.Task) {
			return nil, nil
		}
		if r, err = g.bind(ctx, p, was.Task, was, g.place(id, new(*Run))); err != nil {
			return nil, err
		}
		return r, g.settled(ctx, r)
	}
	if ownerOf(r.principal) != ownerOf(p) || !g.mayBind(p, r.task) {
		return nil, nil
	}
	return r, nil
}

func (g *Registry) mayBind(p switchboard.Principal, task switchboard.TaskID) bool {
	if task == "" {
		return true
	}
	_, err := g.binder.Resolve(p, task)
	return err == nil
}

// bind makes a run, lets put place it under the lock, and returns what put
// returns. It binds again where the generation changed meanwhile, so that no
// run is left with what a change has overtaken.
func (g *Registry) bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was *restored, put func(*Run) (*Run, error)) (*Run, error) {
	key := baseKey{ownerOf(p), task}
	for {
		g.mu.RLock()
		generation, s := g.generation, g.fresh[key]
		g.mu.RUnlock()
		var before Before
		if was != nil {
			before = was.before()
		}
		var unbound error // that servers are starting
		if s == nil || was != nil || !g.binder.Lasts(p.Tenant) {
			var err error
			if s, err = g.binder.Bind(ctx, p, task, before); err != nil && !isStarting(err) {
				return nil, err
			}
			unbound = err
		}
		g.mu.Lock()
		if g.generation != generation {
			g.mu.Unlock()
			continue
		}
		r := &Run{of: g, principal: p, task: task, binding: make(chan struct{}, 1)}
		if was != nil {
			g.restored.Add(1)
			r.kept, r.restored = was.kept, true
			r.setClients(was.seen)
			r.hearForgotten(&was.record) // what was told then was read long ago
		} else if unbound == nil {
			g.fresh[key] = s
		}
		r.used.Store(time.Now().UnixNano())
		now := after(before, s, unbound)
		now.replaced = make(chan struct{})
		r.shown.Store(&now)
		r, err := put(r)
		g.mu.Unlock()
		return r, err
	}
}

// makeRoom lets go of the owner's longest idle run where there are MaxRuns, and reports whether there is room. The caller holds g.mu.
func (g *Registry) makeRoom(o owner) (gone *Run, ok bool) {
	if g.count[o] < MaxRuns {
		return nil, true
	}
	idle := time.Now().Add(-Idle)
	for _, r := range g.runs {
		if ownerOf(r.principal) == o && r.idleSince(idle) && (gone == nil || r.used.Load() < gone.used.Load()) {
			gone = r
		}
	}
	if gone != nil {
		g.drop(gone)
	}
	return gone, gone != nil
}

// drop forgets r, unless somebody else has. The caller holds g.mu.
func (g *Registry) drop(r *Run) {
	if g.runs[r.id] != r {
		return
	}
	o := ownerOf(r.principal)
	delete(g.runs, r.id)
	if g.count[o]--; g.count[o] <= 0 {
		delete(g.count, o)
	}
}

// Sweep lets go of runs that have been idle for longer than Idle, and has those kept
// for longer that are not. Whoever wires the program calls it from time to time.
func (g *Registry) Sweep(ctx context.Context) {
	for _, r := range g.All() {
		if r.hold(ctx, func() error {
			err := g.keep.touch(ctx, r)
			if errors.Is(err, store.ErrConflict) {
				err = g.sync(ctx, r)
			}
			if errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
				return err
			}
			return nil // it is that run's alone
		}) != nil {
			break // the store is gone, and each of them would wait for it: the next time
		}
	}
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
	g.again(ctx, g.turn(), change{})
}

// turn begins a new generation, so that what is bound from now on is decided anew,
// and returns all runs.
func (g *Registry) turn() []*Run {
	g.mu.Lock()
	g.generation++
	clear(g.fresh)
	g.mu.Unlock()
	return g.All()
}

// Leave binds those runs again that show servers which lost names: other servers
// take their place where they can, and the run stays with those. It tells the
// watchers as Rebind does.
func (g *Registry) Leave(ctx context.Context, lost func(*surface.Surface) []switchboard.ServerID) {
	g.rebind.Lock()
	defer g.rebind.Unlock()
	g.again(ctx, g.turn(), change{leave: lost, keep: keepSame})
}

// A change is why runs are bound again. The zero change is of what all hang on.
type change struct {
	skip  func(*Run) bool                               // says whether the run is not concerned, while it is held
	leave func(*surface.Surface) []switchboard.ServerID // says which servers are given up; a run that has none of them is not concerned
	keep  func(was, now shown) shown                    // says what is shown
}

// Refresh binds those of the runs again whose lists would be others now though
// nothing else has changed: their tenant's policy looks at the clock, or could
// not be evaluated when they were bound. It tells the watchers as Rebind does,
// and is cheap for all other runs.
func (g *Registry) Refresh(ctx context.Context, runs ...*Run) {
	now := time.Now()
	g.again(ctx, runs, change{skip: func(r *Run) bool {
		err, _ := errors.AsType[*switchboard.Error](r.Err())
		failed := err != nil && err.Code == switchboard.CodePolicyFailed
		return !failed && g.binder.Lasts(r.principal.Tenant) ||
			r.bound.After(now) // somebody else has done so meanwhile
	}, keep: keepSame})
}

// keepSame goes on with what was shown, which others share and whose lists are
// finished, where it is the same.
func keepSame(was, now shown) shown {
	if was.err == nil && now.err == nil && same(was.surface, now.surface) {
		return was
	}
	return now
}

// same reports whether both show the same things, each for the same reason.
func same(a, b *surface.Surface) bool {
	why := func(i, j *switchboard.Judgment) bool { return i.Requirement == j.Requirement }
	where := func(i, j switchboard.Equivalent) bool {
		return i.Tool == j.Tool && slices.EqualFunc(i.Judgments, j.Judgments, why)
	}
	return a.Differs(b, false)|a.Differs(b, true) == 0 && slices.EqualFunc(a.Entries(), b.Entries(), func(x, y surface.Entry) bool {
		return x.Tool.ID == y.Tool.ID && slices.EqualFunc(x.Judgments, y.Judgments, why) && slices.EqualFunc(x.Equivalents, y.Equivalents, where)
	})
}

// again binds runs again. Where ctx ends first, they stay as they are. The tenants
// do not wait for each other: what a policy takes is its tenant's time.
func (g *Registry) again(ctx context.Context, runs []*Run, why change) {
	of := map[switchboard.TenantID][]*Run{}
	for _, r := range runs {
		of[r.principal.Tenant] = append(of[r.principal.Tenant], r)
	}
	var work sync.WaitGroup
	defer work.Wait()
	for _, runs := range of {
		all := func() { g.againOf(ctx, runs, why) }
		if len(of) == 1 {
			all()
			return
		}
		work.Go(all)
	}
}

// againOf is again, for runs of one tenant.
func (g *Registry) againOf(ctx context.Context, runs []*Run, why change) {
	// Runs that showed the same surface for the same principal go on sharing.
	type from struct {
		key      baseKey
		prev     *surface.Surface
		left     string
		declared *switchboard.Task
	}
	done := map[from]shown{}
	one := func(r *Run) {
		select {
		case r.binding <- struct{}{}:
			defer func() { <-r.binding }()
		case <-ctx.Done():
			return
		}
		began, was := time.Now(), *r.shown.Load()
		left := was.left
		if why.leave != nil {
			lost := why.leave(was.surface)
			if len(lost) == 0 {
				return
			}
			left = slices.Compact(slices.Sorted(slices.Values(slices.Concat(left, lost))))
		}
		if why.skip != nil && why.skip(r) {
			return
		}
		f := from{baseKey{ownerOf(r.principal), r.task}, was.named, fmt.Sprint(left), was.declared}
		s, ok := done[f]
		if !ok {
			if s = g.next(ctx, r, Before{was.named, left, was.declared}); ctx.Err() != nil {
				return
			}
			if why.keep != nil {
				s = why.keep(was, s)
			}
			done[f] = s
		}
		r.show(s)
		r.bound = began
		if g.keep.changed(r, &s) {
			if err := g.keep.save(ctx, r, &s); errors.Is(err, store.ErrConflict) {
				_ = g.sync(ctx, r) // or when it is touched
			}
		}
	}
	for _, r := range runs {
		one(r)
	}
}

// next is what r shows after was.
func (g *Registry) next(ctx context.Context, r *Run, was Before) shown {
	if r.task != "" {
		if _, err := g.binder.Resolve(r.principal, r.task); err != nil {
			return shown{surface: g.nothing, err: err, named: was.Surface, left: was.Left, declared: was.Declared}
		}
	}
	s, err := g.binder.Bind(ctx, r.principal, r.task, was)
	if err != nil && !isStarting(err) {
		return shown{surface: g.nothing, err: err, named: was.Surface, left: was.Left, declared: was.Declared}
	}
	return after(was, s, err)
}

// after is what a run shows that is bound to s, or that shows s while servers are
// starting.
func after(was Before, s *surface.Surface, starting error) shown {
	if starting == nil {
		return shown{surface: s, named: s, left: leftOf(was.Left, s), declared: was.Declared}
	}
	named := was.Surface
	if named == nil {
		named = s
	}
	return shown{surface: s, err: starting, named: named, left: was.Left, declared: was.Declared}
}

// leftOf are those of the servers that s does not show again.
func leftOf(left []switchboard.ServerID, s *surface.Surface) []switchboard.ServerID {
	return slices.DeleteFunc(slices.Clone(left), func(id switchboard.ServerID) bool {
		return slices.ContainsFunc(s.Entries(), func(e surface.Entry) bool { return e.Tool.ID.Server == id })
	})
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
