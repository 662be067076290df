package served_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// The list of keys is the same whether or not a Switchboard runs: the files name the keys, and the store says which are revoked.
func TestTheListOfKeysIsTheSameWithoutASwitchboard(t *testing.T) {
	t.Parallel()
	dir, _ := layOutOfficers(t)
	g := rig.Serve(t, dir)
	g.Do(0, "is revoked", "key", "revoke", "alice", "--reason", "lost")
	running := g.Do(0, `"reason":"lost"`, "key", "list", "--json")
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	out, errs, code := rig.Command(t, dir, "key", "list", "--json")
	if code != 0 || out != running || !strings.Contains(errs, "no Switchboard serves") {
		t.Errorf("exit %d\n%s\n%s\nwhere the running one says\n%s", code, out, errs, running)
	}
}
