// Package grant keeps what people have added to runs and tasks because an agent asked for it.
//
// An AdditionBook reads the approved requests for capabilities. It decides which run each of them concerns, and when it ends; the request itself is the only
// record, so that a yes survives a restart and counts on every replica. It leaves to others who may ask and decide (package approval), and which
// tools a capability gives: an addition is one more requirement, which is decided like any other (package bind).
package grant

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// AskedFor is how long a person has to decide.
const AskedFor = approval.MaxUntil

const (
	readTimeout = 2 * time.Second // of the store, while a run is bound; also for the wait until others have read
	retryAfter  = time.Second     // if the store could not be read
	lookAgain   = time.Minute     // although nothing is known to end: the clock may be set
	maxNotices  = 1000            // that wait; beyond it everything is read again
)

// Options are the dependencies of an AdditionBook.
type Options struct {
	// List returns the requests of a tenant, and Find one of them; see approval.Keeper.
	List func(ctx context.Context, tenant switchboard.TenantID) ([]*approval.Request, error)
	Find func(ctx context.Context, tenant switchboard.TenantID, id string) (*approval.Request, error)

	// Watch calls heard when a request may have changed, until stop is called; with no id if any may have.
	Watch func(heard func(tenant switchboard.TenantID, id string)) (stop func())

	// Counts reports whether a yes still counts: the persons who said it may still decide. nil means that each does.
	Counts func(ctx context.Context, r *approval.Request) bool

	// Concerned reports whether agents of the tenant may ask for something. The requests of other tenants are not read.
	Concerned func(switchboard.TenantID) bool

	// Changed is called when the additions to a principal's runs have changed.
	Changed func(ctx context.Context, tenant switchboard.TenantID, principal string)

	Log *slog.Logger // nil means no log
}

// An AdditionBook holds the additions. Use New. It is safe for concurrent use.
type AdditionBook struct {
	o    Options
	wake chan struct{}

	mu      sync.Mutex
	tenants map[switchboard.TenantID]*chapter
	notices map[requestName]bool
	failed  bool // a tenant's requests could not be read
}

// A requestName names a request that may have changed.
type requestName struct {
	tenant switchboard.TenantID
	id     string
}

// A chapter holds the additions of one tenant.
type chapter struct {
	// reading has an element while the store is read, so that an older answer does not replace a newer one. A caller waits for it no longer than for the store.
	reading chan struct{}

	mu       sync.Mutex
	loaded   bool
	approved map[string]*approval.Request // by id
}

// New returns an AdditionBook.
func New(o Options) *AdditionBook {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &AdditionBook{o: o, wake: make(chan struct{}, 1), tenants: map[switchboard.TenantID]*chapter{}, notices: map[requestName]bool{}}
}

// Additions implements run.Additions. If the store cannot be read, there are none until it can.
func (b *AdditionBook) Additions(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, id switchboard.RunID) (all []switchboard.Addition) {
	if !b.o.Concerned(p.Tenant) {
		return nil
	}
	c := b.chapter(p.Tenant)
	if !c.isLoaded() {
		b.load(ctx, p.Tenant, c, false)
	}
	now := time.Now()
	c.mu.Lock()
	approved := slices.Collect(maps.Values(c.approved))
	c.mu.Unlock()
	for _, r := range approved {
		if r.StateAt(now) == approval.Approved && Concerns(r, p, task, id) && (b.o.Counts == nil || b.o.Counts(ctx, r)) {
			all = append(all, switchboard.Addition{Request: r.ID(), Capability: r.Target.Capability, Until: r.Grant.Until})
		}
	}
	slices.SortFunc(all, func(a, b switchboard.Addition) int { return cmp.Compare(a.Request, b.Request) })
	return all
}

// Concerns reports whether a yes to the request is about a run. A yes for a task is about all runs of the principal with the task. A task that its client
// has declared, or no task, is not the same thing in two runs, so a yes is for the run then.
func Concerns(r *approval.Request, p switchboard.Principal, task switchboard.TaskID, id switchboard.RunID) bool {
	a := &r.Asker
	if a.Tenant != p.Tenant || a.Principal != p.ID || a.Auth != p.Auth {
		return false
	}
	asked := configured(a.Task)
	if r.Grant.Scope == approval.ScopeTask && asked != "" {
		return task == asked
	}
	return a.Run == id && asked == configured(task)
}

// configured returns the task, or "" for one that its client has declared.
func configured(task switchboard.TaskID) switchboard.TaskID {
	if task == switchboard.DeclaredTask {
		return ""
	}
	return task
}

func (b *AdditionBook) chapter(tenant switchboard.TenantID) *chapter {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.tenants[tenant]
	if c == nil {
		c = &chapter{reading: make(chan struct{}, 1), approved: map[string]*approval.Request{}}
		b.tenants[tenant] = c
	}
	return c
}

func (c *chapter) isLoaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded
}

// read waits until no other goroutine reads the store, or ctx is done. leave must be called after either.
func (c *chapter) read(ctx context.Context) (leave func(), err error) {
	select {
	case c.reading <- struct{}{}:
		return func() { <-c.reading }, nil
	case <-ctx.Done():
		return func() {}, context.Cause(ctx)
	}
}

// load reads the requests of a tenant, again if they were read before, and returns the principals with other additions than before.
func (b *AdditionBook) load(ctx context.Context, tenant switchboard.TenantID, c *chapter, again bool) (changed []string) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	leave, err := c.read(ctx)
	defer leave()
	if !again && c.isLoaded() {
		return nil // another goroutine was first
	}
	var requests []*approval.Request
	if err == nil {
		requests, err = b.o.List(ctx, tenant)
	}
	if err != nil {
		b.o.Log.Warn("what people have added to runs cannot be read, so it is left out", "tenant", tenant, "err", err)
		b.mu.Lock()
		b.failed = true
		b.mu.Unlock()
		b.ring()
		return nil
	}
	now := time.Now()
	next := map[string]*approval.Request{}
	for _, r := range requests {
		if r.Kind == approval.ForCapability && r.StateAt(now) == approval.Approved {
			next[r.ID()] = r
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.approved {
		if next[id] == nil {
			changed = append(changed, r.Asker.Principal)
		}
	}
	for id, r := range next {
		if c.approved[id] == nil {
			changed = append(changed, r.Asker.Principal)
		}
	}
	c.approved, c.loaded = next, true
	return changed
}

// reread reads one request again, and returns its principal if its additions have changed.
func (b *AdditionBook) reread(ctx context.Context, c *chapter, n requestName) (changed []string) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	leave, err := c.read(reading)
	defer leave()
	var r *approval.Request
	if err == nil {
		r, err = b.o.Find(reading, n.tenant, n.id)
	}
	c.mu.Lock()
	was := c.approved[n.id]
	switch {
	case err == nil && r.Kind == approval.ForCapability && r.StateAt(time.Now()) == approval.Approved:
		c.approved[n.id] = r
	default: // a yes that cannot be read does not count
		r = nil
		delete(c.approved, n.id)
	}
	c.mu.Unlock()
	if err != nil && !errors.Is(err, approval.ErrNoRequest) {
		b.mu.Lock()
		b.failed = true // read everything again
		b.mu.Unlock()
	}
	switch {
	case (was == nil) == (r == nil):
	case was == nil:
		changed = []string{r.Asker.Principal}
	default:
		changed = []string{was.Asker.Principal}
	}
	return changed
}

// ring wakes Run.
func (b *AdditionBook) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *AdditionBook) hear(tenant switchboard.TenantID, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.notices) >= maxNotices || id == "" {
		clear(b.notices)
		b.notices[requestName{}] = true
	} else if !b.notices[requestName{}] {
		b.notices[requestName{tenant, id}] = true
	}
	b.ring()
}

// takeNotices returns the tenants to read again and the requests to read again.
func (b *AdditionBook) takeNotices() (tenants []switchboard.TenantID, requests []requestName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.tenants {
		if b.notices[requestName{}] || b.failed {
			tenants = append(tenants, id)
		}
	}
	if tenants == nil {
		for n := range b.notices {
			if b.tenants[n.tenant] != nil { // otherwise no run has asked for them
				requests = append(requests, n)
			}
		}
	}
	clear(b.notices)
	b.failed = false
	return tenants, requests
}

// Run follows the requests until ctx is done: it calls Changed when a yes is given, ends or is revoked.
func (b *AdditionBook) Run(ctx context.Context) {
	defer b.o.Watch(b.hear)()
	b.hear("", "") // what has changed before the watch
	for {
		changed := map[requestName]bool{} // the id names a principal
		note := func(tenant switchboard.TenantID, principals []string) {
			for _, p := range principals {
				changed[requestName{tenant, p}] = true
			}
		}
		tenants, requests := b.takeNotices()
		for _, id := range tenants {
			note(id, b.load(ctx, id, b.chapter(id), true))
		}
		for _, n := range requests {
			note(n.tenant, b.reread(ctx, b.chapter(n.tenant), n))
		}
		ended, next := b.dropEnded(time.Now())
		for _, n := range ended {
			changed[n] = true
		}
		for n := range changed {
			b.o.Changed(ctx, n.tenant, n.id)
		}
		if !b.await(ctx, next) {
			return
		}
	}
}

// await waits for a notice, or until the instant; zero is never. It reports false when ctx is done.
func (b *AdditionBook) await(ctx context.Context, next time.Time) bool {
	var due <-chan time.Time
	b.mu.Lock()
	failed := b.failed
	b.mu.Unlock()
	if failed {
		next = time.Now().Add(retryAfter)
	}
	if !next.IsZero() {
		due = time.After(min(time.Until(next), lookAgain))
	}
	wake := b.wake
	if failed {
		wake = nil // not at once
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-wake:
	}
	return true
}

// dropEnded drops what has ended, and returns the principals that had it, and when the next addition ends.
func (b *AdditionBook) dropEnded(now time.Time) (ended []requestName, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tenant, c := range b.tenants {
		c.mu.Lock()
		for id, r := range c.approved {
			switch {
			case r.StateAt(now) != approval.Approved:
				delete(c.approved, id)
				ended = append(ended, requestName{tenant, r.Asker.Principal})
			case next.IsZero() || r.Grant.Until.Before(next):
				next = r.Grant.Until
			}
		}
		c.mu.Unlock()
	}
	return ended, next
}
