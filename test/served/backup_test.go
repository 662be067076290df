package served_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestARestoredBackupServesWithItsSecretAndSaysSoWithout(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", `{"name":"work","inputSchema":{"type":"object"}}`)))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	rig.ListNames(t, s)
	if m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{}}`); m.Error != nil {
		t.Fatalf("got %s", m.Raw)
	}
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	backup := filepath.Join(t.TempDir(), "backup")
	if _, errs, code := rig.Command(t, dir, "store", "export", backup); code != 0 {
		t.Fatal(errs)
	}
	data := filepath.Join(dir, ".switchboard")
	old := filepath.Join(dir, "old")
	wait.Read(t, "the old folder", os.Rename(data, old))
	if _, errs, code := rig.Command(t, dir, "store", "import", backup); code != 0 || !strings.Contains(errs, "copy receipts.key and vault.key") {
		t.Fatalf("the import says %q, code %d", errs, code)
	}
	if _, errs, code := rig.Command(t, dir, "serve"); code == 0 || !strings.Contains(errs, filepath.Join(".switchboard", "receipts.key")+"; copy it from") {
		t.Fatalf("without the secret, serve ends with code %d and says %q", code, errs)
	}
	secret, err := os.ReadFile(filepath.Join(old, "receipts.key"))
	wait.Read(t, "the secret", err)
	rig.WriteFile(t, filepath.Join(data, "receipts.key"), string(secret))
	rig.ListNames(t, rig.Serve(t, dir).Open(t, "/mcp", true))
	if out, errs, code := rig.Command(t, dir, "receipts", "verify"); code != 0 || strings.Contains(out, "n2") {
		t.Errorf("the chain is not continued: %s%s", out, errs)
	}
}
