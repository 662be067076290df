package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The entries that connect writes are served: the client starts or calls what stands in its file, and gets the tools of the task and tenant.
func TestAConnectedClientGetsTheToolsOfItsTaskAndTenant(t *testing.T) {
	program := buildProgram(t)
	const acme = "tenants:\n  acme: {servers: [search], allow: [by_name]}\n"
	for _, c := range []struct {
		args, tenants string
		http          bool
		tools         string // of the two servers: "+" for one of the first, "-" for none, and so on
	}{
		{"--task one", "", false, "+ -"},
		{"--tenant acme --task two", acme, false, "- +"},
		{"--http --task one", "", true, "+ -"},
	} {
		t.Run(c.args, func(t *testing.T) {
			d := newClaudeDesk(t, program)
			files := map[string]string{
				"sb/switchboard.yaml": fmt.Sprintf(`listen: 127.0.0.1:0
servers:
  notes: {transport: stdio, command: [%q, sample, notifier]}
  search: {transport: stdio, command: [%q, sample, atlas-search]}
%s`, program, program, c.tenants),
				"sb/tenants/default/tasks/one.yaml": "task_id: one\nrequired_capabilities:\n  - tools: [\"notes/*\"]\n",
				"sb/tenants/acme/tenant.yaml":       "tenant: acme\n",
				"sb/tenants/acme/tasks/two.yaml":    "task_id: two\nrequired_capabilities:\n  - tools: [\"search/*\"]\n",
			}
			for name, text := range files {
				if strings.HasPrefix(name, "sb/tenants/") && strings.HasPrefix(name, "sb/tenants/acme/") != (c.tenants != "") {
					continue
				}
				if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(d.path(name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d.run(append([]string{"connect", "claude-code", "--keep", "--no-measure"}, strings.Fields(c.args)...)...)
			var file struct {
				MCPServers map[string]struct {
					Command, URL string
					Args         []string
				}
			}
			if err := json.Unmarshal([]byte(strings.ReplaceAll(d.read(".claude.json"), "HOME", d.home)), &file); err != nil {
				t.Fatal(err)
			}
			if file.MCPServers["cloud"].Command == "" {
				t.Errorf("--keep keeps no server: %+v", file)
			}
			entry := file.MCPServers["switchboard"]
			var transport mcp.Transport
			if c.http {
				// The address of the entry has port 0, as the configuration: the served one takes its place.
				transport = &mcp.StreamableClientTransport{Endpoint: strings.Replace(entry.URL, "http://127.0.0.1:0", serveOnce(t, d), 1)}
			} else {
				cmd := exec.CommandContext(t.Context(), entry.Command, append(entry.Args, "--alone")...) //nolint:gosec // a test's
				if filepath.Base(entry.Command) != filepath.Base(program) {
					cmd.Path = program // the test program has written its own name
				}
				cmd.Stderr = t.Output()
				transport = &mcp.CommandTransport{Command: cmd}
			}
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close() //nolint:errcheck // the test is over
			var tools []string
			for tool, err := range session.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				tools = append(tools, tool.Name)
			}
			t.Log(tools)
			got := []string{"-", "-"}
			for i, tool := range []string{"notify", "search"} {
				if slices.ContainsFunc(tools, func(name string) bool { return strings.Contains(name, tool) }) {
					got[i] = "+"
				}
			}
			if strings.Join(got, " ") != c.tools {
				t.Errorf("the client gets %q", tools)
			}
		})
	}
}

// serveOnce serves the configuration until the test ends, and returns the address.
func serveOnce(t *testing.T, d *claudeDesk) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), d.program, "serve", "--config", d.path("sb/switchboard.yaml"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(line, "http://")
	if i < 0 {
		t.Fatalf("serve says %q", line)
	}
	address, _, _ := strings.Cut(strings.TrimSpace(line[i:]), "/mcp")
	return strings.Fields(address)[0]
}
