package npm_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/npmlock"
)

// overSSE starts the server "everything" over HTTP with SSE and returns its
// address.
func overSSE(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close() // the server can be told a port only
	cmd := exec.Command("node", "node_modules/@modelcontextprotocol/server-everything/dist/index.js", "sse")
	cmd.Env = append(os.Environ(), "PORT="+port)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(log)
	for line := ""; !strings.Contains(line, "running on port"); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("it does not start: %v", err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return "http://127.0.0.1:" + port + "/sse"
}

func TestAServerFromNPMOverHTTPWithSSEServesTheClients(t *testing.T) {
	npmlock.Need(t, "an npm server over HTTP with SSE")
	dir := t.TempDir()
	text := "start_deadline: 2m\nservers: {everything: {transport: http, url: \"" + overSSE(t) + "\"}}\ntenants: {example: {servers: [\"*\"], allow: [by_name]}}\n"
	if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"tenant.yaml":    "tenant: example\ndefault_task: all\n",
		"tasks/all.yaml": "task_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}]\n",
	} {
		file = filepath.Join(dir, "tenants", "example", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := serve(t, dir)
	for _, c := range []client{clients[0], clients[2]} {
		t.Run(c.name, func(t *testing.T) {
			ops := []op{list}
			for i := range 5 {
				ops = append(ops, call("echo", fmt.Sprintf(`{"message":"naïve %d"}`, i)))
			}
			answers := c.do(t, g, "all", ops)
			if got := names(t, answers[0].result); len(got) != pinned["everything"].count {
				t.Errorf("listed %q", got)
			}
			for i, a := range answers[1:] {
				if want := fmt.Sprintf("naïve %d", i); !strings.Contains(string(a.result), want) {
					t.Errorf("%s %s, want %q", a.result, a.err, want)
				}
			}
		})
	}
}
