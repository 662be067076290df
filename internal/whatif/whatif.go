// Package whatif compares recorded decisions with proposals in the background, for officers who ask for the progress and then for the result.
//
// It decides how many comparisons run at once, how long each may take and how much it may look at, and how long results are kept. Package
// replay compares. The caller decides who may ask, and makes the proposal.
package whatif

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/heap"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of comparisons.
const (
	MaxRunning   = 4 // at once
	MaxPerTenant = 2 // of these; those over all tenants count as a tenant of their own
	MaxDecisions = 50_000
	MaxTime      = 5 * time.Minute // then the result says how far it has looked
	MaxMemory    = 512 << 20       // that the heap may grow meanwhile, in bytes

	Kept             = 10 * time.Minute // after the end
	maxKept          = 32               // ended ones; the oldest are dropped first
	maxKeptPerTenant = 8
)

// RunState says whether a comparison runs.
type RunState string

// The states.
const (
	Running RunState = "running"
	Done    RunState = "done"
	Failed  RunState = "failed"
)

// A Comparison is a comparison as it is now. The result must not be changed.
type Comparison struct {
	ID      string               `json:"id"`
	Tenant  switchboard.TenantID `json:"tenant,omitempty"` // "" means all tenants
	By      string               `json:"by"`               // the officer who has started it
	State   RunState             `json:"state"`
	Since   time.Time            `json:"since"` // decisions since then
	Started time.Time            `json:"started"`
	Looked  int                  `json:"looked_at"` // decisions so far
	Of      int                  `json:"of"`        // decisions that it looks at; 0 until they are counted
	Until   time.Time            `json:"kept_until,omitzero"`
	Why     string               `json:"why,omitempty"` // why it has failed
	Result  *replay.Diff         `json:"result,omitempty"`
}

// A Compare compares decisions with a proposal. See replay.CompareWithin.
type Compare func(ctx context.Context, s replay.Bounds, progress func(done, of int)) (*replay.Diff, error)

// Comparisons run in the background. Use New. They are safe for concurrent use.
type Comparisons struct {
	log *slog.Logger

	mu     sync.Mutex
	all    map[string]*run
	closed bool
	work   sync.WaitGroup
}

// A run is one comparison. The mutex of Comparisons guards it.
type run struct {
	now    Comparison
	cancel context.CancelFunc
	ended  time.Time
	expire *time.Timer // nil while it runs
}

// New returns empty Comparisons.
func New(log *slog.Logger) *Comparisons { return &Comparisons{log: log, all: map[string]*run{}} }

// Start starts a comparison of the tenant's decisions ("" means all tenants) since an instant, and returns at once. The error is SB-ROUT-003 if as
// many run as may.
func (d *Comparisons) Start(tenant switchboard.TenantID, by string, since time.Time, compare Compare) (*Comparison, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	running, own := 0, 0
	for _, e := range d.all {
		if e.now.State == Running {
			running++
			if e.now.Tenant == tenant {
				own++
			}
		}
	}
	switch {
	case d.closed:
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "Switchboard is stopping")
	case own >= MaxPerTenant:
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "%d comparisons run for the tenant, the most at once; wait until one has ended, or cancel one", own)
	case running >= MaxRunning:
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "%d comparisons run, the most at once; try again later", running)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &run{cancel: cancel, now: Comparison{ID: strings.ToLower(rand.Text()[:16]), Tenant: tenant, By: by, State: Running, Since: since, Started: time.Now()}}
	d.all[e.now.ID] = e
	now := e.now
	d.work.Go(func() { d.run(ctx, e, compare) })
	return &now, nil
}

// run compares, and keeps the result.
func (d *Comparisons) run(ctx context.Context, e *run, compare Compare) {
	defer e.cancel()
	limited, stop := heap.Limit(ctx, MaxMemory)
	defer stop()
	// One worker leaves the other processors to the calls of clients.
	diff, err := compare(limited, replay.Bounds{Tenant: e.now.Tenant, Since: e.now.Since, Limit: MaxDecisions, Time: MaxTime, Workers: 1}, func(done, of int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		e.now.Looked, e.now.Of = done, of
	})
	if err != nil && errors.Is(context.Cause(limited), heap.ErrGrown) {
		err = heap.ErrGrown
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[e.now.ID] != e || d.closed { // it was cancelled
		return
	}
	e.now.State, e.now.Result = Done, diff
	if err != nil {
		e.now.State, e.now.Why = Failed, reasonOf(err)
		level := slog.LevelWarn
		if errors.Is(err, receipt.ErrNotFound) { // the officer has named what is not there
			level = slog.LevelDebug
		}
		d.log.Log(ctx, level, "a comparison of recorded decisions has failed", "tenant", e.now.Tenant, "by", e.now.By, "err", err)
	}
	e.ended = time.Now()
	e.now.Until = e.ended.Add(Kept)
	e.expire = time.AfterFunc(Kept, func() { d.drop(e) })
	d.dropOldest(e.now.Tenant)
}

// reasonOf returns the reason for an officer. Other errors than ours may hold texts of the system; the log output has them.
func reasonOf(err error) string {
	if faults, ok := errors.AsType[switchboard.Faults](err); ok {
		return faults.Error()
	}
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Error()
	}
	for _, own := range []error{heap.ErrGrown, receipt.ErrNotFound} {
		if errors.Is(err, own) {
			return own.Error()
		}
	}
	return "the comparison could not be made; the log output of Switchboard says why"
}

// dropOldest drops results until no more are kept than may be, of the tenant and of all. The caller holds d.mu.
func (d *Comparisons) dropOldest(tenant switchboard.TenantID) {
	var ended []*run
	for _, e := range d.all {
		if e.now.State != Running {
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b *run) int { return a.ended.Compare(b.ended) })
	all, own := len(ended), 0
	for _, e := range ended {
		if e.now.Tenant == tenant {
			own++
		}
	}
	for _, e := range ended {
		mine := e.now.Tenant == tenant
		if all > maxKept || mine && own > maxKeptPerTenant {
			e.expire.Stop()
			delete(d.all, e.now.ID)
			if all--; mine {
				own--
			}
		}
	}
}

// drop drops a result.
func (d *Comparisons) drop(e *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, e.now.ID)
}

// find returns a comparison that the officer of the tenant may see; "" sees all. The caller holds d.mu.
func (d *Comparisons) find(tenant switchboard.TenantID, id string) *run {
	if e := d.all[id]; e != nil && (tenant == "" || e.now.Tenant == tenant) {
		return e
	}
	return nil
}

// Read returns a comparison of the tenant ("" means any tenant), nil if there is none.
func (d *Comparisons) Read(tenant switchboard.TenantID, id string) *Comparison {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.find(tenant, id)
	if e == nil {
		return nil
	}
	now := e.now
	return &now
}

// Cancel ends a comparison of the tenant and drops its result. ok is false if there is none.
func (d *Comparisons) Cancel(tenant switchboard.TenantID, id string) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.find(tenant, id)
	if e == nil {
		return false
	}
	e.cancel()
	if e.expire != nil {
		e.expire.Stop()
	}
	delete(d.all, id)
	return true
}

// Close cancels all comparisons, and waits until they have ended.
func (d *Comparisons) Close() {
	d.mu.Lock()
	d.closed = true
	for _, e := range d.all {
		e.cancel()
		if e.expire != nil {
			e.expire.Stop()
		}
	}
	d.mu.Unlock()
	d.work.Wait()
}
