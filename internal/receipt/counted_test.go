package receipt

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// countedOf returns the receipt with the members alone that totals are made of.
func countedOf(r *Receipt) Receipt {
	if r.Kind == Intent {
		return Receipt{Kind: Intent}
	}
	return Receipt{
		V: r.V, Time: r.Time, Kind: r.Kind, Tenant: r.Tenant, Method: r.Method, Server: r.Server, Tool: r.Tool, ServedBy: r.ServedBy, Tries: r.Tries, Capability: r.Capability, Unmet: r.Unmet,
		Outcome: r.Outcome, Code: r.Code, Given: r.Given, Took: r.Took, Price: PriceMark{Settled: r.Price.Settled}, Change: r.Change,
	}
}

func readBoth(t *rapid.T, s ChainReader) (counted, whole []Receipt) {
	if _, err := ReadSome(context.Background(), s, "n", 0, 1000, func(e *ChainEntry) bool {
		whole = append(whole, countedOf(&e.Receipt))
		return e.Fault == nil
	}); err != nil {
		t.Fatal(err)
	}
	last, err := ReadCounted(context.Background(), s, "n", 0, 1000, func(e *ChainEntry) bool {
		if e.Fault != nil {
			t.Fatalf("entry %d: %v", e.Seq, e.Fault)
		}
		counted = append(counted, e.Receipt)
		return true
	})
	if err != nil || last != uint64(len(whole)) {
		t.Fatalf("the last one is %d, %v", last, err)
	}
	return counted, whole
}

func TestACountedReceiptHasWhatTheWholeOneHas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := store.NewMemory()
		c, err := Open(context.Background(), s, ChainOptions{Node: "n", Key: NewKey(), DigestKey: NewKey(), Version: "test", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "files", "näme", "a \"b\" \\ c\n\u2028", "👍"}), rapid.StringN(0, 20, 40))
		number := rapid.Int64Range(0, 1<<52)
		for range rapid.IntRange(1, 20).Draw(t, "receipts") {
			draw := func(name string) string { return text.Draw(t, name) }
			r := &Receipt{
				Kind: rapid.SampledFrom([]Kind{Call, Decision, Ask, Admin, Intent}).Draw(t, "kind"), Tenant: switchboard.TenantID(draw("tenant")), Method: draw("method"), Server: switchboard.ServerID(draw("server")),
				Tool: draw("tool"), ServedBy: draw("served by"), Capability: draw("capability"), Unmet: rapid.SliceOfN(text, 0, 3).Draw(t, "unmet"), Outcome: CallOutcome(draw("outcome")),
				Code: switchboard.Code(draw("code")), Given: switchboard.ResultSource(draw("given")), Took: CallTime{number.Draw(t, "total"), number.Draw(t, "waiting")},
				Price: PriceMark{switchboard.Micros(number.Draw(t, "held")), switchboard.Micros(number.Draw(t, "settled"))}, Change: FileChange{File: draw("file"), Office: switchboard.Office(draw("office"))},
				Principal: Subject{ID: draw("principal")}, Note: draw("note"), Arguments: draw("arguments"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "tries") {
				r.Tries = append(r.Tries, FailedAttempt{Tool: draw("tried"), Code: switchboard.Code(draw("its code")), Of: draw("of"), Sent: rapid.Bool().Draw(t, "sent")})
			}
			c.Add(r)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		counted, whole := readBoth(t, s)
		if len(whole) < 3 || !reflect.DeepEqual(counted, whole) {
			t.Fatalf("counted:\n%+v\nwhole:\n%+v", counted, whole)
		}
	})
}

// Whatever the bytes are, reading them ends, and what is read without a fault is what the whole entry says.
func FuzzReadCounted(f *testing.F) {
	for _, text := range []string{
		`{"kind":"call","time":"2026-11-30T10:00:00.000001Z","took":{"total":7},"tenant":"acme","v":1},"seq":2}`, `{"kind":"call","tenant":"acme","time":"2026-11-30T10:00:00.000001Z","took":{"total":7},"v":1},"seq":2}`,
		`{"kind":"intent","tenant":"acme","time":"2026-11-30T10:00:00.000001Z","v":1},"seq":2}`, `{"v":1e0,"kind":"call","time":"x"}}`, `{"took":[]}}`, `null}`, ``,
		`{"kind":7,"time":"2026-11-30T10:00:00Z","v":1}}`, `{"v":1,"v":1}}`, `{"kind":"call","price":{"settled":null},"time":"2026-11-30T10:00:00Z","v":1},"seq":2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = append([]byte(`{"prev":"`+EmptyDigest+`","receipt":`), text...)
		var r Receipt
		d := countedDecoder{known: map[string]string{}}
		if d.decode(text, &r) != nil {
			return
		}
		whole := decodeEntry("n", store.Entry{Data: text})
		if whole.Fault != nil { // another member of it is wrong
			return
		}
		if want := countedOf(&whole.Receipt); !reflect.DeepEqual(r, want) {
			t.Errorf("counted %+v, whole %+v", r, want)
		}
	})
}

func BenchmarkReadCounted(b *testing.B) {
	s := store.NewMemory()
	c, err := Open(b.Context(), s, ChainOptions{Node: "n", Key: NewKey(), DigestKey: NewKey(), Version: "bench", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	for range 256 {
		c.Add(&Receipt{
			Kind: Call, Time: time.Now(), Tenant: "acme", Task: "work", Run: "00112233445566778899aabbccddeeff", Principal: Subject{ID: "ci", Auth: "key"}, Method: "tools/call", Server: "server-1", Tool: "tool_1",
			Arguments: string(EmptyDigest), Result: string(EmptyDigest), Decision: EmptyDigest, Basis: EmptyDigest, Outcome: OK, Took: CallTime{Total: 100_000}, Price: PriceMark{Held: 1000, Settled: 1000},
		})
	}
	if err := c.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, read := range map[string]func(context.Context, ChainReader, string, uint64, int, func(*ChainEntry) bool) (uint64, error){"whole": ReadSome, "counted": ReadCounted} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := read(b.Context(), s, "n", 0, 256, func(*ChainEntry) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/receipt")
		})
	}
}
