package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/serving"
)

// A configuration with port 0 names no address. Commands find the process by the row that it has written into its data folder.
func TestACommandFindsAFreePortByTheRowOfItsProcess(t *testing.T) {
	t.Setenv(keyVariable, "swo_x")
	config := filepath.Join(t.TempDir(), "switchboard.yaml")
	if err := os.WriteFile(config, []byte(`admin: {listen: "127.0.0.1:0"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := locationFlags{Config: config}
	_, err := flags.asTarget().askAdmin(t.Context(), http.MethodPost, "/v1/page-codes", nil)
	if _, ok := errors.AsType[unreachableError](err); !ok || !strings.Contains(err.Error(), "is it running?") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("without a process: %v", err)
	}
	files := commonFlags{Config: config}
	row := serving.Neighbor{Address: "127.0.0.1:1", Token: serving.NewToken(), Configuration: files.configPath(), Tenant: "example", Identity: "i", URL: "http://127.0.0.1:2", Admin: "http://127.0.0.1:3"}
	claim, err := serving.Add(t.Context(), files.dataDir(), row)
	if err != nil {
		t.Fatal(err)
	}
	at := flags.asTarget()
	if base, err := at.baseURL(); err != nil || base != row.URL || at.row == nil || at.row.Admin != row.Admin {
		t.Errorf("with its row: %q, %+v, %v", base, at.row, err)
	}
	if err := claim.Remove(); err != nil {
		t.Fatal(err)
	}
}
