package served_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// SS-07: a proxy of the environment hears of no call: what the operator wrote is dialled, and nothing else. Loopback addresses would never go through a
// proxy, so the server listens on another address of this machine.
func TestSS07_AProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	own := ownAddress(t)
	var heard atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		heard.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(own, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: rig.NewFake([]string{fmt.Sprintf(rig.Tool, "call")})}} //nolint:gosec // a test's
	server.Start()
	t.Cleanup(server.Close)
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes("far: {transport: http, url: \""+server.URL+"/mcp\"}")))
	for _, modern := range []bool{false, true} {
		if got := rig.Call(t, g.Open(t, "/mcp", modern), "call", `{}`); got != "" {
			t.Errorf("modern %t: %s", modern, got)
		}
	}
	if n := heard.Load(); n != 0 {
		t.Errorf("the proxy heard of %d requests", n)
	}
}

// ownAddress is an address of this machine beside those of loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}
