package app

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// The operator's policies are compiled before anything is opened, so their fault is not hidden by another one.
func TestAFaultInTheOperatorsPoliciesOpensNothing(t *testing.T) {
	o, dir := servedOptions(t, func(*config.Config) {})
	writeFile(t, filepath.Join(dir, "policies", "x.rego"), []byte("package switchboard\n\nallow if { input.nosuch[ }\n"))
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was accepted
	o.Configured = func(*config.Config) { t.Error("a refused configuration counts") }
	refuse(t, o, "x.rego")
	if _, err := os.Stat(o.Data); err == nil {
		t.Errorf("%s was made", o.Data)
	}
}

// All faults of files are found before. If the rest cannot be compiled, the store is open already.
func TestAConfigurationThatCannotBeCompiledLeavesNothingOpen(t *testing.T) {
	spoil := true
	o, _ := servedOptions(t, func(c *config.Config) {
		if spoil {
			c.Tenants["default"].Policy = []byte("{")
		}
	})
	refuse(t, o, "tenant default: policy")
	spoil = false
	a, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	if _, err := os.Stat(filepath.Join(o.Data, "receipts-n1.lock")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(o.Data, "receipts-n2.lock")); err == nil {
		t.Error("the ledger before was not closed: it still has the first chain")
	}
}

// servedOptions are the options of a Switchboard that serves a new folder. change changes what was read.
func servedOptions(t *testing.T, change func(*config.Config)) (o Options, dir string) {
	t.Helper()
	dir = t.TempDir()
	writeConfig(t, dir)
	address, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Log: slog.New(slog.DiscardHandler), Serves: true, Listen: address, Data: filepath.Join(dir, ".switchboard"), Officers: OfficerOptions{Listen: true},
		Load: func(ctx context.Context, o config.Options) (*config.Config, error) {
			c, err := config.Load(ctx, filepath.Join(dir, "switchboard.yaml"), o)
			if err == nil {
				change(c)
			}
			return c, err
		},
	}, dir
}

// refuse checks that New fails with a text.
func refuse(t *testing.T, o Options, with string) {
	t.Helper()
	a, err := New(t.Context(), o)
	if err == nil {
		a.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), with) {
		t.Fatalf("New: %v, want %q", err, with)
	}
}
