package receipt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// unindexed hides the indexes of a store.
type unindexed struct{ ChainReader }

func (u unindexed) Span(ctx context.Context, log string) (store.Span, error) {
	if strings.HasPrefix(log, indexPrefix) {
		return store.Span{First: 1}, nil
	}
	return u.ChainReader.Span(ctx, log)
}

// indexWorld writes random chains and their indexes. choose returns a random number below n.
type indexWorld struct {
	t      testing.TB
	store  Store
	choose func(n int) int
	now    time.Time
	chains []*indexedChain
}

// An indexedChain is a chain with the processes that index it.
type indexedChain struct {
	chainWriter
	indexers []*indexer
}

func newIndexWorld(t testing.TB, s Store, prefix string, choose func(n int) int) *indexWorld {
	w := &indexWorld{t: t, store: s, choose: choose, now: time.Unix(1_700_000_000, 0)}
	for i := range 1 + choose(3) {
		node := fmt.Sprint(prefix, i)
		key, err := newSigner(NewKey())
		if err != nil {
			t.Fatal(err)
		}
		c := &indexedChain{chainWriter: chainWriter{store: s, node: node, logName: logPrefix + node, timeout: time.Minute, signer: key, prev: EmptyDigest}}
		w.chains = append(w.chains, c)
		c.indexers = []*indexer{w.newIndexer(c), w.newIndexer(c)}
	}
	return w
}

func (w *indexWorld) newIndexer(c *indexedChain) *indexer {
	return newIndexer(w.store, c.node, []int{4, 4, 4, 16, 1}[w.choose(5)], slog.New(slog.DiscardHandler))
}

func pick[T any](w *indexWorld, all ...T) T { return all[w.choose(len(all))] }

func (w *indexWorld) receipt() *Receipt {
	r := &Receipt{Kind: pick(w, Call, Call, Intent, Expand, Admin)}
	r.Tenant = pick[switchboard.TenantID](w, "acme", "acme", "umbra", "")
	r.Task = pick[switchboard.TaskID](w, "work", "play")
	r.Server = pick[switchboard.ServerID](w, "notes", "web", "a/b", "\xff")
	r.Tool = pick(w, "find", "find", "send", "", "with\nline", "\xff", strings.Repeat("long", 100))
	r.Principal.ID = pick(w, "ci", "lea", "", strings.Repeat("l", maxText+1))
	r.Outcome = pick(w, OK, Refused, "")
	if r.Outcome == Refused {
		r.Code = switchboard.CodeDenied
	}
	if w.choose(6) == 0 {
		r.ServedBy = "spare/find"
	}
	if r.Kind == Expand {
		r.Tools = pick(w, nil, []string{"notes/find", "web/send"}, []string{""}, []string{"notes/a\nb/find"}, []string{"notes/\xff"}, slices.Repeat([]string{"notes/find"}, maxTools+1))
	}
	return r
}

func (w *indexWorld) query() Query {
	q := Query{NewestFirst: w.choose(2) == 0}
	if w.choose(2) == 0 {
		q.Tenant = pick[switchboard.TenantID](w, "acme", "umbra", "none")
	}
	if w.choose(3) == 0 {
		q.Task = "play"
	}
	if w.choose(2) == 0 {
		q.Tool = pick(w, "find", "notes/*", "*/send", "spare/find", "with*", "*line", "none", "*", "b/find", "long*", "\ufffd")
	}
	if w.choose(4) == 0 {
		q.Code = switchboard.CodeDenied
	}
	if w.choose(4) == 0 {
		q.Outcome = OK
	}
	if w.choose(4) == 0 {
		q.Kind = pick(w, Intent, Expand, Start)
	}
	if w.choose(4) == 0 {
		q.Principal = pick(w, "ci", "lea", "l", "none")
	}
	if w.choose(4) == 0 {
		q.Node = pick(w, w.chains...).node
	}
	ago := func() time.Time { return w.now.Add(-time.Duration(w.choose(60)) * time.Second) }
	if w.choose(4) == 0 {
		q.Since = ago()
	}
	if w.choose(4) == 0 {
		q.Until = ago()
	}
	return q
}

// write writes some receipts to c. tell says whether an indexer learns of them, or finds them in the store.
func (w *indexWorld) write(c *indexedChain, tell bool) {
	var p batch
	var table termTable
	for range 1 + w.choose(9) {
		w.now = w.now.Add(time.Second)
		r := w.receipt()
		r.Time = w.now
		p.bodies = r.append(p.bodies)
		p.ends, p.terms = append(p.ends, len(p.bodies)), append(p.terms, table.find(r))
	}
	first := c.seq + 1
	c.chainEntries(&p, c.signer)
	if err := c.append(&p); err != nil {
		w.t.Fatal(err)
	}
	if tell {
		c.indexers[0].note(first, p.terms)
	}
}

// step does one random thing.
func (w *indexWorld) step() {
	ctx := w.t.Context()
	c := pick(w, w.chains...)
	switch w.choose(12) {
	default:
		w.write(c, w.choose(3) > 0)
	case 0, 1, 2:
		for x := pick(w, c.indexers...); ; {
			_, err := x.indexNext(ctx)
			if errors.Is(err, errIndexed) || w.choose(5) == 0 { // killed, or slow
				break
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	case 3: // a process restarts
		c.indexers[w.choose(2)] = w.newIndexer(c)
	case 4: // somebody damages the store
		raw := []byte("spoilt")
		if err := w.store.Append(ctx, c.logName, c.seq, raw); err != nil {
			w.t.Fatal(err)
		}
		c.seq, c.prev = c.seq+1, canonical.Sum(raw)
	case 5:
		span, err := w.store.Span(ctx, c.logName)
		if err != nil {
			w.t.Fatal(err)
		}
		if span.Last <= span.First {
			return
		}
		first := span.First + uint64(w.choose(int(min(span.Last-span.First, 20))))
		err = w.store.Trim(ctx, c.logName, first)
		if err == nil && w.choose(2) == 0 { // or it is killed before this
			err = trimIndex(ctx, w.store, c.node, first)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	case 6: // an index of another chain, or none
		span, err := w.store.Span(ctx, indexPrefix+c.node)
		if err != nil {
			w.t.Fatal(err)
		}
		raw := []byte("spoilt")
		if number := uint64(1 + w.choose(4)); w.choose(2) == 0 {
			raw = encodeIndexBlock(&indexBlock{size: 4, begin: 1, number: number}, slices.Repeat([]searchTerms{new(termTable).find(&Receipt{Kind: Stop})}, 4))
		}
		if err := w.store.Append(ctx, indexPrefix+c.node, span.Last, raw); err != nil {
			w.t.Fatal(err)
		}
	}
}

// listed returns the ids that List yields: of the receipts that can be read, in their order, and of all, by node.
func listed(t testing.TB, s ChainReader, q Query) (readable []string, all map[string][]uint64) {
	all = map[string][]uint64{}
	for e, err := range List(t.Context(), s, q) {
		if err != nil {
			t.Fatal(err)
		}
		all[e.Node] = append(all[e.Node], e.Seq)
		if e.Fault == nil {
			readable = append(readable, e.ID())
		}
	}
	return readable, all
}

func (w *indexWorld) check() error {
	q := w.query()
	want, wantAll := listed(w.t, unindexed{w.store}, q)
	got, gotAll := listed(w.t, w.store, q)
	if !slices.Equal(got, want) || fmt.Sprint(gotAll) != fmt.Sprint(wantAll) {
		return fmt.Errorf("%+v:\ngot  %v %v\nwant %v %v", q, got, gotAll, want, wantAll)
	}
	return nil
}

// checkParts checks that a search that goes on after each part yields what a search without a bound yields, once.
func (w *indexWorld) checkParts() error {
	q := w.query()
	q.NewestFirst = true
	want, _ := listed(w.t, w.store, q)
	work := 1 + w.choose(60)
	var got []string

	for part := q; ; {
		part.MaxWork = work
		var stopped *UnfinishedError
		for e, err := range List(w.t.Context(), w.store, part) {
			switch {
			case errors.As(err, &stopped):
			case err != nil:
				w.t.Fatal(err)
			case e.Fault == nil:
				got = append(got, e.ID())
			}
		}
		if stopped == nil {
			break
		}
		if !part.Until.IsZero() && !stopped.Looked.Before(part.Until) {
			return fmt.Errorf("%+v, from %v on: no progress with a work of %d", q, part.Until, work)
		}
		part.Until = stopped.Looked
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%+v in parts of %d:\ngot  %v\nwant %v", q, work, got, want)
	}
	return nil
}

func TestASearchInPartsYieldsEachReceiptOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newIndexWorld(t, store.NewMemory(), "n", func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "") })
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step()
			if err := w.checkParts(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// The receipts of both chains have the same times. One chain has a match, and the other must be looked through far behind it.
func TestASearchInPartsMakesProgressBehindAMatch(t *testing.T) {
	s := store.NewMemory()
	tools := slices.Repeat([]string{"find"}, 400)
	chainOfNode(t, s, "b", 4, tools...)
	tools[390], tools[10] = "rare", "rare"
	chainOfNode(t, s, "a", 4, tools...)
	var got []string
	until := time.Time{}
	for parts := 1; ; parts++ {
		var stopped *UnfinishedError
		for e, err := range List(t.Context(), s, Query{Tool: "rare", NewestFirst: true, MaxWork: 20, Until: until}) {
			if err != nil && !errors.As(err, &stopped) {
				t.Fatal(err)
			} else if err == nil {
				got = append(got, e.ID())
			}
		}
		if stopped == nil {
			break
		}
		if parts > 1 && !stopped.Looked.Before(until) {
			t.Fatalf("part %d has %q, and makes no progress", parts, got)
		}
		until = stopped.Looked
	}
	if !slices.Equal(got, []string{"a0/391", "a0/11"}) {
		t.Errorf("the search finds %q", got)
	}
}

func TestListYieldsTheSameReceiptsWithAndWithoutAnIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newIndexWorld(t, store.NewMemory(), "n", func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "") })
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step()
			if err := w.check(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// TestListYieldsTheSameReceiptsWithAndWithoutAnIndex does the same, and more of it, with the store in memory.
func TestEveryStoreKeepsIndexes(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) string{
		"file":  func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "store.db") },
		"redis": func(t *testing.T) string { return redistest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := store.Open(t.Context(), open(t), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			random := rand.New(rand.NewPCG(1, 2))
			blocks := 0
			for i := range 5 {
				w := newIndexWorld(t, s, fmt.Sprint("n", i, "-"), random.IntN)
				for range 60 {
					w.step()
				}
				for range 8 { // each reads all the chains
					if err := w.check(); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range w.chains {
					end, err := readIndexEnd(t.Context(), s, c.node)
					if err != nil {
						t.Fatal(err)
					}
					blocks += int(end.block - end.begin)
				}
			}
			nodes, err := Nodes(t.Context(), s)
			if err != nil || len(nodes) < 5 || slices.ContainsFunc(nodes, func(node string) bool { return !strings.HasPrefix(node, "n") }) {
				t.Errorf("the nodes are %q, %v", nodes, err)
			}
			if blocks == 0 {
				t.Error("nothing is indexed: the test shows nothing")
			}
		})
	}
}

// chainOfReceipts returns a chain with an index. Its receipts have the tools.
func chainOfReceipts(t testing.TB, s Store, size int, tools ...string) *indexedChain {
	t.Helper()
	return chainOfNode(t, s, "n", size, tools...)
}

func chainOfNode(t testing.TB, s Store, prefix string, size int, tools ...string) *indexedChain {
	t.Helper()
	w := newIndexWorld(t, s, prefix, func(int) int { return 0 })
	c := w.chains[0]
	for some := range slices.Chunk(tools, 1000) {
		var p batch
		for _, tool := range some {
			w.now = w.now.Add(time.Second)
			r := &Receipt{Kind: Call, Time: w.now, Server: "notes", Tool: tool}
			p.bodies = r.append(p.bodies)
			p.ends = append(p.ends, len(p.bodies))
		}
		c.chainEntries(&p, c.signer)
		if err := c.append(&p); err != nil {
			t.Fatal(err)
		}
	}
	c.indexers[0] = newIndexer(s, c.node, size, slog.New(slog.DiscardHandler))
	indexAll(t, c.indexers[0])
	return c
}

func indexAll(t testing.TB, x *indexer) {
	t.Helper()
	for {
		if _, err := x.indexNext(t.Context()); errors.Is(err, errIndexed) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// readCounter counts the entries of chains that are read.
type readCounter struct {
	Store
	entries int
}

func (c *readCounter) Read(ctx context.Context, log string, after uint64, limit int) ([]store.Entry, error) {
	all, err := c.Store.Read(ctx, log, after, limit)
	if strings.HasPrefix(log, logPrefix) {
		c.entries += len(all)
	}
	return all, err
}

func TestListReadsOnlyEntriesThatTheQueryMaySelect(t *testing.T) {
	tools := slices.Repeat([]string{"find"}, 10_000)
	tools[70], tools[5000], tools[9990] = "rare", "rare", "rare" // the last one is not indexed
	s := &readCounter{Store: store.NewMemory()}
	chainOfReceipts(t, s, 64, tools...)
	for _, newest := range []bool{false, true} {
		s.entries = 0
		got, _ := listed(t, s, Query{Tool: "rare", NewestFirst: newest})
		if len(got) != 3 || s.entries > 64+3 {
			t.Errorf("newest first: %v: it lists %q, and reads %d entries", newest, got, s.entries)
		}
		s.entries = 0
		for _, err := range List(t.Context(), s, Query{Tool: "find", NewestFirst: newest}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if s.entries > 64+3 {
			t.Errorf("newest first: %v: for one receipt it reads %d entries", newest, s.entries)
		}
	}
}

func TestAnIndexDoesNotNeedTheEntriesThatItsProcessHasWritten(t *testing.T) {
	s := &readCounter{Store: store.NewMemory()}
	w := newIndexWorld(t, s, "n", func(int) int { return 0 })
	c := w.chains[0]
	for c.seq < 100 {
		w.write(c, true)
		indexAll(t, c.indexers[0])
	}
	if s.entries != 25 { // one of each block, for its digest
		t.Errorf("it reads %d entries to index 25 blocks", s.entries)
	}
}

func TestAnIndexIsTrimmedWithItsChain(t *testing.T) {
	s := store.NewMemory()
	c := chainOfReceipts(t, s, 4, slices.Repeat([]string{"find"}, 100)...)
	for _, tt := range []struct{ first, index uint64 }{{50, 13}, {52, 13}, {53, 14}, {100, 25}} {
		if err := errors.Join(s.Trim(t.Context(), c.logName, tt.first), trimIndex(t.Context(), s, c.node, tt.first)); err != nil {
			t.Fatal(err)
		}
		if span, _ := s.Span(t.Context(), indexPrefix+c.node); span.First != tt.index {
			t.Errorf("after a trim to %d the index begins with %d, want %d", tt.first, span.First, tt.index)
		}
	}
}

func TestAChainThatWasReplacedIsIndexedAgain(t *testing.T) {
	s := store.NewMemory()
	chainOfReceipts(t, s, 4, slices.Repeat([]string{"find"}, 50)...)
	index, err := s.Read(t.Context(), indexPrefix+"n0", 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	restored := store.NewMemory() // the index of one chain, and another chain
	for _, e := range index {
		if err := restored.Append(t.Context(), indexPrefix+"n0", e.Seq-1, e.Data); err != nil {
			t.Fatal(err)
		}
	}
	c := chainOfReceipts(t, restored, 4, slices.Repeat([]string{"send"}, 60)...)
	if got, _ := listed(t, restored, Query{Tool: "send"}); len(got) != 60 {
		t.Errorf("%d receipts are listed", len(got))
	}
	end, err := readIndexEnd(t.Context(), restored, c.node)
	span, _ := restored.Span(t.Context(), indexPrefix+c.node)
	if err != nil || end.begin != 1 || end.block != 15 || span.First != 13 || span.Last != 27 {
		t.Errorf("the index is %+v in %+v, %v", end, span, err)
	}
}

func TestAnIndexBlockSaysWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := rapid.IntRange(0, 1<<20)
		w := &indexWorld{choose: func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "") }}
		var table termTable
		many := rapid.Bool().Draw(rt, "many")
		all := make([]searchTerms, 400)
		for i := range all {
			r := w.receipt()
			if many {
				r.Tool = fmt.Sprint(i)
			}
			all[i] = table.find(r)
		}
		b := &indexBlock{size: 400, begin: 3, number: 7, end: [32]byte{1, 2, 3}}
		raw := encodeIndexBlock(b, all)
		got, err := parseIndexBlock(raw)
		if err != nil || got.size != b.size || got.begin != b.begin || got.number != b.number || got.end != b.end {
			rt.Fatalf("%+v, %v", got, err)
		}
		for i, want := range all {
			for c := range want {
				at, is, k := got.columns[c].positionAt(uint64(i)), "", 0
				got.columns[c].eachText(func(text string) {
					if k++; k == at {
						is = text
					}
				})
				if want == anyTerms && at != 0 || want != anyTerms && (at == 0 || is != *want[c]) {
					rt.Fatalf("entry %d, column %d: %q at %d, want %v", i, c, is, at, want[c])
				}
			}
		}
		at := rapid.IntRange(0, len(raw)-1).Draw(rt, "cut")
		if _, err := parseIndexBlock(raw[:at]); err == nil {
			rt.Fatalf("it accepts %d of %d bytes", at, len(raw))
		}
		bad := bytes.Clone(raw)
		bad[at] ^= byte(1 << draw.Draw(rt, "bit") % 8)
		if b, err := parseIndexBlock(bad); err == nil { // it must not panic
			_ = b.find(&termMatcher{query: &Query{Tool: "find", Tenant: "acme"}}, 0, 1<<40, nil)
		}
	})
}

func FuzzIndexBlock(f *testing.F) {
	var table termTable
	terms := []searchTerms{table.find(&Receipt{Kind: Call, Tool: "find"}), anyTerms, table.find(&Receipt{Kind: Expand, Tools: []string{"notes/find", "web/send"}}), table.find(&Receipt{})}
	f.Add(encodeIndexBlock(&indexBlock{size: 4, begin: 1, number: 2}, terms))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		b, err := parseIndexBlock(raw)
		if err != nil {
			return
		}
		_ = b.find(&termMatcher{query: &Query{Tool: "f*", Kind: Call}}, b.first(), b.last(), nil)
	})
}
