//go:build agents && unix

package agents_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var update = flag.Bool("update", false, "carry out the first commands of the README with empty caches, and write their output and times into it")

const (
	root   = "../.." // where the commands of the README run
	readme = root + "/README.md"

	// maxCommands is how many commands may lead from an empty machine to a call.
	maxCommands = 4

	// install is the command for which the test takes the program that is built already, because it takes minutes with empty caches. With
	// -update it runs.
	install = "go install ./cmd/switchboard"
	// compilation is how long install may take.
	compilation = 20 * time.Minute
)

// A machine is the home folder of a user who has Go, Node.js, one client and nothing else.
type machine struct {
	home string
	path string
	env  []string // how the client reaches its model, and the proxy of its network
}

// newMachine returns a machine with Claude Code.
func newMachine(t *testing.T, client string, env ...string) *machine {
	t.Helper()
	m := &machine{home: t.TempDir(), env: env}
	own := []string{filepath.Join(m.home, "go", "bin"), filepath.Join(m.home, "client")}
	for _, dir := range own {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(client, filepath.Join(own[1], "claude")); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"go", "node", "npx"} {
		file, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, filepath.Dir(file))
	}
	m.path = strings.Join(append(own, "/usr/bin", "/bin"), string(filepath.ListSeparator))
	// npm has the registry that it has on this machine. It asks for a package once, since the client reaches no network.
	settings := "prefer-offline=true\nupdate-notifier=false\n"
	known, err := exec.Command("npm", "config", "get", "registry", "cafile").Output() // a line for each: KEY=VALUE
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(known)) {
		if _, value, _ := strings.Cut(strings.TrimSpace(line), "="); value != "" && value != "null" && value != "undefined" {
			settings += line
		}
	}
	write(t, m.home, ".npmrc", settings)
	return m
}

// run runs a line of the README in a shell, and returns its output and how long it took.
func (m *machine) run(t *testing.T, line string, more ...string) (string, time.Duration) {
	t.Helper()
	limit := patience
	if line == install {
		limit = compilation
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = root
	cmd.Env = slices.Concat([]string{"HOME=" + m.home, "PATH=" + m.path, "TMPDIR=" + m.home}, more)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	t.Logf("$ %s (%s, of a processor %s)\n%s", line, took.Round(100*time.Millisecond), used.Round(100*time.Millisecond), out)
	wait.Answered(t, ctx, line, err)
	return string(out), took
}

// install compiles Switchboard with empty caches, and then once more. It takes the settings by which Go reaches its modules from this machine.
func (m *machine) install(t *testing.T) (first, again time.Duration) {
	t.Helper()
	var env []string
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOTOOLCHAIN", "GOFLAGS"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSpace(string(value))
		if name == "GOFLAGS" {
			text = strings.TrimSpace(text + " -modcacherw") // so that the test can remove the modules
		}
		env = append(env, name+"="+text)
	}
	_, first = m.run(t, install, env...)
	if err := os.Remove(filepath.Join(m.home, "go", "bin", "switchboard")); err != nil {
		t.Fatal(err)
	}
	_, again = m.run(t, install, env...)
	return first, again
}

// A step is a row of the table in the README.
type step struct {
	what string
	took time.Duration // 0 if this run has not measured it
}

// The first commands of the README lead from an empty machine to a call through the client, in at most four commands. The test carries them out as
// they stand there, and then the server, which npx has fetched, holds what the model told it.
func TestTheREADMELeadsFromAnEmptyMachineToACallInFourCommands(t *testing.T) {
	claude := all[0]
	client := claude.find(t)
	npmlock.NeedRegistry(t, "the first commands of the README", "npm")
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n```sh\n(.*?)```\n").FindSubmatch(text)
	if block == nil {
		t.Fatal("README.md has no block of sh")
	}
	lines := strings.Split(strings.TrimSpace(string(block[1])), "\n")
	if len(lines) > maxCommands || lines[0] != install {
		t.Fatalf("the first commands of the README are %q: at most %d, and first %q", lines, maxCommands, install)
	}
	checkPinned(t, lines)

	secret := rand.Text()
	model := &agents.Model{Script: func(turn agents.Turn) agents.Reply {
		call := turn.Offers("create_entities")
		if call == nil || turn.Has(secret) {
			return agents.Reply{Say: "done"}
		}
		return agents.Reply{Call: call, Args: fmt.Sprintf(`{"entities":[{"name":"office","entityType":"place","observations":["closes at six","%s"]}]}`, secret)}
	}}
	_, env := claude.prepare(t, t.TempDir(), listen(t, model), endpoint{})
	var asked noise
	wall := listen(t, &asked)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		env = append(env, name+"="+wall)
	}
	m := newMachine(t, client[0], append(env, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")...)
	t.Cleanup(func() { endShared(t, m.home) })

	var steps []step
	said := map[string]string{}
	for _, line := range lines {
		program, _, _ := strings.Cut(line, " ")
		switch {
		case line == install && *update:
			first, again := m.install(t)
			steps = append(steps, step{"`" + line + "`, which fetches the modules and compiles everything", first}, step{"the same, once everything is compiled", again})
		case line == install:
			program, err := programs.Plain()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(m.home, "go", "bin", "switchboard")); err != nil {
				t.Fatal(err)
			}
			steps = append(steps, step{"`" + line + "`, which fetches the modules and compiles everything", 0}, step{"the same, once everything is compiled", 0})
		case program == "claude":
			_, took := m.run(t, line, m.env...)
			steps = append(steps, step{"`" + line + "`", took})
		default:
			out, took := m.run(t, line)
			if strings.Contains(out, "has not answered") {
				wait.Late(t, "npx has not fetched and started the server in time")
			}
			said[line] = out
			steps = append(steps, step{"`" + line + "`", took})
		}
	}

	if hosts := asked.hosts(); len(hosts) > 0 {
		t.Errorf("%s asked the network for %q, in vain", claude.name, hosts)
	}
	if last := model.Last(); !last.Has(secret) {
		t.Errorf("the client was offered %v, and its results are %q", last.Tools, last.Results)
	}
	if got := serversOf(t, "claude-code", m.home); !slices.Equal(got, []string{"switchboard"}) {
		t.Errorf("the client's file has %q", got)
	}
	files, err := filepath.Glob(filepath.Join(m.home, ".npm/_npx/*/node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the server keeps its memory in %q, %v", files, err)
	}
	if memory, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(memory), secret) {
		t.Errorf("the server remembers %q, %v", memory, err)
	}
	if t.Failed() {
		return
	}
	checkSteps(t, string(text), steps, said)
}

// checkPinned checks that the commands name packages at the versions of the lock file in test/npm, with which the other tests run.
func checkPinned(t *testing.T, lines []string) {
	t.Helper()
	pinned, err := os.ReadFile("../npm/package.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range regexp.MustCompile(`npx -y (\S+)@(\S+)`).FindAllStringSubmatch(strings.Join(lines, "\n"), -1) {
		if row := fmt.Sprintf("%q: %q", p[1], p[2]); !strings.Contains(string(pinned), row) {
			t.Errorf("test/npm/package.json has no %s", row)
		}
	}
}

var seconds = regexp.MustCompile(`(?m) \| [0-9.]+ \|$`)

// checkSteps compares the README with the steps that were taken and with what the commands of Switchboard have printed, or writes them into it. Seconds differ
// from run to run, so only the steps count.
func checkSteps(t *testing.T, page string, steps []step, said map[string]string) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| step | seconds |\n| --- | ---: |\n")
	for _, s := range steps {
		fmt.Fprintf(&table, "| %s | %.1f |\n", s.what, s.took.Seconds())
	}
	next := replaceBetween(t, page, "<!-- steps -->\n", "<!-- end -->\n", table.String())
	for line, out := range said {
		next = replaceBetween(t, next, "```console\n$ "+line+"\n", "```\n", out)
	}
	if *update {
		if err := os.WriteFile(readme, []byte(next), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if hide := func(s string) string { return seconds.ReplaceAllString(s, " | … |") }; hide(next) != hide(page) {
		t.Errorf("the README shows other steps or another output; run this test with -update. It would be\n%s", next)
	}
}

// replaceBetween replaces what stands in a text between two marks.
func replaceBetween(t *testing.T, text, from, to, by string) string {
	t.Helper()
	before, rest, ok := strings.Cut(text, from)
	_, after, closed := strings.Cut(rest, to)
	if !ok || !closed {
		t.Fatalf("README.md has nothing between %q and %q", from, to)
	}
	return before + from + by + to + after
}

// endShared ends the process that clients on stdio share in a home folder, and waits until no process works there. A client that has not ended yet can
// start the process once more, which a signal then ends too.
func endShared(t *testing.T, home string) {
	t.Helper()
	data := filepath.Join(home, ".config", "switchboard", ".switchboard")
	wait.UntilNil(t, "no process works in "+home, func() error {
		rows, err := serving.Rows(data)
		if err != nil {
			return err
		}
		for _, row := range rows {
			_ = syscall.Kill(row.PID, syscall.SIGTERM) // or it has ended
		}
		live := len(rows)
		commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // its only error is a bad pattern
		for _, file := range commands {
			if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(home)) {
				live++
			}
		}
		if live > 0 {
			return fmt.Errorf("%d processes live", live)
		}
		return nil
	})
}
