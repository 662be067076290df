package switchboard

import (
	"slices"
	"sync"
	"time"
)

// A Trail collects facts about a call for its receipt: the decision behind it, and what the wrappers did. All attempts
// of the call share it. A nil Trail ignores everything. A Trail is safe for concurrent use.
type Trail struct {
	mu    sync.Mutex
	marks Marks
}

// Marks are the facts on a Trail.
type Marks struct {
	Decision Digest   // the decision that selected the tool
	Basis    Digest   // the snapshot that the decision was made from
	Rulings  []Digest // policy's answers about the attempts, in their order
	Given    ResultSource
	Waited   time.Duration // how long it waited before it was sent, for a slot or a person
}

// A ResultSource says where a result came from if no server was called.
type ResultSource string

// The origins. The zero value means that a server answered.
const (
	GivenCache       ResultSource = "cache"
	GivenIdempotency ResultSource = "idempotency"
	GivenStored      ResultSource = "kept" // a further part of a result that was too long
)

// Decided records the decision that selected the tool, and the snapshot behind the decision.
func (t *Trail) Decided(decision, basis Digest) {
	t.update(func(m *Marks) { m.Decision, m.Basis = decision, basis })
}

// Ruled records policy's answer about one attempt.
func (t *Trail) Ruled(ruling Digest) {
	t.update(func(m *Marks) { m.Rulings = append(m.Rulings, ruling) })
}

// Gave records that the result existed already.
func (t *Trail) Gave(from ResultSource) { t.update(func(m *Marks) { m.Given = from }) }

// Waited adds d to the time that the call has waited.
func (t *Trail) Waited(d time.Duration) { t.update(func(m *Marks) { m.Waited += d }) }

func (t *Trail) update(with func(*Marks)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	with(&t.marks)
}

// Marks returns a copy of the facts so far.
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
