package app

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestClosingTheLedgerWaitsUntilTheLastDecisionIsRecorded(t *testing.T) {
	var made *servingState
	rapid.Custom(func(t *rapid.T) bool {
		r, err := compilePolicies(drawConfig(t), policy.NewEngine(0, 0), newCompiledLayers(nil))
		if err != nil {
			t.Fatal(err)
		}
		made = newServingState(r, "acme", drawOffers(t), nil, nil)
		return true
	}).Example(1)
	d, err := made.decideConfigured(t.Context(), switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}, "a", nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		in := newMemoryRecords(t)
		slow := make(chan struct{})
		l := &ledger{openChain: func(context.Context) (*ownedChain, error) { panic("it is open") }, log: slog.New(slog.DiscardHandler)}
		l.archive, l.latest = in.recorder.archive, in.recorder.latest
		l.addReceipt = func(r *receipt.Receipt) string { <-slow; return in.book.Add(r) }
		l.chain.Store(&ownedChain{Book: in.book, lease: chainLease{release: func() {}}})
		l.recordDecision(made.tenants["acme"], d, nil)
		closed := make(chan error, 1)
		go func() { closed <- l.close(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			close(slow)
			t.Fatalf("the ledger was closed before the decision was recorded: %v", err)
		default:
		}
		close(slow)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if all := in.readAll(t); len(all) != 1 {
			t.Errorf("%d decisions are recorded", len(all))
		}
	})
}
