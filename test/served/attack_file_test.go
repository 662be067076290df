package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// Switchboard does not start with a data folder, a key, a token or a secret file that other users can read or write. It names the file and the chmod
// that mends it, and starts after that chmod.
func TestAttack11FilesThatOtherUsersCanReadOrWriteAreRefused(t *testing.T) {
	t.Parallel()
	server := strings.Replace(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one")), "stdio,", `stdio, env: {X_TOKEN: "${file:token}"},`, 1)
	dir := rig.LayOut(t, rig.Fakes(server)+"-- token --\na-secret-token\n")
	g := rig.Serve(t, dir)
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	for _, tt := range []struct {
		file  string
		mode  os.FileMode
		may   string
		mends string
	}{
		{".switchboard", 0o755, "read", "chmod 700 "},
		{".switchboard", 0o777, "write", "chmod 700 "},
		{".switchboard/receipts.key", 0o644, "read", "chmod 600 "},
		{"token", 0o604, "read", "chmod 600 "},
		{"token", 0o666, "write", "chmod 600 "},
	} {
		file := filepath.Join(dir, tt.file)
		was, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		out, errs, code := rig.Command(t, dir, "serve", "--listen", "127.0.0.1:0")
		if said := out + errs; code == 0 || !strings.Contains(said, "other users may "+tt.may+" it") || !strings.Contains(said, tt.mends) ||
			!strings.Contains(said, tt.file) || strings.Contains(said, "a-secret-token") {
			t.Errorf("%s with mode %#o: exit %d, %s", tt.file, tt.mode, code, said)
		}
		if err := os.Chmod(file, was.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	rig.ListNames(t, rig.Serve(t, dir).Open(t, "/mcp", true))
}
