package run

import (
	"bytes"
	"context"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/summit-switchboard/switchboard/internal/surface"
)

// An Item is one thing that a run costs the model of its client.
type Item int

// The items.
const (
	Instructions Item = iota
	Lists             // of tools
	Searches          // answers of stubs, without definitions
	Definitions       // returned by an expansion
	Results           // of calls
	FullLists         // what the lists would have cost with all tools in full; not a real cost
	nItems
)

// A Bill is what a run has cost since this process first saw it. The zero Bill is empty. It is safe for concurrent
// use.
type Bill struct{ items [nItems]billLine }

// A billLine is one item of a bill.
type billLine struct {
	times   atomic.Int64
	bytes   atomic.Int64
	counted atomic.Int64 // the part of bytes that has been counted
	tokens  atomic.Int64 // of the counted bytes
	large   atomic.Int64 // bytes of texts that are too large to count
}

// A Charge is what a bill says about one item.
type Charge struct {
	Times  int64 `json:"times"`
	Tokens int64 `json:"tokens"`

	// Estimated says that some tokens are estimated from bytes: the Meter did not count yet, or it received more text
	// than it counts.
	Estimated bool `json:"estimated,omitempty"`

	// Uncounted is the number of bytes in texts of more than 64 KiB, which may hold images. Tokens does not include
	// them.
	Uncounted int64 `json:"uncounted_bytes,omitempty"`
}

// Add returns the sum of two charges.
func (c Charge) Add(o Charge) Charge {
	return Charge{c.Times + o.Times, c.Tokens + o.Tokens, c.Estimated || o.Estimated, c.Uncounted + o.Uncounted}
}

// bytesPerToken estimates tokens from bytes of JSON while nothing has been counted.
const bytesPerToken = 4

// Charge returns the bill's entry for the item.
func (b *Bill) Charge(it Item) Charge {
	l := &b.items[it]
	c := Charge{Times: l.times.Load(), Uncounted: l.large.Load()}
	// Read counted before bytes: a concurrent charge then counts as estimated.
	tokens, counted := l.tokens.Load(), l.counted.Load()
	c.Tokens = tokens
	if rest := l.bytes.Load() - counted; rest > 0 {
		c.Estimated = true
		if counted > 0 {
			c.Tokens += int64(float64(rest) / float64(counted) * float64(tokens)) // integers would overflow
		} else {
			c.Tokens += rest / bytesPerToken
		}
	}
	return c
}

// Bounds of a Meter.
const (
	meterQueue = 16
	meterRate  = 64 << 10 // bytes a second, about one percent of a processor
	meterBurst = 256 << 10
	maxCharged = 64 << 10 // bytes; larger texts are not counted
)

// A Meter counts the tokens for bills in the background, at most meterRate bytes a second. Text beyond that rate is
// estimated. A Meter counts nothing before Wake or before the first list with a stub: counting takes memory, and most
// runs need no bill. Use NewMeter. It is safe for concurrent use.
type Meter struct {
	count func(text []byte) int
	jobs  chan countJob
	awake atomic.Bool

	// Lists compares lists with full lists, over all runs; nil means that nothing does.
	Lists *ListMeter
}

// A countJob is a text to count.
type countJob struct {
	billLine *billLine
	bytes    int
	count    func() int
}

// NewMeter returns a Meter that counts with count.
func NewMeter(count func(text []byte) int) *Meter {
	return &Meter{count: count, jobs: make(chan countJob, meterQueue)}
}

// Wake makes m count from now on, because a program reads bills.
func (m *Meter) Wake() { m.awake.Store(true) }

// Run counts until ctx is done.
func (m *Meter) Run(ctx context.Context) {
	pace := rate.NewLimiter(meterRate, meterBurst)
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-m.jobs:
			j.billLine.tokens.Add(int64(j.count()))
			j.billLine.counted.Add(int64(j.bytes))
			if pace.WaitN(ctx, min(j.bytes, meterBurst)) != nil {
				return
			}
		}
	}
}

// Charge bills the text. The caller may change the text afterwards. Charge does not block.
func (m *Meter) Charge(b *Bill, it Item, text []byte) { m.chargeText(b, it, text, bytes.Clone) }

// ChargeList bills a list of tools that a client receives from the surface.
func (m *Meter) ChargeList(b *Bill, s *surface.Surface, modern bool, list []byte) {
	if m == nil {
		return
	}
	if len(s.Stubs()) > 0 {
		m.Wake()
	}
	same := func(text []byte) []byte { return text } // a list is immutable
	m.chargeText(b, Lists, list, same)
	if len(s.Stubs()) == 0 { // the list is the full list
		m.chargeText(b, FullLists, list, same)
		return
	}
	full, n := &b.items[FullLists], s.FullListBytes()
	full.times.Add(1)
	full.bytes.Add(int64(n))
	m.submit(countJob{full, n, s.FullListTokens})
}

func (m *Meter) chargeText(b *Bill, it Item, text []byte, own func([]byte) []byte) {
	if m == nil {
		return
	}
	l := &b.items[it]
	l.times.Add(1)
	if len(text) > maxCharged && it != Lists && it != FullLists {
		l.large.Add(int64(len(text)))
		return
	}
	l.bytes.Add(int64(len(text)))
	if !m.awake.Load() || len(m.jobs) == cap(m.jobs) { // do not copy a text that will not be counted
		return
	}
	text = own(text)
	m.submit(countJob{l, len(text), func() int { return m.count(text) }})
}

func (m *Meter) submit(j countJob) {
	select {
	case m.jobs <- j:
	default: // the text is estimated
	}
}
