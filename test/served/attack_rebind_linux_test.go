package served_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/test/dns"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// nowhere is a link-local address to which the system sends nothing without a zone: also where the check is broken, this test sends nothing.
const nowhere = "fe80::1"

// SS-05: who answers for a name in DNS changes to which address it leads. Each connection is checked: to a server that was well before, to
// one over HTTP with SSE, to one that is there from the start, and for a manifest.
func TestSS05_ANameThatLeadsToALinkLocalAddressLaterIsNotDialled(t *testing.T) {
	names := ownNames(t)
	far, farPort := counted(t, fakeserver.New([]string{fmt.Sprintf(rig.Tool, "call")}))
	old := asker(t)
	oldPort := old.URL[strings.LastIndex(old.URL, ":")+1:]
	inner, innerPort := counted(t, fakeserver.New([]string{fmt.Sprintf(rig.Tool, "inner")}))
	names.Set("far.test", "127.0.0.1")
	names.Set("old.test", "127.0.0.1")
	names.Set("inner.example.com", "127.0.0.1")
	dir := rig.LayOut(t, rig.Fakes(
		"far: {transport: http, url: \"http://far.test:"+farPort+"/mcp\"}",
		"old: {transport: http, url: \"http://old.test:"+oldPort+"/sse\"}",
		"inner: {transport: http, url: \"http://inner.example.com:"+innerPort+"/mcp\"}",
	))
	g := rig.Serve(t, dir)
	refused := func(server, text string) {
		t.Helper()
		wait.Until(t, server+" is refused", func() bool {
			for _, s := range g.Status().Servers {
				if s.ID == server && s.LastFailure != nil && strings.Contains(s.LastFailure.Message, text) {
					return true
				}
			}
			return false
		})
	}
	for _, modern := range []bool{false, true} {
		if got := rig.Call(t, g.Open(t, "/mcp", modern), "call", `{}`); got != "" {
			t.Fatalf("modern %t: %s", modern, got)
		}
	}
	if n := inner.Load(); n != 0 { // each server was tried before a client could be served
		t.Fatalf("the server on loopback got %d requests", n)
	}
	refused("inner", "the name inner.example.com leads to the loopback address 127.0.0.1, ")

	names.Set("far.test", nowhere)
	names.Set("old.test", nowhere)
	far.close()
	old.CloseClientConnections()
	before := far.Load()
	for _, modern := range []bool{false, true} {
		if got := rig.Call(t, g.OpenAtOnce(t, "/mcp", modern), "call", `{}`); got == "" {
			t.Errorf("modern %t: the call was executed", modern)
		}
	}
	const where = " leads to the link-local or metadata address " + nowhere + ", "
	refused("far", "the name far.test"+where)
	refused("old", "the name old.test"+where)
	if n := far.Load(); n != before {
		t.Errorf("the server got %d requests after its name led elsewhere", n-before)
	}
	out, errs, _ := rig.Command(t, dir, "status", "--url", g.URL)
	if !strings.Contains(out, "check who answers for the name in DNS; if the server is there, write its address into the URL") {
		t.Errorf("status does not say what to do:\n%s%s", out, errs)
	}

	names.Set("far.test", "127.0.0.1")
	wait.Until(t, "the server is served again", func() bool {
		return rig.Call(t, g.OpenAtOnce(t, "/mcp", true), "call", `{}`) == ""
	})

	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), "servers:\n  a: {transport: stdio, command: [a], manifest: \"http://far.test:"+farPort+"/m.json\"}\n")
	names.Set("far.test", nowhere)
	out, errs, code := rig.Command(t, dir, "validate")
	if code == 0 || !strings.Contains(out+errs, "the name far.test"+where) || !strings.Contains(out+errs, "write its address into the URL") {
		t.Errorf("validate with the manifest there: %d\n%s%s", code, out, errs)
	}
}

// A counter is a server on loopback, with how many requests it got.
type counter struct {
	atomic.Int64
	close func() // the connections that are open
}

func counted(t *testing.T, h http.Handler) (c *counter, port string) {
	t.Helper()
	c = &counter{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.Add(1)
		h.ServeHTTP(w, r)
	}))
	c.close = s.CloseClientConnections
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return c, s.URL[strings.LastIndex(s.URL, ":")+1:]
}

// ownNames gives the programs that this test starts from now on a resolver and a file of hosts of their own. Only the thread of the test is
// in their mount namespace, and ends with the test.
func ownNames(t *testing.T) *dns.Server {
	t.Helper()
	const address = "127.53.53.53"
	names, err := dns.Listen(t, address+":53")
	if err != nil {
		t.Skipf("only root can serve names at the port of DNS: %v", err)
	}
	runtime.LockOSThread() // and never unlocked
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("only root can have a mount namespace: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"/etc/resolv.conf": "nameserver " + address + "\noptions timeout:1 attempts:1\n",
		"/etc/hosts":       "127.0.0.1 localhost\n",
	} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(file, name, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("this machine has no %s to put another one in the place of: %v", name, err)
		}
	}
	t.Setenv("GODEBUG", "netdns=go") // resolv.conf, whatever nsswitch.conf says
	return names
}
