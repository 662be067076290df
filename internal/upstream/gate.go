package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// queuePatience is how long a call waits for its turn at most.
const queuePatience = 5 * time.Second

var errNoTurn = errors.New("as many calls are under way as there may be, and none has ended meanwhile")

// A gate lets so many calls to a server at once. As many more as there is room
// for wait for their turn, in the order in which they came.
type gate struct {
	mu     sync.Mutex
	most   int // at once
	room   int // for those that wait
	inside int
	queue  []chan struct{} // of those that wait; each is closed when its call is let in
}

// limit sets the bounds. Nobody is put out who is inside, or waits.
func (g *gate) limit(most, room int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.room = most, room
	g.admit()
}

// enter lets a call in, or gives it a turn to wait for; ok is false where there
// is no room for that either, or it is not to wait.
func (g *gate) enter(waits bool) (turn chan struct{}, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.inside < g.most:
		g.inside++
		return nil, true
	case !waits || len(g.queue) >= g.room:
		return nil, false
	}
	turn = make(chan struct{})
	g.queue = append(g.queue, turn)
	return turn, true
}

// wait waits for the turn. With an error, which is errNoTurn or that of ctx, the
// call is not inside.
func (g *gate) wait(ctx context.Context, turn chan struct{}, patience time.Duration) (err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-turn:
		return nil
	case <-timer.C:
		err = errNoTurn
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, turn); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	} else { // it has just been let in
		g.inside--
		g.admit()
	}
	return err
}

// back lets a call in again that had been inside, whatever the bounds: it is
// under way at its server.
func (g *gate) back() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// admit lets those in whose turn it is. The caller holds g.mu.
func (g *gate) admit() {
	for len(g.queue) > 0 && g.inside < g.most {
		close(g.queue[0])
		g.queue[0] = nil
		g.queue = g.queue[1:]
		g.inside++
	}
}

// waiting returns how many wait.
func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}
