// Package slot limits the calls that are in flight at one server, and the time of each call.
//
// It decides which call gets a slot, which one waits for a slot and which one is refused, so that no
// caller shuts out another one. It ends a call when its time has passed, stops that time while the client
// is asked, and then gives its slot to others. What a refused call is told is left to package upstream.
package slot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// TurnTimeout limits how long a call waits for its turn.
const TurnTimeout = 5 * time.Second

// Why a call gets no slot.
var (
	ErrTurnTimeout = errors.New("all slots are taken, and none was released in time")
	ErrFull        = errors.New("all slots are taken")
	ErrShareUsed   = errors.New("the caller has its share of the slots")
)

// A CallKey says which tenant and principal a call counts for.
type CallKey struct {
	Tenant    switchboard.TenantID
	Principal string
	Among     Neighbors
}

// Neighbors say which other users share the servers with a principal.
type Neighbors struct {
	Tenants    bool // there are other tenants
	Principals bool // its tenant has other principals
}

// A shareHolder is a tenant or, with an id, a principal of the tenant.
type shareHolder struct {
	tenant switchboard.TenantID
	id     string
}

// A shareCount is how many calls of a holder are in flight, and how many wait.
type shareCount struct{ inside, waiting int }

// A Gate limits the calls in flight at a server. More calls may wait for their turn, up to
// maxWaiting.
//
// No caller can block the others, since each must leave as many slots free as it takes. A tenant
// may have as many calls in flight as slots are then free, and a principal as many as its tenant
// may then still take. So none ever has more than half. The first call of each may take any free
// slot. The room for waiting calls is shared by the same rule. A free slot goes to the tenant with
// the fewest calls in flight, then to the principal with the fewest, then to the oldest turn. The
// rule is the dynamic threshold of Choudhury and Hahne ("Dynamic queue length thresholds for
// shared-memory packet switches", 1998).
//
// A caller without neighbors need not leave slots free.
type Gate struct {
	mu         sync.Mutex
	maxInside  int // calls in flight
	maxWaiting int // waiting calls
	inside     int
	queues     []*turnQueue // of waiting calls; none is empty
	queued     int          // in all queues
	lastNumber int          // of the last turn
	counts     map[shareHolder]shareCount
	young      watchlist
}

// A turnQueue has the waiting calls of one caller, oldest first.
type turnQueue struct {
	caller CallKey
	turns  []*Turn
}

// A Turn is the place of a waiting call in its queue.
type Turn struct {
	queue    *turnQueue
	number   int
	admitted chan struct{} // closed when the call gets its slot
}

// SetLimits changes the limits. Calls in flight and waiting calls stay.
func (g *Gate) SetLimits(most, room int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.maxInside, g.maxWaiting = most, room
	g.admitWaiting()
}

// Enter gives the call a slot, or a turn to wait for. The error is errGateFull or errShareUsed if
// the call can have neither, or must not wait.
func (g *Gate) Enter(c CallKey, waits bool) (*Turn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mayEnter(c):
		g.count(c, shareCount{inside: 1})
		return nil, nil
	case waits && g.mayWait(c):
		return g.enqueue(c), nil
	case g.inside < g.maxInside:
		return nil, ErrShareUsed
	}
	return nil, ErrFull
}

// WaitTurn waits until the call gets its slot. The error is errTurnTimeout or ctx.Err(); the call
// then has no slot.
func (g *Gate) WaitTurn(ctx context.Context, t *Turn, timeout time.Duration) (err error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-t.admitted:
		return nil
	case <-timer.C:
		err = ErrTurnTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(t.queue.turns, t); i >= 0 {
		g.dequeue(t.queue, i)
	} else { // it just got a slot
		g.count(t.queue.caller, shareCount{inside: -1})
		g.admitWaiting()
	}
	return err
}

// enqueue returns a new turn of c. The caller holds g.mu.
func (g *Gate) enqueue(c CallKey) *Turn {
	i := slices.IndexFunc(g.queues, func(l *turnQueue) bool { return l.caller == c })
	if i < 0 {
		i = len(g.queues)
		g.queues = append(g.queues, &turnQueue{caller: c})
	}
	g.lastNumber++
	t := &Turn{g.queues[i], g.lastNumber, make(chan struct{})}
	t.queue.turns = append(t.queue.turns, t)
	g.queued++
	g.count(c, shareCount{waiting: 1})
	return t
}

// dequeue removes a turn from its queue. The caller holds g.mu.
func (g *Gate) dequeue(l *turnQueue, i int) *Turn {
	t := l.turns[i]
	l.turns = slices.Delete(l.turns, i, i+1)
	if len(l.turns) == 0 {
		g.queues = slices.DeleteFunc(g.queues, func(other *turnQueue) bool { return other == l })
	}
	g.queued--
	g.count(l.caller, shareCount{waiting: -1})
	return t
}

// reenter gives a call in flight a slot again, even beyond the limit: its server is executing it.
func (g *Gate) reenter(c CallKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(c, shareCount{inside: 1})
}

// Leave releases a slot of c.
func (g *Gate) Leave(c CallKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(c, shareCount{inside: -1})
	g.admitWaiting()
}

// count adds n to the counts for c. The caller holds g.mu.
func (g *Gate) count(c CallKey, n shareCount) {
	g.inside += n.inside
	if c.Among.Tenants {
		g.countHolder(shareHolder{tenant: c.Tenant}, n)
	}
	if c.Among.Principals {
		g.countHolder(shareHolder{c.Tenant, c.Principal}, n)
	}
}

func (g *Gate) countHolder(h shareHolder, n shareCount) {
	if g.counts == nil {
		g.counts = map[shareHolder]shareCount{}
	}
	was := g.counts[h]
	now := shareCount{was.inside + n.inside, was.waiting + n.waiting}
	if now == (shareCount{}) {
		delete(g.counts, h)
		return
	}
	g.counts[h] = now
}

// mayEnter reports whether a call of c may take a slot now. The caller holds g.mu.
func (g *Gate) mayEnter(c CallKey) bool {
	tenant, principal := g.countsOf(c)
	return g.maxInside > g.inside && withinShare(c.Among, tenant.inside, principal.inside, g.maxInside-g.inside)
}

// mayWait reports whether a call of c may wait. The caller holds g.mu.
func (g *Gate) mayWait(c CallKey) bool {
	tenant, principal := g.countsOf(c)
	return g.maxWaiting > g.queued && withinShare(c.Among, tenant.waiting, principal.waiting, g.maxWaiting-g.queued)
}

// countsOf returns the counts of the tenant of c and of c itself. The caller holds g.mu.
func (g *Gate) countsOf(c CallKey) (tenant, principal shareCount) {
	if c.Among.Tenants {
		tenant = g.counts[shareHolder{tenant: c.Tenant}]
	}
	if c.Among.Principals {
		principal = g.counts[shareHolder{c.Tenant, c.Principal}]
	}
	return tenant, principal
}

// withinShare reports whether a principal may take one of the free slots, of which there is at
// least one. tenant and principal are the numbers of slots that they have. The first slot is always
// allowed.
func withinShare(among Neighbors, tenant, principal, free int) bool {
	left := free - 1
	if among.Tenants {
		if tenant > 0 && tenant+1 > left {
			return false
		}
		left -= tenant + 1
	}
	return !among.Principals || principal == 0 || principal+1 <= left
}

// admitWaiting gives free slots to waiting calls. The caller holds g.mu.
func (g *Gate) admitWaiting() {
	for g.inside < g.maxInside {
		l := g.nextQueue()
		if l == nil {
			return
		}
		t := g.dequeue(l, 0)
		g.count(l.caller, shareCount{inside: 1})
		close(t.admitted)
	}
}

// nextQueue returns the queue that gets the next slot, or nil. The caller holds g.mu.
func (g *Gate) nextQueue() *turnQueue {
	var best *turnQueue
	var least [3]int
	for _, l := range g.queues {
		tenant, principal := g.countsOf(l.caller)
		has := [...]int{tenant.inside, principal.inside, l.turns[0].number}
		if (best == nil || slices.Compare(has[:], least[:]) < 0) && g.mayEnter(l.caller) {
			best, least = l, has
		}
	}
	return best
}

// Waiting returns how many calls wait.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queued
}

// InFlight returns how many calls have a slot.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}
