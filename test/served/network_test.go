package served_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const (
	// proxyFrom is the address from which the proxies of these tests connect, so that a server can tell them from Switchboard.
	proxyFrom = "127.0.0.9"

	proxyPassword = "canary-7f3a-proxy"
)

// needProgram ends a test if a program from the system's packages is missing: as a failure if SWITCHBOARD_REQUIRE=1, else skipped.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv("SWITCHBOARD_REQUIRE") == "1" {
		t.Fatalf("a real proxy: required: %s is not installed", name)
	}
	t.Skipf("skipped: a real proxy (%s is not installed)", name)
}

// startProxy starts tinyproxy or microsocks, with a password unless it is "", and returns its address. more are lines of tinyproxy's
// configuration.
func startProxy(t *testing.T, name, password string, more ...string) (address string) {
	t.Helper()
	needProgram(t, name)
	address, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(address)
	var cmd *exec.Cmd
	if name == "tinyproxy" {
		lines := append([]string{"Port " + port, "Listen " + host, "Bind " + proxyFrom, "Timeout 600", "MaxClients 200", "LogLevel Error"}, more...)
		if password != "" {
			lines = append(lines, "BasicAuth me "+password)
		}
		file := filepath.Join(t.TempDir(), "tinyproxy.conf")
		rig.WriteFile(t, file, strings.Join(lines, "\n")+"\n")
		cmd = exec.CommandContext(t.Context(), "tinyproxy", "-d", "-c", file)
	} else {
		args := []string{"-i", host, "-p", port, "-b", proxyFrom}
		if password != "" {
			args = append(args, "-u", "me", "-P", password)
		}
		cmd = exec.CommandContext(t.Context(), name, args...)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	wait.Until(t, name+" listens", func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return address
}

// Visits are the requests that a server has got, with the address that each came from.
type visits struct {
	http.Handler
	session string // that the server opens, if not ""
	mu      sync.Mutex
	seen    map[string][]string // METHOD PATH by address
}

func (v *visits) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	v.mu.Lock()
	if v.seen == nil {
		v.seen = map[string][]string{}
	}
	if what := r.Method + " " + r.URL.Path; !slices.Contains(v.seen[from], what) {
		v.seen[from] = append(v.seen[from], what)
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Proxy-") || strings.Contains(strings.Join(values, " "), proxyPassword) {
			v.seen["a header of the proxy"] = append(v.seen["a header of the proxy"], name)
		}
	}
	v.mu.Unlock()
	if v.session != "" {
		w.Header().Set("Mcp-Session-Id", v.session)
	}
	switch r.URL.Path {
	case "/healthz":
	case "/m.json":
		_, _ = io.WriteString(w, `{"name": "m"}`)
	default:
		v.Handler.ServeHTTP(w, r)
	}
}

// from returns what came from an address, sorted.
func (v *visits) from(address string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(slices.Values(v.seen[address]))
}

// addresses returns where requests came from.
func (v *visits) addresses() (all []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for a := range v.seen {
		all = append(all, a)
	}
	return all
}

func startVisited(t *testing.T, h http.Handler, listenAt string) (v *visits, url string) {
	t.Helper()
	v = &visits{Handler: h}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(listenAt, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: v}} //nolint:gosec // a test's
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return v, s.URL
}

// Nothing bypasses the proxy of a server: no call, stream, notification, DELETE, probe or manifest. Its password is shown nowhere.
func TestEveryConnectionToAServerGoesThroughItsProxy(t *testing.T) {
	for name, proxy := range map[string]string{
		"HTTP": "http://" + startProxy(t, "tinyproxy", ""), "HTTP with a password": "http://me:${env:PROXY_PASSWORD}@" + startProxy(t, "tinyproxy", proxyPassword),
		"SOCKS5": "socks5://" + startProxy(t, "microsocks", ""), "SOCKS5 with a password": "socks5://me:${env:PROXY_PASSWORD}@" + startProxy(t, "microsocks", proxyPassword),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PROXY_PASSWORD", proxyPassword)
			legacy, legacyURL := startVisited(t, fakeserver.New([]string{fmt.Sprintf(rig.Tool, "old")}), "127.0.0.1")
			legacy.session = "s1"
			modern, modernURL := startVisited(t, fakeserver.New([]string{fmt.Sprintf(rig.Tool, "new"), "modern"}), "127.0.0.1")
			sse, sseURL := startVisited(t, &fakeserver.SSEServer{Server: fakeserver.New([]string{fmt.Sprintf(rig.Tool, "events")})}, "127.0.0.1")
			described, describedURL := startVisited(t, fakeserver.New([]string{fmt.Sprintf(rig.Tool, "none")}), "127.0.0.1")
			row := func(id, url, more string) string {
				return fmt.Sprintf(`%s: {transport: http, url: "%s/mcp", proxy: "%s", health: {every: 1s, path: /healthz}%s}`, id, url, proxy, more)
			}
			dir := rig.LayOut(t, strings.Replace(rig.Fakes(row("old", legacyURL, ""), row("new", modernURL, ""), row("sse", sseURL, ""),
				row("described", describedURL, `, manifest: "`+describedURL+`/m.json"`)), "start_deadline", "log: {level: debug}\nstart_deadline", 1))
			g := rig.Serve(t, dir)
			for _, isModern := range []bool{false, true} {
				s := g.Open(t, "/mcp", isModern)
				for _, tool := range []string{"old", "new", "events"} {
					if got := rig.Call(t, s, tool, `{}`); got != "" {
						t.Errorf("%s, modern %t: %s", tool, isModern, got)
					}
				}
			}
			for _, v := range []*visits{legacy, modern, sse} {
				wait.Until(t, "the path of the probe is requested", func() bool { return slices.Contains(v.from(proxyFrom), "GET /healthz") })
			}
			status, errs, _ := rig.Command(t, dir, "status", "--json", "--url", g.URL)
			g.Signal(t, syscall.SIGTERM)
			g.AwaitEnd(t)
			for server, v := range map[string]*visits{"old": legacy, "new": modern, "sse": sse, "described": described} {
				if all := v.addresses(); len(all) != 1 || all[0] != proxyFrom {
					t.Errorf("%s: requests came from %q", server, all)
				}
			}
			if got := strings.Join(legacy.from(proxyFrom), ", "); got != "DELETE /mcp, GET /healthz, GET /mcp, POST /mcp" {
				t.Errorf("the proxy passed on %s", got)
			}
			if !slices.Contains(described.from(proxyFrom), "GET /m.json") {
				t.Error("the manifest was not fetched through the proxy")
			}
			if all := g.Logged() + status + errs; strings.Contains(all, proxyPassword) {
				t.Errorf("the password is shown:\n%s", all)
			}
		})
	}
}

// SS-07: a proxy of the environment is used, but not for this machine, for NO_PROXY and for a server with proxy: none. An address of this
// machine beside loopback stands for a server elsewhere.
func TestSS07_TheProxyOfTheEnvironmentCountsUnlessAServerSaysOtherwise(t *testing.T) {
	own := ownAddress(t)
	proxy := startProxy(t, "tinyproxy", proxyPassword)
	t.Setenv("HTTP_PROXY", "http://me:"+proxyPassword+"@"+proxy)
	t.Setenv("NO_PROXY", "excepted.test,10.99.0.0/16")
	servers := map[string]*visits{}
	var rows []string
	for _, s := range []struct{ id, at, more string }{{"far", own, ""}, {"direct", own, ", proxy: none"}, {"near", "127.0.0.1", ""}} {
		v, url := startVisited(t, fakeserver.New([]string{fmt.Sprintf(rig.Tool, s.id)}), s.at)
		servers[s.id] = v
		rows = append(rows, fmt.Sprintf("%s: {transport: http, url: \"%s/mcp\"%s}", s.id, url, s.more))
	}
	g := rig.Serve(t, rig.LayOut(t, strings.Replace(rig.Fakes(rows...), "start_deadline", "log: {level: debug}\nstart_deadline", 1)))
	s := g.Open(t, "/mcp", true)
	for id, v := range servers {
		if got := rig.Call(t, s, id, `{}`); got != "" {
			t.Errorf("%s: %s", id, got)
		}
		if through := slices.Equal(v.addresses(), []string{proxyFrom}); through != (id == "far") {
			t.Errorf("%s: requests came from %q", id, v.addresses())
		}
	}
	if all := g.Logged() + g.Do(0, "", "status", "--json"); strings.Contains(all, proxyPassword) {
		t.Errorf("the password is shown:\n%s", all)
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

// What a proxy refuses is said in words, by status and by doctor, with what to do.
func TestTheRefusalOfAProxySaysWhatToDo(t *testing.T) {
	_, url := startVisited(t, fakeserver.New([]string{fmt.Sprintf(rig.Tool, "x")}), "127.0.0.1")
	closed, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PROXY_PASSWORD", proxyPassword)
	locked, limited, socks := startProxy(t, "tinyproxy", "canary-7f3a-other"), startProxy(t, "tinyproxy", "", "ConnectPort 1"), startProxy(t, "microsocks", proxyPassword)
	for name, tt := range map[string]struct{ proxy, text, remedy string }{
		"no password":       {"http://" + locked, "407", "the proxy wants a user and a password: proxy:"},
		"wrong password":    {"http://me:${env:PROXY_PASSWORD}@" + locked, "does not accept the user and the password", "correct the user and the password"},
		"its rules":         {"http://" + limited, "403", "the rules of the proxy do not allow this server or its port"},
		"SOCKS no password": {"socks5://" + socks, "wants a user and a password", "wants a user and a password: proxy:"},
		"away":              {"http://" + closed, "cannot be reached", "check that the proxy runs"},
	} {
		dir := rig.LayOut(t, rig.Fakes(fmt.Sprintf(`x: {transport: http, url: "%s/mcp", proxy: "%s"}`, url, tt.proxy)))
		out, errs, code := rig.Command(t, dir, "doctor", "--wait", "2s")
		if all := out + errs; code == 0 || !strings.Contains(all, tt.text) || !strings.Contains(all, tt.remedy) || !strings.Contains(all, ": FAILED: its proxy ") || strings.Contains(all, "7f3a") {
			t.Errorf("%s: doctor exits %d and says:\n%s", name, code, all)
		}
	}
}
