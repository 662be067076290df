package policysource_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// write writes files below a new folder, and returns the folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheFolderOfAConfigurationMeansItsLayers(t *testing.T) {
	dir := write(t, map[string]string{
		"switchboard.yaml":               "",
		"policies/a.rego":                "package switchboard\n",
		"tenants/acme/policies/own.rego": "package switchboard.tenant\n",
		"other/ignored.rego":             "package switchboard\n",
	})
	all, err := policysource.At([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("%d layers, want the operator's and that of acme", len(all))
	}
	for _, s := range all {
		want := policy.Operator
		if s.Tenant == "acme" {
			want = policy.Tenant
		}
		if s.Kind != want || len(s.Files) != 1 {
			t.Errorf("the layer of %q is of kind %q with %d files", s.Tenant, s.Kind, len(s.Files))
		}
	}
}

func TestAFileOutsideOfAConfigurationBelongsToTheLayerOfItsPackage(t *testing.T) {
	own := switchboard.PolicyFile{Name: "x.rego", Path: "x.rego", Data: []byte("package switchboard.tenant\n")}
	for _, tt := range []struct {
		folder  string
		tenant  switchboard.TenantID
		want    switchboard.TenantID
		refused bool
	}{
		{folder: "tenants/acme/policies", want: "acme"},
		{folder: "drafts", tenant: "umbrella", want: "umbrella"},
		{folder: "drafts", refused: true}, // no tenant is named
	} {
		got, err := policysource.LayerOwner(own, tt.folder, tt.tenant)
		if got != tt.want || (err != nil) != tt.refused {
			t.Errorf("in %s with --tenant %q: %q, %v; want %q", tt.folder, tt.tenant, got, err, tt.want)
		}
	}
}

func TestThePoliciesThatAreShippedCompile(t *testing.T) {
	if _, err := policy.Compile(policy.Operator, policysource.Shipped()); err != nil {
		t.Error(err)
	}
}
