package app

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestWhatWasDecidedLastIsRecordedBeforeTheReceiptsAreClosed(t *testing.T) {
	dir := t.TempDir()
	st, err := store.OpenFile(filepath.Join(dir, "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close() //nolint:errcheck // nothing is written any more
	var made *state
	rapid.Custom(func(t *rapid.T) bool {
		r, err := read(drawConfig(t), policy.NewEngine(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		made = newState(r, "acme", drawOffers(t), nil)
		return true
	}).Example(1)
	d, err := made.decide(t.Context(), switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}, "a", nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	const n = 60
	for i := range n {
		l, err := openLedger(t.Context(), Options{Data: dir, Log: slog.New(slog.DiscardHandler)}, &config.Config{}, st)
		if err != nil {
			t.Fatal(err)
		}
		other := *d
		other.Principal.ID = fmt.Sprint("p", i)
		l.decision(made.tenants["acme"], &other, nil)
		if err := l.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all, damaged, err := entries(t.Context(), st, receipt.List(t.Context(), st, receipt.Query{}), false)
	if err != nil || damaged > 0 || len(all) != n {
		t.Errorf("%d of %d decisions are recorded, %d damaged, %v", len(all), n, damaged, err)
	}
}
