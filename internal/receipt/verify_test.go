package receipt_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// chainOf makes a chain of n1 with about n receipts, several of them written together, and a
// checkpoint of its end.
func chainOf(t *testing.T, key switchboard.Secret, n int) ([][]byte, receipt.Checkpoint) {
	t.Helper()
	var entries [][]byte
	var anchor bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		o := options()
		o.Key, o.Anchor = key, &anchor
		b := openBook(t, s, o)
		for i := range n {
			b.Add(&receipt.Receipt{Kind: receipt.Call, Tenant: "acme", Tool: fmt.Sprint("tool", i), Outcome: receipt.OK})
			if i%5 == 0 {
				time.Sleep(time.Second)
			}
		}
		shut(t, b)
		entries = raws(t, s, "n1")
	})
	marks, err := receipt.ReadCheckpoints(&anchor)
	if err != nil {
		t.Fatal(err)
	}
	return entries, marks[len(marks)-1]
}

func fault(t testing.TB, s receipt.ChainReader, marks ...receipt.Checkpoint) *receipt.ChainFault {
	t.Helper()
	chains, err := receipt.Verify(context.Background(), s, receipt.VerifyOptions{Checkpoints: marks})
	if err != nil || len(chains) != 1 {
		t.Fatal(chains, err)
	}
	if parts, _ := verifyInParts(t, inSmallReads{s}, receipt.VerifyOptions{Checkpoints: marks}, 1, nil); !reflect.DeepEqual(parts, chains) {
		t.Fatalf("in parts %+v, at once %+v", parts, chains)
	}
	return chains[0].Fault
}

// inSmallReads gives one entry at once. In a synctest bubble, each read takes a second.
type inSmallReads struct{ receipt.ChainReader }

func (r inSmallReads) Read(ctx context.Context, log string, after uint64, most int) ([]store.Entry, error) {
	return r.ChainReader.Read(ctx, log, after, min(most, 1))
}

type slowReads struct{ receipt.ChainReader }

func (r slowReads) Read(ctx context.Context, log string, after uint64, most int) ([]store.Entry, error) {
	time.Sleep(time.Second)
	return inSmallReads(r).Read(ctx, log, after, most)
}

// verifyInParts verifies with as many parts as it takes. between, if not nil, is called after each part with its number.
func verifyInParts(t testing.TB, s receipt.ChainReader, o receipt.VerifyOptions, within time.Duration, between func(n int)) (all []receipt.ChainReport, parts int) {
	t.Helper()
	all = []receipt.ChainReport{}
	for after := ""; ; {
		p, err := receipt.VerifyPart(context.Background(), s, o, after, within)
		if err != nil {
			t.Fatal(err)
		}
		parts++
		if p.Looked > p.Of || (p.Looked == p.Of) != (p.Next == "") {
			t.Fatalf("part %d: looked at %d of %d, next %q", parts, p.Looked, p.Of, p.Next)
		}
		all = append(all, p.Chains...)
		if after = p.Next; after == "" {
			return all, parts
		}
		if between != nil {
			between(parts)
		}
	}
}

func TestAVerificationInPartsFindsWhatOneAtOnceFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		var anchor bytes.Buffer
		for _, node := range []string{"n1", "n2"} {
			o := options()
			o.Node, o.Anchor, o.CheckpointEvery = node, &anchor, 10
			b := openBook(t, s, o)
			for i := range 40 {
				b.Add(&receipt.Receipt{Kind: receipt.Call})
				if i%7 == 0 {
					time.Sleep(time.Second)
				}
				if i == 20 {
					if err := b.Rotate(t.Context(), keyB); err != nil {
						t.Fatal(err)
					}
				}
			}
			shut(t, b)
		}
		marks, err := receipt.ReadCheckpoints(&anchor)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []receipt.VerifyOptions{{}, {Checkpoints: marks}, {Nodes: []string{"n2", "n1", "n2"}}, {Keys: []string{"none"}}} {
			want, err := receipt.Verify(t.Context(), s, o)
			if err != nil || len(want) != 2 {
				t.Fatal(want, err)
			}
			got, parts := verifyInParts(t, slowReads{s}, o, time.Second, nil)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("in %d parts %+v, at once %+v", parts, got, want)
			}
			if o.Keys == nil && parts < 80 { // one entry in each
				t.Errorf("there are %d parts", parts)
			}
		}
		// The beginning is trimmed between two parts: entries that were looked at, and then those that come next.
		trim := func(n int) {
			if first, ok := map[int]uint64{1: 4, 2: 30}[n]; ok {
				if err := s.Trim(t.Context(), "receipts/n1", first); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, _ := verifyInParts(t, slowReads{s}, receipt.VerifyOptions{}, 6*time.Second, trim)
		if len(got) != 2 || got[0].Fault == nil || got[0].Fault.Rule != receipt.RuleBegin || got[0].First != 30 || got[1].Fault != nil {
			t.Errorf("trimmed without a receipt: %+v", got)
		}
	})
}

func TestAPlaceThatIsNoneEndsAVerification(t *testing.T) {
	good, _ := chainOf(t, keyA, 40)
	s := rewritten(t, good)
	for _, after := range []string{"x", "!", "e30", base64.RawURLEncoding.EncodeToString([]byte(`{"chain":{"report":{"node":"n9"}}}`))} {
		if p, err := receipt.VerifyPart(t.Context(), s, receipt.VerifyOptions{}, after, time.Second); !errors.Is(err, receipt.ErrNotNext) {
			t.Errorf("%q: %+v, %v", after, p, err)
		}
	}
}

func TestWhateverIsDoneToAChainIsFoundWhereItBegins(t *testing.T) {
	good, mark := chainOf(t, keyA, 40)
	if f := fault(t, rewritten(t, good), mark); f != nil {
		t.Fatal(f)
	}
	last := len(good) - 1
	rapid.Check(t, func(r *rapid.T) {
		entries := slices.Clone(good)
		at := rapid.IntRange(0, last).Draw(r, "at")
		first := at // the first wrong entry
		what := rapid.SampledFrom([]string{"edit", "insert byte", "delete byte", "delete", "swap", "truncate", "duplicate", "other receipt"}).Draw(r, "what")
		switch what {
		case "edit":
			entries[at] = bytes.Clone(entries[at])
			i := rapid.IntRange(0, len(entries[at])-1).Draw(r, "byte")
			c := rapid.Byte().Draw(r, "becomes")
			if entries[at][i] == c {
				c++
			}
			entries[at][i] = c
		case "insert byte":
			i := rapid.IntRange(0, len(entries[at])).Draw(r, "byte")
			entries[at] = slices.Insert(bytes.Clone(entries[at]), i, rapid.Byte().Draw(r, "inserted"))
		case "delete byte":
			i := rapid.IntRange(0, len(entries[at])-1).Draw(r, "byte")
			entries[at] = slices.Delete(bytes.Clone(entries[at]), i, i+1)
		case "delete":
			if at == last { // the end is tested below
				at, first = at-1, at-1
			}
			entries = slices.Delete(entries, at, at+1)
		case "swap":
			other := rapid.IntRange(0, last).Draw(r, "other")
			if other == at {
				other = (at + 1) % len(entries)
			}
			entries[at], entries[other] = entries[other], entries[at]
			first = min(at, other)
		case "truncate":
			entries[at] = entries[at][:rapid.IntRange(0, len(entries[at])-1).Draw(r, "length")]
		case "duplicate":
			entries = slices.Insert(entries, at, entries[at])
			first = at + 1
		case "other receipt":
			tool := bytes.Index(entries[at], []byte(`"tool":"tool`))
			if tool < 0 {
				r.Skip("it has no tool")
			}
			entries[at] = bytes.Clone(entries[at])
			entries[at][tool+len(`"tool":"`)] = 'p'
		}
		f := fault(t, rewritten(t, entries))
		if f == nil || f.Seq != uint64(first+1) {
			r.Fatalf("%s: found %v, want entry %d", what, f, first+1)
		}
	})
}

func TestAChainCannotEndWithinABatch(t *testing.T) {
	good, _ := chainOf(t, keyA, 40)
	ends := 0
	for n := 1; n <= len(good); n++ {
		f := fault(t, rewritten(t, good[:n]))
		signed := bytes.Contains(good[n-1], []byte(`"signature":`))
		if (f == nil) != signed {
			t.Errorf("cut off after %d: %v", n, f)
		}
		if signed {
			ends++
		} else if f.Rule != receipt.RuleEnd || f.Seq != uint64(n) {
			t.Errorf("cut off after %d: %v", n, f)
		}
	}
	if ends < 5 || ends > len(good)/2 {
		t.Errorf("%d ends of %d", ends, len(good))
	}
}

func TestACheckpointShowsThatTheEndIsMissing(t *testing.T) {
	good, mark := chainOf(t, keyA, 40)
	for n := 1; n < len(good); n++ {
		if !bytes.Contains(good[n-1], []byte(`"signature":`)) {
			continue
		}
		if f := fault(t, rewritten(t, good[:n]), mark); f == nil || f.Rule != receipt.RuleCheckpoint || f.Seq != uint64(n+1) {
			t.Errorf("cut off after %d: %v", n, f)
		}
	}
	if f := fault(t, store.NewMemory(), mark); f == nil || f.Rule != receipt.RuleCheckpoint || f.Seq != 1 {
		t.Errorf("all is gone: %v", f)
	}
}

func TestACheckpointShowsThatAChainWasSignedAnew(t *testing.T) {
	good, mark := chainOf(t, keyA, 40)
	forged, _ := chainOf(t, keyB, 40)
	if len(forged) != len(good) {
		t.Fatal("they differ in length")
	}
	if f := fault(t, rewritten(t, forged)); f != nil {
		t.Errorf("without a checkpoint: %v", f)
	}
	if f := fault(t, rewritten(t, forged), mark); f == nil || f.Rule != receipt.RuleCheckpoint || f.Seq != mark.Seq {
		t.Errorf("got %v", f)
	}
}

func TestAChainContinuedWithAnotherKeyIsFound(t *testing.T) {
	good, _ := chainOf(t, keyA, 10)
	forged, _ := chainOf(t, keyB, 40)
	if f := fault(t, rewritten(t, append(slices.Clone(good), forged[len(good):]...))); f == nil || f.Seq < uint64(len(good)) {
		t.Errorf("got %v", f)
	}
}

func TestTheChainOfAnotherReplicaIsNotAccepted(t *testing.T) {
	good, _ := chainOf(t, keyA, 10)
	s := store.NewMemory()
	for i, e := range good {
		if err := s.Append(t.Context(), "receipts/n2", uint64(i), e); err != nil {
			t.Fatal(err)
		}
	}
	if f := fault(t, s); f == nil || f.Rule != receipt.RuleKey || f.Seq != 1 {
		t.Errorf("got %v", f)
	}
}

func TestChangedCheckpointsAreRefused(t *testing.T) {
	_, mark := chainOf(t, keyA, 1)
	line := string(mark.Line())
	if all, err := receipt.ReadCheckpoints(strings.NewReader(line + "\n\n" + line)); err != nil || len(all) != 2 || all[0] != mark {
		t.Errorf("%v, %v", all, err)
	}
	for _, bad := range []string{
		strings.Replace(line, `"seq":`, `"seq":1`, 1),
		strings.Replace(line, `"node":"n1"`, `"node":"n2"`, 1),
		strings.Replace(line, `"v":1`, `"v":1,"w":1`, 1),
		"checkpoint",
	} {
		if _, err := receipt.ReadCheckpoints(strings.NewReader(line + "\n" + bad)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestAnAnchorIsAppendedTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "anchor")
	for range 2 {
		a, err := receipt.OpenAnchor(file)
		if err != nil {
			t.Fatal(err)
		}
		o := options()
		o.Anchor = a
		shut(t, openBook(t, store.NewMemory(), o))
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := receipt.ReadCheckpoints(bytes.NewReader(text)); err != nil || len(all) != 2 {
		t.Errorf("%d, %v", len(all), err)
	}
}

func TestTrimmedEntriesAreNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		var anchor bytes.Buffer
		o := options()
		o.Anchor = &anchor
		b := openBook(t, s, o)
		for range 100 {
			b.Add(&receipt.Receipt{Kind: receipt.Call})
			time.Sleep(time.Hour)
		}
		if gone, err := b.Trim(t.Context(), receipt.Retention{}); gone != 0 || err != nil {
			t.Errorf("without bounds %d are gone, %v", gone, err)
		}
		// The first two receipts and 50 hours.
		if gone, err := b.Trim(t.Context(), receipt.Retention{MaxAge: 50*time.Hour + time.Minute}); gone != 52 || err != nil {
			t.Errorf("%d are gone, %v", gone, err)
		}
		good(t, s)
		if gone, err := b.Trim(t.Context(), receipt.Retention{MaxBytes: 10 * 300}); gone == 0 || err != nil {
			t.Errorf("%d are gone, %v", gone, err)
		}
		time.Sleep(time.Hour)
		if gone, err := b.Trim(t.Context(), receipt.Retention{MaxAge: time.Minute}); gone == 0 || err != nil {
			t.Errorf("%d are gone, %v", gone, err)
		}
		for range 5 {
			b.Add(&receipt.Receipt{Kind: receipt.Call})
		}
		shut(t, b)
		marks, err := receipt.ReadCheckpoints(&anchor)
		if err != nil {
			t.Fatal(err)
		}
		chains, err := receipt.Verify(t.Context(), s, receipt.VerifyOptions{Checkpoints: marks})
		if err != nil || chains[0].Fault != nil || chains[0].Trimmed == "" || chains[0].Older == 0 || chains[0].Checkpoints == 0 {
			t.Errorf("%+v, %v", chains, err)
		}
		if n := chains[0].Checked; n < 5 || n > 20 {
			t.Errorf("%d are left", n)
		}
		// The chain continues, even with another key.
		o.Key, o.Previous = keyB, []switchboard.Secret{keyA}
		shut(t, openBook(t, s, o))
		good(t, s)
		// A beginning that was removed without a receipt is found.
		span, _ := s.Span(t.Context(), "receipts/n1")
		if err := s.Trim(t.Context(), "receipts/n1", span.First+1); err != nil {
			t.Fatal(err)
		}
		if f := fault(t, s); f == nil || f.Rule != receipt.RuleBegin || f.Seq != span.First+1 {
			t.Errorf("got %v", f)
		}
	})
}
