package memory_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// now is when the receipts of the tests end.
var now = time.Now().UTC()

func openChain(t testing.TB, s receipt.Store, node string) *receipt.Chain {
	t.Helper()
	chain, err := receipt.Open(context.Background(), s, receipt.ChainOptions{
		Node: node, Key: receipt.NewKey(), DigestKey: receipt.NewKey(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

func newMemory(s memory.Store) *memory.Memory {
	return memory.New(memory.Options{Store: s, Log: slog.New(slog.DiscardHandler)})
}

var tenants = []switchboard.TenantID{"acme", "beta"}

// someReceipt returns a receipt of any kind that the memory counts, and of some that it does not.
func someReceipt(r *rand.Rand) *receipt.Receipt {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	of := receipt.Receipt{Tenant: tenants[r.IntN(2)], Task: "work", Principal: receipt.Subject{ID: "ci"}}
	switch r.IntN(12) {
	case 0:
		of.Kind, of.Outcome, of.Unmet = receipt.Decision, receipt.Refused, []string{pick("search internet", "read files [readonly]")}
	case 1:
		of.Kind, of.Capability = receipt.Ask, pick("openai.embeddings", "io.fs.write")
	case 2:
		of.Kind, of.Method, of.Outcome, of.Change.File = receipt.Admin, "change", receipt.OK, "tenants/acme.yaml"
	case 3:
		of.Kind, of.Server, of.Tool, of.Method = receipt.Intent, "mail", "send", "tools/call"
	default:
		of.Kind, of.Method, of.Server, of.Tool = receipt.Call, "tools/call", switchboard.ServerID(pick("mail", "web")), pick("send", "find", "get")
		of.Outcome = receipt.Outcomes[r.IntN(len(receipt.Outcomes))]
		if of.Outcome != receipt.OK && of.Outcome != receipt.ToolError {
			of.Code = switchboard.Code(pick("SB-EXEC-001", "SB-ROUT-002", ""))
		}
		of.Took = receipt.CallTime{Total: r.Int64N(1 << 22), Waiting: r.Int64N(1 << 4)}
		of.Price.Settled = switchboard.Micros(r.IntN(100))
		switch r.IntN(8) {
		case 0:
			of.Given = switchboard.GivenCache
		case 1:
			of.Tries = []receipt.FailedAttempt{{Tool: string(of.Server) + "/" + of.Tool, Code: "SB-EXEC-001", Sent: r.IntN(2) == 0}, {Tool: "web/passed"}}
			of.ServedBy, of.Outcome, of.Code = "other/find", receipt.OK, ""
		}
	}
	return &of
}

// fill writes n receipts into the chain.
func fill(t testing.TB, chain *receipt.Chain, r *rand.Rand, n int) {
	t.Helper()
	for range n {
		if chain.Add(someReceipt(r)) == "" {
			t.Fatal("a receipt was not taken")
		}
	}
	if _, err := chain.Write(context.Background(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
		t.Fatal(err)
	}
}

// A toolCount is what the tests count themselves.
type toolCount struct {
	Outcomes map[receipt.CallOutcome]uint64
	Failing  map[string]uint64 // by outcome, code and whether it moved
	Kept     uint64
	Cost     switchboard.Micros
	Timed    uint64
}

// counted is a count over the receipts: of tools by tenant/day/tool, of gaps by tenant/kind/name, and of changes by tenant.
type counted struct {
	tools   map[string]*toolCount
	gaps    map[string]uint64
	changes map[string]int
}

func newCounted() *counted {
	return &counted{map[string]*toolCount{}, map[string]uint64{}, map[string]int{}}
}

func (c *counted) tool(key string) *toolCount {
	if c.tools[key] == nil {
		c.tools[key] = &toolCount{Outcomes: map[receipt.CallOutcome]uint64{}, Failing: map[string]uint64{}}
	}
	return c.tools[key]
}

// countReceipts counts all receipts of the store, in a way of its own.
func countReceipts(t testing.TB, s receipt.ChainReader) *counted {
	t.Helper()
	c := newCounted()
	for e, err := range receipt.List(context.Background(), s, receipt.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		c.count(&e)
	}
	return c
}

func (c *counted) count(e *receipt.ChainEntry) {
	r := &e.Receipt
	key := func(tool string) string { return fmt.Sprintf("%s %s %s", r.Tenant, r.Time.Format(time.DateOnly), tool) }
	switch r.Kind {
	case receipt.Decision:
		for _, u := range r.Unmet {
			c.gaps[string(r.Tenant)+" requirement "+u]++
		}
	case receipt.Ask:
		c.gaps[string(r.Tenant)+" request "+r.Capability]++
	case receipt.Admin, receipt.Start:
		c.changes[string(r.Tenant)]++
	case receipt.Call:
		at := string(r.Server) + "/" + r.Tool
		moved := false
		for _, try := range r.Tries {
			switch {
			case try.Code == "":
			case try.Sent:
				c.tool(key(try.Tool)).Outcomes[receipt.Failed]++
				c.tool(key(try.Tool)).Failing[fmt.Sprint(receipt.Failed, try.Code, true)]++
				moved = true
			default:
				c.tool(key(try.Tool)).Outcomes[receipt.Refused]++
				c.tool(key(try.Tool)).Failing[fmt.Sprint(receipt.Refused, try.Code, true)]++
			}
		}
		if r.ServedBy != "" {
			at = r.ServedBy
		}
		one := c.tool(key(at))
		if r.Given != "" {
			one.Kept++
			return
		}
		one.Outcomes[r.Outcome]++
		one.Cost += r.Price.Settled
		if r.Outcome != receipt.OK {
			one.Failing[fmt.Sprint(r.Outcome, r.Code, false)]++
		}
		if slices.Contains([]receipt.CallOutcome{receipt.OK, receipt.ToolError, receipt.ServerError}, r.Outcome) && !moved && r.Took.Total > 0 {
			one.Timed++
		}
	}
}

// daysOf returns the days of the span.
func daysOf(s memory.DaySpan) (days []memory.Day) {
	for day := s.From; day <= s.To; day++ {
		days = append(days, day)
	}
	return days
}

// remembered returns the same from the memory.
func remembered(t testing.TB, m *memory.Memory) *counted {
	t.Helper()
	ctx, c, span := context.Background(), newCounted(), memory.LastDays(400, now.Add(24*time.Hour))
	for _, tenant := range append([]switchboard.TenantID{""}, tenants...) {
		for _, server := range []switchboard.ServerID{"mail", "web", "other"} {
			for _, tool := range []string{"send", "find", "get", "passed"} {
				days, _, err := m.Tool(ctx, tenant, switchboard.ToolID{Server: server, Name: tool}, span)
				if err != nil {
					t.Fatal(err)
				}
				for i := range days {
					d := &days[i]
					one := c.tool(fmt.Sprintf("%s %s %s/%s", tenant, d.Day, server, tool))
					for _, o := range receipt.Outcomes {
						if n := d.Of(o); n > 0 {
							one.Outcomes[o] = n
						}
					}
					for p, s := range d.Patterns {
						one.Failing[fmt.Sprint(p.Outcome, p.Code, p.Moved)] = s.Count
					}
					one.Kept, one.Cost, one.Timed = d.Kept, d.Cost, d.Latency.Len()
				}
			}
		}
		gaps, _, err := m.Gaps(ctx, tenant, span)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range gaps {
			c.gaps[fmt.Sprintf("%s %s %s", tenant, g.Kind, g.Name)] = g.Count
		}
		changes, _, err := m.Changes(ctx, tenant, daysOf(span))
		if err != nil {
			t.Fatal(err)
		}
		if len(changes) > 0 {
			c.changes[string(tenant)] = len(changes)
		}
	}
	return c
}

// mustAgree compares what is remembered with a count over the receipts. The memory keeps only some changes of a day.
func mustAgree(t testing.TB, m *memory.Memory, want *counted) {
	t.Helper()
	got := remembered(t, m)
	for tenant, n := range want.changes {
		want.changes[tenant] = min(n, 64)
	}
	if !reflect.DeepEqual(got.tools, want.tools) {
		for k := range want.tools {
			if !reflect.DeepEqual(got.tools[k], want.tools[k]) {
				t.Errorf("%s: the memory has %+v, the receipts %+v", k, got.tools[k], want.tools[k])
			}
		}
		t.Fatalf("the memory has %d days of tools, the receipts %d", len(got.tools), len(want.tools))
	}
	if !reflect.DeepEqual(got.gaps, want.gaps) || !reflect.DeepEqual(got.changes, want.changes) {
		t.Fatalf("the memory has %v and %v\nthe receipts have %v and %v", got.gaps, got.changes, want.gaps, want.changes)
	}
}

// A dying store fails from its nth change on. The first failing change may be made all the same.
type dying struct {
	store.Store
	left  atomic.Int64
	takes bool
}

func newDying(s store.Store, left int64, takes bool) *dying {
	d := &dying{Store: s, takes: takes}
	d.left.Store(left)
	return d
}

func (d *dying) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	left := d.left.Add(-1)
	if left >= 0 {
		return d.Store.Apply(ctx, c)
	}
	if d.takes && left == -1 {
		_, _ = d.Store.Apply(ctx, c)
	}
	return 0, fmt.Errorf("%w: it is dead", store.ErrUnavailable)
}

func TestEachReceiptCountsOnceWhereverTheFoldIsKilled(t *testing.T) {
	for name, s := range map[string]store.Store{"memory": store.NewMemory(), "file": openFile(t)} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			a, b := openChain(t, s, "n1"), openChain(t, s, "n2")
			for kill := range 60 {
				fill(t, a, r, 20)
				fill(t, b, r, 10)
				_ = newMemory(newDying(s, int64(kill%40), kill%2 == 0)).Fold(t.Context())
			}
			m := newMemory(s)
			if err := m.Fold(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustAgree(t, m, countReceipts(t, s))
			if err := m.Fold(t.Context()); err != nil { // nothing is new
				t.Fatal(err)
			}
			mustAgree(t, m, countReceipts(t, s))
		})
	}
}

func openFile(t testing.TB) store.Store {
	t.Helper()
	s, err := store.OpenFile(filepath.Join(t.TempDir(), "store.db"), store.FileOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A faulty store fails for the chain or the group of pages that is named.
type faulty struct {
	store.Store
	chain, group string
}

func (f *faulty) Read(ctx context.Context, name string, after uint64, limit int) ([]store.Entry, error) {
	if name == f.chain {
		return nil, fmt.Errorf("%w: a bad sector", store.ErrUnavailable)
	}
	return f.Store.Read(ctx, name, after, limit)
}

func (f *faulty) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if k.Group == f.group {
		return store.Value{}, fmt.Errorf("%w: a bad sector", store.ErrUnavailable)
	}
	return f.Store.Value(ctx, k)
}

func TestABadChainOrPageDoesNotStopTheOthers(t *testing.T) {
	month := now.Format("2006-01")
	for name, bad := range map[string]faulty{
		"chain": {chain: "receipts/n1"},
		"page":  {group: "memory/acme/gaps/" + month},
	} {
		s, r := store.NewMemory(), rand.New(rand.NewPCG(25, 26))
		a, b := openChain(t, s, "n1"), openChain(t, s, "n2")
		fill(t, a, r, 17_000) // two chunks
		fill(t, b, r, 100)
		bad.Store = s
		if err := newMemory(&bad).Fold(t.Context()); err == nil || !strings.Contains(err.Error(), "node n1") || !strings.Contains(err.Error(), "a bad sector") {
			t.Errorf("%s: %v", name, err)
		}
		got, want := remembered(t, newMemory(s)), newCounted()
		for e, err := range receipt.List(t.Context(), s, receipt.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if name == "page" || e.Node == "n2" {
				want.count(&e)
			}
		}
		if !reflect.DeepEqual(got.tools, want.tools) {
			t.Errorf("%s: the memory has %d tools, want the %d of what can be read", name, len(got.tools), len(want.tools))
		}
		if at, err := memory.Folded(t.Context(), s, "n1"); err != nil || at != 0 {
			t.Errorf("%s: n1 is folded up to %d: %v", name, at, err)
		}
		if err := newMemory(s).Fold(t.Context()); err != nil { // it is mended
			t.Fatal(err)
		}
		mustAgree(t, newMemory(s), countReceipts(t, s))
	}
}

// A replica of an older version leaves the pages of a later one alone, and goes on: otherwise nothing could be trimmed.
func TestAPageOfALaterVersionDoesNotStopTheFold(t *testing.T) {
	s := store.NewMemory()
	fill(t, openChain(t, s, "n1"), rand.New(rand.NewPCG(27, 28)), 100)
	key, later := store.Key{Group: "memory/acme/gaps/" + now.Format("2006-01"), Name: now.Format("02")}, []byte{99, 1}
	if _, err := s.Apply(t.Context(), store.Change{Group: key.Group, Writes: []store.Write{{Name: key.Name, Was: store.Any, Data: later}}}); err != nil {
		t.Fatal(err)
	}
	if err := newMemory(s).Fold(t.Context()); err != nil {
		t.Error(err)
	}
	last, _ := receipt.Last(t.Context(), s, "n1")
	if at, err := memory.Folded(t.Context(), s, "n1"); err != nil || at != last {
		t.Errorf("%d of %d receipts are folded: %v", at, last, err)
	}
	if done, err := newMemory(s).Rebuild(t.Context()); err != nil || done.Pages == 0 {
		t.Errorf("rebuilt %+v: %v", done, err)
	}
	if v, err := s.Value(t.Context(), key); err != nil || !bytes.Equal(v.Data, later) {
		t.Errorf("the page became %x: %v", v.Data, err)
	}
}

func TestTheLagIsWhatTheFoldHasNotCounted(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(31, 32))
	a, b := openChain(t, s, "n1"), openChain(t, s, "n2")
	m, began := newMemory(s), time.Now().Add(-time.Second)
	mustLag := func(when string, want uint64) {
		t.Helper()
		lag, err := m.Lag(t.Context())
		if err != nil || lag.Receipts != want || lag.Since.IsZero() != (want == 0) || want > 0 && (lag.Since.Before(began) || lag.Since.After(time.Now())) {
			t.Errorf("%s: %+v, %v; want %d", when, lag, err, want)
		}
	}
	fill(t, a, r, 300)
	fill(t, b, r, 100)
	last := func(node string) uint64 {
		n, err := receipt.Last(t.Context(), s, node)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	mustLag("before a fold", last("n1")+last("n2"))
	if err := s.Trim(t.Context(), "receipts/n2", 51); err != nil {
		t.Fatal(err)
	}
	mustLag("without those that were removed", last("n1")+last("n2")-50)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLag("after a fold", 0)
	fill(t, b, r, 9)
	mustLag("after further receipts", 10)
}

func TestSeveralFoldersWithoutALeaseCountEachReceiptOnce(t *testing.T) {
	s := store.NewMemory()
	var writing, folding sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i := range 3 {
		chain := openChain(t, s, fmt.Sprint("r", i))
		writing.Go(func() {
			for range 40 {
				fill(t, chain, rand.New(rand.NewPCG(3, uint64(i))), 25)
			}
		})
		folding.Go(func() {
			for m := newMemory(s); ctx.Err() == nil; {
				if err := m.Fold(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	stop()
	folding.Wait()
	m := newMemory(s)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAgree(t, m, countReceipts(t, s))
}

func TestAFoldWithoutNewReceiptsWritesNothing(t *testing.T) {
	s := store.NewMemory()
	fill(t, openChain(t, s, "n1"), rand.New(rand.NewPCG(13, 14)), 100)
	if err := newMemory(s).Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := newMemory(newDying(s, 0, false)).Fold(t.Context()); err != nil {
		t.Error(err)
	}
}

// Processes that run over one store fold what is written while they run, also after the one with the lease has ended without releasing it.
func TestARunningMemoryFollowsTheReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := store.NewMemory(), rand.New(rand.NewPCG(15, 16))
		chain := openChain(t, s, "n1")
		mustFold := func(when string, within time.Duration) {
			t.Helper()
			time.Sleep(within)
			last, err := receipt.Last(t.Context(), s, "n1")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := memory.Folded(t.Context(), s, "n1"); err != nil || got != last {
				t.Errorf("%s: %d of %d receipts are folded: %v", when, got, last, err)
			}
		}
		first, end := context.WithCancel(t.Context())
		kept := newDying(s, 1<<30, false)
		var running sync.WaitGroup
		running.Go(func() { newMemory(kept).Run(first) })
		fill(t, chain, r, 300)
		mustFold("one process", 11*time.Second)
		second, stop := context.WithCancel(t.Context())
		running.Go(func() { newMemory(s).Run(second) })
		fill(t, chain, r, 300)
		mustFold("two processes", 11*time.Second)
		kept.left.Store(0) // it cannot release its lease any more
		end()
		fill(t, chain, r, 300)
		mustFold("the other process", 45*time.Second)
		stop()
		running.Wait()
		if err := chain.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTrimmingReceiptsLeavesTheTotals(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(5, 6))
	chain := openChain(t, s, "n1")
	fill(t, chain, r, 500)
	keep := foldedOnly(s)
	if gone, err := chain.Trim(t.Context(), keep); err != nil || gone != 0 {
		t.Fatalf("%d receipts that are not folded were trimmed: %v", gone, err)
	}
	m := newMemory(s)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := countReceipts(t, s)
	fill(t, chain, r, 100)
	gone, err := chain.Trim(t.Context(), keep)
	if err != nil || gone != 503 { // a key, a start, 500 and an intent
		t.Fatalf("%d receipts were trimmed, want the folded ones: %v", gone, err)
	}
	for e, err := range receipt.List(t.Context(), s, receipt.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		want.count(&e)
	}
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAgree(t, m, want)
	if gone, err := chain.Trim(t.Context(), keep); err != nil || gone == 0 {
		t.Fatalf("%d receipts were trimmed: %v", gone, err)
	}
	mustAgree(t, m, want)

	// A rebuild knows that receipts of today are gone, and leaves today as it is.
	done, err := m.Rebuild(t.Context())
	if err != nil || !done.Trimmed || done.From <= memory.DayOf(now) {
		t.Errorf("rebuilt %+v: %v", done, err)
	}
	mustAgree(t, m, want)
}

// A rebuild that cannot count today must not say that today is counted: a trim would remove its receipts.
func TestARebuildKeepsReceiptsThatItDoesNotCount(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(17, 18))
	chain, m := openChain(t, s, "n1"), newMemory(s)
	fill(t, chain, r, 500)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := countReceipts(t, s)
	fill(t, chain, r, 100)
	trimFolded(t, s, chain)
	for e, err := range receipt.List(t.Context(), s, receipt.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		want.count(&e)
	}
	if _, err := m.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if gone, err := chain.Trim(t.Context(), foldedOnly(s)); err != nil || gone != 0 {
		t.Errorf("%d receipts that are not counted were trimmed: %v", gone, err)
	}
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAgree(t, m, want)
}

// foldedOnly lets a trim remove all receipts that are folded.
func foldedOnly(s store.Store) receipt.Retention {
	return receipt.Retention{MaxAge: time.Nanosecond, Folded: func(ctx context.Context, node string) (uint64, error) { return memory.Folded(ctx, s, node) }}
}

// trimFolded removes the receipts that are folded; there must be some.
func trimFolded(t testing.TB, s store.Store, chain *receipt.Chain) {
	t.Helper()
	if gone, err := chain.Trim(context.Background(), foldedOnly(s)); err != nil || gone == 0 {
		t.Errorf("%d receipts were trimmed: %v", gone, err)
	}
}

// A readStore calls before once, before its nth read of receipts.
type readStore struct {
	store.Store
	left   int
	before func()
}

func (r *readStore) Read(ctx context.Context, name string, after uint64, limit int) ([]store.Entry, error) {
	if r.left--; r.left == 0 {
		r.before()
	}
	return r.Store.Read(ctx, name, after, limit)
}

func TestATrimDuringARebuildLeavesTheTotals(t *testing.T) {
	for _, read := range []int{2, 4} { // behind the look for the first day, and while the day is counted
		s := store.NewMemory()
		chain, m := openChain(t, s, "n1"), newMemory(s)
		fill(t, chain, rand.New(rand.NewPCG(19, 20)), 500)
		if err := m.Fold(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := countReceipts(t, s)
		trimmed := &readStore{Store: s, left: read, before: func() { trimFolded(t, s, chain) }}
		if done, err := newMemory(trimmed).Rebuild(t.Context()); err != nil || !done.Trimmed || done.Pages > 0 {
			t.Errorf("read %d: rebuilt %+v: %v", read, done, err)
		}
		mustAgree(t, m, want)
	}
}

// Receipts that are folded and trimmed while a rebuild replaces their page are counted in that page alone: it stays as it is.
func TestATrimOfWhatWasFoldedDuringARebuildLeavesTheTotals(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(21, 22))
	chain, m := openChain(t, s, "n1"), newMemory(s)
	fill(t, chain, r, 500)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	var want *counted
	late := &interrupted{Store: s, before: func() {
		fill(t, chain, r, 300)
		if err := m.Fold(t.Context()); err != nil {
			t.Error(err)
		}
		want = countReceipts(t, s)
		trimFolded(t, s, chain)
	}}
	if done, err := newMemory(late).Rebuild(t.Context()); err != nil || !done.Trimmed {
		t.Errorf("rebuilt %+v: %v", done, err)
	}
	mustAgree(t, m, want)
}

// Where a trim has left a gap, the next entry is not one of those that were to be read.
func TestAnEntryBehindAGapCountsOnce(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(23, 24))
	chain, m := openChain(t, s, "n1"), newMemory(s)
	fill(t, chain, r, 300)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := countReceipts(t, s)
	fill(t, chain, r, 300)
	// The mark is an older one, so the fold finds that its pages have counted a part, and reads the rest again for each.
	if _, err := s.Apply(t.Context(), store.Change{Group: "memory", Writes: []store.Write{{Name: "n1", Was: store.Any, Data: []byte("0")}}}); err != nil {
		t.Fatal(err)
	}
	gap := &readStore{Store: s, left: 4, before: func() {
		fill(t, chain, r, 300)
		if err := s.Trim(t.Context(), "receipts/n1", 651); err != nil {
			t.Error(err)
		}
	}}
	if err := newMemory(gap).Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	for e, err := range receipt.List(t.Context(), s, receipt.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		want.count(&e)
	}
	mustAgree(t, m, want)
}

func TestARebuildCountsTheReceiptsAgainBesideTheFold(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(7, 8))
	chain := openChain(t, s, "n1")
	fill(t, chain, r, 1000)
	m := newMemory(s)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	damage(t, s)
	if _, lacks, err := m.Gaps(t.Context(), "acme", memory.LastDays(2, now)); err != nil || len(lacks.Unreadable) != 1 {
		t.Errorf("a damaged page is read: %v %v", lacks, err)
	}
	var folding sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	folding.Go(func() {
		for m := newMemory(s); ctx.Err() == nil; {
			_ = m.Fold(ctx)
		}
	})
	for range 20 {
		fill(t, chain, r, 50)
		if _, err := m.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	folding.Wait()
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAgree(t, m, countReceipts(t, s))
}

// An interrupted store calls before once, before its first change.
type interrupted struct {
	store.Store
	once   sync.Once
	before func()
}

func (i *interrupted) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	i.once.Do(i.before)
	return i.Store.Apply(ctx, c)
}

func TestARebuildCountsWhatWasFoldedMeanwhile(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(11, 12))
	chain := openChain(t, s, "n1")
	fill(t, chain, r, 1000)
	m := newMemory(s)
	late := &interrupted{Store: s, before: func() {
		fill(t, chain, r, 500)
		if err := m.Fold(t.Context()); err != nil {
			t.Error(err)
		}
	}}
	if _, err := newMemory(late).Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAgree(t, m, countReceipts(t, s))
}

// damage changes the pages of today of a tenant: some are damaged, and some belong to nothing.
func damage(t *testing.T, s store.Store) {
	t.Helper()
	for i := range 17 {
		part := fmt.Sprint(i)
		if i == 16 {
			part = "gaps"
		}
		g := fmt.Sprintf("memory/acme/%s/%s", part, now.Format("2006-01"))
		data := []byte{1, 0, 0, 0}
		if i%2 == 0 {
			data = []byte{1, 9}
		}
		if _, err := s.Apply(t.Context(), store.Change{Group: g, Writes: []store.Write{{Name: now.Format("02"), Was: store.Any, Data: data}}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADamagedPageIsLeftOutAndItsDayNamed(t *testing.T) {
	s := store.NewMemory()
	memory.Fill(t, s, "acme", 3, 20)
	bad, span := memory.DayOf(time.Now())-1, memory.LastDays(5, time.Now())
	err := s.Dump(t.Context(), func(r store.Record) error {
		if r.Name != bad.Start().Format("02") {
			return nil
		}
		data := slices.Clone(r.Value.Data)
		_, err := s.Apply(t.Context(), store.Change{Group: r.Group, Writes: []store.Write{{Name: r.Name, Was: store.Any, Data: data[:len(data)-1]}}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m, id := newMemory(s), switchboard.ToolID{Server: "server", Name: "tool_7"}
	days, lacks, err := m.Tool(t.Context(), "acme", id, span)
	if err != nil || len(days) != 2 || !slices.Equal(lacks.Unreadable, []memory.Day{bad}) || len(lacks.Crowded) > 0 {
		t.Errorf("tool: %d days, %v, %v", len(days), lacks, err)
	}
	sums, lacks, err := m.Tools(t.Context(), "acme", []switchboard.ToolID{id, {Server: "server", Name: "tool_8"}}, span)
	if err != nil || sums[id].Attempts() != memory.Sum(days).Attempts() || !slices.Equal(lacks.Unreadable, []memory.Day{bad}) {
		t.Errorf("tools: %v, %v, %v", sums, lacks, err)
	}
	gaps, lacks, err := m.Gaps(t.Context(), "acme", span)
	if err != nil || len(gaps) == 0 || gaps[0].Days != 2 || !slices.Equal(lacks.Unreadable, []memory.Day{bad}) {
		t.Errorf("gaps: %d, %v, %v", len(gaps), lacks, err)
	}
	changes, lacks, err := m.Changes(t.Context(), "acme", daysOf(span))
	if err != nil || len(changes) != 2*64 || !slices.Equal(lacks.Unreadable, []memory.Day{bad}) {
		t.Errorf("changes: %d, %v, %v", len(changes), lacks, err)
	}
}

// A page that another program has written, or that was written with another secret, is missing in each answer, and each answer says so.
func TestAPageThatDoesNotOpenIsLeftOutAndItsDayNamed(t *testing.T) {
	plain := store.NewMemory()
	sealed, err := store.NewSealed(plain, store.SealOptions{Key: switchboard.NewSecret(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	memory.Fill(t, sealed, "acme", 3, 20)
	bad, span := memory.DayOf(time.Now())-1, memory.LastDays(5, time.Now())
	if err := plain.Dump(t.Context(), func(r store.Record) error {
		if r.Name != bad.Start().Format("02") {
			return nil
		}
		_, err := plain.Apply(t.Context(), store.Change{Group: r.Group, Writes: []store.Write{{Name: r.Name, Was: store.Any, Data: []byte{1, 0, 0, 0, 0}}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m, id := memory.New(memory.Options{Store: sealed, Log: slog.New(slog.NewTextHandler(&log, nil))}), switchboard.ToolID{Server: "server", Name: "tool_7"}
	for range 2 {
		for what, ask := range map[string]func() (int, memory.Missing, error){
			"tool": func() (int, memory.Missing, error) {
				days, lacks, err := m.Tool(t.Context(), "acme", id, span)
				return len(days), lacks, err
			},
			"gaps": func() (int, memory.Missing, error) {
				gaps, lacks, err := m.Gaps(t.Context(), "acme", span)
				return gaps[0].Days, lacks, err
			},
			"changes": func() (int, memory.Missing, error) {
				changes, lacks, err := m.Changes(t.Context(), "acme", daysOf(span))
				return len(changes) / 64, lacks, err
			},
		} {
			if days, lacks, err := ask(); err != nil || days != 2 || !slices.Equal(lacks.Unreadable, []memory.Day{bad}) {
				t.Errorf("%s: %d days, %v, %v", what, days, lacks, err)
			}
		}
	}
	if n := strings.Count(log.String(), "a page of the memory cannot be read"); n != 2 || !strings.Contains(log.String(), bad.String()) { // that of the tool, and that of the gaps
		t.Errorf("%d lines: %s", n, &log)
	}
}

// The fold counts further calls of the day, but what the damaged page had counted is missing until a rebuild.
func TestAPageThatBeganAnewIsNamedUntilARebuild(t *testing.T) {
	s, r := store.NewMemory(), rand.New(rand.NewPCG(29, 30))
	chain, m := openChain(t, s, "n1"), newMemory(s)
	fill(t, chain, r, 300)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	damage(t, s)
	for range 2 {
		fill(t, chain, r, 300)
		if err := m.Fold(t.Context()); err != nil {
			t.Fatal(err)
		}
		if gaps, lacks, err := m.Gaps(t.Context(), "acme", memory.LastDays(2, now)); err != nil || len(gaps) == 0 || !slices.Equal(lacks.Unreadable, []memory.Day{memory.DayOf(now)}) {
			t.Errorf("%d gaps, %v, %v", len(gaps), lacks, err)
		}
	}
	if _, err := m.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAgree(t, m, countReceipts(t, s))
	if _, lacks, err := m.Gaps(t.Context(), "acme", memory.LastDays(2, now)); err != nil || len(lacks.Unreadable) > 0 {
		t.Errorf("after the rebuild: %v, %v", lacks, err)
	}
}

func TestADayWithMoreToolsThanAreKeptIsNamed(t *testing.T) {
	for tools, crowded := range map[int]bool{20: false, 1000: true} {
		s := store.NewMemory()
		memory.Fill(t, s, "acme", 1, tools)
		days, lacks, err := newMemory(s).Tool(t.Context(), "acme", switchboard.ToolID{Server: "server", Name: "tool_999"}, memory.LastDays(2, time.Now()))
		if err != nil || len(days) > 0 || crowded != slices.Equal(lacks.Crowded, []memory.Day{memory.DayOf(time.Now())}) {
			t.Errorf("%d tools: %d days, %v, %v", tools, len(days), lacks, err)
		}
	}
}

func TestEveryNameThatTheCatalogAllowsIsCounted(t *testing.T) {
	s := store.NewMemory()
	chain, m := openChain(t, s, "n1"), newMemory(s)
	names := []string{"find", "find all!", "find#2", "a/b", "{x}+y", "\u67e5\u627e"}
	for _, name := range append(names, "find\u200b") { // the catalog refuses the last one
		if _, err := chain.Write(t.Context(), &receipt.Receipt{Kind: receipt.Call, Tenant: "acme", Method: "tools/call", Server: "web", Tool: name, Outcome: receipt.OK}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if days, _, err := m.Tool(t.Context(), "acme", switchboard.ToolID{Server: "web", Name: name}, memory.LastDays(2, now)); err != nil || memory.Sum(days).Attempts() != 1 {
			t.Errorf("%q: %d days, %v", name, len(days), err)
		}
	}
}

func TestAgentsCrowdOutNoRequirements(t *testing.T) {
	s := store.NewMemory()
	chain, m := openChain(t, s, "n1"), newMemory(s)
	for i := range 300 {
		chain.Add(&receipt.Receipt{Kind: receipt.Ask, Tenant: "acme", Capability: fmt.Sprint("junk.", i)})
	}
	if _, err := chain.Write(t.Context(), &receipt.Receipt{Kind: receipt.Decision, Tenant: "acme", Outcome: receipt.Refused, Unmet: []string{"read files"}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	gaps, _, err := m.Gaps(t.Context(), "acme", memory.LastDays(2, now))
	if err != nil || len(gaps) > 130 || !slices.ContainsFunc(gaps, func(g memory.SeenGap) bool { return g.Name == "read files" }) {
		t.Errorf("%d gaps: %v", len(gaps), err)
	}
}

// A listing store counts the lists of pages.
type listing struct {
	store.Store
	lists int
}

func (l *listing) List(ctx context.Context, group string) ([]store.NamedValue, error) {
	l.lists++
	return l.Store.List(ctx, group)
}

func TestManyToolsAreReadFromEachPageOnce(t *testing.T) {
	s := &listing{Store: store.NewMemory()}
	memory.Fill(t, s, "acme", 1, 200)
	var ids []switchboard.ToolID
	for i := range 200 {
		ids = append(ids, switchboard.ToolID{Server: "server", Name: fmt.Sprint("tool_", i)})
	}
	sums, _, err := newMemory(s).Tools(t.Context(), "acme", append(ids, ids...), memory.LastDays(1, time.Now()))
	if err != nil || len(sums) != 200 || s.lists != 16 {
		t.Errorf("%d tools in %d lists: %v", len(sums), s.lists, err)
	}
	for id, n := range sums {
		if n.Attempts() != 40 {
			t.Errorf("%s has %d attempts", id, n.Attempts())
		}
	}
}

// What was only intended, refused, proposed or looked at has changed nothing.
func TestOnlyWhatWasDoneIsAChange(t *testing.T) {
	s := store.NewMemory()
	chain := openChain(t, s, "n1")
	const file, proposal = "overlays/web.yaml", "proposals/k3fqx2mz7a"
	for _, r := range []receipt.Receipt{
		{Method: "change", Change: receipt.FileChange{File: file}}, // the intent
		{Method: "change", Change: receipt.FileChange{File: file}, Outcome: receipt.Refused, Code: switchboard.CodeConfig},
		{Method: "proposal create", Change: receipt.FileChange{File: proposal}, Outcome: receipt.OK},
		{Method: "proposal approve", Change: receipt.FileChange{File: proposal}, Outcome: receipt.OK},
		{Method: "probe", Server: "web", Outcome: receipt.OK},
		{Method: "restart", Server: "web"},
		{Method: "change", Change: receipt.FileChange{File: file}, Outcome: receipt.OK},
		{Method: "change", Change: receipt.FileChange{File: file, Source: "proposal k3fqx2mz7a"}, Outcome: receipt.OK},
		{Method: "proposal apply", Change: receipt.FileChange{File: proposal}, Outcome: receipt.OK},
		{Method: "change", Change: receipt.FileChange{File: file, Source: "roll-back of proposal k3fqx2mz7a"}, Outcome: receipt.OK},
		{Method: "reload", Outcome: receipt.OK},
		{Method: "restart", Server: "web", Outcome: receipt.OK},
	} {
		r.Kind, r.Tenant = receipt.Admin, "acme"
		if _, err := chain.Write(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	m := newMemory(s)
	if err := m.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes, _, err := m.Changes(t.Context(), "acme", []memory.Day{memory.DayOf(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, strings.TrimSpace(c.What+" "+c.File))
	}
	slices.Sort(got)
	want := []string{"change " + file, "proposal k3fqx2mz7a " + file, "reload", "restart", "roll-back of proposal k3fqx2mz7a " + file}
	if !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
}

// No text of an argument, a result or an error is in the store's pages, whatever receipts say.
func TestNoTextOfACallIsInTheMemory(t *testing.T) {
	const canary = "CANARY§7f3a"
	s := store.NewMemory()
	chain := openChain(t, s, "n1")
	for _, r := range []receipt.Receipt{
		{Kind: receipt.Call, Method: "tools/call", Server: "web", Tool: "find", Arguments: canary, Result: canary, Note: canary, Outcome: receipt.Failed, Code: switchboard.Code(canary)},
		{Kind: receipt.Call, Method: "tools/call", Server: "web", Tool: "find " + canary, Outcome: receipt.OK, Took: receipt.CallTime{Total: 9}},
		{Kind: receipt.Call, Method: "tools/call", Tool: canary, Outcome: receipt.Refused, Code: switchboard.CodeNoSuchTool},
		{Kind: receipt.Call, Method: "prompts/get", Server: "web", Tool: canary, Outcome: receipt.OK},
		{Kind: receipt.Call, Method: "tools/call", Server: "web", Tool: "find", Outcome: receipt.Failed, Tries: []receipt.FailedAttempt{{Tool: canary, Code: switchboard.Code(canary), Sent: true}}},
		{Kind: receipt.Decision, Unmet: []string{canary}},
		{Kind: receipt.Ask, Capability: canary, Note: canary},
		{Kind: receipt.Admin, Method: "change", Outcome: receipt.OK, Note: canary, Change: receipt.FileChange{File: canary, Before: canary}},
	} {
		r.Tenant, r.Principal, r.Task, r.Run = "acme", receipt.Subject{ID: canary}, canary, canary
		if _, err := chain.Write(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if err := newMemory(s).Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	pages := 0
	err := s.Dump(t.Context(), func(r store.Record) error {
		if r.Kind != store.KindValue {
			return nil
		}
		pages++
		if text := fmt.Sprint(r.Group, r.Name, string(r.Value.Data)); strings.Contains(text, canary) {
			t.Errorf("a page holds text of a call: %q", text)
		}
		return nil
	})
	if err != nil || pages < 3 {
		t.Fatalf("%d values: %v", pages, err)
	}
}

func TestQuantilesAreWithinTheStatedError(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 50 {
		var l memory.Latency
		var all []int64
		for range 1 + r.IntN(400) {
			v := 8 + r.Int64N(1<<(4+r.IntN(25)))
			all = append(all, v)
			memory.NoteLatency(&l, v)
		}
		slices.Sort(all)
		for _, q := range []float64{0.5, 0.95, 1} {
			want := float64(all[int(q*float64(len(all))+0.9999999)-1])
			got := float64(l.Quantile(q).Microseconds())
			if diff := (got - want) / want; diff > 1.0/16+1e-9 || diff < -1.0/16-1e-9 {
				t.Errorf("q %v of %d: %v, want %v", q, len(all), got, want)
			}
		}
	}
}
