package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// webToken finds a JSON Web Token. Three of its characters alone are in other texts by chance.
var webToken = regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]{8,}\.`)

func TestHostedKeyAConnectionSurvivesTheReplacementOfTheVaultsKey(t *testing.T) {
	t.Parallel()
	h := rig.ServeHosted(t, provider.Options{Register: true})
	dir := rig.LayOut(t, "")
	write := func(keys string) {
		t.Helper()
		text := fmt.Sprintf("vault: {key: [%s]}\nservers:\n  tracker: {transport: http, url: %q, credential: {operator: {}}}\n", keys, h.Resource)
		if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"old", "new", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name+".key"), []byte(strings.Repeat(name, 16)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop := func(g *rig.Gateway) {
		t.Helper()
		g.Signal(t, syscall.SIGTERM)
		g.AwaitEnd(t)
	}
	state := func(want ...string) func() string {
		return func() string {
			s := stateOf(t, dir)
			for _, w := range want {
				if !strings.Contains(s, w) {
					return s
				}
			}
			return ""
		}
	}
	write(`"${file:old.key}"`)
	g := rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "the server needs a connection", state("needs_connection"))
	connectCatalog(t, dir)
	rig.Eventually(t, "the server is healthy", state("healthy"))
	write(`"${file:new.key}", "${file:old.key}"`)
	rig.Eventually(t, "a reload that changes the key is refused", func() string {
		return rig.ReasonUnless(strings.Contains(g.Logged(), "the key of the vault was changed, which is read once: restart Switchboard"), "not yet")
	})
	stop(g)
	out, errs, code := rig.Command(t, dir, "store", "export", "-")
	if code != 0 || webToken.MatchString(out) || strings.Contains(out, "refresh_token") {
		t.Errorf("the export has a token, or failed with %d: %s", code, errs)
	}
	for token := range tokensSeen(h) {
		if strings.Contains(out, strings.TrimPrefix(token, "Bearer ")) {
			t.Error("the export has a token")
		}
	}

	g = rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "the log says that the old key can go", func() string {
		return rig.ReasonUnless(strings.Contains(g.Logged(), "the second one can be removed") && strings.Contains(g.Logged(), "sealed=1"), "not yet")
	})
	rig.Eventually(t, "the server is healthy", state("healthy"))
	stop(g)

	write(`"${file:new.key}"`)
	g = rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "the server is healthy with the new key alone", state("healthy"))
	if got := askWho(t, g.Open(t, "/mcp", true)); got != "ops" {
		t.Errorf("whoami answers %q", got)
	}
	stop(g)

	write(`"${file:other.key}"`)
	rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "another key opens nothing", state("needs_connection", "cannot be read with the key of the vault"))
}
