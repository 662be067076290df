//go:build unix

package commit_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchCommitter returns a Committer over a file, and its store and receipts.
func benchCommitter(b *testing.B, p *priced) (*commit.Committer, *counting) {
	b.Helper()
	folder := b.TempDir()
	st, err := store.OpenFile(folder+"/store.db", store.FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	s := &counting{Store: st}
	log := slog.New(slog.DiscardHandler)
	ledger, err := receipt.OpenLedger(b.Context(), receipt.LedgerOptions{Store: s, Folder: folder, Lease: time.Hour, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	k := commit.New(commit.Options{Store: s, Charges: p, Intents: ledger, Approvals: &oneYes{Store: s}, Log: log})
	if err := k.Recover(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx := context.Background()
		_, _, _ = k.Close(ctx), ledger.Close(ctx), st.Close()
	})
	return k, s
}

var done = answers(`{"content":[]}`)

// BenchmarkACallThatNothingConcerns is the wrapper alone.
func BenchmarkACallThatNothingConcerns(b *testing.B) {
	k, s := benchCommitter(b, nil)
	caller := k.Commit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, nil }))
	c, before := aCall(reads, ""), s.operations()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := caller.Call(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.operations()-before)/float64(b.N), "storeops/op")
}

// BenchmarkHoldAndSettle measures the CPU time of a priced read without its intent. Its hold is not durable here, because a sync would be
// most of the time.
func BenchmarkHoldAndSettle(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			st, err := store.OpenFile(b.TempDir()+"/store.db", store.FileOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = st.Close() }()
			s := &lazy{st}
			k := commit.New(commit.Options{Store: s, Charges: paid(3, store.MaxAmount), Intents: noIntents{}, Log: slog.New(slog.DiscardHandler)})
			caller := k.Commit(done)
			run(b, callers, func() error { _, err := caller.Call(b.Context(), aCall(reads, "")); return err })
			if err := k.Close(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
}

// lazy is a store with holds that are not durable.
type lazy struct{ store.Store }

func (s *lazy) Hold(ctx context.Context, group, id string, terms store.HoldTerms, all ...store.Account) ([]store.AccountState, bool, error) {
	terms.Durable = false
	return s.Store.Hold(ctx, group, id, terms, all...)
}

// run calls use b.N times, by that many callers, and reports the CPU time.
func run(b *testing.B, callers int, use func() error) {
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	for range callers {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := use(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// BenchmarkOneDurableCommit compares a priced and approved call with an effect to a durable change of the file, and to an intent alone. They
// take turns, and the medians count: a disk is never the same for long.
func BenchmarkOneDurableCommit(b *testing.B) {
	plain, _ := benchCommitter(b, nil)
	approved, s := benchCommitter(b, paid(3, store.MaxAmount))
	call := func(k *commit.Committer, yes string) func() error {
		caller := k.Commit(done)
		return func() error { _, err := caller.Call(b.Context(), aCall(switchboard.Contract{}, yes)); return err }
	}
	var took [3][]time.Duration
	durable := int64(0)
	for i := range b.N {
		before := s.durable.Load()
		for n, use := range []func() error{
			func() error {
				_, err := s.Store.Apply(b.Context(), store.Change{Group: "g", Durable: true, Writes: []store.Write{{Name: "n", Was: store.Any, Data: make([]byte, 300)}}})
				return err
			},
			call(plain, ""), call(approved, fmt.Sprint("k-", i)),
		} {
			began := time.Now()
			if err := use(); err != nil {
				b.Fatal(err)
			}
			took[n] = append(took[n], time.Since(began))
		}
		durable += s.durable.Load() - before
	}
	median := func(n int) float64 {
		slices.Sort(took[n])
		return float64(took[n][len(took[n])/2].Microseconds())
	}
	b.ReportMetric(median(0), "µs/change")
	b.ReportMetric(median(1), "µs/intent")
	b.ReportMetric(median(2), "µs/approved")
	b.ReportMetric(median(2)/median(0), "approved/change")
	b.ReportMetric(float64(durable)/float64(b.N), "durable/op")
}
