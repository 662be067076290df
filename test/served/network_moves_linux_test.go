package served_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A server's name leads to another address from one moment on, and the old server stops as servers do: it answers what it has
// read. No call is lost, and calls arrive at the new address without a restart or reload.
func TestANameThatMovesUnderLoadLosesNoCall(t *testing.T) {
	rig.WatchRaces(t)
	names := ownNames(t)
	address, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	start := func(host string) (s *httptest.Server, got *atomic.Int64) {
		got = &atomic.Int64{}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		fake := fakeserver.New([]string{fmt.Sprintf(rig.Tool, "call"), "modern"})
		s = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's
			got.Add(1)
			fake.ServeHTTP(w, r)
		})}}
		s.Start()
		t.Cleanup(s.CloseClientConnections)
		return s, got
	}
	old, _ := start("127.0.0.2")
	next, arrived := start("127.0.0.3")
	t.Cleanup(next.Close)
	names.Set("far.test", "127.0.0.2")
	dir := rig.LayOut(t, rig.Fakes(fmt.Sprintf(`a: {transport: http, url: "http://far.test:%s/mcp"}`, port)))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	lost := callUnderLoad(t, s, "call", false, func() {
		names.Set("far.test", "127.0.0.3", "127.0.0.2") // several, as while records expire
		names.Set("far.test", "127.0.0.3")
		// A lookup from before the move may still lead to the old server. So that one accepts connections, and ends each after its answer, until calls arrive at the new one.
		old.Config.SetKeepAlivesEnabled(false)
		wait.Until(t, "the new server gets calls", func() bool { return arrived.Load() > 20 })
		if err := old.Config.Shutdown(t.Context()); err != nil {
			t.Log(err) // a stream of notifications is open
		}
		old.CloseClientConnections()
	})
	if len(lost) > 0 {
		t.Errorf("%d calls were lost, such as %s", len(lost), lost[0])
	}
	if g.Reloads(rig.Reloaded) != 0 {
		t.Errorf("it was reloaded: %s", filepath.Base(dir))
	}
}
