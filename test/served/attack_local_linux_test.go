package served_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// Without keys, the user of Switchboard is whoever has its uid, and none of the programs that it has started. What comes through a proxy
// looks local and is not.
func TestAttack4WithoutKeysOnlyItsOwnUserIsLocal(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("near", fmt.Sprintf(rig.Tool, "call")))))
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		if got := rig.Call(t, s, "call", `{}`); got != "" {
			t.Fatalf("modern %t: the user's own client: %s", modern, got)
		}
		// A server's program asks its gateway as its neighbour would.
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"call","arguments":{"do":"fetch","url":%q}}`, g.URL+"/mcp"))
		if !strings.Contains(string(m.Result), "401") {
			t.Errorf("modern %t: a program that Switchboard has started gets %s", modern, m.Raw)
		}
	}
	t.Run("another user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root can be another user")
		}
		admin := g.AdminURL()
		for path, at := range map[string]string{"/mcp": g.URL, "/v1/status": admin, "/metrics": admin} { // OR-06 for the latter
			_, port, _ := net.SplitHostPort(strings.TrimPrefix(at, "http://"))
			ask := `exec 3<>/dev/tcp/127.0.0.1/$0 && printf 'GET ` + path + ` HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3 && head -n 1 <&3`
			curl := exec.CommandContext(t.Context(), "bash", "-c", ask, port)
			curl.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			curl.Dir = "/"
			out, err := curl.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "401") {
				t.Errorf("%s: %v %s", path, err, out)
			}
		}
	})
	t.Run("through a proxy", func(t *testing.T) {
		for _, header := range []string{
			"Via: 1.1 nginx", "CF-Connecting-IP: 192.0.2.1", "True-Client-IP: 192.0.2.1", "X-Client-IP: 192.0.2.1", "X-Envoy-External-Address: 192.0.2.1",
			"Fly-Client-IP: 192.0.2.1", "Tailscale-User-Login: eve", "Ngrok-Trace-Id: 1", "X-Azure-ClientIP: 192.0.2.1", "X-Real-IP: 192.0.2.1",
			"Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https", "X-Cluster-Client-IP: 192.0.2.1", "X-Original-Forwarded-For: 192.0.2.1",
			"Cdn-Loop: x", "X-Amzn-Trace-Id: x", "Fastly-Client-IP: 192.0.2.1", "Akamai-Origin-Hop: 1",
		} {
			if status := rawGet(t, g, "GET /mcp HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\nConnection: close\r\n\r\n"); status != http.StatusUnauthorized {
				t.Errorf("%s: %d", header, status)
			}
		}
		if status := rawGet(t, g, "GET /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n"); status != http.StatusUnauthorized {
			t.Errorf("as nginx sends it: %d", status)
		}
		if status := rawGet(t, g, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); status == http.StatusUnauthorized {
			t.Errorf("directly: %d", status)
		}
	})
}

// rawGet sends the bytes of a request and returns the status of the answer.
func rawGet(t *testing.T, g *rig.Gateway, text string) int {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: rig.Patience}).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.URL, "http://"))
	wait.Read(t, "a connection", err)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(rig.Patience))
	fmt.Fprint(conn, text)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	wait.Read(t, "an answer", err)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}
