package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/tenants"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// These pages show files and commands in order. The test writes the files one after the other, in a folder that is also
// the home of its user, and compares the output of each command with the page. UPDATE=1 writes the output into the page.
func TestTheCommandsOnAPagePrintWhatItShows(t *testing.T) {
	for page, commands := range map[string]int{"policies": 5, "servers": 5, "connect": 4, "doctor": 1, "capabilities": 9, "admission": 2, "verdicts": 13} {
		t.Run(page, func(t *testing.T) { runPage(t, "../../docs/"+page+".md", commands) })
	}
}

// The README says how much less the client on the page about connect reads.
func TestTheREADMENamesTheSavingThatThePageShows(t *testing.T) {
	page, err1 := os.ReadFile("../../docs/connect.md")
	readme, err2 := os.ReadFile("../../README.md")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	saving := regexp.MustCompile(`reads\s(\d+ % less)`)
	want := saving.FindSubmatch(page)
	if got := saving.FindSubmatch(readme); want == nil || got == nil || string(got[1]) != string(want[1]) {
		t.Errorf("the README says %q, and docs/connect.md shows %q", got, want)
	}
}

// logTime is the time of a line of the log, which pages show as one and the same.
var logTime = regexp.MustCompile(`(?m)^time=\S+`)

// runPage runs the commands of a page, which are at least least.
func runPage(t *testing.T, name string, least int) {
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	address, err := scratch.Addr() // in the place of the address on the page, which may be taken here
	if err != nil {
		t.Fatal(err)
	}
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
			shown := func() string {
				cmd := exec.CommandContext(t.Context(), "switchboard", args[2:]...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=", homeVariable+"=", "PATH="+filepath.Dir(cmd.Path))
				out, err := cmd.CombinedOutput()
				if err != nil && !errors.As(err, new(*exec.ExitError)) {
					t.Fatal(err)
				}
				out = logTime.ReplaceAll(out, []byte("time=2026-11-28T09:00:00.000Z"))
				return "```console\n" + line + "\n" + strings.NewReplacer(dir, "/home/ann", address, config.DefaultListen).Replace(string(out)) + "```"
			}
			is := shown()
			// A probe may take longer than its 5 s while the machine is busy.
			for until := time.Now().Add(wait.Bound); is != text && os.Getenv("UPDATE") == "" && slices.Contains(args, "--probe") && time.Now().Before(until); {
				is = shown()
			}
			return is
		case b[2] != "":
			file := filepath.Join(dir, filepath.FromSlash(b[2]))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(b[3], config.DefaultListen, address)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return text
	})
	if commands < least {
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
	useOwnHome(t)
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "tenants", "example"), example); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("SELF", "switchboard", "NIMBUS", "http://127.0.0.1:9/mcp", "CODE", dir).Replace(demoConfig)
	text += "start_deadline: 2s\n" // nimbus does not run in this test
	if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte(text), 0o600); err != nil {
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
