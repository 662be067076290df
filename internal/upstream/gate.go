package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// queuePatience is how long a call waits for its turn at most.
const queuePatience = 5 * time.Second

var (
	errNoTurn = errors.New("as many calls are under way as there may be, and none has ended meanwhile")
	errNoRoom = errors.New("as many calls are under way as there may be")
	errShare  = errors.New("it has its share of the calls that may be under way")
)

// A caller is for whom a call is made, as a gate holdings it.
type caller struct {
	tenant    switchboard.TenantID
	principal string
	among     Neighbors
}

// Neighbors say with whom a principal shares the servers.
type Neighbors struct {
	Tenants    bool // there are others than its own
	Principals bool // its tenant has others
}

// A holder is a tenant, or with id one of its principals.
type holder struct {
	tenant switchboard.TenantID
	id     string
}

// A holding is how many calls of a holder are inside, and how many wait.
type holding struct{ inside, waiting int }

// A gate lets so many calls to a server at once. As many more as there is room
// for wait for their turn.
//
// No caller can shut the others out: each leaves as many places as it takes. A tenant may
// have as many calls inside as places are free then, and a principal as many as its tenant
// may still take then. So none ever has more than half. The first call of each may have any
// place that is free. The room for those that wait is shared by the same rule. A place that
// becomes free goes to the tenant with the fewest calls inside, then to the principal with
// the fewest, and then to who came first. The rule is the dynamic threshold of Choudhury and
// Hahne ("Dynamic queue length thresholds for shared-memory packet switches", 1998).
//
// A caller without neighbors has nobody to leave a place to.
type gate struct {
	mu       sync.Mutex
	most     int // at once
	room     int // for those that wait
	inside   int
	queues   []*queue // of those that wait; none is empty
	queued   int      // in all queues
	last     int      // number of a turn
	holdings map[holder]holding
}

// A queue is the turns of one caller, in the order in which they came.
type queue struct {
	caller caller
	turns  []*turn
}

// A turn is that of a call that waits.
type turn struct {
	queue  *queue
	number int
	come   chan struct{} // closed when the call is let in
}

// limit sets the bounds. Nobody is put out who is inside, or waits.
func (g *gate) limit(most, room int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.room = most, room
	g.admit()
}

// enter lets a call in, or gives it a turn to wait for. The error is errNoRoom or
// errShare, where it can do neither or is not to wait.
func (g *gate) enter(c caller, waits bool) (*turn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.fits(c):
		g.add(c, holding{inside: 1})
		return nil, nil
	case waits && g.mayWait(c):
		return g.enqueue(c), nil
	case g.inside < g.most:
		return nil, errShare
	}
	return nil, errNoRoom
}

// wait waits for the turn. With an error, which is errNoTurn or that of ctx, the
// call is not inside.
func (g *gate) wait(ctx context.Context, t *turn, patience time.Duration) (err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.come:
		return nil
	case <-timer.C:
		err = errNoTurn
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(t.queue.turns, t); i >= 0 {
		g.dequeue(t.queue, i)
	} else { // it has just been let in
		g.add(t.queue.caller, holding{inside: -1})
		g.admit()
	}
	return err
}

// enqueue returns a new turn of c. The caller holds g.mu.
func (g *gate) enqueue(c caller) *turn {
	i := slices.IndexFunc(g.queues, func(l *queue) bool { return l.caller == c })
	if i < 0 {
		i = len(g.queues)
		g.queues = append(g.queues, &queue{caller: c})
	}
	g.last++
	t := &turn{g.queues[i], g.last, make(chan struct{})}
	t.queue.turns = append(t.queue.turns, t)
	g.queued++
	g.add(c, holding{waiting: 1})
	return t
}

// dequeue takes a turn out of its queue. The caller holds g.mu.
func (g *gate) dequeue(l *queue, i int) *turn {
	t := l.turns[i]
	l.turns = slices.Delete(l.turns, i, i+1)
	if len(l.turns) == 0 {
		g.queues = slices.DeleteFunc(g.queues, func(other *queue) bool { return other == l })
	}
	g.queued--
	g.add(l.caller, holding{waiting: -1})
	return t
}

// back lets a call in again that had been inside, whatever the bounds: it is
// under way at its server.
func (g *gate) back(c caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(c, holding{inside: 1})
}

func (g *gate) leave(c caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(c, holding{inside: -1})
	g.admit()
}

// add holdings a call of c in or out. The caller holds g.mu.
func (g *gate) add(c caller, n holding) {
	g.inside += n.inside
	if c.among.Tenants {
		g.addTo(holder{tenant: c.tenant}, n)
	}
	if c.among.Principals {
		g.addTo(holder{c.tenant, c.principal}, n)
	}
}

func (g *gate) addTo(h holder, n holding) {
	if g.holdings == nil {
		g.holdings = map[holder]holding{}
	}
	was := g.holdings[h]
	now := holding{was.inside + n.inside, was.waiting + n.waiting}
	if now == (holding{}) {
		delete(g.holdings, h)
		return
	}
	g.holdings[h] = now
}

// fits reports whether a call of c may be let in. The caller holds g.mu.
func (g *gate) fits(c caller) bool {
	tenant, principal := g.of(c)
	return g.most > g.inside && shares(c.among, tenant.inside, principal.inside, g.most-g.inside)
}

// mayWait reports whether a call of c may wait. The caller holds g.mu.
func (g *gate) mayWait(c caller) bool {
	tenant, principal := g.of(c)
	return g.room > g.queued && shares(c.among, tenant.waiting, principal.waiting, g.room-g.queued)
}

// of returns what c's tenant has, and what c has. The caller holds g.mu.
func (g *gate) of(c caller) (tenant, principal holding) {
	if c.among.Tenants {
		tenant = g.holdings[holder{tenant: c.tenant}]
	}
	if c.among.Principals {
		principal = g.holdings[holder{c.tenant, c.principal}]
	}
	return tenant, principal
}

// shares reports whether one more of the free places, of which there is at least one, is
// for a principal that has so many, in a tenant that has so many. The first always is.
func shares(among Neighbors, tenant, principal, free int) bool {
	left := free - 1
	if among.Tenants {
		if tenant > 0 && tenant+1 > left {
			return false
		}
		left -= tenant + 1
	}
	return !among.Principals || principal == 0 || principal+1 <= left
}

// admit lets those in whose turn it is. The caller holds g.mu.
func (g *gate) admit() {
	for g.inside < g.most {
		l := g.next()
		if l == nil {
			return
		}
		t := g.dequeue(l, 0)
		g.add(l.caller, holding{inside: 1})
		close(t.come)
	}
}

// next returns the queue whose first is let in next, or nil. The caller holds g.mu.
func (g *gate) next() *queue {
	var best *queue
	var least [3]int
	for _, l := range g.queues {
		tenant, principal := g.of(l.caller)
		has := [...]int{tenant.inside, principal.inside, l.turns[0].number}
		if (best == nil || slices.Compare(has[:], least[:]) < 0) && g.fits(l.caller) {
			best, least = l, has
		}
	}
	return best
}

// waiting returns how many wait.
func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queued
}
