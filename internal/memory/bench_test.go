package memory_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

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

// BenchmarkQuestions asks about the last 30 and 400 days of a tenant with 1,000 tools, of which 100 are called each day, and with 20 gaps and 10 changes a day.
// "full" is a tenant with as many gaps and changes a day as are kept. Package past asks for the changes of the days behind errors only. It measures similar tools and the
// suggested ranking.
func BenchmarkQuestions(b *testing.B) {
	s := openFile(b)
	memory.FillPages(b, s, "acme", 400, memory.Filling{Called: 100, Tools: 1000, Gaps: 20, Changes: 10})
	memory.Fill(b, s, "full", 400, 1)
	m, id := newMemory(s), func(i int) switchboard.ToolID {
		return switchboard.ToolID{Server: "server", Name: fmt.Sprint("tool_", i%1000)}
	}
	run := func(name string, ask func(i int) error) {
		b.Run(name, func(b *testing.B) {
			worked := system.ProcessorTime()
			for i := 0; b.Loop(); i++ {
				if err := ask(i); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(system.ProcessorTime()-worked)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
	for _, days := range []int{30, 400} {
		span := memory.LastDays(days, time.Now())
		run(fmt.Sprintf("tool/days=%d", days), func(i int) error {
			all, _, err := m.Tool(b.Context(), "acme", id(i), span)
			if len(all) < days/10 {
				b.Fatalf("%d days: %v", len(all), err)
			}
			return err
		})
		for _, tenant := range []switchboard.TenantID{"acme", "full"} {
			run(fmt.Sprintf("gaps/%s/days=%d", tenant, days), func(int) error {
				all, _, err := m.Gaps(b.Context(), tenant, span)
				if err == nil && len(all) == 0 {
					b.Fatal("no gaps")
				}
				return err
			})
		}
	}
}
