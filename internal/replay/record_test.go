package replay

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestClosingTheRecorderWaitsUntilTheLastDecisionIsRecorded(t *testing.T) {
	var made *bind.State
	rapid.Custom(func(t *rapid.T) bool {
		made = newState(t, drawConfig(t), drawOffers(t))
		return true
	}).Example(1)
	d, err := made.DecideConfigured(t.Context(), switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}, "a", decide.Observed{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		in := newMemoryRecords(t)
		slow := make(chan struct{})
		in.recorder.addReceipt = func(r *receipt.Receipt) string { <-slow; return in.chain.Add(r) }
		in.recorder.Decision(made.Tenants["acme"], d, nil)
		closed := make(chan struct{})
		go func() { in.recorder.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			close(slow)
			t.Fatal("the recorder was closed before the decision was recorded")
		default:
		}
		close(slow)
		<-closed
		all := in.readAll(t)
		if len(all) != 1 {
			t.Fatalf("%d decisions are recorded", len(all))
		}
		of := &receipt.Receipt{Time: all[0].when, Decision: all[0].digest, Basis: all[0].basis}
		if again, err := NewDecisionOpener(in).Open(t.Context(), of); err != nil || again.Decision.Digest() != d.Digest() {
			t.Errorf("made again it is %+v, %v", again, err)
		}
		of.Basis = of.Decision // that is no basis
		if _, err := NewDecisionOpener(in).Open(t.Context(), of); err == nil {
			t.Error("a decision without its basis was made again")
		}
		of.Basis = switchboard.Digest("sha256:none")
		if _, err := NewDecisionOpener(in).Open(t.Context(), of); err == nil || err.Error() != whyGone {
			t.Errorf("of a basis that is gone: %v", err)
		}
	})
}
