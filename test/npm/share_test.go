package npm_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// Eight servers from npm, as a person at a desk has them.
const eightServers = `
-- switchboard.yaml --
start_deadline: 2m
servers:
  files: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-filesystem/dist/index.js", "%[2]s"]}
  notes: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-filesystem/dist/index.js", "%[2]s"]}
  memory: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-memory/dist/index.js"], env: {MEMORY_FILE_PATH: "%[2]s/memory.jsonl"}}
  everything: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-everything/dist/index.js"]}
  thinking: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-sequential-thinking/dist/index.js"], env: {DISABLE_THOUGHT_LOGGING: "true"}}
  git: {transport: stdio, command: [node, "%[1]s/@cyanheads/git-mcp-server/dist/index.js"], env: {GIT_BASE_DIR: "%[2]s", MCP_LOG_LEVEL: error}}
  passwords: {transport: stdio, command: [node, "%[1]s/@takescake/1password-mcp/bin/1password-mcp.js"]}
  search: {transport: stdio, command: [node, "%[1]s/mcp-searxng/dist/cli.js"], env: {SEARXNG_URL: "http://127.0.0.1:9"}}
tenants: {default: {servers: ["*"], allow: [by_name], token_budget: 60000}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"]}
`

// A usage is what some processes use: their number, by kind, and their memory.
type usage struct {
	node, others int
	bytes        int64
}

func (u usage) processes() int { return u.node + u.others }

// times returns the usage of n times as many processes.
func (u usage) times(n int) usage { return usage{u.node * n, u.others * n, u.bytes * int64(n)} }

// TestFourClientsShareEightServers measures four clients on stdio, each alone and all together. Alone, one client is started and counted
// four times, because four take a minute; with SWITCHBOARD_MEASURE=1 there are four.
func TestFourClientsShareEightServers(t *testing.T) {
	npmlock.Need(t, "eight npm servers", "git")
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	dir := layOut(t, fmt.Appendf(nil, eightServers, modules, t.TempDir()))
	const clients = 4
	really, factor := 1, clients
	if os.Getenv("SWITCHBOARD_MEASURE") != "" {
		really, factor = clients, 1
	}
	alone := measureClients(t, dir, really, "--alone").times(factor)
	together := measureClients(t, dir, clients, "--linger", "0s")
	var table strings.Builder
	fmt.Fprintf(&table, "| four clients, eight servers | processes | of these node | memory |\n| --- | --- | --- | --- |\n")
	for _, row := range []struct {
		name string
		usage
	}{{"each with its own servers (`--alone`)", alone}, {"sharing", together}} {
		fmt.Fprintf(&table, "| %s | %d | %d | %d MiB |\n", row.name, row.processes(), row.node, row.bytes>>20)
	}
	t.Logf("\n%s", &table)
	if together.node != 8 || 3*together.processes() > alone.processes() || 3*together.bytes > alone.bytes {
		t.Errorf("sharing takes more than a third:\n%s", &table)
	}
	wait.Until(t, "the shared process has ended", func() bool {
		rows, err := serving.Rows(filepath.Join(dir, ".switchboard"))
		return err == nil && len(rows) == 0 && len(belowAll(t, dir)) == 0
	})
}

// measureClients starts n clients, and returns what they use when each has listed its tools and called one.
func measureClients(t *testing.T, dir string, n int, args ...string) usage {
	t.Helper()
	var all sync.WaitGroup
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	for i := range n {
		cmd := exec.Command(switchboard(t), append([]string{"stdio"}, args...)...)
		log := &locked{}
		cmd.Dir, cmd.Stderr = dir, log
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		dog := watch(2*patience, cmd)
		ends = append(ends, func() {
			_ = in.Close()
			err := cmd.Wait()
			dog.Stop()
			dog.check(t)
			if err != nil {
				t.Errorf("client %d ended with %v:\n%s", i, err, log)
			}
		})
		all.Go(func() {
			lines := bufio.NewReader(out)
			id := 0
			exchange := func(text string) (answer string, there bool) {
				id++
				fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", id, text)
				for {
					line, err := lines.ReadString('\n')
					if err != nil && !dog.bit.Load() {
						t.Errorf("client %d, %s: %v\n%s", i, text, err, log)
					}
					if err != nil || strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) {
						return line, err == nil
					}
				}
			}
			ask := func(text, want string) {
				if line, there := exchange(text); there && !strings.Contains(line, want) {
					t.Errorf("client %d, %s: %.300s", i, text, line)
				}
			}
			ask(`"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`, `"result"`)
			fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			for began := time.Now(); ; <-time.After(wait.Pause(time.Since(began), 0)) { // a list does not wait long for servers that start late
				if line, there := exchange(`"method":"tools/list"`); !there || strings.Contains(line, `"sequentialthinking"`) {
					break
				}
			}
			ask(`"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}`, "hello")
		})
	}
	all.Wait()
	var u usage
	wait.Until(t, "all servers run", func() bool {
		u = usage{}
		for _, pid := range belowAll(t, dir) {
			u.add(pid)
		}
		return u.node == 8 || u.node == 8*n
	})
	return u
}

// add adds a process. Its memory is its proportional share, or if the kernel does not say that, what it has in memory.
func (u *usage) add(pid int) {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return // it has ended
	}
	if strings.HasPrefix(string(name), "node") || strings.HasPrefix(string(name), "MainThread") {
		u.node++
	} else {
		u.others++
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	field := "Pss:"
	if err != nil || len(text) == 0 {
		text, _ = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		field = "VmRSS:"
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			u.bytes += kib << 10
			return
		}
	}
}

// belowAll returns the processes that work for the folder: those with it as their working directory, and what they have started.
func belowAll(t *testing.T, dir string) (all []int) {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		if cwd, err := os.Readlink(file); err == nil && cwd == real {
			all = append(all, pid)
		}
	}
	return all
}
