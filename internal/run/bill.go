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
	Searches          // what stubs say, but for definitions
	Definitions       // that an expansion returns
	Results           // of calls
	FullLists         // what the lists would have cost if they had shown all tools in full: no cost
	nItems
)

// A Bill is what a run has cost since it is known to this process. The zero Bill is empty. It
// is safe for concurrent use.
type Bill struct{ items [nItems]line }

// A line is one item of a bill.
type line struct {
	times   atomic.Int64
	bytes   atomic.Int64
	counted atomic.Int64 // of bytes, those of which the tokens are known
	tokens  atomic.Int64 // of the counted bytes
	large   atomic.Int64 // bytes of texts that are too large to be counted
}

// A Charge is what a bill says of one item.
type Charge struct {
	Times  int64 `json:"times"`
	Tokens int64 `json:"tokens"`

	// Estimated says that some tokens are not counted but reckoned from bytes, because the
	// Meter did not count yet, or there were more texts than it counts.
	Estimated bool `json:"estimated,omitempty"`

	// Uncounted is the bytes of texts of more than 64 KiB, which may hold images. Their
	// tokens are no part of Tokens.
	Uncounted int64 `json:"uncounted_bytes,omitempty"`
}

// Add returns the sum of two charges.
func (c Charge) Add(o Charge) Charge {
	return Charge{c.Times + o.Times, c.Tokens + o.Tokens, c.Estimated || o.Estimated, c.Uncounted + o.Uncounted}
}

// bytesPerToken is about what a token has in JSON, where nothing has been counted yet.
const bytesPerToken = 4

// Charge returns what the bill says of the item.
func (b *Bill) Charge(it Item) Charge {
	l := &b.items[it]
	c := Charge{Times: l.times.Load(), Uncounted: l.large.Load()}
	// Counted first: what is charged meanwhile is then estimated.
	tokens, counted := l.tokens.Load(), l.counted.Load()
	c.Tokens = tokens
	if rest := l.bytes.Load() - counted; rest > 0 {
		c.Estimated = true
		if counted > 0 {
			c.Tokens += int64(float64(rest) / float64(counted) * float64(tokens)) // as whole numbers, it would overflow
		} else {
			c.Tokens += rest / bytesPerToken
		}
	}
	return c
}

// Bounds of a Meter.
const (
	meterQueue = 16
	meterRate  = 64 << 10 // bytes a second, for a percent of a processor
	meterBurst = 256 << 10
	maxCharged = 64 << 10 // bytes of a text that are counted
)

// A Meter counts the tokens for bills, beside the requests, and no more than meterRate
// bytes a second. What comes faster is estimated. A Meter counts nothing before Wake or before
// a list with a stub: to count takes memory, and most runs need no bill. Use NewMeter. It is safe for
// concurrent use.
type Meter struct {
	count func(text []byte) int
	jobs  chan job
	awake atomic.Bool
}

// A job is a text to count.
type job struct {
	line  *line
	bytes int
	count func() int
}

// NewMeter returns a Meter that counts with count.
func NewMeter(count func(text []byte) int) *Meter {
	return &Meter{count: count, jobs: make(chan job, meterQueue)}
}

// Wake lets m count from now on, because somebody reads bills.
func (m *Meter) Wake() { m.awake.Store(true) }

// Run counts until ctx is done.
func (m *Meter) Run(ctx context.Context) {
	pace := rate.NewLimiter(meterRate, meterBurst)
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-m.jobs:
			j.line.tokens.Add(int64(j.count()))
			j.line.counted.Add(int64(j.bytes))
			if pace.WaitN(ctx, min(j.bytes, meterBurst)) != nil {
				return
			}
		}
	}
}

// Charge bills the text, which its caller may change afterwards. It does not wait.
func (m *Meter) Charge(b *Bill, it Item, text []byte) { m.charge(b, it, text, bytes.Clone) }

// ChargeList bills a list of tools that a client gets of the surface.
func (m *Meter) ChargeList(b *Bill, s *surface.Surface, modern bool, list []byte) {
	if m == nil {
		return
	}
	if len(s.Stubs()) > 0 {
		m.Wake()
	}
	same := func(text []byte) []byte { return text } // nobody changes it
	m.charge(b, Lists, list, same)
	if len(s.Stubs()) == 0 { // nothing is hidden
		m.charge(b, FullLists, list, same)
		return
	}
	full, n := &b.items[FullLists], s.WholeBytes()
	full.times.Add(1)
	full.bytes.Add(int64(n))
	m.submit(job{full, n, s.WholeTokens})
}

func (m *Meter) charge(b *Bill, it Item, text []byte, own func([]byte) []byte) {
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
	if !m.awake.Load() || len(m.jobs) == cap(m.jobs) { // before it is copied
		return
	}
	text = own(text)
	m.submit(job{l, len(text), func() int { return m.count(text) }})
}

func (m *Meter) submit(j job) {
	select {
	case m.jobs <- j:
	default: // it is estimated
	}
}
