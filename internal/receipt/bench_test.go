package receipt_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/system"
)

// discard is a store that drops all entries.
type discard struct{ receipt.Store }

func (discard) Append(context.Context, string, uint64, ...[]byte) error { return nil }

// BenchmarkCalls measures the cost of a receipt for a call with arguments and a result of 1 KiB,
// including its share of chaining, signing and writing.
func BenchmarkCalls(b *testing.B) {
	text := strings.Repeat("0123456789abcdef", 64)
	file, err := store.OpenFile(filepath.Join(b.TempDir(), "store.db"), store.FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for name, s := range map[string]receipt.Store{
		"nowhere": discard{store.NewMemory()}, "memory": store.NewMemory(), "file": file,
	} {
		for kind, says := range map[string]switchboard.Contract{"reads": reads, "effect": {}} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				o := options()
				o.Node = name + "-" + kind + "-" + time.Now().Format("150405.000000000")
				chain, err := receipt.Open(b.Context(), s, o)
				if err != nil {
					b.Fatal(err)
				}
				call := callOf(says)
				call.Params = []byte(`{"name":"find","arguments":{"q":"` + text + `"}}`)
				caller := recorded(chain, answers(`{"content":[{"type":"text","text":"`+text+`"}]}`))
				b.ReportAllocs()
				if kind == "effect" {
					b.SetParallelism(64)
				}
				began := system.ProcessorTime()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for n := 1; pb.Next(); n++ {
						own := *call
						own.Trail = &switchboard.Trail{}
						own.Trail.Decided(receipt.EmptyDigest, receipt.EmptyDigest)
						if _, err := caller.Call(context.Background(), &own); err != nil {
							b.Error(err)
						}
						if n%1024 == 0 { // so that the queue does not overflow
							if _, err := chain.Write(context.Background(), &receipt.Receipt{Kind: receipt.Admin}); err != nil {
								b.Error(err)
							}
						}
					}
				})
				if err := chain.Close(context.Background()); err != nil {
					b.Error(err)
				}
				b.StopTimer()
				b.ReportMetric(float64(system.ProcessorTime()-began)/float64(b.N)/1e3, "cpu-µs/op")
				st := chain.Status()
				if st.Lost > 0 {
					b.Errorf("%d receipts are lost", st.Lost)
				}
				b.ReportMetric(float64(st.Seq)/b.Elapsed().Seconds(), "receipts/s")
			})
		}
	}
}
