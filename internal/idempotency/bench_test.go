package idempotency_test

import (
	"log/slog"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// BenchmarkCall measures a call with a new key, with 64 clients at the same time.
func BenchmarkCall(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) store.Store{
		"memory": func(*testing.B) store.Store { return store.NewMemory() },
		"file": func(b *testing.B) store.Store {
			s, err := store.OpenFile(filepath.Join(b.TempDir(), "store.db"), store.FileOptions{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			return s
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			defer func() { _ = s.Close() }() // the file is in a temporary folder
			k := idempotency.New(s, func(next switchboard.Caller) switchboard.Caller { return next }, keyed, uncounted, slog.New(slog.DiscardHandler))
			defer k.Close()
			caller := k.Once(idempotency.Sent(new(server)))
			var n atomic.Int64
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := caller.Call(b.Context(), call(strconv.FormatInt(n.Add(1), 10), `{"a":1}`)); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
