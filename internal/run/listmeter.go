package run

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of a ListMeter.
const (
	maxListJobs    = 4096
	maxSearchBytes = 4 << 20 // of the answers to searches that wait
	lastCounts     = 2 * time.Second
	longCount      = 5 * time.Millisecond // it leaves garbage
)

// A ListMeter counts the tokens of the lists of tools and searches that clients get, and those of the full lists of the same servers. Unlike the
// Meter it estimates nothing: if it cannot count an exchange, it adds nothing to the sums and reports the exchange as uncounted. It counts in the
// background. Surfaces and states remember the counts of their definitions, so only the first list is expensive. Use NewListMeter. It is safe for concurrent use.
type ListMeter struct {
	count  func(text []byte) int
	tell   func(switchboard.TenantID, switchboard.ListCost)
	worked func()
	jobs   chan listJob
	queued atomic.Int64 // bytes of the searches in jobs
}

// A listJob is a list of a surface or, with a text, the answer to a search.
type listJob struct {
	tenant  switchboard.TenantID
	surface *surface.Surface
	modern  bool
	text    []byte
}

// NewListMeter returns a ListMeter that counts texts with count, and tells what it has counted. It calls worked after a count that took long.
func NewListMeter(count func(text []byte) int, tell func(switchboard.TenantID, switchboard.ListCost), worked func()) *ListMeter {
	return &ListMeter{count: count, tell: tell, worked: worked, jobs: make(chan listJob, maxListJobs)}
}

// NoteList counts a list of tools that a client of the tenant got. A list without a server's tools is compared with nothing, and does not count.
func (m *ListMeter) NoteList(tenant switchboard.TenantID, s *surface.Surface, modern bool) {
	if m != nil && s.HasServerTools() {
		m.submit(listJob{tenant: tenant, surface: s, modern: modern})
	}
}

// NoteSearch counts the answer of a stub. The caller may change the text afterwards.
func (m *ListMeter) NoteSearch(tenant switchboard.TenantID, text []byte) {
	if m == nil {
		return
	}
	if n := int64(len(text)); m.queued.Add(n) > maxSearchBytes {
		m.queued.Add(-n)
		m.tell(tenant, switchboard.ListCost{Uncounted: 1})
		return
	}
	m.submit(listJob{tenant: tenant, text: bytes.Clone(text)})
}

// NoteList is NoteList of m.Lists.
func (m *Meter) NoteList(tenant switchboard.TenantID, s *surface.Surface, modern bool) {
	if m != nil {
		m.Lists.NoteList(tenant, s, modern)
	}
}

// NoteSearch is NoteSearch of m.Lists.
func (m *Meter) NoteSearch(tenant switchboard.TenantID, text []byte) {
	if m != nil {
		m.Lists.NoteSearch(tenant, text)
	}
}

func (m *ListMeter) submit(j listJob) {
	select {
	case m.jobs <- j:
	default:
		m.queued.Add(-int64(len(j.text)))
		m.tell(j.tenant, switchboard.ListCost{Uncounted: 1})
	}
}

// Run counts until ctx is done.
func (m *ListMeter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case j := <-m.jobs:
			m.countJob(&j)
		case <-ctx.Done():
		}
	}
}

// Close counts what still waits, for lastCounts at most. Call it after Run has returned and clients get no lists any more.
func (m *ListMeter) Close() {
	until := time.Now().Add(lastCounts)
	for {
		select {
		case j := <-m.jobs:
			if time.Now().After(until) {
				m.tell(j.tenant, switchboard.ListCost{Uncounted: 1})
				continue
			}
			m.countJob(&j)
		default:
			return
		}
	}
}

func (m *ListMeter) countJob(j *listJob) {
	began := time.Now()
	defer func() {
		if time.Since(began) > longCount {
			m.worked()
		}
	}()
	if j.surface != nil {
		m.tell(j.tenant, switchboard.ListCost{Lists: 1, Tokens: int64(j.surface.ListTokens(j.modern)), Full: int64(j.surface.OfferTokens())})
		return
	}
	m.tell(j.tenant, switchboard.ListCost{Tokens: int64(m.count(j.text))})
	m.queued.Add(-int64(len(j.text)))
}
