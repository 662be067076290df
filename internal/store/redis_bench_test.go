package store_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// BenchmarkRedis measures each method for one caller, in a Redis that writes to its disk before it answers,
// and in one that writes each second.
func BenchmarkRedis(b *testing.B) {
	for _, fsync := range []string{"always", "everysec"} {
		b.Run(fsync, func(b *testing.B) {
			s := redistest.Start(b, "--appendfsync", fsync)
			r, err := store.OpenRedis(b.Context(), s.URL(), store.RedisOptions{Relaxed: true})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close() //nolint:errcheck // nothing is lost
			ctx := context.Background()
			data := bytes.Repeat([]byte("x"), 600)
			var last uint64
			for _, u := range []struct {
				name string
				do   func(i int) error
			}{
				{"Apply", func(i int) error {
					_, err := r.Apply(ctx, store.Change{Group: "g", Writes: []store.Write{{Name: fmt.Sprint(i % 100), Was: store.Any, Data: data, TTL: time.Hour}}})
					return err
				}},
				{"Value", func(i int) error {
					_, err := r.Value(ctx, store.Key{Group: "g", Name: fmt.Sprint(i % 100)})
					return err
				}},
				{"Take", func(int) error {
					_, _, err := r.Take(ctx, "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Microsecond, Burst: 1_000_000})
					return err
				}},
				{"Hold", func(i int) error {
					_, _, err := r.Hold(ctx, "g", fmt.Sprint(i), store.HoldTerms{TTL: time.Minute}, store.Account{Name: "a", Max: store.MaxAmount, Amount: 1})
					return err
				}},
				{"Settle", func(i int) error {
					_, err := r.Settle(ctx, "g", store.Settlement{ID: fmt.Sprint(i), Amounts: []int64{1}})
					return err
				}},
				{"Append", func(int) error {
					last++
					return r.Append(ctx, "l", last-1, data)
				}},
				{"Append100", func(int) error {
					last += 100
					return r.Append(ctx, "l", last-100, slices.Repeat([][]byte{data}, 100)...)
				}},
			} {
				b.Run(u.name, func(b *testing.B) {
					var took []time.Duration
					for i := 0; b.Loop(); i++ {
						begun := time.Now()
						if err := u.do(i); err != nil {
							b.Fatal(err)
						}
						took = append(took, time.Since(begun))
					}
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
					b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
				})
			}
		})
	}
}

// BenchmarkRedisTogether measures 64 callers at the same time.
func BenchmarkRedisTogether(b *testing.B) {
	s := redistest.Start(b)
	r, err := store.OpenRedis(b.Context(), s.URL(), store.RedisOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // nothing is lost
	data := bytes.Repeat([]byte("x"), 600)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := r.Apply(context.Background(), store.Change{Group: fmt.Sprint("g", i%100), Writes: []store.Write{{Name: "n", Was: store.Any, Data: data}}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}
