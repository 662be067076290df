package app

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
)

// What a file says is checked when it is read. The rest is compiled while the store is opened.
func TestAConfigurationThatCannotBeCompiledLeavesNothingBehind(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	writeConfig(t, dir)
	data := filepath.Join(dir, ".switchboard")
	load := func(spoil bool) func(context.Context, config.Options) (*config.Config, error) {
		return func(ctx context.Context, o config.Options) (*config.Config, error) {
			c, err := config.Load(ctx, filepath.Join(dir, "switchboard.yaml"), o)
			if err == nil && spoil {
				c.Tenants["default"].Policy = []byte("{")
			}
			return c, err
		}
	}
	o := Options{Log: slog.New(slog.DiscardHandler), Serves: true, Listen: address, Data: data, Officers: OfficerOptions{Listen: true}}
	o.Load = load(true)
	if a, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), "tenant default: policy") {
		if err == nil {
			a.Stop()
		}
		t.Fatalf("New: %v, want the fault of the tenant's policy", err)
	}
	o.Load = load(false)
	a, err := New(t.Context(), o) // the address and the store are free again
	if err != nil {
		t.Fatal(err)
	}
	a.Stop()
}

// freeAddress returns an address of this machine where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was accepted
	return l.Addr().String()
}
