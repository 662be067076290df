package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// labelsPageFiles are the files of the example on docs/labels.md.
var labelsPageFiles = map[string]string{
	"switchboard.yaml": "servers:\n  tracker: {transport: stdio, command: [plain-server, tools.json]}\n",
	"taxonomy.yaml":    "resources: {vcs: {}, issues: {}}\n",
	"tools.json": `[
		{"name": "get_repository", "description": "Get one repository with its default branch.", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}},
		{"name": "create_issue", "description": "Create an issue in a project.", "inputSchema": {"type": "object"}},
		{"name": "send_mail", "description": "Send an email to a person.", "inputSchema": {"type": "object"}},
		{"name": "delete_file", "description": "Delete a file of the disk.", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}}]`,
}

// A line "…" on the page stands for any lines.
func TestTheLabelsPageShowsWhatTheProgramPrints(t *testing.T) {
	page, err := os.ReadFile("../../docs/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	useOwnHome(t)
	dir := t.TempDir()
	for name, text := range labelsPageFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := 0
	var printed []byte
	for block := range strings.SplitSeq(string(page), "\n\n") {
		if !strings.HasPrefix(block, "    ") {
			continue
		}
		for line := range strings.SplitSeq(block, "\n") {
			line = strings.TrimPrefix(line, "    ")
			switch command, isCommand := strings.CutPrefix(line, "$ switchboard "); {
			case isCommand:
				commands++
				cmd := exec.CommandContext(t.Context(), "switchboard", strings.Fields(command)...)
				cmd.Dir = dir
				if printed, err = cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", line, err, printed)
				}
			case strings.HasPrefix(line, "switchboard annotate --accept"), strings.TrimSpace(line) == "…", strings.HasPrefix(line, "go test"):
			case !bytes.Contains(printed, []byte(strings.TrimSpace(line)+"\n")):
				t.Errorf("the page shows a line that is not printed: %q\n%s", line, printed)
			}
		}
	}
	if commands != 2 {
		t.Errorf("the page has %d commands, want 2", commands)
	}
	written, err := os.ReadFile(filepath.Join(dir, "overlays", "tracker.suggested.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	for line := range strings.Lines(shown) {
		if !bytes.Contains(written, []byte(line)) {
			t.Errorf("the page shows a line that is not written: %q\n%s", line, written)
		}
	}
}

// servePlain is the command plain-server FILE of the scripts: a server on stdio that offers the tools in the file, and
// labels none of them. It answers a call with the name of the tool.
func servePlain() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var ask struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name            string
				ProtocolVersion string
			}
		}
		if json.Unmarshal(in.Bytes(), &ask) != nil || ask.ID == nil {
			continue
		}
		var result any
		switch ask.Method {
		case "initialize":
			result = map[string]any{
				"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": struct{}{}},
				"serverInfo": map[string]string{"name": "plain", "version": "1"},
			}
		case "tools/list":
			text, err := os.ReadFile(os.Args[1])
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			result = map[string]any{"tools": json.RawMessage(text)}
		case "tools/call":
			result = map[string]any{"content": []any{map[string]string{"type": "text", "text": "called " + ask.Params.Name}}}
		case "ping":
			result = struct{}{}
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", ask.ID)
			continue
		}
		text, _ := json.Marshal(result)
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", ask.ID, text)
	}
}
