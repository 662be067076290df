package receipt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/system"
)

// The chain of the benchmarks.
const (
	benchEntries = 1_000_000
	benchRare    = 3    // entries of the rare tenant and the rare tool
	benchEvery   = 2000 // each of so many entries is of a tenant that calls now and then
)

// A benchChain is a file with a long chain and its index.
type benchChain struct {
	folder string
	from   time.Time
	entry  time.Duration // processor time to index one entry that is in memory
	read   time.Duration // and one that is read from the store
	bytes  float64       // of the index for each entry
	err    error
}

// longChain makes the chain once for all benchmarks. RemoveBenchFiles removes it.
var longChain = sync.OnceValue(func() *benchChain {
	c := &benchChain{}
	c.err = c.build()
	return c
})

var benchFolder string

// RemoveBenchFiles removes what the benchmarks have written.
func RemoveBenchFiles() {
	if benchFolder != "" {
		_ = os.RemoveAll(benchFolder)
	}
}

func (c *benchChain) build() (err error) {
	if benchFolder, err = os.MkdirTemp("", "receipts"); err != nil {
		return err
	}
	c.folder = benchFolder
	s, err := store.OpenFile(c.path(), store.FileOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	key, err := newSigner(NewKey())
	if err != nil {
		return err
	}
	w := chainWriter{store: s, node: "n1", logName: logPrefix + "n1", timeout: time.Minute, signer: key, prev: EmptyDigest}
	x := newIndexer(s, "n1", defaultIndexBlock, slog.New(slog.DiscardHandler))
	var table termTable
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now().Add(-benchEntries * 20 * time.Millisecond).UTC().Truncate(time.Microsecond)
	c.from = now
	rare := map[uint64]bool{}
	for i := range uint64(benchRare) {
		rare[benchEntries/6*(2*i+1)] = true
	}
	const batchSize = 100 // a store may read all entries of a write to find one of them
	for w.seq < benchEntries {
		var p batch
		all := make([]*Receipt, batchSize)
		for i := range all {
			now = now.Add(20 * time.Millisecond)
			all[i] = benchReceipt(random, w.seq+uint64(i)+1, rare)
			all[i].Time = now
			p.bodies = all[i].append(p.bodies)
			p.ends = append(p.ends, len(p.bodies))
		}
		began := system.ProcessorTime()
		for _, r := range all {
			p.terms = append(p.terms, table.find(r))
		}
		x.note(w.seq+1, p.terms)
		c.entry += system.ProcessorTime() - began
		w.chainEntries(&p, key)
		if err := w.append(&p); err != nil {
			return err
		}
		began = system.ProcessorTime()
		indexed := error(nil)
		for indexed == nil {
			_, indexed = x.indexNext(context.Background())
		}
		if c.entry += system.ProcessorTime() - began; !errors.Is(indexed, errIndexed) {
			return indexed
		}
	}
	c.entry /= benchEntries
	span, err := s.Span(context.Background(), indexPrefix+"n1")
	if err != nil {
		return err
	}
	for at := uint64(0); at < span.Last; {
		all, err := s.Read(context.Background(), indexPrefix+"n1", at, 100)
		if err != nil {
			return err
		}
		for _, e := range all {
			c.bytes += float64(len(e.Data)) / benchEntries
			at = e.Seq
		}
	}
	again := newIndexer(s, "n1", defaultIndexBlock, slog.New(slog.DiscardHandler))
	began := system.ProcessorTime()
	const blocks = 50
	for i := range uint64(blocks) {
		if _, _, err := again.blockTerms(context.Background(), &indexBlock{size: again.size, number: i + 1}); err != nil {
			return err
		}
	}
	c.read = (system.ProcessorTime() - began) / (blocks * defaultIndexBlock)
	return nil
}

func (c *benchChain) path() string { return filepath.Join(c.folder, "store.db") }

// benchReceipt returns a receipt of a call: of 5 tenants with 4 tasks each, 8 servers and 40 tools.
func benchReceipt(random *rand.Rand, seq uint64, rare map[uint64]bool) *Receipt {
	tool := random.IntN(40)
	tenant := random.IntN(5)
	r := &Receipt{
		V: version, Kind: Call, Tenant: switchboard.TenantID(fmt.Sprint("tenant-", tenant)),
		Principal: Subject{ID: "ann", Auth: "api_key", Mode: "autopilot"}, Task: switchboard.TaskID(fmt.Sprintf("task-%d-%d", tenant, random.IntN(4))),
		Run: "0123456789abcdef0123456789abcdef", Method: "tools/call",
		Server: switchboard.ServerID(fmt.Sprint("server-", tool/5)), Tool: fmt.Sprint("tool_", tool),
		Decision: EmptyDigest, Basis: EmptyDigest, Arguments: string(EmptyDigest), Result: string(EmptyDigest),
		Outcome: OK, Took: CallTime{Total: 1000 + random.Int64N(100_000), Waiting: 12},
	}
	switch n := random.IntN(100); {
	case n < 30:
		r.Kind, r.Outcome, r.Result, r.Took, r.Effect = Intent, "", "", CallTime{}, true
	case n < 32:
		r.Outcome, r.Code = Refused, switchboard.CodeDenied
	case n < 34:
		r.Outcome = ToolError
	}
	if seq%benchEvery == 0 {
		r.Tenant = "sometimes"
	}
	if rare[seq] {
		r.Tenant, r.Tool, r.Outcome, r.Code = "rare", "seldom", Failed, "SB-UP-001"
	}
	return r
}

// BenchmarkFirstPage measures how long it takes to find the 50 receipts that "receipts list" prints, in a chain of
// a million entries and a store that was just opened.
func BenchmarkFirstPage(b *testing.B) {
	c := longChain()
	if c.err != nil {
		b.Fatal(c.err)
	}
	middle := c.from.Add(benchEntries / 2 * 20 * time.Millisecond)
	for _, bench := range []struct {
		name string
		q    Query
		want int
	}{
		{"all", Query{}, 50},
		{"time", Query{Since: middle, Until: middle.Add(time.Hour)}, 50},
		{"until", Query{Until: middle}, 50},
		{"tenant", Query{Tenant: "tenant-1"}, 50},
		{"sometimes-tenant", Query{Tenant: "sometimes"}, 50},
		{"rare-tenant", Query{Tenant: "rare"}, benchRare},
		{"no-tenant", Query{Tenant: "none"}, 0},
		{"tool", Query{Tool: "tool_7"}, 50},
		{"server", Query{Tool: "server-1/*"}, 50},
		{"rare-tool", Query{Tool: "seldom"}, benchRare},
		{"rare-pattern", Query{Tool: "*/sel*"}, benchRare},
		{"code", Query{Code: switchboard.CodeDenied}, 50},
		{"rare-code", Query{Code: "SB-UP-001"}, benchRare},
		{"both", Query{Tenant: "tenant-1", Tool: "seldom"}, 0},
		{"rare-oldest-first", Query{Tenant: "rare"}, benchRare},
	} {
		b.Run(bench.name, func(b *testing.B) {
			q := bench.q
			q.NewestFirst = bench.name != "rare-oldest-first"
			b.ReportAllocs()
			began := system.ProcessorTime()
			for b.Loop() {
				s, err := store.OpenFile(c.path(), store.FileOptions{})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for e, err := range List(b.Context(), s, q) {
					if err != nil || e.Fault != nil {
						b.Fatal(err, e.Fault)
					}
					if n++; n == 50 {
						break
					}
				}
				if n != bench.want {
					b.Fatalf("%d receipts, want %d", n, bench.want)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(system.ProcessorTime()-began)/float64(b.N)/1e6, "cpu-ms/op")
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/1e6, "ms/op")
		})
	}
}

// BenchmarkIndex says what indexing costs. BenchmarkTerms is the part that a caller waits for.
func BenchmarkIndex(b *testing.B) {
	c := longChain()
	if c.err != nil {
		b.Fatal(c.err)
	}
	for b.Loop() {
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(c.entry), "cpu-ns/entry")
	b.ReportMetric(float64(c.read), "cpu-ns/old-entry")
	b.ReportMetric(c.bytes, "B/entry")
}

// BenchmarkTerms measures how the terms of a receipt are noted.
func BenchmarkTerms(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]*Receipt, 1000)
	for i := range all {
		all[i] = benchReceipt(random, uint64(i), nil)
	}
	var table termTable
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = table.find(all[i%len(all)])
	}
}
