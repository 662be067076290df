package config_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAReloadLogsEverythingThatItChanged(t *testing.T) {
	file := func(name, text string) switchboard.PolicyFile {
		return switchboard.PolicyFile{Name: name, Path: name, Data: []byte(text)}
	}
	of := func(tenant switchboard.TenantID, files ...switchboard.PolicyFile) map[switchboard.TenantID][]switchboard.PolicyFile {
		return map[switchboard.TenantID][]switchboard.PolicyFile{tenant: files}
	}
	for name, tt := range map[string]struct {
		was, now config.Config
		want     string
	}{
		"a server, and the grace": {config.Config{}, config.Config{Servers: []switchboard.Server{{ID: "a"}}, Grace: time.Second}, "servers +a; other settings"},
		"a manifest, and the taxonomy": {
			config.Config{Manifests: map[switchboard.ServerID]config.Manifest{"a": {}}},
			config.Config{Taxonomy: &switchboard.Taxonomy{}},
			"manifests -a; taxonomy",
		},
		"a file of the operator's, and one of a tenant that is called operator": {
			config.Config{Policies: []switchboard.PolicyFile{file("policies/x.rego", "1")}, TenantPolicies: of("operator", file("tenants/operator/policies/x.rego", "1"))},
			config.Config{Policies: []switchboard.PolicyFile{file("policies/x.rego", "2")}, TenantPolicies: of("operator", file("tenants/operator/policies/x.rego", "2"))},
			"policies ~policies/x.rego, ~tenants/operator/policies/x.rego",
		},
		"an empty folder of policies": {config.Config{}, config.Config{Policies: []switchboard.PolicyFile{}}, "the shipped policies do not count"},
		"no folder of policies":       {config.Config{Policies: []switchboard.PolicyFile{}}, config.Config{}, "the shipped policies count"},
		"registries": {
			config.Config{ServerRegistries: []switchboard.ServerRegistry{{ID: "a", File: "a"}, {ID: "b", File: "b"}}},
			config.Config{ServerRegistries: []switchboard.ServerRegistry{{ID: "a", File: "c"}, {ID: "c", File: "b"}}},
			"registries ~a, -b, +c",
		},
		"hosts":                 {config.Config{}, config.Config{Hosts: []string{"x"}}, "other settings"},
		"no hosts, written out": {config.Config{}, config.Config{Hosts: []string{}, Keys: []config.Key{{Tenant: "acme", ID: "k"}}}, "keys +acme/k"},
		"what nobody has named": {config.Config{}, config.Config{Implied: true}, "other settings"},
	} {
		if got := config.Changes(&tt.was, &tt.now); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestSettingsThatAreReadAtTheStartAreNamed(t *testing.T) {
	was := &config.Config{Listen: "127.0.0.1:7420"}
	for want, change := range map[string]func(c *config.Config){
		"[]":                      func(*config.Config) {},
		"[listen]":                func(c *config.Config) { c.Listen = "127.0.0.1:7000" },
		"[admin.listen receipts]": func(c *config.Config) { c.Admin.Listen, c.Receipts.Anchor = "127.0.0.1:7001", "anchor.jsonl" },
	} {
		now := *was
		change(&now)
		if got := fmt.Sprint(config.ChangedStartSettings(was, &now)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
