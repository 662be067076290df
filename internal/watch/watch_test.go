package watch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyFilesThatALoadReadCauseAReload(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"tenants", "tenants/new", "policies", "logs", "tenants/.data"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := NewFiles(slog.New(slog.DiscardHandler))
	seen := map[string]fileStamp{}
	for _, name := range []string{
		"switchboard.yaml",
		"taxonomy.yaml", // it is not there yet
		"tenants", "secrets/key", "policies",
		"gone/tenant/key", // its folder is not there yet
	} {
		seen[filepath.Join(dir, name)] = fileStamp{}
	}
	f.read.Store(&seen)
	for name, want := range map[string]bool{
		"switchboard.yaml":     true,
		"taxonomy.yaml":        true,
		"secrets/key":          true,
		"secrets":              true,
		"gone/tenant":          true,
		"gone":                 true,
		"go":                   false,
		"gone/other":           false,
		"tenants/new":          true, // a folder
		"tenants/x.yaml":       true,
		"policies/new.rego":    true,
		"policies/new.txt":     false,
		"..data":               true, // a container replaces it to swap the volume
		"tenants/..data":       true,
		"switchboard.log":      false,
		"tenants/.data":        false, // our own data may be in one
		"switchboard.yaml.swp": false,
		"tenants/x.yaml~":      false,
		"logs/other.yaml":      false,
	} {
		if got := f.concerns(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if !f.concerns(dir) || !f.concerns(filepath.Dir(dir)) {
		t.Error("changes of the folder itself, or of the folder above it, are ignored")
	}
}
