package app

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyWhatALoadLookedAtCausesTheNext(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"tenants", "tenants/new", "policies", "logs"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var a App
	a.seen.Store(&map[string]bool{
		filepath.Join(dir, "switchboard.yaml"): true,
		filepath.Join(dir, "taxonomy.yaml"):    true, // it is not there yet
		filepath.Join(dir, "tenants"):          true,
		filepath.Join(dir, "secrets/key"):      true,
		filepath.Join(dir, "policies"):         true,
	})
	for name, want := range map[string]bool{
		"switchboard.yaml":     true,
		"taxonomy.yaml":        true,
		"secrets/key":          true,
		"tenants/new":          true, // a folder
		"tenants/x.yaml":       true,
		"policies/new.rego":    true,
		"policies/new.txt":     false,
		"..data":               true, // a mounted volume is swapped by it
		"switchboard.log":      false,
		"switchboard.yaml.swp": false,
		"tenants/x.yaml~":      false,
		"logs/other.yaml":      false,
	} {
		if got := a.concerns(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
