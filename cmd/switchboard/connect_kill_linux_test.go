package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/powercut"
	"github.com/summit-switchboard/switchboard/test/programs"
)

// A claudeDesk is a home folder with a file of Claude Code. The commands in this process use it too.
type claudeDesk struct {
	t       *testing.T
	home    string
	program string // Switchboard as people run it
}

// claudeServers is the file of Claude Code, with a server to adopt that has a secret.
const claudeServers = `{
  "numStartups": 12,
  "mcpServers": {
    "cloud": {"command": "no-such-program", "env": {"CLOUD_TOKEN": "geheim-1234"}}
  }
}
`

// buildProgram returns the program. It must run in the folder of the package.
func buildProgram(t *testing.T) string {
	t.Helper()
	program, err := programs.Plain()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func newClaudeDesk(t *testing.T, program string) *claudeDesk {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv(homeVariable, filepath.Join(home, "sb"))
	t.Chdir(home)
	d := &claudeDesk{t, home, program}
	if err := os.WriteFile(d.path(".claude.json"), []byte(claudeServers), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *claudeDesk) path(name string) string { return filepath.Join(d.home, filepath.FromSlash(name)) }

// read returns the content of a file, with HOME for the home folder, or "".
func (d *claudeDesk) read(name string) string {
	d.t.Helper()
	text, err := os.ReadFile(d.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), d.home, "HOME")
}

// run runs a command in this process.
func (d *claudeDesk) run(args ...string) {
	d.t.Helper()
	var out, errs bytes.Buffer
	if code := run(d.t.Context(), args, streams{strings.NewReader(""), &out, &errs, &out}); code != exitOK {
		d.t.Fatalf("switchboard %s: exit %d: %s", strings.Join(args, " "), code, &errs)
	}
}

// connectCommand returns "switchboard connect" as a process.
func (d *claudeDesk) connectCommand() *exec.Cmd {
	return exec.CommandContext(d.t.Context(), d.program, "connect", "claude-code", "--no-measure") // which inherits HOME
}

// RD-02 with the program: strace kills the process with SIGKILL when it is about to write, sync or rename each of its files. Each file is then whole,
// the old one or the new one, and the next connect or disconnect puts everything right.
func TestRD02AConnectThatIsKilledAtAnyWriteLeavesWholeFiles(t *testing.T) {
	powercut.Need(t)
	program := buildProgram(t)
	connected := map[string]string{}
	whole := newClaudeDesk(t, program)
	whole.run("connect", "claude-code", "--no-measure")
	for _, file := range []string{".claude.json", "sb/switchboard.yaml", "sb/secrets/cloud-cloud-token"} {
		if connected[file] = whole.read(file); connected[file] == "" {
			t.Fatalf("connect writes no %s", file)
		}
	}
	const calls, renames = "write,fsync", "?rename,?renameat,renameat2"
	then := []string{"connect", "disconnect"}
	for i, point := range []struct{ call, file string }{
		{"write", "sb/.switchboard/connected/.claude-code.json.switchboard-new"},
		{"fsync", "sb/.switchboard/connected/.claude-code.json.switchboard-new"},
		{renames, "sb/.switchboard/connected/claude-code.json"},
		{"write", "sb/secrets/.cloud-cloud-token.switchboard-new"},
		{"fsync", "sb/secrets/.cloud-cloud-token.switchboard-new"},
		{renames, "sb/secrets/cloud-cloud-token"},
		{"write", "sb/.switchboard.yaml.switchboard-new"},
		{"fsync", "sb/.switchboard.yaml.switchboard-new"},
		{renames, "sb/switchboard.yaml"},
		{"write", "..claude.json.before-switchboard.switchboard-new"},
		{renames, ".claude.json.before-switchboard"},
		{"write", "..claude.json.switchboard-new"},
		{"fsync", "..claude.json.switchboard-new"},
		{renames, ".claude.json"},
	} {
		t.Run(point.file+"/"+strings.Trim(strings.SplitN(point.call, ",", 2)[0], "?"), func(t *testing.T) {
			d := newClaudeDesk(t, program)
			connect := d.connectCommand()
			args := []string{"-f", "-qq", "-o", os.DevNull, "-P", d.path(point.file), "-e", "trace=" + calls + "," + renames, "-e", "inject=" + point.call + ":signal=SIGKILL", "--"}
			killed := exec.CommandContext(t.Context(), "strace", append(args, connect.Args...)...) //nolint:gosec // a test's
			out, err := killed.CombinedOutput()
			if s, ok := killed.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed: %v\n%s", err, out)
			}
			if got := d.read(".claude.json"); got != claudeServers { // its rename is the last step
				t.Errorf("the client's file is\n%s", got)
			}
			if got := d.read("sb/switchboard.yaml"); got != "" && got != connected["sb/switchboard.yaml"] {
				t.Errorf("the configuration is\n%s", got)
			}
			record := d.read("sb/.switchboard/connected/claude-code.json")
			if record != "" && !json.Valid([]byte(record)) {
				t.Errorf("the record is\n%s", record)
			}
			if then := then[i%2]; then == "connect" || record == "" {
				d.run("connect", "claude-code", "--no-measure")
				for file, want := range connected {
					if got := d.read(file); got != want {
						t.Errorf("after another connect, %s is\n%s\nwant\n%s", file, got, want)
					}
				}
			}
			d.run("disconnect", "claude-code")
			if got := d.read(".claude.json"); got != claudeServers {
				t.Errorf("after disconnect, the client's file is\n%s", got)
			}
			if got := d.read("sb/switchboard.yaml"); strings.Contains(got, "cloud") {
				t.Errorf("after disconnect, the configuration is\n%s", got)
			}
			if left, _ := filepath.Glob(d.path("sb/secrets/cloud*")); len(left) > 0 || d.read(".claude.json.before-switchboard") != "" {
				t.Errorf("after disconnect, %q and the backup %q are left", left, d.read(".claude.json.before-switchboard"))
			}
			if files := d.filesWithSecret(); len(files) != 1 {
				t.Errorf("after disconnect, the secret is in %q", files)
			}
		})
	}
}

// filesWithSecret returns the files below the home folder that hold the secret.
func (d *claudeDesk) filesWithSecret() (files []string) {
	d.t.Helper()
	err := filepath.WalkDir(d.home, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte("geheim-1234")) {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return files
}

// RD-02: two processes connect the same client at once.
func TestRD02TwoProcessesThatConnectAtOnceLeaveOneWholeFile(t *testing.T) {
	program := buildProgram(t)
	for range 3 {
		d := newClaudeDesk(t, program)
		var both sync.WaitGroup
		said := make([]string, 2)
		for i := range said {
			cmd := d.connectCommand()
			both.Go(func() {
				out, err := cmd.CombinedOutput()
				if said[i] = string(out); err != nil {
					t.Errorf("connect: %v\n%s", err, out)
				}
			})
		}
		both.Wait()
		all := strings.Join(said, "\n")
		if strings.Count(all, "adopted  cloud") != 1 || strings.Count(all, "Nothing was changed") != 1 {
			t.Errorf("they say\n%s", all)
		}
		one := d.read(".claude.json")
		d.run("disconnect", "claude-code")
		if got := d.read(".claude.json"); got != claudeServers {
			t.Errorf("after disconnect, the client's file is\n%s", got)
		}
		if out, err := d.connectCommand().CombinedOutput(); err != nil {
			t.Fatalf("connect: %v\n%s", err, out)
		}
		if alone := d.read(".claude.json"); alone != one {
			t.Errorf("two at once leave\n%s\nand one leaves\n%s", one, alone)
		}
	}
}
