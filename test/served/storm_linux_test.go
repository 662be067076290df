package served_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/storm"
)

// containerMemory is the limit of memory of a replica in docker-compose.yml, and goMemory is its GOMEMLIMIT.
const (
	containerMemory = 512 << 20
	goMemory        = "400MiB"
)

// One tenant does the worst of RX-01, RX-04, RX-06, RX-08, RX-09, RX-10 and JS-13 at once. Each call of another tenant is answered meanwhile, and the
// process fits into the memory of its container. How slow the calls become, `go run ./test/bench -only neighbors` measures.
func TestAttackANoisyNeighborStopsNoCallOfAnotherTenantAndTakesABoundedMemory(t *testing.T) {
	stormServer := storm.Server()
	bad, good := httptest.NewServer(stormServer), httptest.NewServer(storm.Quick())
	t.Cleanup(good.Close)
	t.Cleanup(bad.CloseClientConnections) // or Close would wait for calls that hang
	files, stormy, calm := storm.Files(bad.URL+"/mcp", good.URL+"/mcp")
	dir := t.TempDir()
	for name, text := range files {
		rig.WriteFile(t, filepath.Join(dir, name), text)
	}
	data, err := os.MkdirTemp("/var/tmp", "switchboard-test-") //nolint:usetesting // that may be a folder in memory, which would count
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	cmd := exec.Command(rig.Plain, "serve", "--listen", "127.0.0.1:0", "--data", data)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+goMemory)
	join, err := memoryGroup(t, containerMemory)
	g := rig.ServeBy(t, dir, cmd)
	if err == nil {
		err = join(cmd.Process.Pid)
	}
	if err != nil {
		t.Logf("no limit of memory is set, and only the peak is looked at: %v", err)
	}
	var clients []*rig.HTTPSession
	for _, modern := range []bool{false, true} {
		clients = append(clients, g.Open(t, "/mcp", modern, "Authorization", "Bearer "+calm))
	}

	ctx, stop := context.WithCancel(t.Context())
	s := &storm.Storm{Address: strings.TrimPrefix(g.URL, "http://"), Key: stormy}
	over := make(chan struct{})
	go func() { defer close(over); s.Run(ctx) }()
	calls := 0
	// On a busy machine it takes longer until each attack has reached its server.
	for until, late := time.Now().Add(10*time.Second), time.Now().Add(rig.Patience); time.Now().Before(until) || missing(stormServer) != "" && time.Now().Before(late); calls += len(clients) {
		for i, c := range clients {
			if got := rig.Call(t, c, "quick", `{"nonce":"12"}`); got != "" {
				t.Errorf("call %d, client %d: %s", calls, i, got)
			}
		}
	}
	stop()
	<-over
	if what := missing(stormServer); what != "" {
		t.Errorf("the server of the tenant that attacks was never asked for %s", what)
	}
	for about, words := range map[string]string{"RX-08": "tool refused", "RX-09": "regex.find_n was not started", "JS-13": "it writes a line without end"} {
		if !strings.Contains(g.Logged(), words) {
			t.Errorf("%s did not reach its aim: the log does not say %q", about, words)
		}
	}
	peak, err := peakMemory(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if peak > containerMemory {
		t.Errorf("the process had %d MiB at most; its container has %d", peak>>20, containerMemory>>20)
	}
	t.Logf("%d calls, the peak of memory is %d MiB, the storm did %v", calls, peak>>20, s.Done())
}

// missing is what the server of the tenant that attacks was not asked for.
func missing(s *storm.Stormy) string {
	for _, what := range []string{"tools/list", "hang", "big", "flood"} {
		if s.Asked(what) == 0 {
			return what
		}
	}
	return ""
}

// memoryGroup makes a group of processes that have so many bytes of memory together, with the pages that they have of files. join puts a process and
// what it starts later into it. The group is removed behind what the test starts after this call.
func memoryGroup(t *testing.T, limit int) (join func(pid int) error, err error) {
	for _, way := range []struct{ folder, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		if _, err := os.Stat(filepath.Join(way.folder, "cgroup.procs")); err != nil {
			continue
		}
		group, err := os.MkdirTemp(way.folder, "switchboard-test-") //nolint:usetesting // a group has to be there
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			rig.Eventually(t, "the group of processes is removed", func() string { // the last of them may be ending
				if err := os.Remove(group); err != nil {
					return err.Error()
				}
				return ""
			})
		})
		if err := os.WriteFile(filepath.Join(group, way.limit), []byte(strconv.Itoa(limit)), 0o600); err != nil {
			return nil, err
		}
		return func(pid int) error {
			return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
		}, nil
	}
	return nil, errors.New("this machine has no group for memory that we can write to")
}

// peakMemory is the most that the process itself ever had in memory, in bytes.
func peakMemory(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(n), "kB")))
			return kib << 10, err
		}
	}
	return 0, errors.New("the kernel says nothing of the peak")
}
