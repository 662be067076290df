package admin

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An entry that cannot be read may be of any tenant: only who sees all tenants gets its bytes.
func TestAnExportForOneTenantHasNoBytesOfAnUnreadableEntry(t *testing.T) {
	s := store.NewMemory()
	if err := s.Append(t.Context(), "receipts/n1", 0, []byte(`{"tenant":"umbrella"}`)); err != nil {
		t.Fatal(err)
	}
	auditor := NewReceiptAuditor(NewReader(ReaderOptions{Store: s}))
	export := func(tenant switchboard.TenantID) (text string) {
		for line, err := range auditor.Export(t.Context(), receipt.Query{Tenant: tenant}) {
			if err != nil {
				t.Fatal(err)
			}
			text += string(line)
		}
		return text
	}
	if text := export(""); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"id":"n1/1"`) || !strings.Contains(text, "umbrella") {
		t.Errorf("for all tenants: %s", text)
	}
	if text := export("acme"); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"id":"n1/1"`) || strings.Contains(text, "umbrella") {
		t.Errorf("for acme: %s", text)
	}
}

// Slow readers of one tenant's receipts keep nobody of another tenant out, and those of all tenants do not keep an operator from all receipts.
func TestOneExportMoreThanMayBeIsRefused(t *testing.T) {
	s := store.NewMemory()
	if err := s.Append(t.Context(), "receipts/n1", 0, []byte(`x`)); err != nil {
		t.Fatal(err)
	}
	auditor := NewReceiptAuditor(NewReader(ReaderOptions{Store: s}))
	begin := func(tenant switchboard.TenantID) (stop func()) {
		t.Helper()
		next, stop := iter.Pull2(auditor.Export(t.Context(), receipt.Query{Tenant: tenant}))
		t.Cleanup(stop)
		if _, err, _ := next(); err != nil {
			t.Fatalf("an export of %q: %v", tenant, err)
		}
		return stop
	}
	refused := func(tenant switchboard.TenantID) {
		t.Helper()
		for _, err := range auditor.Export(t.Context(), receipt.Query{Tenant: tenant}) {
			if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != switchboard.CodeOverloaded {
				t.Errorf("one more export of %q: %v", tenant, err)
			}
			return
		}
		t.Errorf("one more export of %q is empty", tenant)
	}
	var stops []func()
	for i := range maxExports / maxTenantExports {
		tenant := switchboard.TenantID(fmt.Sprint("t", i))
		for range maxTenantExports {
			stops = append(stops, begin(tenant))
		}
		refused(tenant)
	}
	refused("acme")
	for range maxTenantExports {
		begin("")
	}
	refused("")
	stops[0]()
	begin("acme")
	refused("t0")
	stops[1]()
	begin("t0")
	if n := auditor.exporting.all; n != maxExports {
		t.Errorf("%d exports of tenants are counted", n)
	}
}

// What a request says about a verification is refused if it cannot be meant.
func TestAVerificationRefusesWhatIsNoChainNoCheckpointAndNoPlace(t *testing.T) {
	auditor := NewReceiptAuditor(NewReader(ReaderOptions{Store: store.NewMemory()}))
	for _, tt := range []struct {
		o           receipt.VerifyOptions
		after, want string
	}{
		{receipt.VerifyOptions{Nodes: []string{"../x"}}, "", "node"},
		{receipt.VerifyOptions{Checkpoints: []receipt.Checkpoint{{Node: "n1"}}}, "", "checkpoint 1"},
		{receipt.VerifyOptions{}, "n1/5", "after is not the next"},
	} {
		_, err := auditor.VerifyPart(t.Context(), tt.o, tt.after)
		if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != switchboard.CodeBadArguments || !strings.Contains(e.Text, tt.want) {
			t.Errorf("%+v after %q: %v", tt.o, tt.after, err)
		}
	}
	if part, err := auditor.VerifyPart(t.Context(), receipt.VerifyOptions{}, ""); err != nil || fmt.Sprint(*part) != "{[] 0 0 }" {
		t.Errorf("no receipts: %+v, %v", part, err)
	}
}
