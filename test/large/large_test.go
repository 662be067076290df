package large_test

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/large"
)

var small = large.Installation{Servers: 7, Tools: 3, Tenants: 5, Receipts: 5000, Behind: "http://127.0.0.1:1", Admin: "127.0.0.1:2"}

func TestTheConfigurationIsAcceptedWithoutAWarning(t *testing.T) {
	dir := t.TempDir()
	keys, err := small.WriteConfiguration(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Servers) != 7 || len(c.Tenants) != 5 || len(c.Faulty) > 0 || len(c.Warnings) > 0 || len(keys.Agents) != 5 || len(keys.Viewers) != 5 {
		t.Errorf("it has %d servers, %d tenants, the faults %v and the warnings %v", len(c.Servers), len(c.Tenants), c.Faulty, c.Warnings)
	}
	var tools []struct{ Name string }
	if err := json.Unmarshal(small.Definitions(6), &tools); err != nil || len(tools) != 3 || tools[1].Name != large.ToolName(6, 1) {
		t.Errorf("the tools of a server are %v (%v)", tools, err)
	}
}

func TestTheStoreHasReceiptsThatVerifyAndAFullHistory(t *testing.T) {
	dir := t.TempDir()
	if err := small.WriteStore(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	st, err := store.OpenFile(filepath.Join(large.Data(dir), "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	kinds := map[receipt.Kind]int{}
	rare := 0
	for e, err := range receipt.List(t.Context(), st, receipt.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Receipt.Kind]++
		if e.Receipt.Principal.ID == large.RarePrincipal && e.Receipt.Code == large.RareCode && e.Receipt.Kind == receipt.Call {
			rare++
		}
	}
	if n := kinds[receipt.Call]; n < 4000 || kinds[receipt.Intent] < n/30 || kinds[receipt.Decision] < n/200 || rare != 1 {
		t.Errorf("there are receipts of the kinds %v, and %d of the rare principal", kinds, rare)
	}
	chains, err := receipt.Verify(t.Context(), st, receipt.VerifyOptions{})
	if err != nil || len(chains) != 1 || chains[0].Fault != nil {
		t.Errorf("the chains do not verify: %+v (%v)", chains, err)
	}
	h := history.New(history.Options{Store: st, Log: slog.New(slog.DiscardHandler)})
	for _, name := range history.Names() {
		got, err := h.Read(t.Context(), history.Range{Step: name, Tenant: switchboard.TenantID(large.TenantID(4))})
		if err != nil || len(got.Series) != 1 || len(got.Series[0].Points) < 300 {
			t.Errorf("the history in steps of %s has %d series (%v)", name, len(got.Series), err)
		}
	}
}
