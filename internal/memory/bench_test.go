package memory_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/past"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/system"
)

var foldReceipts = flag.Int("fold-receipts", 20_000, "how many `receipts` BenchmarkFold folds; 1000000 is what is promised")

// BenchmarkFold folds receipts of 10 tenants with 40 tools each from a file, with the pauses that leave the processors to calls.
func BenchmarkFold(b *testing.B) {
	s := openFile(b)
	writeCalls(b, s, *foldReceipts)
	for b.Loop() {
		m := newMemory(s)
		forget(b, s)
		began, worked := time.Now(), system.ProcessorTime()
		if err := m.Fold(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(*foldReceipts)/time.Since(began).Seconds(), "receipts/s")
		b.ReportMetric(float64(system.ProcessorTime()-worked)/float64(*foldReceipts)/1e3, "cpu-µs/receipt")
	}
}

// writeCalls writes n receipts of calls.
func writeCalls(b *testing.B, s store.Store, n int) {
	b.Helper()
	chain, r := openChain(b, s, "n1"), rand.New(rand.NewPCG(1, 1))
	digest := string(receipt.EmptyDigest)
	for i := range n {
		of := &receipt.Receipt{
			Kind: receipt.Call, Tenant: switchboard.TenantID(fmt.Sprint("tenant-", r.IntN(10))), Task: "work", Run: "00112233445566778899aabbccddeeff", Principal: receipt.Subject{ID: "ci", Auth: "key"},
			Method: "tools/call", Server: switchboard.ServerID(fmt.Sprint("server-", r.IntN(8))), Tool: fmt.Sprint("tool_", r.IntN(5)), Arguments: digest, Result: digest, Decision: receipt.EmptyDigest, Basis: receipt.EmptyDigest,
			Outcome: receipt.OK, Took: receipt.CallTime{Total: 1 + r.Int64N(1<<20)}, Price: receipt.PriceMark{Held: 1000, Settled: 1000},
		}
		if r.IntN(10) == 0 {
			of.Outcome, of.Code = receipt.Failed, switchboard.CodeServerFailed
		}
		chain.Add(of)
		if i%1000 == 999 {
			if _, err := chain.Write(context.Background(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := chain.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// forget deletes the mark and the pages that writeCalls leads to.
func forget(b *testing.B, s store.Store) {
	b.Helper()
	writes := []store.Key{{Group: "memory", Name: "n1"}}
	for tenant := range 10 {
		for part := range 16 {
			for _, day := range []time.Time{now, now.Add(24 * time.Hour)} {
				writes = append(writes, store.Key{Group: fmt.Sprintf("memory/tenant-%d/%d/%s", tenant, part, day.Format("2006-01")), Name: day.Format("02")})
			}
		}
	}
	for _, k := range writes {
		if _, err := s.Apply(b.Context(), store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Was: store.Any}}}); err != nil {
			b.Fatal(err)
		}
	}
}

// serverOf returns the server of a tool of BenchmarkQuestions. Each tool has another one that is like it at the other server.
func serverOf(tool int) string { return []string{"one", "two"}[tool%2] }

// askedTenant returns a reader of a tenant with 1,000 tools of two servers. Its task requires 400 of them, which is the most that a suggested ranking compares.
func askedTenant(b *testing.B, m *memory.Memory) *past.Reader {
	b.Helper()
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"fs": "", "internet": ""}, nil)
	if err != nil {
		b.Fatal(err)
	}
	offers := map[string][][]byte{}
	for i := range 1000 {
		block := ""
		if i < 400 {
			block = fmt.Sprintf(`,"_meta":{"x-summit-capabilities":[{"verb":%q,"resource":%q}]}`, []string{"read", "search"}[i/200], []string{"fs", "internet"}[i/200])
		}
		offers[serverOf(i)] = append(offers[serverOf(i)], fmt.Appendf(nil, `{"name":"tool_%d","description":"Does the work number %d of files and pages.","inputSchema":{"type":"object"}%s}`, i, i/2, block))
	}
	var sources []catalog.Source
	for server, tools := range offers {
		sources = append(sources, catalog.Source{Offer: switchboard.Offer{Server: switchboard.ServerID(server), Tools: tools}})
	}
	all := catalog.Build(sources, nil, tax)
	of := &switchboard.Tenant{ID: "acme", Servers: []switchboard.ServerID{"one", "two"}, Tasks: map[switchboard.TaskID]*switchboard.Task{
		"work": {Requirements: []switchboard.Requirement{{Verb: "read", Resource: "fs"}, {Verb: "search", Resource: "internet"}}},
	}}
	st := &bind.State{Tenants: map[switchboard.TenantID]*bind.Tenant{"acme": {Tenant: of, View: all.For(of), Equivalents: contract.New(all, nil, all.Heard, nil, nil)}}}
	return past.New(admin.NewReader(admin.ReaderOptions{Configuration: func() admin.Configuration { return admin.Configuration{State: st} }}), m)
}

// BenchmarkQuestions asks about the last 30 and 400 days of a tenant with 1,000 tools, of which 100 are called each day, 40 times each, and fail in one way; and with 20 gaps
// and 10 changes a day. "all gaps" is a tenant with as many gaps and changes a day as are kept.
func BenchmarkQuestions(b *testing.B) {
	s := openFile(b)
	memory.FillPages(b, s, "acme", 400, memory.Filling{Called: 100, Tools: 1000, Patterns: 1, Gaps: 20, Changes: 10, Server: serverOf})
	memory.Fill(b, s, "full", 400, 1)
	m := newMemory(s)
	r := askedTenant(b, m)
	id := func(i int) switchboard.ToolID {
		return switchboard.ToolID{Server: switchboard.ServerID(serverOf(i)), Name: fmt.Sprint("tool_", i%1000)}
	}
	for _, days := range []int{30, 400} {
		for name, ask := range map[string]func(i int) (rows int, err error){
			"tool": func(i int) (int, error) {
				x, err := r.Tool(b.Context(), "acme", id(i), days)
				return len(x.Days), err
			},
			"errors": func(i int) (int, error) {
				x, err := r.Errors(b.Context(), "acme", id(i), days, true)
				return len(x.Errors), err
			},
			"similar": func(i int) (int, error) {
				x, err := r.Similar(b.Context(), "acme", id(i%400), days)
				return len(x.Tools) - 19, err
			},
			"gaps": func(int) (int, error) {
				x, err := r.Gaps(b.Context(), "acme", days)
				return len(x.Gaps), err
			},
			"all gaps": func(int) (int, error) {
				all, _, err := m.Gaps(b.Context(), "full", memory.LastDays(days, time.Now()))
				return len(all), err
			},
			"ranking": func(int) (int, error) {
				x, err := r.SuggestRanking(b.Context(), "acme", days)
				return len(x.Rows) - 1, err
			},
		} {
			b.Run(fmt.Sprintf("%s/days=%d", name, days), func(b *testing.B) {
				worked := system.ProcessorTime()
				for i := 0; b.Loop(); i++ {
					if rows, err := ask(i); err != nil || rows <= 0 {
						b.Fatalf("%d rows: %v", rows, err)
					}
				}
				b.ReportMetric(float64(system.ProcessorTime()-worked)/float64(b.N)/1e6, "cpu-ms/op")
			})
		}
	}
}
