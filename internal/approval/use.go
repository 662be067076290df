package approval

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// readBackTimeout limits the question to the store whether it has made a step. A caller waits for it after it has waited for the step.
const readBackTimeout = 2 * time.Second

// Use uses the yes of a call, once over all replicas: with one compare-and-set. Who has said yes must still be allowed to, and policy must not veto
// it. intent names the attempt, and no other one. The record of an attempt with an effect makes its use durable; any other use is durable by itself.
// If the answer of the store is lost, Use finds out whether it was made: then the call goes on, and else the yes stays. Only if the store answers
// nothing at all may a yes be lost that no call has used.
//
// write, if not nil, makes the change, and may hold a price with it; a standing yes does without it. If its answer is lost, Use gives the yes back, because
// the caller releases the price. The error is a *switchboard.Error: that of write if it returns one.
func (k *Keeper) Use(ctx context.Context, c *switchboard.Call, intent string, write func(context.Context, store.Change) (store.Version, error)) error {
	if c.Yes.Standing != "" {
		return k.o.Standing.Use(ctx, c, intent)
	}
	held, ok := c.Yes.Memory.(*heldYes)
	if !ok {
		return gone("the approval of request %s is not known here", c.Yes.Request)
	}
	if err := k.checkVotes(ctx, held.request, c); err != nil {
		return err
	}
	step, durable, r := Step{Act: ActUse, By: intent}, !k.o.Effect(c), held.request
	use := k.writerOf(durable)
	if write != nil {
		use = func(ctx context.Context, change store.Change) (store.Version, error) {
			change.Durable = durable
			return write(ctx, change)
		}
	}
	for range 2 { // the second time after a change that does not matter here
		next, err := k.apply(ctx, r, step, nil, use)
		if err == nil {
			held.used, held.by = next, intent
			return nil
		}
		if late, ok := errors.AsType[*OutrunError](err); ok {
			return k.refusalOf(late.Request)
		}
		if own, ok := errors.AsType[*switchboard.Error](err); errors.Is(err, store.ErrInvalid) || ok && own.Code == switchboard.CodeBudgetExceeded {
			return storeError(err) // certainly nothing was used
		}
		// Another call was first, a person has revoked it, or the answer of the store was lost: the store says which.
		now, findErr := k.readBack(ctx, r)
		switch {
		case errors.Is(findErr, ErrNoRequest):
			return gone("the request %s is gone", c.Yes.Request)
		case findErr != nil:
			return storeError(findErr)
		case now.Stored == Approved && !errors.Is(err, store.ErrConflict):
			// The change may still be on its way. This write makes it conflict, or finds it made.
			if now, findErr = k.fence(ctx, now); findErr != nil {
				return storeError(findErr)
			}
		}
		switch {
		case now.Stored == Used && now.EndedBy == intent: // no other attempt has this intent
			now.Target = r.Target // the store keeps less of a request that is used
			held.used, held.by = now, intent
			if write == nil && k.confirm(ctx, r, now, durable, step) == nil {
				return nil
			}
			if back := k.GiveBack(context.WithoutCancel(ctx), c); back != nil {
				return back
			}
			return storeError(err)
		case now.StateAt(time.Now()) != Approved:
			return k.refusalOf(now)
		case !errors.Is(err, store.ErrConflict):
			return storeError(err) // the yes stays
		}
		r = now
	}
	return used(c.Yes.Request)
}

// readBack reads a request again after a step whose answer was lost, also if the caller is gone.
func (k *requestBook) readBack(ctx context.Context, r *Request) (*Request, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTimeout)
	defer cancel()
	return k.Find(ctx, r.Asker.Tenant, r.ID())
}

// fence writes an approved request again as it was read, so that an earlier write of it that is still on its way conflicts. It returns the request as it is then.
func (k *requestBook) fence(ctx context.Context, r *Request) (*Request, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTimeout)
	defer cancel()
	write := store.Write{Name: shortBinding(r.Binding), Was: r.memory.version, Data: r.encode(), TTL: r.ttl(time.Now())}
	switch version, err := k.o.Store.Apply(ctx, store.Change{Group: groupOf(r.Asker.Tenant), Writes: []store.Write{write}}); {
	case errors.Is(err, store.ErrConflict):
		return k.Find(ctx, r.Asker.Tenant, r.ID())
	case err != nil:
		return nil, err
	default:
		r.memory.version = version
		return r, nil
	}
}

// confirm completes a step from r to next that the store has made, although its answer was lost. Whether the step is durable is not known, so it is written again
// where it must be.
func (k *requestBook) confirm(ctx context.Context, r, next *Request, durable bool, s Step) error {
	if durable {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTimeout)
		defer cancel()
		write := store.Write{Name: shortBinding(next.Binding), Was: next.memory.version, Data: next.encode(), TTL: next.ttl(time.Now())}
		version, err := k.o.Store.Apply(ctx, store.Change{Group: groupOf(next.Asker.Tenant), Writes: []store.Write{write}, Durable: true})
		if err != nil {
			return err
		}
		next.memory.version = version
	}
	k.complete(ctx, r, next, s)
	return nil
}

// checkVotes returns why the yeses of the request do not count any more; nil if they do.
func (k *Keeper) checkVotes(ctx context.Context, r *Request, c *switchboard.Call) error {
	tenant := r.Asker.Tenant
	lost := func(cause error) error {
		e := gone("the approval of request %s does not count any more: who gave it may not approve this now", r.ID())
		e.Hint, e.Cause = "ask the person whom you work for", cause
		return e
	}
	for i := range r.Votes {
		v := &r.Votes[i]
		if !v.Yes {
			continue
		}
		by := byForm
		if v.ByForm() {
			if set := k.o.Settings(tenant); !mayAskByForm(set, r) {
				return lost(errors.New("a form at the client does not decide any more"))
			}
		} else {
			var err error
			if by, err = k.o.Officer(tenant, v); err != nil {
				return lost(err)
			}
			if err := MayDecide(&by, r, k.o.Rules(tenant)); err != nil {
				return lost(err)
			}
		}
		if k.o.Veto != nil {
			if err := k.o.Veto(ctx, &by, r, c, c.Params); err != nil {
				return lost(err)
			}
		}
	}
	return nil
}

// GiveBack undoes Use, for a call that provably was not made.
func (k *Keeper) GiveBack(ctx context.Context, c *switchboard.Call) error {
	if c.Yes.Standing != "" {
		return k.o.Standing.GiveBack(ctx, c)
	}
	held, ok := c.Yes.Memory.(*heldYes)
	if !ok || held.used == nil {
		return nil
	}
	_, err := k.apply(ctx, held.used, Step{Act: ActGiveBack, By: held.by}, &KeptCall{Params: c.Params, Key: c.IdempotencyKey}, k.writerOf(false))
	if late, ok := errors.AsType[*OutrunError](err); ok && late.Request.Stored == Used {
		return nil // it has expired meanwhile
	}
	held.used = nil
	if err != nil {
		return storeError(err)
	}
	return nil
}

// Replay notes at a start that an intent has used a request, if the store has lost that.
func (k *Keeper) Replay(ctx context.Context, tenant switchboard.TenantID, request, intent string) error {
	for range maxTries {
		r, err := k.Find(ctx, tenant, request)
		if errors.Is(err, ErrNoRequest) {
			return nil // it is over, and a newer one has its place
		}
		if err != nil {
			return err
		}
		if r.Stored != Approved {
			return nil
		}
		_, err = k.apply(ctx, r, Step{Act: ActUse, By: intent}, nil, k.writerOf(true))
		if _, late := errors.AsType[*OutrunError](err); late {
			return nil // it has expired, so that no call can use it
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return errors.New("others changed the request all the time")
}
