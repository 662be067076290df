package health

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Move is a call that was served by another server than its own.
type Move struct {
	When      time.Time
	Principal switchboard.Principal
	Task      switchboard.TaskID
	Run       switchboard.RunID
	Tool      switchboard.ToolID // the tool that the client called
	*switchboard.Moved
}

// A moveLog has the moves that are not reported yet: they are logged one by one, after their clients have their
// answers. The zero moveLog is ready for use.
type moveLog struct {
	reporting sync.Mutex // held while moves are reported, so that the lines are in order

	mu      sync.Mutex
	pending []Move
	closed  bool
}

// maxPendingMoves limits the moves that wait to be reported, for at most reportDelay each. Beyond the limit the call
// itself reports them, and its client waits, so no report is lost.
const (
	maxPendingMoves = 1000
	reportDelay     = 10 * time.Millisecond
)

// append adds a move, and schedules the report.
func (q *moveLog) append(m Move, tell func(Move)) {
	q.mu.Lock()
	q.pending = append(q.pending, m)
	first, now := len(q.pending) == 1, q.closed || len(q.pending) > maxPendingMoves
	q.mu.Unlock()
	switch {
	case now:
		q.flush(tell)
	case first:
		time.AfterFunc(reportDelay, func() { q.flush(tell) })
	}
}

// flush reports all pending moves.
func (q *moveLog) flush(tell func(Move)) {
	q.reporting.Lock()
	defer q.reporting.Unlock()
	q.mu.Lock()
	all := q.pending
	q.pending = nil
	q.mu.Unlock()
	for _, m := range all {
		tell(m)
	}
}

// close reports all pending moves; calls report later moves themselves.
func (q *moveLog) close(tell func(Move)) {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.flush(tell)
}

// recordMove records that another tool has served the call.
func (m *Monitor) recordMove(s *serverMonitor, c *switchboard.Call, to *switchboard.Moved) {
	s.traffic.movedAway.Add(1)
	if other := m.server(to.To.Server); other != nil {
		other.traffic.movedHere.Add(1)
	}
	m.moves.append(Move{time.Now(), c.Principal, c.Task, c.Run, c.Tool.ID, to}, m.reportMove)
}

// reportMove logs a moved call with the time at which it moved. All attributes are strings, which are cheapest to
// format.
func (m *Monitor) reportMove(v Move) {
	ctx := context.Background()
	if h := m.o.Log.Handler(); h.Enabled(ctx, slog.LevelInfo) {
		line := slog.NewRecord(v.When, slog.LevelInfo, "call moved", 0)
		line.AddAttrs(slog.String("tenant", string(v.Principal.Tenant)), slog.String("principal", string(v.Principal.ID)),
			slog.String("task", string(v.Task)), slog.String("run", string(v.Run)),
			slog.String("from", v.Tool.String()), slog.String("to", v.To.String()), slog.String("tried", spellTried(v.Tried)))
		_ = h.Handle(ctx, line) // as slog.Logger does
	}
	if m.o.Moved != nil {
		m.o.Moved(v)
	}
}

// spellTried lists the attempts: each tool, and how it failed.
func spellTried(tried []switchboard.Attempt) string {
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
