package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// A client may start Switchboard with a pipe as its stderr and never read from it. A pipe holds 64 KiB; the server writes
// four times as much before it answers.
func TestAClientThatDoesNotReadStderrGetsItsTools(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"switchboard.yaml": "servers:\n  loud:\n    transport: stdio\n    command: [sh, -c, 'i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo $0; done >&2; exec plain-server tools.json', " + strings.Repeat("x", 1800) + "]\n",
		"tools.json":       `[{"name": "get_repository", "inputSchema": {"type": "object"}}]`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unread, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "switchboard", "stdio", "--alone")
	cmd.Dir, cmd.Stderr = dir, stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 100)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			answers <- lines.Text()
		}
		close(answers)
	}()
	ask := func(id int, method, params string) string {
		t.Helper()
		if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			t.Fatal(err)
		}
		for {
			if answer := wait.Receive(t, "an answer", answers); strings.Contains(answer, fmt.Sprintf(`"id":%d`, id)) || answer == "" {
				return answer
			}
		}
	}
	ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`)
	id := 1
	wait.Until(t, "the tool of the loud server is listed", func() bool {
		id++
		return strings.Contains(ask(id, "tools/list", "{}"), "get_repository")
	})
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := stderr.Close(); err != nil {
		t.Error(err)
	}
	if err := unread.Close(); err != nil {
		t.Error(err)
	}
}
