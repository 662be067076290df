// Package run holds the runs of tasks: which principal has bound which task, and which tools that run shows now.
//
// What a client sees depends on its run, never on its connection. Switchboard mints a run for each legacy session and
// each stdio process, or on request, and only the run's principal can name it again. A modern request that names no
// run uses the base run of its tenant, principal and task. When the catalog or the configuration changes, the
// Runs binds every run again and notifies the watchers of those that show something else. If a tenant's policy
// reads the clock, its runs are also bound again before each list.
package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
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
	// Resolve returns the task that p means by the name task. "" means the tenant's default task; the answer is "" if
	// there is none. If p may not bind the task, or it does not exist, the error is SB-TASK-001.
	Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error)

	// Bind decides for a resolved task. Tools that were expanded before stay expanded. If the task cannot be met,
	// Bind returns an error and no surface. With the error *Waiting it returns the surface to show until the servers
	// have answered.
	Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was Before) (*surface.Surface, error)

	// Lasts reports whether a result of Bind for the tenant is valid until the next Rebind. Otherwise the result
	// changes with time alone.
	Lasts(tenant switchboard.TenantID) bool

	// Starting returns the tenant's servers that are starting and have no known offer. next is closed after servers
	// have answered and all runs are bound again.
	Starting(tenant switchboard.TenantID) (servers []switchboard.ServerID, next <-chan struct{})
}

// Before is what a run showed until now. The zero Before is for a run that is bound for the first time.
type Before struct {
	Surface *surface.Surface // nil at first

	// Abandoned lists the servers that the run has given up in favor of others. The list is sorted and the run shows none
	// of them. The run does not return to them while other servers serve.
	Abandoned []switchboard.ServerID

	// Declared is the task that the client has declared itself; nil for a configured task.
	Declared *switchboard.Task

	// Added is what people have added to the run, or to its task.
	Added []switchboard.Addition
}

// Bounds of a Runs.
const (
	// MaxRuns limits the runs of one principal in one process. A run that was released, or unused for Idle, is evicted to
	// make room for a new one. Other runs are not evicted: their clients hold their ids.
	MaxRuns = 1000

	// Idle is how long an unused run stays available to its principal.
	Idle = time.Hour

	runBytes = 16 // of a RunID
)

// Runs holds all runs that this process has seen. Use New. It is safe for concurrent use.
type Runs struct {
	binder       Binder
	records      recordStore
	emptySurface *surface.Surface // shown by a run if its task cannot be met

	// rebindLock is held while runs are bound again, so that changes are processed one after the other.
	rebindLock sync.Mutex

	mu       sync.RWMutex
	minted   mintedRuns
	baseRuns map[taskKey]*Run

	// freshSurfaces holds the result of the first bind of each task in this generation, so that 500 sessions of one
	// task share one surface.
	freshSurfaces map[freshKey]*surface.Surface
	generation    int

	additions Additions // nil means that there are none

	restoredCount atomic.Int64
}

type principalKey struct {
	tenant switchboard.TenantID
	id     string
}

type taskKey struct {
	principalKey
	task switchboard.TaskID
}

func principalKeyOf(p switchboard.Principal) principalKey { return principalKey{p.Tenant, p.ID} }

// New returns the Runs of the runs in st. A run shows the surface nothing if its task can no longer be met.
func New(b Binder, nothing *surface.Surface, st Store) *Runs {
	return &Runs{
		binder:        b,
		records:       newRecordStore(st),
		emptySurface:  nothing,
		minted:        mintedRuns{map[switchboard.RunID]*Run{}, map[principalKey]int{}},
		baseRuns:      map[taskKey]*Run{},
		freshSurfaces: map[freshKey]*surface.Surface{},
	}
}

// Bill returns what the run has cost.
func (r *Run) Bill() *Bill { return &r.bill }

// A Run is one client's use of a task. It is safe for concurrent use.
type Run struct {
	registry  *Runs
	id        switchboard.RunID
	principal switchboard.Principal
	task      switchboard.TaskID

	bill         Bill
	view         atomic.Pointer[view]
	lastUsed     atomic.Int64 // unix nanoseconds
	listDeadline atomic.Int64 // unix nanoseconds until which lists wait for servers; 0 before the first such list

	binding  binding
	restored bool // another process has shown it

	history   history
	announced announcements
	watchers  watchers
	touched   touchState
	listed    atomic.Bool // a client has received a list of the run from this process
}

// A binding is the lock of one run, and the fields that only its holder uses.
type binding struct {
	// lock contains one value while a goroutine binds or changes the run, so that no expansion is lost. It is a
	// channel because waiting for it ends with a context.
	lock chan struct{}

	at       time.Time // when the last bind began
	saved    savedRecord
	lastSync int64 // unix nanoseconds when CatchUp last read the store
}

// A Watcher is notified of the kinds of items that have changed on a run's surface. Changed must not block.
type Watcher interface{ Changed(switchboard.Kinds) }

type registeredWatcher struct {
	Watcher
	modern bool
}

// watchers are the watchers of one run. The zero value has none.
type watchers struct {
	mu         sync.Mutex
	all        map[*registeredWatcher]struct{}
	isReleased bool // see Release
	isKept     bool // see Keep
}

func (ws *watchers) add(w *registeredWatcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all == nil {
		ws.all = map[*registeredWatcher]struct{}{}
	}
	ws.all[w] = struct{}{}
}

func (ws *watchers) remove(w *registeredWatcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, w)
}

func (ws *watchers) none() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.all) == 0
}

// released reports whether the run makes room for a new one: see Release.
func (ws *watchers) released() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.isReleased && !ws.isKept && len(ws.all) == 0
}

// notify notifies the watchers of each era of its changes.
func (ws *watchers) notify(legacy, modern switchboard.Kinds) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		changed := legacy
		if w.modern {
			changed = modern
		}
		if changed != 0 {
			w.Changed(changed)
		}
	}
}

// A view is what a run shows, or why it shows nothing.
type view struct {
	surface *surface.Surface
	err     error

	// lastBound is the last surface with expansions that count. It is the run's own surface, unless err is set.
	lastBound *surface.Surface

	abandoned []switchboard.ServerID // see Before
	declared  *switchboard.Task
	added     []switchboard.Addition

	replaced chan struct{} // closed when the run shows another view
}

// ID returns the run's id.
func (r *Run) ID() switchboard.RunID { return r.id }

// Principal returns the principal that owns the run.
func (r *Run) Principal() switchboard.Principal { return r.principal }

// Task returns the task that is bound, or "" for none.
func (r *Run) Task() switchboard.TaskID {
	if d := r.view.Load().declared; d != nil {
		return d.ID
	}
	return r.task
}

// Surface returns what the run shows now. It is never nil. A call uses the same Surface from start to end.
func (r *Run) Surface() *surface.Surface {
	r.lastUsed.Store(time.Now().UnixNano())
	return r.view.Load().surface
}

// Err returns why the run shows nothing: a change of the catalog or the configuration has left its task unmet. A
// *Waiting says why the run shows only our own tools.
func (r *Run) Err() error { return r.view.Load().err }

// PeekSurface returns the same as Surface for operators' reads: it does not count as a use of the run.
func (r *Run) PeekSurface() *surface.Surface { return r.view.Load().surface }

// Watch notifies w of each change that a client of the era can see in the run, until stop is called.
func (r *Run) Watch(w Watcher, modern bool) (stop func()) {
	registered := &registeredWatcher{w, modern}
	r.watchers.add(registered)
	r.registry.mu.Lock()
	defer r.registry.mu.Unlock()
	if r.id != "" && r.registry.minted.byID[r.id] == nil { // it was removed when nobody watched it yet
		r.registry.minted.add(r)
	}
	return func() {
		r.lastUsed.Store(time.Now().UnixNano()) // first: without watchers and with an old use, the run would count as idle
		r.watchers.remove(registered)
	}
}

// AwaitChange waits until r shows a surface other than s, and reports whether it does. It returns false when ctx is
// done first.
func (r *Run) AwaitChange(ctx context.Context, s *surface.Surface) bool {
	for {
		now := r.view.Load()
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

func (r *Run) showView(s view) {
	s.replaced = make(chan struct{})
	before := r.view.Swap(&s)
	defer close(before.replaced)
	legacy, modern := before.surface.Differs(s.surface, false), before.surface.Differs(s.surface, true)
	if legacy|modern == 0 || isWaiting(before.err) && !r.listed.Load() && !r.restored {
		return // no client has a list that could have changed
	}
	r.watchers.notify(legacy, modern)
}

// Change replaces the surface that r shows by the result of change, saves it, and notifies the watchers. The run is
// locked meanwhile, so change must be quick. If another process has changed the run first, change is called again
// with the newer surface. If change returns an error or a nil surface, nothing changes. If Change returns
// SB-ROUT-004, the run may have changed.
func (r *Run) Change(ctx context.Context, change func(*surface.Surface) (*surface.Surface, error)) error {
	err := r.withBindLock(ctx, func() error {
		return r.registry.updateAndSave(ctx, r, func(now view) (view, error) {
			if now.err != nil {
				return now, now.err
			}
			s, err := change(now.surface)
			if err == nil && s == nil {
				err = errNoChange
			}
			now.surface, now.lastBound = s, s
			return now, err
		})
	})
	if errors.Is(err, errNoChange) {
		return nil
	}
	return err
}

func (r *Run) idleSince(t time.Time) bool {
	return r.watchers.none() && r.lastUsed.Load() < t.UnixNano()
}

// Open mints a run of the task for p and binds it. The error is a *switchboard.Error: SB-TASK-001 for a task that p
// may not bind, or the reason why the task cannot be met.
//
// If id is not "", Open returns p's run of that id, or mints the run under it if there is none. Such an id must come from NewID, in a
// program of ours.
func (g *Runs) Open(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, id switchboard.RunID) (*Run, error) {
	if id == "" {
		id = NewID()
	} else {
		if b, err := hex.DecodeString(string(id)); err != nil || len(b) != runBytes {
			return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "this is no id of a run")
		}
		if r, err := g.Find(ctx, p, id); r != nil || err != nil {
			return r, err
		}
	}
	task, err := g.binder.Resolve(p, task)
	if err != nil {
		return nil, err
	}
	var gone *Run
	r, err := g.bind(ctx, p, task, id, nil, g.placeMinted(id, &gone))
	if err != nil {
		return nil, err
	}
	if principalKeyOf(r.principal) != principalKeyOf(p) { // it has the id
		return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "you have no such run")
	}
	deleteEvicted(ctx, gone)
	if err := r.withBindLock(ctx, func() error { return g.records.saveView(ctx, r, r.view.Load()) }); err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.minted.drop(r)
		return nil, storeNeeded(err)
	}
	return r, nil
}

// NewID returns a new id of a run: 128 random bits.
func NewID() switchboard.RunID {
	var b [runBytes]byte
	rand.Read(b[:])
	return switchboard.RunID(hex.EncodeToString(b[:]))
}

// placeMinted returns the function that registers a minted run under its id. It sets gone to the run that was evicted
// to make room, if any.
func (g *Runs) placeMinted(id switchboard.RunID, gone **Run) func(*Run) (*Run, error) {
	return func(r *Run) (*Run, error) {
		if was := g.minted.byID[id]; was != nil {
			return was, nil
		}
		var ok bool
		if *gone, ok = g.minted.evictIdle(principalKeyOf(r.principal)); !ok {
			return nil, switchboard.Refuse(switchboard.CodeOverloaded, "you have %d runs open, which is all that one principal may have; use one of them, end a session, or wait until one has not been used for %s", MaxRuns, Idle)
		}
		r.id = id
		g.minted.add(r)
		return r, nil
	}
}

// Base returns the run that all modern requests of p for the task share. The first request binds it. The errors are
// as for Open.
func (g *Runs) Base(ctx context.Context, p switchboard.Principal, task switchboard.TaskID) (*Run, error) {
	task, err := g.binder.Resolve(p, task)
	if err != nil {
		return nil, err
	}
	key := taskKey{principalKeyOf(p), task}
	g.mu.RLock()
	r := g.baseRuns[key]
	g.mu.RUnlock()
	if r != nil {
		if err := r.Err(); err != nil && !isWaiting(err) {
			now := time.Now()
			rebinding{registry: g, skip: func(r *Run) bool { return r.binding.at.After(now) }}.bindAll(ctx, []*Run{r})
		}
		if err := r.Err(); err != nil && !isWaiting(err) {
			return nil, err
		}
		return r, nil
	}
	// If the store cannot be read, the run begins as a new one, which shows nothing that
	// shows nothing that it may not. Follow hears when the store is back.
	was, unread := g.loadRestored(ctx, (&Run{principal: p, task: task}).storeKey())
	if r, err = g.bind(ctx, p, task, "", was, func(r *Run) (*Run, error) {
		if was := g.baseRuns[key]; was != nil {
			return was, nil
		}
		r.history.unread.Store(unread != nil)
		g.baseRuns[key] = r
		return r, nil
	}); err != nil {
		return nil, err
	}
	return r, g.syncAfterBind(ctx, r)
}

// syncAfterBind applies what another process has changed between the moment when r's record was read and now. From
// now on Follow receives the notices of r.
func (g *Runs) syncAfterBind(ctx context.Context, r *Run) error {
	_ = r.withBindLock(ctx, func() error { return g.syncWithStore(ctx, r) }) // if it fails, Follow tries again when the store is back
	return ctx.Err()
}

// A restoredRun is a run as the store has it.
type restoredRun struct {
	runRecord
	savedRecord
	seen shownClients
}

// loadRestored returns the run that the store has under the key; nil for none.
func (g *Runs) loadRestored(ctx context.Context, key store.Key) (*restoredRun, error) {
	rec, was, err := g.records.loadRecord(ctx, key)
	if err != nil || was.version == 0 {
		return nil, err
	}
	seen, err := g.records.loadSeenClients(ctx, &rec, nil)
	if err != nil {
		return nil, err
	}
	return &restoredRun{rec, was, seen}, nil
}

// Declare binds a run without a task to a task that its client has declared. A run is bound once: for a run with a
// task the error is SB-TASK-002. Declaring the same task again changes nothing and is no error, because a client that
// received SB-ROUT-004 has to repeat it. The other errors are as for Open. After an error nothing has changed, except
// that SB-ROUT-004 does not promise this.
func (g *Runs) Declare(ctx context.Context, r *Run, task *switchboard.Task) error {
	err := r.withBindLock(ctx, func() error { // a concurrent Rebind waits and binds the declared task
		return g.updateAndSave(ctx, r, func(was view) (view, error) {
			if was.declared != nil && was.err == nil && sameDeclared(was.declared, task) {
				return was, errNoChange
			}
			if id := r.Task(); id != "" {
				return was, switchboard.Refuse(switchboard.CodeTaskRefused, "task %s is bound already, and a run is bound once", id)
			}
			added := g.additions.to(ctx, r.principal, task.ID, r.id)
			s, err := g.binder.Bind(ctx, r.principal, task.ID, Before{Surface: was.lastBound, Declared: task, Added: added})
			return view{surface: s, lastBound: s, declared: task, added: added}, err
		})
	})
	if errors.Is(err, errNoChange) {
		return nil
	}
	return err
}

// sameDeclared compares two declared tasks. One of them may have been read from the store, so the encoded forms are
// compared.
func sameDeclared(a, b *switchboard.Task) bool {
	return encodeRecord(runRecord{Declared: a}) == encodeRecord(runRecord{Declared: b})
}

// Find returns the minted run with that id if p owns it and may still bind its task; nil if there is none. Another
// process may have minted the run. If the store cannot be read, the error is SB-ROUT-004.
func (g *Runs) Find(ctx context.Context, p switchboard.Principal, id switchboard.RunID) (*Run, error) {
	g.mu.RLock()
	r := g.minted.byID[id]
	g.mu.RUnlock()
	if r == nil {
		if b, err := hex.DecodeString(string(id)); err != nil || len(b) != runBytes {
			return nil, nil // no process mints such an id
		}
		was, err := g.loadRestored(ctx, (&Run{principal: p, id: id}).storeKey())
		if errors.Is(err, store.ErrUnopened) {
			return nil, nil // its task is lost
		}
		if err != nil {
			return nil, storeNeeded(err)
		}
		if was == nil || !mayBind(g.binder, p, was.Task) {
			return nil, nil
		}
		var gone *Run
		if r, err = g.bind(ctx, p, was.Task, id, was, g.placeMinted(id, &gone)); err != nil {
			return nil, err
		}
		deleteEvicted(ctx, gone)
		return r, g.syncAfterBind(ctx, r)
	}
	if principalKeyOf(r.principal) != principalKeyOf(p) || !mayBind(g.binder, p, r.task) {
		return nil, nil
	}
	return r, nil
}

func mayBind(b Binder, p switchboard.Principal, task switchboard.TaskID) bool {
	if task == "" {
		return true
	}
	_, err := b.Resolve(p, task)
	return err == nil
}

// bind makes a run and returns the result of put, which registers the run under the lock. id is that of a minted run. If the
// generation has changed meanwhile, bind binds again, so that no run shows what a change has replaced.
func (g *Runs) bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, id switchboard.RunID, was *restoredRun, put func(*Run) (*Run, error)) (*Run, error) {
	for {
		g.mu.RLock()
		generation := g.generation
		g.mu.RUnlock()
		var before Before
		if was != nil {
			before = was.toBefore()
		}
		before.Added = g.additions.to(ctx, p, before.taskOr(task), id)
		key := freshKey{taskKey{principalKeyOf(p), task}, requestsOf(before.Added)}
		g.mu.RLock()
		s := g.freshSurfaces[key]
		g.mu.RUnlock()
		var unbound error // a *Waiting, or nil
		if s == nil || was != nil || !g.binder.Lasts(p.Tenant) {
			var err error
			if s, err = g.binder.Bind(ctx, p, task, before); err != nil && !isWaiting(err) {
				return nil, err
			}
			unbound = err
		}
		g.mu.Lock()
		if g.generation != generation {
			g.mu.Unlock()
			continue
		}
		r := &Run{registry: g, principal: p, task: task, binding: binding{lock: make(chan struct{}, 1)}}
		if was != nil {
			g.restoredCount.Add(1)
			r.binding.saved, r.restored = was.savedRecord, true
			r.history.set(was.seen, nil)
			r.history.applyEvicted(&was.runRecord) // announcements in the record have ended long ago
		} else if unbound == nil {
			g.freshSurfaces[key] = s
		}
		r.lastUsed.Store(time.Now().UnixNano())
		now := viewAfter(before, s, unbound)
		now.replaced = make(chan struct{})
		r.view.Store(&now)
		r, err := put(r)
		g.mu.Unlock()
		return r, err
	}
}

// Sweep evicts runs that have been idle for longer than Idle, and renews the records of the others in the store. The
// program calls it periodically.
func (g *Runs) Sweep(ctx context.Context) {
	for _, r := range g.All() {
		if r.withBindLock(ctx, func() error {
			err := errors.Join(renewTouched(ctx, r), g.records.renewRecord(ctx, r))
			if errors.Is(err, store.ErrConflict) {
				err = g.syncWithStore(ctx, r)
			}
			if errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
				return err
			}
			return nil // an error of this run only
		}) != nil {
			break // the store is unreachable, and each further run would wait for a timeout
		}
	}
	limit := time.Now().Add(-Idle)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.minted.byID {
		if r.idleSince(limit) {
			g.minted.drop(r)
		}
	}
	for key, r := range g.baseRuns {
		if r.idleSince(limit) {
			delete(g.baseRuns, key)
			maps.DeleteFunc(g.freshSurfaces, func(k freshKey, _ *surface.Surface) bool { return k.taskKey == key })
		}
	}
}

// decideView binds the task of r again and returns what r shows after was.
func (g *Runs) decideView(ctx context.Context, r *Run, was Before) view {
	if r.task != "" {
		if _, err := g.binder.Resolve(r.principal, r.task); err != nil {
			return view{surface: g.emptySurface, err: err, lastBound: was.Surface, abandoned: was.Abandoned, declared: was.Declared, added: was.Added}
		}
	}
	s, err := g.binder.Bind(ctx, r.principal, r.task, was)
	if err != nil && !isWaiting(err) {
		return view{surface: g.emptySurface, err: err, lastBound: was.Surface, abandoned: was.Abandoned, declared: was.Declared, added: was.Added}
	}
	return viewAfter(was, s, err)
}

// viewAfter returns the view of a run that is bound to s. waiting is nil, or a *Waiting: the run then shows s until the task can be met.
func viewAfter(was Before, s *surface.Surface, waiting error) view {
	if waiting == nil {
		return view{surface: s, lastBound: s, abandoned: notShown(was.Abandoned, s), declared: was.Declared, added: was.Added}
	}
	named := was.Surface
	if named == nil {
		named = s
	}
	return view{surface: s, err: waiting, lastBound: named, abandoned: was.Abandoned, declared: was.Declared, added: was.Added}
}

// notShown returns those of the servers that s does not show.
func notShown(left []switchboard.ServerID, s *surface.Surface) []switchboard.ServerID {
	return slices.DeleteFunc(slices.Clone(left), func(id switchboard.ServerID) bool {
		return slices.ContainsFunc(s.Entries(), func(e surface.Entry) bool { return e.Tool.ID.Server == id })
	})
}

// All returns every run, for operators' reads.
func (g *Runs) All() []*Run {
	g.mu.RLock()
	defer g.mu.RUnlock()
	all := make([]*Run, 0, len(g.minted.byID)+len(g.baseRuns))
	for _, r := range g.minted.byID {
		all = append(all, r)
	}
	for _, r := range g.baseRuns {
		all = append(all, r)
	}
	return all
}
