package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// 64 writers of receipts of 700 bytes. "rows" is the baseline: a transaction for each receipt, which waits
// for the disk.
func BenchmarkReceipts(b *testing.B) {
	receipt := bytes.Repeat([]byte("r"), 700)
	b.Run("append/one log of 64 writers", func(b *testing.B) { // in batches, as a chain writes them
		f := benchFile(b)
		batch := make([][]byte, 64)
		for i := range batch {
			batch[i] = receipt
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(receipt)))
		for last := 0; last < b.N; last += len(batch) {
			if err := f.Append(context.Background(), "l", uint64(last), batch...); err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
	b.Run("append/64 logs", func(b *testing.B) { // in batches that the writer makes
		f := benchFile(b)
		var logs atomic.Int32
		b.SetParallelism(32)
		b.ReportAllocs()
		b.SetBytes(int64(len(receipt)))
		b.RunParallel(func(pb *testing.PB) {
			log := fmt.Sprint(logs.Add(1))
			for last := uint64(0); pb.Next(); last++ {
				if err := f.Append(context.Background(), log, last, receipt); err != nil {
					b.Error(err)
				}
			}
		})
		rate(b)
	})
	b.Run("rows", func(b *testing.B) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "rows.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		db.SetMaxOpenConns(1)
		if _, err := db.Exec(`CREATE TABLE entry (id INTEGER PRIMARY KEY, data BLOB)`); err != nil {
			b.Fatal(err)
		}
		b.SetParallelism(32)
		b.ReportAllocs()
		b.SetBytes(int64(len(receipt)))
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := db.Exec(`INSERT INTO entry (data) VALUES (?)`, receipt); err != nil {
					b.Error(err)
				}
			}
		})
		rate(b)
	})
}

var bench atomic.Int64 // makes ids of holds

// BenchmarkUses measures the methods that one call uses, beside the same in memory.
func BenchmarkUses(b *testing.B) {
	for _, s := range []struct {
		name string
		open func() store.Store
	}{
		{"memory", func() store.Store { return store.NewMemory() }},
		{"file", func() store.Store { return benchFile(b) }},
	} {
		st := s.open()
		ctx := context.Background()
		put := store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: store.Any, Data: make([]byte, 300), TTL: time.Hour}}}
		if _, err := st.Apply(ctx, put); err != nil {
			b.Fatal(err)
		}
		for what, use := range map[string]func() error{
			"value": func() error { _, err := st.Value(ctx, store.Key{Group: "g", Name: "n"}); return err },
			"apply": func() error { _, err := st.Apply(ctx, put); return err },
			"take": func() error {
				_, _, err := st.Take(ctx, "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Microsecond, Burst: 1 << 30})
				return err
			},
			"hold and settle": func() error {
				id := fmt.Sprint(bench.Add(1))
				_, _, err := st.Hold(ctx, "g", id, store.HoldTerms{TTL: time.Hour}, account("a", store.MaxAmount, 1), account("b", store.MaxAmount, 1))
				if err == nil {
					_, err = st.Settle(ctx, "g", store.Settlement{ID: id, Amounts: []int64{1, 1}})
				}
				return err
			},
		} {
			for _, parallel := range []int{1, 32} {
				b.Run(fmt.Sprintf("%s/%s/%d at once", what, s.name, 2*parallel), func(b *testing.B) {
					b.SetParallelism(parallel)
					b.ReportAllocs()
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							if err := use(); err != nil {
								b.Error(err)
							}
						}
					})
				})
			}
		}
	}
}

func benchFile(b *testing.B) store.Store {
	f, err := store.OpenFile(filepath.Join(b.TempDir(), "store.db"), store.FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	b.ResetTimer()
	return f
}

func rate(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s") }
