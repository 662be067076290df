package health

import (
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxPast is how many changes are kept of a server and its tools.
const maxPast = 64

// A PastChange is a change of the state of a server or of one of its tools, and its time.
type PastChange struct {
	At    time.Time `json:"at"`
	Tool  string    `json:"tool,omitempty"` // "" for the server itself
	From  State     `json:"from"`
	To    State     `json:"to"`
	Cause *Cause    `json:"cause,omitempty"` // nil for a change to healthy
}

// Past returns the last changes of the server and its tools that this process has seen since the server has its program or address, the oldest first.
func (m *Monitor) Past(id switchboard.ServerID) []PastChange {
	s := m.server(id)
	if s == nil {
		return nil
	}
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	return slices.Clone(s.changes.past)
}

// keep adds a transition to the past. The caller holds q.mu.
func (q *transitions) keep(t *Transition, now time.Time) {
	if len(q.past) == maxPast {
		q.past = slices.Delete(q.past, 0, 1)
	}
	q.past = append(q.past, PastChange{now, t.Tool, t.From, t.To, t.Cause})
}
