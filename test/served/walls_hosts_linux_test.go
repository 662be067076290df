package served_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/system"
)

// A server at sandbox: strict answers a call for which it asks a permitted host, and asks no other one. A permission for an address of Switchboard itself
// gives it nothing either: Switchboard knows the process that carries the connection for one that it has started.
func TestAServerReachesItsPermittedHostsAlone(t *testing.T) {
	t.Parallel()
	if abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 || abi < 6 {
		t.Skipf("skipped: walls (this kernel has version %d of Landlock, and the test needs 6)", int(abi))
	}
	system.NeedNetworks(t)
	var wanted, unwanted atomic.Int64
	web := func(n *atomic.Int64) (at string) {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n.Add(1) }))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	permitted, other := web(&wanted), web(&unwanted)
	_, port, _ := strings.Cut(permitted, ":")
	files := func(hosts ...string) string {
		row := fmt.Sprintf("asks: {sandbox: strict, permissions: {network: [%s]}, ", strings.Join(hosts, ", "))
		return rig.Fakes(row+strings.TrimPrefix(rig.FakeRow("", fmt.Sprintf(rig.Tool, "call")), ": {"), rig.FakeRow("near", fmt.Sprintf(rig.Tool, "beside")))
	}
	dir := rig.LayOut(t, files(permitted, "localhost:"+port))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	fetch := func(url string) string {
		t.Helper()
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"call","arguments":{"do":"fetch","url":%q}}`, url))
		return string(m.Raw)
	}
	for _, url := range []string{"http://" + permitted, "http://localhost:" + port} {
		if got := fetch(url); !strings.Contains(got, "200 OK") {
			t.Errorf("%s: %s", url, got)
		}
	}
	for _, url := range []string{"http://" + other, "http://127.0.0.2:" + port, "http://api.example.com/", g.URL + "/mcp", g.AdminURL()} {
		if got := fetch(url); !strings.Contains(got, "it cannot be reached") {
			t.Errorf("%s: %s", url, got)
		}
	}
	if wanted.Load() != 2 || unwanted.Load() != 0 {
		t.Errorf("%d requests have reached the permitted host, and %d the other one", wanted.Load(), unwanted.Load())
	}

	// The operator permits what is Switchboard's own.
	own := []string{strings.TrimPrefix(g.URL, "http://"), strings.TrimPrefix(g.AdminURL(), "http://")}
	again := rig.LayOut(t, files(own...))
	text, err := os.ReadFile(filepath.Join(again, "switchboard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), string(text))
	g.Reload(t)
	rig.Eventually(t, "its new permissions count", func() string {
		if got := fetch("http://" + permitted); !strings.Contains(got, "it cannot be reached") {
			return got
		}
		return ""
	})
	for path, at := range map[string]string{"/mcp": g.URL, "/v1/status": g.AdminURL(), "/metrics": g.AdminURL()} {
		if got := fetch(at + path); !strings.Contains(got, "401") {
			t.Errorf("%s of Switchboard itself: %s", path, got)
		}
	}
	if code := rig.Call(t, s, "beside", `{}`); code != "" {
		t.Errorf("the neighbor: %s", code)
	}
}
