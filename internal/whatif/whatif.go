// Package whatif compares recorded decisions with those under a proposal, in the background of a process that serves.
//
// It decides how many comparisons run, how long they take, and which officers see them. Package replay makes them. They are in the memory of this
// process.
package whatif

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of comparisons.
const (
	maxRunning = 2 // at once; each takes one processor at most
	maxKept    = 32
	maxTime    = 10 * time.Minute // of one
	keptFor    = 10 * time.Minute // after its end

	// QuickTime limits a comparison that somebody waits for.
	QuickTime = 3 * time.Second
)

// The states of a comparison.
const (
	Running  = "running"
	Done     = "done"
	Failed   = "failed"
	Canceled = "canceled"
)

// A Comparison is the state of one comparison.
type Comparison struct {
	ID      string               `json:"id"`
	Tenant  switchboard.TenantID `json:"tenant,omitempty"` // the tenant of the decisions; "" means all
	Path    string               `json:"path,omitempty"`   // the file that is replaced; "" means none: the decisions are made again as they were
	By      string               `json:"by"`
	Began   time.Time            `json:"began"`
	Since   time.Time            `json:"since"`
	State   string               `json:"state"`
	Looked  int                  `json:"looked"` // decisions that were replayed or skipped so far
	Of      int                  `json:"of"`     // 0 until the receipts are read
	Failure string               `json:"failure,omitempty"`
	Result  *replay.Diff         `json:"result,omitempty"` // once it is done
}

// A Selection names the decisions that are compared, and the proposal.
type Selection struct {
	Tenant   switchboard.TenantID // "" means all
	Path     string               // of the file that the proposal replaces; "" if it replaces none
	Since    time.Time
	Proposal *replay.Proposal
}

// A Compare is replay.Compare over the store of this process.
type Compare func(ctx context.Context, since time.Time, tenant switchboard.TenantID, p *replay.Proposal, progress func(done, of int)) (*replay.Diff, error)

// Comparisons run and keep comparisons. Use New. It is safe for concurrent use.
type Comparisons struct {
	compare  Compare
	stopping context.Context
	turns    chan struct{}

	mu  sync.Mutex
	all []*kept // the oldest first
}

// kept is a comparison that is kept; the mutex of Comparisons guards it.
type kept struct {
	Comparison
	cancel context.CancelFunc
	ended  time.Time
}

// New returns Comparisons. All end when stopping is done.
func New(stopping context.Context, compare Compare) *Comparisons {
	return &Comparisons{compare: compare, stopping: stopping, turns: make(chan struct{}, maxRunning)}
}

// errBusy is the refusal of a comparison while others run.
func errBusy() error {
	e := switchboard.Refuse(switchboard.CodeOverloaded, "%d comparisons are running, the most that there may be; ask again when one is done, or cancel one", maxRunning)
	e.RetryAfter = 10 * time.Second
	return e
}

// Start starts a comparison. The error is a *switchboard.Error: SB-ROUT-003 while too many run.
func (c *Comparisons) Start(by switchboard.Officer, q Selection) (Comparison, error) {
	select {
	case c.turns <- struct{}{}:
	default:
		return Comparison{}, errBusy()
	}
	var id [8]byte
	rand.Read(id[:])
	ctx, cancel := context.WithTimeout(c.stopping, maxTime)
	k := &kept{cancel: cancel, Comparison: Comparison{
		ID: hex.EncodeToString(id[:]), Tenant: q.Tenant, Path: q.Path, By: by.ID, Began: time.Now().UTC().Truncate(time.Millisecond), Since: q.Since, State: Running,
	}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if len(c.all) >= maxKept { // the running ones are fewer
		i := slices.IndexFunc(c.all, func(k *kept) bool { return k.State != Running })
		c.all = slices.Delete(c.all, i, i+1)
	}
	c.all = append(c.all, k)
	go c.run(ctx, k, q)
	return k.Comparison, nil
}

// run makes a comparison that Start has started.
func (c *Comparisons) run(ctx context.Context, k *kept, q Selection) {
	defer func() { <-c.turns }()
	defer k.cancel()
	d, err := c.compare(ctx, q.Since, q.Tenant, q.Proposal, func(done, of int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		k.Looked, k.Of = done, of
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	k.ended = time.Now()
	switch {
	case err == nil:
		k.State, k.Result, k.Looked, k.Of = Done, d, d.Decisions, d.Decisions
	case errors.Is(err, context.Canceled):
		k.State = Canceled
	case errors.Is(err, context.DeadlineExceeded):
		k.State, k.Failure = Failed, "it took longer than "+maxTime.String()+"; ask about less time"
	default:
		k.State, k.Failure = Failed, err.Error()
	}
}

// forget drops what ended long ago. The caller holds c.mu.
func (c *Comparisons) forget() {
	c.all = slices.DeleteFunc(c.all, func(k *kept) bool { return k.State != Running && time.Since(k.ended) >= keptFor })
}

// sees reports whether the officer may see a comparison: an operator sees all. Others need an office in the tenant, and must be allowed to read the
// file: readable says so.
func sees(by *switchboard.Officer, k *kept, readable func(path string) bool) bool {
	return by.Operator || k.Tenant != "" && by.Sees(k.Tenant) && (k.Path == "" || readable(k.Path))
}

// Get returns a comparison that the officer may see; ok is false if there is none.
func (c *Comparisons) Get(by switchboard.Officer, id string, readable func(path string) bool) (found Comparison, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	for _, k := range c.all {
		if k.ID == id && sees(&by, k, readable) {
			return k.Comparison, true
		}
	}
	return Comparison{}, false
}

// List returns the comparisons that the officer may see, the newest first and without their results.
func (c *Comparisons) List(by switchboard.Officer, readable func(path string) bool) []Comparison {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	all := []Comparison{}
	for _, k := range slices.Backward(c.all) {
		if sees(&by, k, readable) {
			one := k.Comparison
			one.Result = nil
			all = append(all, one)
		}
	}
	return all
}

// Cancel ends a comparison that the officer may see, and reports whether there was one.
func (c *Comparisons) Cancel(by switchboard.Officer, id string, readable func(path string) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.all {
		if k.ID == id && sees(&by, k, readable) {
			k.cancel()
			return true
		}
	}
	return false
}

// Quick makes a comparison while the caller waits. why says why there is no result: it took longer than QuickTime, or others run.
func (c *Comparisons) Quick(ctx context.Context, q Selection) (d *replay.Diff, why string, err error) {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	default:
		return nil, errBusy().Error(), nil
	}
	limited, cancel := context.WithTimeout(ctx, QuickTime)
	defer cancel()
	d, err = c.compare(limited, q.Since, q.Tenant, q.Proposal, nil)
	if err != nil && cmp.Or(ctx.Err(), c.stopping.Err()) == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, "the recorded decisions cannot be made again in " + QuickTime.String() + "; start a comparison, which takes its time", nil
	}
	return d, "", err
}
