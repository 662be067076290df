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
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// listens starts a program of Node that serves HTTP at the port that its
// environment names as in port, and waits until it says that it is ready. The
// program is killed by kill, else after the test.
func listens(t *testing.T, ready, port string, env []string, args ...string) (base string, kill func()) {
	t.Helper()
	addr, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	_, at, _ := net.SplitHostPort(addr) // such servers can be told a port only
	cmd := exec.Command("node", args...)
	cmd.Env = append(append(os.Environ(), port+"="+at), env...)
	out, says, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = says, says
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = says.Close()
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	watchdog := time.AfterFunc(patience, kill)
	defer watchdog.Stop()
	lines := bufio.NewReader(out)
	for line := ""; !strings.Contains(line, ready) || !strings.Contains(line, at); {
		if line, err = lines.ReadString('\n'); err != nil {
			if !watchdog.Stop() {
				wait.Late(t, "%s does not start within %s", args[0], patience)
			}
			t.Fatalf("%s does not start: %v", args[0], err)
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		_ = out.Close()
	}()
	return "http://127.0.0.1:" + at, kill
}

func TestAServerFromNPMOverHTTPWithSSEServesTheClients(t *testing.T) {
	npmlock.Need(t, "an npm server over HTTP with SSE")
	dir := t.TempDir()
	base, _ := listens(t, "running on port", "PORT", nil, "node_modules/@modelcontextprotocol/server-everything/dist/index.js", "sse")
	text := "start_deadline: 2m\nservers: {everything: {transport: http, url: \"" + base + "/sse\"}}\ntenants: {example: {servers: [\"*\"], allow: [by_name]}}\n"
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
