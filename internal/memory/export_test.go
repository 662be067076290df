package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// NoteLatency counts one latency.
func NoteLatency(l *Latency, micros int64) { l.note(micros) }

// Fill writes pages of the last days of a tenant, with as many tools a day, and with all gaps and changes that a page may have.
func Fill(t testing.TB, s store.Store, tenant switchboard.TenantID, days, tools int) {
	t.Helper()
	FillPages(t, s, tenant, days, Filling{Called: tools, Tools: tools, Patterns: 5, Gaps: maxGaps, Changes: maxChanges})
}

// A Filling says what is written for a day: so many of the tools, other ones each day, with so many ways to fail each; and so many gaps and changes.
type Filling struct {
	Called, Tools, Patterns, Gaps, Changes int

	// Server returns the server of a tool; nil means one server for all.
	Server func(tool int) string
}

// FillPages writes pages of the last days of a tenant.
func FillPages(t testing.TB, s store.Store, tenant switchboard.TenantID, days int, with Filling) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for d := range days {
		day := DayOf(time.Now()) - Day(d)
		pages := map[string]*page{gapPart: newPage()}
		for i := range with.Called {
			n, server := (d*with.Called+i)%with.Tools, "server"
			if with.Server != nil {
				server = with.Server(n)
			}
			tool := fmt.Sprintf("%s/tool_%d", server, n)
			p := pages[partOf(tool)]
			if p == nil {
				p = newPage()
				pages[partOf(tool)] = p
			}
			of := p.totals(tool)
			for range 40 {
				of.Outcomes[0]++
				of.Latency.note(1000 + r.Int64N(1<<20))
			}
			for _, o := range receipt.Outcomes[1 : 1+with.Patterns] {
				of.addPattern(Pattern{o, "SB-EXEC-001", false}, seen(day.Start()))
			}
		}
		for i := range with.Gaps {
			pages[gapPart].addGap(Gap{Requirement, fmt.Sprintf("search resource_%d [readonly]", i)}, seen(day.Start()))
		}
		for i := range with.Changes {
			pages[gapPart].addChange(ServedChange{At: day.Start().Add(time.Duration(i) * time.Minute), What: "change", File: "tenants/acme/tenant.yaml", Receipt: fmt.Sprint("n1/", i)})
		}
		for part, p := range pages {
			k := pageKey{tenant, part, day}
			p.cursors["n1"] = 1 << 20
			if _, err := s.Apply(t.Context(), store.Change{Group: k.key().Group, Writes: []store.Write{{Name: k.key().Name, Was: store.Any, Data: p.encode()}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// DecodePage reads a page and encodes it again.
func DecodePage(data []byte) (again []byte, err error) {
	p, err := decodePage(data)
	if err != nil {
		return nil, err
	}
	return p.encode(), nil
}
