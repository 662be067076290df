package bind

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// The answer about a capability without the permission is the answer about one that no file describes, but for the name.
func TestCO08ResolveDoesNotTellAnUnknownCapabilityFromOneWithoutThePermission(t *testing.T) {
	t.Parallel()
	version := func(id, more string) string {
		return "id: " + id + "\nversion: 1.0.0\nstatus: testing\nverb: read\nresource: fs\n" + more
	}
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":         {Data: []byte("servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a], models: [small]}, boss: {servers: [a], permissions: [\"fs:read\"], models: [large]}}\n")},
		"tenants/acme/tenant.yaml": {Data: []byte("tenant: acme\n")},
		"tenants/boss/tenant.yaml": {Data: []byte("tenant: boss\n")},
		"capabilities/a.yaml":      {Data: []byte(version("io.fs.aaaa", "required_permissions: [\"fs:read\"]\n"))},
		"capabilities/b.yaml":      {Data: []byte(version("io.fs.bbbb", "required_models: [large]\n"))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	activate(c)
	s := NewState(inputOf(t, c, 0), nil)
	answer := func(tenant switchboard.TenantID, id, after string) string {
		all, err := s.ResolveCapabilities(t.Context(), ResolveQuery{Tenant: tenant, Capabilities: []string{id + after}}, nil)
		refused, ok := errors.AsType[*switchboard.Error](err)
		if !ok {
			return string(all[0].Verdict)
		}
		return strings.ReplaceAll(string(refused.Code)+" "+refused.Text+" "+refused.Hint, id, "NAME")
	}
	for _, after := range []string{"", "@^1", "@1.0.0", "@^9"} {
		want := answer("acme", "io.fs.none", after)
		if !strings.HasPrefix(want, "SB-CAP-005 ") {
			t.Errorf("%s: unknown: %s", after, want)
		}
		for _, id := range []string{"io.fs.aaaa", "io.fs.bbbb"} {
			if got := answer("acme", id, after); got != want {
				t.Errorf("%s%s: %s\nunknown: %s", id, after, got, want)
			}
			if got := answer("boss", id, after); after != "@^9" && got != string(verdict.Yes) {
				t.Errorf("%s%s for the tenant that has it: %s", id, after, got)
			}
		}
	}
	all, err := s.ResolveCapabilities(t.Context(), ResolveQuery{Tenant: "acme"}, nil)
	if err != nil || len(all) > 0 {
		t.Errorf("the tenant's capabilities are %v (%v)", all, err)
	}
}

// activate makes all versions active, as if they were published.
func activate(c *config.Config) {
	for _, id := range c.Registry.IDs() {
		for _, v := range c.Registry.Versions(id) {
			v.Status = capability.Active
		}
	}
}
