package served_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

func TestASecretThatACommandPrintsIsUsedAtOnceWhenItChanges(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	last := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		last = r.Header.Get("X-Tracker-Token")
		mu.Unlock()
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	dir := rig.LayOut(t, "")
	file := filepath.Join(dir, "printed")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sent := func(want string) func() string {
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			return rig.ReasonUnless(last == want, "the server got "+last)
		}
	}
	write(file, "canary-one\n")
	write(filepath.Join(dir, "switchboard.yaml"), fmt.Sprintf(`secrets: {tracker: {command: [cat, %q], every: 10s}}
servers:
  tracker: {transport: http, url: %q, headers: {X-Tracker-Token: "${secret:tracker}"}}
`, file, server.URL+"/mcp"))
	g := rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "the server gets the first secret", sent("canary-one"))
	write(file, "canary-two\n")
	rig.Eventually(t, "the server gets the second secret", sent("canary-two"))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the log says that the secret cannot be read", func() string {
		return rig.ReasonUnless(strings.Contains(g.Logged(), "a secret cannot be read again"), "no warning yet")
	})
	if err := errorsOf(os.WriteFile(file, []byte("canary-three\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(g.Logged(), "canary-") {
		t.Errorf("the log shows the secret:\n%s", g.Logged())
	}
}
