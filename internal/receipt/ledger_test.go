package receipt_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A kindStore is a store that says that it is of another kind.
type kindStore struct {
	store.Store
	kind string
}

func (s kindStore) Status() store.Status { return store.Status{Kind: s.kind} }

func openLedger(t *testing.T, st store.Store, folder string) *receipt.Ledger {
	t.Helper()
	l, err := receipt.OpenLedger(t.Context(), receipt.LedgerOptions{
		Store: st, Folder: folder, Secret: switchboard.NewSecret("what the replicas share"), Lease: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// chains returns the chains of the receipts in the store.
func chains(t *testing.T, st store.Store) map[string]int {
	t.Helper()
	found := map[string]int{}
	for e, err := range receipt.List(t.Context(), st, receipt.Query{}) {
		if err != nil || e.Fault != nil {
			t.Fatal(err, e.Fault)
		}
		found[e.Node]++
	}
	return found
}

func TestALedgerInMemoryHasNoReceipts(t *testing.T) {
	l := openLedger(t, store.NewMemory(), "")
	next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{JSON: []byte("{}")}, nil
	})
	if l.Durable() || l.Status() != nil {
		t.Errorf("durable: %v, status: %+v", l.Durable(), l.Status())
	}
	if r, err := l.RecordCalls(next).Call(t.Context(), &switchboard.Call{}); err != nil || string(r.JSON) != "{}" {
		t.Errorf("a call gets %s, %v", r.JSON, err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAFileWithReceiptsIsNotServedWithoutTheirSecret(t *testing.T) {
	st, folder := kindStore{store.NewMemory(), "file"}, t.TempDir()
	if err := openLedger(t, st, folder).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(t.TempDir(), "data") // a backup has no secrets
	if err := os.Mkdir(restored, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(restored, receipt.LedgerKeyFile)
	for range 2 { // the first try must not make a secret
		_, err := receipt.OpenLedger(t.Context(), receipt.LedgerOptions{Store: st, Folder: restored, Lease: time.Second, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "switchboard receipts rotate") {
			t.Fatalf("without the secret: %v", err)
		}
	}
	// A secret from elsewhere does not let it begin beside the chain.
	if _, err := receipt.ReadOrCreateKeys(file); err != nil {
		t.Fatal(err)
	}
	if _, err := receipt.OpenLedger(t.Context(), receipt.LedgerOptions{Store: st, Folder: restored, Lease: time.Second, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "neither the key nor") {
		t.Fatalf("with another secret: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	// A person has replaced the lost secret.
	if err := receipt.RotateKey(file); err != nil {
		t.Fatal(err)
	}
	l := openLedger(t, st, restored)
	if node := l.Node(); node != "n2" {
		t.Errorf("it continues the chain %s", node)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := chains(t, st); got["n1"] == 0 || got["n2"] == 0 {
		t.Errorf("the chains are %v", got)
	}
}

func TestTwoLedgersOfOneStoreWriteTwoChainsAndShareTheirKeys(t *testing.T) {
	for _, kind := range []string{"file", "redis"} {
		st, folder := kindStore{store.NewMemory(), kind}, t.TempDir()
		one, other := openLedger(t, st, folder), openLedger(t, st, folder)
		if !one.Key("sessions").Equal(other.Key("sessions")) || one.Key("sessions").Equal(one.Key("offers")) {
			t.Errorf("%s: keys of one purpose differ, or keys of two purposes are equal", kind)
		}
		for _, l := range []*receipt.Ledger{one, other} {
			if _, err := l.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin, Method: "reload"}); err != nil {
				t.Fatal(err)
			}
		}
		if found := chains(t, st); len(found) != 2 {
			t.Errorf("%s: the chains are %v, want two", kind, found)
		}
		for _, l := range []*receipt.Ledger{one, other} {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		third := openLedger(t, st, folder) // takes a chain that was released
		if _, err := third.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin, Method: "reload"}); err != nil {
			t.Fatal(err)
		}
		if found := chains(t, st); len(found) != 2 {
			t.Errorf("%s: after a restart the chains are %v, want two", kind, found)
		}
		if err := third.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestALedgerWhoseChainWasTakenOverContinuesWithAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := kindStore{store.NewMemory(), "redis"}
		l := openLedger(t, st, "")
		ctx, stop := context.WithCancel(t.Context())
		followed := make(chan struct{})
		go func() { defer close(followed); l.Follow(ctx) }()
		// As if the lease had expired: the next process takes the same chain.
		if _, err := st.Apply(t.Context(), store.Change{Group: receipt.GroupChains, Writes: []store.Write{{Name: "r1", Was: store.Any}}}); err != nil {
			t.Fatal(err)
		}
		other := openLedger(t, st, "")
		if _, err := other.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin, Method: "reload"}); err != nil {
			t.Fatal(err)
		}
		l.Add(&receipt.Receipt{Kind: receipt.Admin, Method: "reload"})
		time.Sleep(5 * time.Second)
		if _, err := l.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin, Method: "reload"}); err != nil {
			t.Errorf("after the chain was lost: %v", err)
		}
		if found := chains(t, st); len(found) != 2 {
			t.Errorf("the chains are %v, want two", found)
		}
		stop()
		<-followed
		for _, l := range []*receipt.Ledger{l, other} {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}
