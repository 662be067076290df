package health

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Move is a call that another server has served than the one it was meant for.
type Move struct {
	When      time.Time
	Principal switchboard.Principal
	Task      switchboard.TaskID
	Run       switchboard.RunID
	Tool      switchboard.ToolID // that was meant
	*switchboard.Moved
}

// moves are those of which the log has yet to say something: a line for each, but
// not while its client waits. The zero moves are ready for use.
type moves struct {
	telling sync.Mutex // held by who tells, so that lines are in order

	mu      sync.Mutex
	waiting []Move
	closed  bool
}

// maxMoves bounds how many moves wait, each for soon at most. Where there are
// more, the call itself tells of them, and its client waits: none is lost.
const (
	maxMoves = 1000
	soon     = 10 * time.Millisecond
)

// add takes a move, and has all that wait told in the end.
func (q *moves) add(m Move, tell func(Move)) {
	q.mu.Lock()
	q.waiting = append(q.waiting, m)
	first, now := len(q.waiting) == 1, q.closed || len(q.waiting) > maxMoves
	q.mu.Unlock()
	switch {
	case now:
		q.flush(tell)
	case first:
		time.AfterFunc(soon, func() { q.flush(tell) })
	}
}

// flush tells of all that wait.
func (q *moves) flush(tell func(Move)) {
	q.telling.Lock()
	defer q.telling.Unlock()
	q.mu.Lock()
	all := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	for _, m := range all {
		tell(m)
	}
}

// close tells of all that wait; of what comes after, the call tells itself.
func (q *moves) close(tell func(Move)) {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.flush(tell)
}

// moved notes that another tool has served the call.
func (m *Monitor) moved(s *server, c *switchboard.Call, to *switchboard.Moved) {
	s.away.Add(1)
	if other := m.server(to.To.Server); other != nil {
		other.here.Add(1)
	}
	m.moves.add(Move{time.Now(), c.Principal, c.Task, c.Run, c.Tool.ID, to}, m.tell)
}

// tell says that a call was moved: in the log with texts only, which cost least,
// and with the time at which it was.
func (m *Monitor) tell(v Move) {
	ctx := context.Background()
	if h := m.o.Log.Handler(); h.Enabled(ctx, slog.LevelInfo) {
		line := slog.NewRecord(v.When, slog.LevelInfo, "call moved", 0)
		line.AddAttrs(slog.String("tenant", string(v.Principal.Tenant)), slog.String("principal", string(v.Principal.ID)),
			slog.String("task", string(v.Task)), slog.String("run", string(v.Run)),
			slog.String("from", v.Tool.String()), slog.String("to", v.To.String()), slog.String("tried", spell(v.Tried)))
		_ = h.Handle(ctx, line) // as slog.Logger does
	}
	if m.o.Moved != nil {
		m.o.Moved(v)
	}
}

// spell says what was tried: each tool, and how it failed.
func spell(tried []switchboard.Try) string {
	var b []byte
	for _, t := range tried {
		if b != nil {
			b = append(b, ", "...)
		}
		b = append(b, t.Tool.String()...)
		if b = append(append(b, ' '), cmp.Or(string(t.Code), "passed over")...); t.Sent {
			b = append(b, " sent"...)
		}
	}
	return string(b)
}
