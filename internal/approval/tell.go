package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// People are told of each pending request at least once, even if the process that made it is killed. The change that makes a request marks it as untold in the index
// of its tenant. TellPeople removes the mark when the notice of the request is durable.

const (
	tellInterval = 30 * time.Second // between two looks for requests that other processes have left untold

	// tellGrace is how long other processes leave a request to the process that made it. Two processes may tell of one request all the same.
	tellGrace = 10 * time.Second

	tellTimeout = 2 * storeTimeout
	tellLast    = 5 * time.Second // for all that is untold when TellPeople stops
)

// ownRequests are the untold requests that this process has made: short bindings, by tenant. Use newOwnRequests.
type ownRequests struct {
	mu    sync.Mutex
	names map[switchboard.TenantID]map[string]bool
	wake  chan struct{} // of capacity one: there is another one
}

func newOwnRequests() ownRequests {
	return ownRequests{names: map[switchboard.TenantID]map[string]bool{}, wake: make(chan struct{}, 1)}
}

func (o *ownRequests) add(r *Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	tenant := r.Asker.Tenant
	if o.names[tenant] == nil {
		o.names[tenant] = map[string]bool{}
	}
	o.names[tenant][shortBinding(r.Binding)] = true
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take removes the requests of the tenant, and returns them.
func (o *ownRequests) take(tenant switchboard.TenantID) map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.names[tenant]
	delete(o.names, tenant)
	return all
}

func (o *ownRequests) tenants() (all []switchboard.TenantID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t := range o.names {
		all = append(all, t)
	}
	return all
}

// TellPeople calls tell for each request at least once, until ctx is done. tell returns when the notice of the request is durable; after an error, TellPeople calls it
// again later. TellPeople also finds the requests that other processes have left untold, because they were killed. tenants returns all tenants.
func (k *requestBook) TellPeople(ctx context.Context, tenants func() []switchboard.TenantID, tell func(context.Context, *Request) error) {
	look := time.NewTicker(tellInterval)
	defer look.Stop()
	for of := tenants(); ; {
		for _, t := range of {
			k.tellOf(ctx, t, tell)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellLast)
			defer cancel()
			for _, t := range k.untold.tenants() {
				k.tellOf(last, t, tell)
			}
			return
		case <-k.untold.wake:
			of = k.untold.tenants()
		case <-look.C:
			of = tenants()
		}
	}
}

// tellOf tells of the untold requests of a tenant. What fails stays marked: the next look tries it again.
func (k *requestBook) tellOf(ctx context.Context, tenant switchboard.TenantID, tell func(context.Context, *Request) error) {
	own := k.untold.take(tenant)
	ix, _, err := k.readIndex(ctx, tenant)
	if err != nil {
		return
	}
	told := map[askEntry]bool{}
	for _, e := range ix.Entries {
		if !e.Untold || !own[e.Name] && time.Since(time.Unix(e.Asked, 0)) < tellGrace {
			continue
		}
		done, err := k.tellOne(ctx, tenant, e, tell)
		if err != nil {
			break // the store or the recipients fail, so the next request would too; what was told is marked
		}
		if done {
			told[askEntry{Name: e.Name, Asked: e.Asked}] = true
		}
	}
	if len(told) > 0 {
		k.markTold(ctx, tenant, told)
	}
}

// tellOne tells of the request of an entry, and reports whether that is done, or needless: because the request is not pending any more, or cannot be read. The error is
// one of the store, or of tell.
func (k *requestBook) tellOne(ctx context.Context, tenant switchboard.TenantID, e askEntry, tell func(context.Context, *Request) error) (done bool, err error) {
	r, err := k.read(ctx, tenant, e.Name)
	switch {
	case errors.Is(err, errDamaged):
		k.o.Log.Error("people are not told of a request, because it cannot be read, and nobody can decide it", "name", e.Name, "tenant", string(tenant), "error", err)
		return true, nil
	case err != nil:
		return false, err
	case r == nil || r.Asked.Unix() != e.Asked || r.StateAt(time.Now()) != Pending: // a later request of the binding has an entry of its own
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err := tell(ctx, r); err != nil {
		k.o.Log.Warn("people are not told of a request yet; this is tried again", "request", r.ID(), "tenant", string(tenant), "error", err)
		return false, err
	}
	return true, nil
}

// markTold removes the marks of requests. If it fails, people are told once more.
func (k *requestBook) markTold(ctx context.Context, tenant switchboard.TenantID, told map[askEntry]bool) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for range maxTries {
		ix, version, err := k.readIndex(ctx, tenant)
		if err != nil {
			return
		}
		for i := range ix.Entries {
			if e := &ix.Entries[i]; told[askEntry{Name: e.Name, Asked: e.Asked}] {
				e.Untold = false
			}
		}
		_, err = k.o.Store.Apply(ctx, store.Change{Group: groupOf(tenant), Writes: []store.Write{indexWrite(ix, version)}})
		if !errors.Is(err, store.ErrConflict) {
			return
		}
		pause(ctx)
	}
}
