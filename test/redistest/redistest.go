// Package redistest runs real Redis for tests: one server, a Cluster, or a master with a replica and a Sentinel, on loopback, in folders that are
// removed with the test. A test can kill and pause them, and start them again at the same address.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/system"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A T is a *testing.T, or a Process.
type T interface {
	Helper()
	Cleanup(f func())
	TempDir() string
	Failed() bool
	Logf(format string, args ...any)
	Skip(args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// A Process is a T that lasts longer than one test, for servers that several tests share: call End in TestMain. The zero Process is ready.
type Process struct {
	mu       sync.Mutex
	cleanups []func()
}

// Cleanup makes End call f.
func (p *Process) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// End calls the functions of Cleanup, the last first.
func (p *Process) End() {
	for len(p.cleanups) > 0 {
		last := len(p.cleanups) - 1
		p.cleanups[last]()
		p.cleanups = p.cleanups[:last]
	}
}

// TempDir returns a folder that End removes.
func (p *Process) TempDir() string {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Fatal panics: there is no test to end.
func (p *Process) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf is Fatal.
func (p *Process) Fatalf(format string, args ...any) { p.Fatal(fmt.Sprintf(format, args...)) }

// Skip is Fatal, because a test calls Need before it uses a shared server.
func (p *Process) Skip(args ...any) { p.Fatal(args...) }

// Helper does nothing.
func (p *Process) Helper() {}

// Failed returns false.
func (p *Process) Failed() bool { return false }

// Logf does nothing.
func (p *Process) Logf(string, ...any) {}

// Need ends a test if redis-server is missing: as a failure if SWITCHBOARD_REQUIRE=1, else skipped.
func Need(t T) {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	switch {
	case err == nil:
	case os.Getenv("SWITCHBOARD_REQUIRE") == "1":
		t.Fatal("Redis: required: redis-server is not installed")
	default:
		t.Skip("skipped: Redis (redis-server is not installed)")
	}
}

// A Server is one process of redis-server. It ends with the test.
type Server struct {
	Addr string

	t     T
	dir   string
	args  []string
	begin func(*exec.Cmd) error
	cmd   *exec.Cmd
	ended chan struct{} // of cmd
}

// Start starts a server that writes each change to its disk before it answers.
// settings are added to its command line: "--appendfsync", "everysec".
func Start(t T, settings ...string) *Server {
	t.Helper()
	Need(t)
	s := prepare(t, settings...)
	s.Start()
	return s
}

// Prepare is Start for a server that does not run yet.
func Prepare(t T, settings ...string) *Server {
	t.Helper()
	Need(t)
	return prepare(t, settings...)
}

func prepare(t T, settings ...string) *Server {
	s := &Server{Addr: freeAddr(t), t: t, dir: folder(t), begin: outlived(t)}
	s.args = append([]string{
		"--port", port(s.Addr), "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"),
		"--daemonize", "no", "--save", "", "--appendonly", "yes", "--appendfsync", "always",
	}, settings...)
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(s.dir, "log")); err == nil {
				t.Logf("the end of what redis-server on %s logged:\n%s", s.Addr, tail(string(log), 20))
			}
		}
	})
	return s
}

// URL returns its address for the store.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Dir returns the folder of the server's files.
func (s *Server) Dir() string { return s.dir }

// Command returns a command that would start the server, for a test that starts it with another program.
func (s *Server) Command() *exec.Cmd { return exec.Command("redis-server", s.args...) }

// Start starts the server again after Kill, on the same files, and waits until it serves.
func (s *Server) Start() {
	s.t.Helper()
	s.Launch()
	s.Wait()
}

// Launch is Start without waiting.
func (s *Server) Launch() {
	s.t.Helper()
	s.cmd, s.ended = s.Command(), make(chan struct{})
	cmd, ended := s.cmd, s.ended
	if err := s.begin(cmd); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
}

// Wait waits until the server serves.
func (s *Server) Wait() {
	s.t.Helper()
	Until(s.t, "redis-server on "+s.Addr+" serves", func() error {
		select {
		case <-s.ended:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("redis-server has ended:\n%s", tail(string(log), 20))
		default:
		}
		return s.do(func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() })
	})
}

// Serves reports whether the server answers.
func (s *Server) Serves() bool {
	_, err := s.Try("ping")
	return err == nil
}

// Kill ends the server with SIGKILL, as a failing machine would. A second Kill does nothing.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	system.KillGroup(s.cmd.Process.Pid)
	<-s.ended
	// Its forked child, which rewrites files, dies a moment later.
	for range 200 {
		if !system.KillGroup(s.cmd.Process.Pid) {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Pause stops the server until Resume. Its connections stay open.
func (s *Server) Pause() { s.signal(system.Pause) }

// Resume ends Pause. The server then executes the commands that were sent meanwhile.
func (s *Server) Resume() { s.signal(system.Resume) }

func (s *Server) signal(how func(*os.Process) error) {
	s.t.Helper()
	if err := how(s.cmd.Process); err != nil {
		s.t.Fatal(err)
	}
}

// Do sends one command, and returns the answer.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	answer, err := s.Try(args...)
	if test, is := s.t.(testing.TB); is && wait.TimedOut(err) {
		wait.Late(test, "%v: %v", args, err)
	}
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// Try is Do for a command that may fail: a replica that becomes master drops its connections.
func (s *Server) Try(args ...any) (answer any, err error) {
	err = s.do(func(ctx context.Context, c *redis.Client) (err error) {
		answer, err = c.Do(ctx, args...).Result()
		return err
	})
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return answer, err
}

// quiet drops the client's log lines about a server that is down.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

func (s *Server) do(f func(context.Context, *redis.Client) error) error {
	const most = wait.Bound / 3 // for one command; its client would not wait for so long
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr, Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DialTimeout: most, ReadTimeout: most, WriteTimeout: most,
	})
	defer c.Close() //nolint:errcheck // nothing is lost
	return f(ctx, c)
}

// A Cluster has its slots spread evenly over its nodes, in their order, and no replicas.
type Cluster struct{ Nodes []*Server }

const slots = 16384

// StartCluster starts a Cluster of n nodes. Each node keeps serving if others are down.
func StartCluster(t T, n int, settings ...string) *Cluster {
	t.Helper()
	Need(t)
	c := &Cluster{}
	var buses []string
	for range n {
		bus := port(freeAddr(t))
		buses = append(buses, bus)
		c.Nodes = append(c.Nodes, Start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no",
		}, settings...)...))
	}
	for i, node := range c.Nodes {
		node.Do("cluster", "addslotsrange", i*slots/n, (i+1)*slots/n-1)
		node.Do("cluster", "set-config-epoch", i+1)
		if i > 0 {
			node.Do("cluster", "meet", "127.0.0.1", port(c.Nodes[0].Addr), buses[0])
		}
	}
	c.Wait()
	return c
}

// Wait waits until each node knows all slots and sees all nodes healthy.
func (c *Cluster) Wait() {
	t := c.Nodes[0].t
	t.Helper()
	for _, node := range c.Nodes {
		Until(t, "the cluster is whole", func() error {
			return node.do(func(ctx context.Context, r *redis.Client) error {
				info, err := r.ClusterInfo(ctx).Result()
				for _, want := range []string{"cluster_state:ok\r", fmt.Sprintf("cluster_slots_ok:%d\r", slots), fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))} {
					if err == nil && !strings.Contains(info, want) {
						err = errors.New(info)
					}
				}
				return err
			})
		})
	}
}

// URL returns its address for the store.
func (c *Cluster) URL() string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// A Watched is a master with a replica, and a Sentinel that promotes the replica soon after the master fails.
type Watched struct{ Master, Replica, Sentinel *Server }

// StartWatched starts a Watched with a replica that is in sync.
func StartWatched(t T) *Watched {
	t.Helper()
	Need(t)
	w := &Watched{Master: Start(t)}
	w.Replica = Start(t, "--replicaof", "127.0.0.1 "+port(w.Master.Addr), "--repl-diskless-sync-delay", "0")
	Until(t, "the replica follows", func() error {
		if info := fmt.Sprint(w.Replica.Do("info", "replication")); !strings.Contains(info, "master_link_status:up") {
			return errors.New(info)
		}
		return nil
	})
	w.Sentinel = prepare(t)
	conf := filepath.Join(w.Sentinel.dir, "sentinel.conf")
	text := fmt.Sprintf(`port %s
bind 127.0.0.1
dir %s
logfile %s
sentinel monitor main 127.0.0.1 %s 1
sentinel down-after-milliseconds main 2000
sentinel failover-timeout main 2000
`, port(w.Sentinel.Addr), w.Sentinel.dir, filepath.Join(w.Sentinel.dir, "log"), port(w.Master.Addr))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Sentinel.args = []string{conf, "--sentinel"}
	w.Sentinel.Start()
	Until(t, "the Sentinel knows the replica", func() error {
		if replicas, _ := w.Sentinel.Do("sentinel", "replicas", "main").([]any); len(replicas) != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	return w
}

// URL returns its address for the store.
func (w *Watched) URL() string { return "redis+sentinel://" + w.Sentinel.Addr + "/main" }

// Until waits for ok to return nil. A test is late if that takes too long.
func Until(t T, what string, ok func() error) {
	t.Helper()
	if test, is := t.(testing.TB); is {
		wait.UntilNil(test, what, ok)
		return
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(wait.Bound)
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not after %s: %s: %v", wait.Bound, what, err)
		}
	}
}

// outlived returns a function that starts a program. The system kills the program when this process dies, for any reason. It does so when the starting
// thread ends, so this thread lasts as long as the test.
func outlived(t T) func(*exec.Cmd) error {
	start, started := make(chan *exec.Cmd), make(chan error)
	go func() {
		runtime.LockOSThread()
		for cmd := range start {
			dieWithUs(cmd)
			started <- cmd.Start()
		}
	}()
	t.Cleanup(func() { close(start) })
	return func(cmd *exec.Cmd) error {
		start <- cmd
		return <-started
	}
}

// folder returns the folder of a server's files. For a test it is in memory, so that a disk that other programs keep busy does not delay answers. For a
// benchmark it is on a disk.
func folder(t T) string {
	if _, ok := t.(*testing.T); ok {
		if dir := scratch.Dir(); dir != "" {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

// freeAddr returns an address that stays free while the server is down.
func freeAddr(t T) string {
	t.Helper()
	addr, err := scratch.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	if _, err := strconv.Atoi(p); err != nil {
		panic(err)
	}
	return p
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
