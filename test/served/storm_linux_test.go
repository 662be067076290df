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
	bad, good := httptest.NewServer(storm.Server()), httptest.NewServer(storm.Quick())
	t.Cleanup(good.Close)
	t.Cleanup(bad.CloseClientConnections) // or Close would wait for calls that hang
	files, stormy, calm := storm.Files(bad.URL+"/mcp", good.URL+"/mcp")
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	cmd := exec.Command(plain, "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+goMemory)
	g := serveBy(t, dir, cmd)
	if err := confine(t, cmd.Process.Pid, containerMemory); err != nil {
		t.Logf("no limit of memory is set, and only the peak is looked at: %v", err)
	}
	var clients []*httpSession
	for _, modern := range []bool{false, true} {
		clients = append(clients, g.open(t, "/mcp", modern, "Authorization", "Bearer "+calm))
	}

	ctx, stop := context.WithCancel(t.Context())
	s := &storm.Storm{Address: strings.TrimPrefix(g.url, "http://"), Key: stormy}
	over := make(chan struct{})
	go func() { defer close(over); s.Run(ctx) }()
	calls := 0
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); calls += len(clients) {
		for i, c := range clients {
			if got := called(t, c, "quick", `{"nonce":"12"}`); got != "" {
				t.Errorf("call %d, client %d: %s", calls, i, got)
			}
		}
	}
	stop()
	<-over
	for name, n := range s.Done() {
		if n == 0 {
			t.Errorf("the storm did nothing of %s", name)
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

// confine limits the memory of the process, of what it starts, and of the pages that they have of files.
func confine(t *testing.T, pid, limit int) error {
	name := fmt.Sprintf("switchboard-test-%d", pid)
	for _, way := range []struct{ folder, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		if _, err := os.Stat(filepath.Join(way.folder, "cgroup.procs")); err != nil {
			continue
		}
		group := filepath.Join(way.folder, name)
		if err := os.Mkdir(group, 0o700); err != nil {
			return err
		}
		t.Cleanup(func() { _ = os.Remove(group) }) // once its processes have ended
		return errors.Join(os.WriteFile(filepath.Join(group, way.limit), []byte(strconv.Itoa(limit)), 0o600),
			os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600))
	}
	return errors.New("this machine has no group for memory that we can write to")
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
