package upstream

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A guard is a small process beside ours that outlives us by an instant. The
// parent-death signal reaches a server's first process only, and not those
// that it started in its group (as npx does). The guard is told of each group;
// when the pipe to it closes, because we are gone by whatever signal, it kills
// those that are left.
//
// Without a command there is no guard.
type guard struct {
	command []string

	mu     sync.Mutex
	groups map[int]bool
	cmd    *exec.Cmd
	pipe   *os.File
	closed bool
	wg     sync.WaitGroup
}

func newGuard(command []string) *guard {
	return &guard{command: command, groups: map[int]bool{}}
}

// add tells the guard, which is started with the first group.
func (g *guard) add(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[group] = true
	if g.pipe == nil {
		g.start() // it is told of all groups
		return
	}
	g.tell("+", group)
}

func (g *guard) remove(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, group)
	g.tell("-", group)
}

// tell writes one line. A guard that cannot be written to has gone, and is
// started anew by the one who waits for it.
func (g *guard) tell(sign string, group int) {
	if g.pipe != nil {
		_ = g.pipe.SetWriteDeadline(time.Now().Add(guardPatience))
		_, _ = fmt.Fprintf(g.pipe, "%s%d\n", sign, group)
	}
}

// guardPatience is how long a guard may keep us from writing a few bytes.
const guardPatience = time.Second

// start starts the guard. Without one, servers run all the same.
func (g *guard) start() {
	if len(g.command) == 0 || g.closed || closeOnExec() != nil {
		return
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return
	}
	defer theirs.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(g.command[0], g.command[1:]...)
	cmd.Env = []string{}
	cmd.Stdin = theirs
	// A session of its own, so that what the terminal sends to us misses it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.Start() != nil {
		_ = ours.Close()
		return
	}
	g.cmd, g.pipe = cmd, ours
	for group := range g.groups {
		g.tell("+", group)
	}
	g.wg.Go(func() {
		_ = cmd.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		_ = g.pipe.Close()
		g.pipe = nil
		if len(g.groups) > 0 {
			g.start() // somebody killed it
		}
	})
}

func (g *guard) close() {
	g.mu.Lock()
	g.closed = true
	if g.pipe != nil {
		_ = g.pipe.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// Guard is the whole life of the process that Options.Guard names: it reads
// from in, which is our end of a pipe, which process groups there are, and
// kills those that are left when the pipe is closed. It returns then.
func Guard(in io.Reader) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	groups := map[int]bool{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		number, ok := strings.CutPrefix(lines.Text(), "+")
		if !ok {
			number = strings.TrimPrefix(lines.Text(), "-")
		}
		// 0 and 1 would be our own group, and everybody.
		if group, err := strconv.Atoi(number); err == nil && group > 1 {
			if ok {
				groups[group] = true
			} else {
				delete(groups, group)
			}
		}
	}
	for group := range groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}
