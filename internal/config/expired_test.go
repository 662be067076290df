package config_test

import (
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/config"
)

func TestAnExpiredKeyGivesOneWarning(t *testing.T) {
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":         {Data: []byte("servers: {a: {transport: stdio, command: [a]}}\noperators:\n  - {key: ops, hash: 'sha256:0000000000000000000000000000000000000000000000000000000000000001', expires: 2020-01-01}\ntenants: {acme: {servers: [a]}}\n")},
		"tenants/acme/tenant.yaml": {Data: []byte("keys:\n  - {id: ci, hash: 'sha256:0000000000000000000000000000000000000000000000000000000000000002', expires: 2020-01-01}\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const expired = "the key has expired: it opens nothing; remove its row, or replace it (switchboard key rotate)"
	places := map[string]int{}
	for _, w := range c.Warnings {
		places[w.String()]++
	}
	for _, want := range []string{"switchboard.yaml:3:106: operators: expires: " + expired, "tenants/acme/tenant.yaml:2:104: keys: expires: " + expired} {
		if places[want] != 1 {
			t.Errorf("want once %q, got %q", want, c.Warnings)
		}
	}
	if len(c.Warnings) != 2 {
		t.Errorf("%q", c.Warnings)
	}
}
