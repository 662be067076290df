package served_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestAConnectionAnswersAgainAfterItWasKeptIdle(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "first")))))
	rig.ListNames(t, g.Open(t, "/mcp", true)) // the server has started
	if _, err := os.ReadDir(fmt.Sprintf("/proc/%d/fdinfo", g.Cmd.Process.Pid)); err != nil {
		t.Skip("the descriptors of the process cannot be read:", err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	wait.Read(t, "a connection", err)
	defer conn.Close() //nolint:errcheck // the test is over
	answers := bufio.NewReader(conn)
	for range 3 {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + rig.WithMeta(`{"name":"first","arguments":{}}`) + `}`
		_, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: first\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		wait.Read(t, "the request", err)
		r, err := http.ReadResponse(answers, nil)
		wait.Read(t, "the response", err)
		text, err := io.ReadAll(r.Body)
		wait.Read(t, "the body", err)
		if r.StatusCode != http.StatusOK || !strings.Contains(string(text), `"result"`) {
			t.Fatalf("got %d %s", r.StatusCode, text)
		}
		wait.Until(t, "a kept connection", func() bool { return keptConnections(t, g.Cmd.Process.Pid) > 0 })
	}
}

// keptConnections returns how many descriptors of the process are in two of its epolls: that of Go's runtime, and that of
// package idleconn.
func keptConnections(t *testing.T, pid int) (n int) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // closed in the meantime
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" {
				if seen[f[1]] {
					n++
				}
				seen[f[1]] = true
			}
		}
	}
	return n
}
