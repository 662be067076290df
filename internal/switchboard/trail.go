package switchboard

import (
	"slices"
	"sync"
	"time"
)

// A Trail is what a call picks up on its way, for its receipt: what was decided, and
// what those did whom it passed. Its attempts share it. A nil Trail takes nothing. It
// is safe for concurrent use.
type Trail struct {
	mu    sync.Mutex
	marks Marks
}

// Marks are what stands on a Trail.
type Marks struct {
	Decision Digest   // of the decision that selected the tool
	Basis    Digest   // of what that was made from
	Rulings  []Digest // of policy's words on the attempts, in their order
	Given    Given
	Waited   time.Duration // before it was sent: for a place, for a person
}

// Given says from where a result was given again without a call.
type Given string

// From where. The zero value means that a server has answered.
const (
	GivenCache       Given = "cache"
	GivenIdempotency Given = "idempotency"
	GivenKept        Given = "kept" // more of a result that was too long
)

// Decided says which decision selected the tool, and what that was made from.
func (t *Trail) Decided(decision, basis Digest) {
	t.mark(func(m *Marks) { m.Decision, m.Basis = decision, basis })
}

// Ruled says what policy's word on an attempt was.
func (t *Trail) Ruled(ruling Digest) {
	t.mark(func(m *Marks) { m.Rulings = append(m.Rulings, ruling) })
}

// Gave says that the result is one that was there already.
func (t *Trail) Gave(from Given) { t.mark(func(m *Marks) { m.Given = from }) }

// Waited says that the call has waited so long.
func (t *Trail) Waited(d time.Duration) { t.mark(func(m *Marks) { m.Waited += d }) }

func (t *Trail) mark(with func(*Marks)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	with(&t.marks)
}

// Marks returns what stands on it now.
func (t *Trail) Marks() Marks {
	if t == nil {
		return Marks{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.marks
	m.Rulings = slices.Clone(m.Rulings)
	return m
}
