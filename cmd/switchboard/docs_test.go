package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/tenants"
)

// docs/policies.md shows files and commands in order. The test writes the files one after the other and
// compares the output of each command with the page. UPDATE=1 writes the output into the page.
func TestTheCommandsOnThePolicyPagePrintWhatItShows(t *testing.T) {
	const name = "../../docs/policies.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	commands := 0
	block := regexp.MustCompile("(?ms)^```(\\w+) ?(.*?)\n(.*?)^```$")
	was := string(page)
	now := block.ReplaceAllStringFunc(was, func(text string) string {
		b := block.FindStringSubmatch(text)
		switch {
		case b[1] == "console":
			commands++
			line, _, _ := strings.Cut(b[3], "\n")
			args := strings.Fields(line)
			if len(args) < 2 || args[0] != "$" || args[1] != "switchboard" {
				t.Fatalf("%s is not a switchboard command", line)
			}
			cmd := exec.CommandContext(t.Context(), "switchboard", args[2:]...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			return "```console\n" + line + "\n" + string(out) + "```"
		case b[2] != "":
			file := filepath.Join(dir, filepath.FromSlash(b[2]))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(b[3]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return text
	})
	if commands < 5 {
		t.Errorf("only %d commands were found", commands)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(name, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if now != was {
		t.Errorf("run this with UPDATE=1; the page would be\n%s", now)
	}
}

// Users start from the tenant of the demo, so its policies must be without warnings.
func TestTheExampleTenantsPoliciesPassTheirTests(t *testing.T) {
	example, err := fs.Sub(tenants.Example, "example")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "tenants", "example"), example); err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("SELF", "switchboard", "NIMBUS", "http://127.0.0.1:9/mcp", "CODE", dir).Replace(demoConfig)
	config += "start_deadline: 2s\n" // nimbus does not run in this test
	if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"policy test --coverage": "tenants/example/policies/messages.rego: 100.0 % covered\ntenants/example/policies: 5 tests passed\n",
		"policy check":           "2 layers: 0 warnings\n",
	} {
		cmd := exec.CommandContext(t.Context(), "switchboard", strings.Fields(command)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("switchboard %s: %v\n%s", command, err, out)
		}
	}
}
