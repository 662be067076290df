package switchboard

import (
	"slices"
	"sync"
	"time"
)

// A Trail collects facts about a call for its receipt: the decision behind it, and what the wrappers did. All attempts
// of the call share it. A nil Trail ignores everything. A Trail is safe for concurrent use.
type Trail struct {
	mu     sync.Mutex
	marks  Marks
	used   []*Yes // and not given back, in their order
	params []byte // of the call
	digest string // of params
}

// Marks are the facts on a Trail.
type Marks struct {
	Decision Digest   // the decision that selected the tool
	Basis    Digest   // the snapshot that the decision was made from
	Rulings  []Digest // policy's answers about the attempts, in their order
	Given    ResultSource
	Tried    []Attempt     // the attempts before the last one, or all if none was answered
	Intents  []Intended    // of the attempts with an effect, in their order
	Waited   time.Duration // how long it waited before it was sent, for a slot or a person

	// Touched is what the run had touched before an attempt that carries data out.
	Touched FlowBits

	Held, Settled Micros // what the attempts cost: before they were sent, and after their answers
	Yes           *Yes   // the approval that an attempt used last and that was not given back; nil if there is none
}

// An Intended names the receipt that was written before an attempt.
type Intended struct {
	Attempt int // see Call
	Receipt string
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

// Carries records that an attempt carries data out, and what the run had touched before.
func (t *Trail) Carries(touched FlowBits) { t.update(func(m *Marks) { m.Touched |= touched }) }

// Gave records that the result existed already.
func (t *Trail) Gave(from ResultSource) { t.update(func(m *Marks) { m.Given = from }) }

// Tried records the tools that have failed or were passed over so far.
func (t *Trail) Tried(before []Attempt) {
	t.update(func(m *Marks) { m.Tried = slices.Clone(before) })
}

// Intended records the intent of an attempt.
func (t *Trail) Intended(i Intended) { t.update(func(m *Marks) { m.Intents = append(m.Intents, i) }) }

// Charged records what an attempt cost: what was held before it was sent, and what was settled after its answer.
func (t *Trail) Charged(held, settled Micros) {
	t.update(func(m *Marks) { m.Held, m.Settled = m.Held+held, m.Settled+settled })
}

// Used records an approval that an attempt used.
func (t *Trail) Used(yes *Yes) {
	t.update(func(m *Marks) { t.used = append(t.used, yes); m.Yes = yes })
}

// GaveBack records that an approval was given back. Those of earlier attempts stay used.
func (t *Trail) GaveBack(yes *Yes) {
	t.update(func(m *Marks) {
		t.used = slices.DeleteFunc(t.used, func(y *Yes) bool { return y == yes })
		m.Yes = nil
		if n := len(t.used); n > 0 {
			m.Yes = t.used[n-1]
		}
	})
}

// Digested records the digest of the params of the call, so that it is not computed again for each attempt.
func (t *Trail) Digested(params []byte, digest string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.params, t.digest = params, digest
}

// DigestOf returns the digest of params if it was recorded for the same bytes.
func (t *Trail) DigestOf(params []byte) (digest string, ok bool) {
	if t == nil {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.digest == "" || len(params) != len(t.params) || len(params) > 0 && &params[0] != &t.params[0] {
		return "", false
	}
	return t.digest, true
}

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
	m.Rulings, m.Tried, m.Intents = slices.Clone(m.Rulings), slices.Clone(m.Tried), slices.Clone(m.Intents)
	return m
}
