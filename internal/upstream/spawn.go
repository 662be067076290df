package upstream

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// baseEnv are the variables of ours that a child may see. All else that it
// gets is what its own configuration says.
var baseEnv = []string{"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}

// childEnv returns the environment of a server's processes.
func childEnv(cfg *switchboard.Server, lookup func(string) (string, bool)) ([]string, error) {
	own := cfg.Env
	var env []string
	for _, name := range baseEnv {
		if v, ok := lookup(name); ok {
			if _, set := own[name]; !set {
				env = append(env, name+"="+v)
			}
		}
	}
	for name, secret := range own {
		v := secret.Reveal()
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(v, "\x00"):
			return nil, fmt.Errorf("its environment has a variable that cannot be: %.40q", name)
		case switchboard.RefusedVariable(name) != "" && !slices.Contains(cfg.AllowEnv, name):
			return nil, fmt.Errorf("its environment sets %s: %s", name, switchboard.RefusedVariable(name))
		}
		env = append(env, name+"="+v)
	}
	slices.Sort(env)
	return env, nil
}

// A process is one server's program in a process group of its own: our child,
// or that of a guard which is.
type process struct {
	stdin          *os.File
	stdout, stderr *os.File
	pid            int // the program's

	ended  chan struct{} // closed once it is known how the program ended
	exited chan struct{} // closed once the child has been waited for, and all that it left

	mu     sync.Mutex // held to signal, so that nobody signals a group that is gone
	cmd    *exec.Cmd
	leash  *os.File // the guard's; nil without one
	how    string   // it ended; not before ended is closed
	reaped bool
}

// A spawner starts processes. The kernel sends the parent-death signal when
// the *thread* that forked ends, and Go ends threads as it likes: so all
// children are started by one goroutine that holds one thread until the
// spawner is closed, which is after all of them have gone.
type spawner struct {
	guard []string // a command that runs Guard; nil means that there are no guards

	once sync.Once
	jobs chan func()
	done chan struct{}
}

func newSpawner(guardCommand []string) *spawner {
	return &spawner{guard: guardCommand, jobs: make(chan func()), done: make(chan struct{})}
}

// on runs f on the spawner's thread.
func (sp *spawner) on(f func() error) error {
	sp.once.Do(func() {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			defer close(sp.done)
			for job := range sp.jobs {
				job()
			}
		}()
	})
	result := make(chan error, 1)
	sp.jobs <- func() { result <- f() }
	return <-result
}

// close ends the thread, and with it whatever child there still is.
func (sp *spawner) close() {
	sp.once.Do(func() { close(sp.done) })
	close(sp.jobs)
	<-sp.done
}

// start starts the server's process. The error holds no secret.
func (sp *spawner) start(cfg *switchboard.Server) (*process, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("it has no command")
	}
	env, err := childEnv(cfg, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	program := programPath(cfg)
	if !strings.ContainsRune(program, filepath.Separator) {
		if program, err = exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("its program %q is not on the PATH: %w", cfg.Command[0], errors.Unwrap(err))
		}
	}

	p := &process{ended: make(chan struct{}), exited: make(chan struct{})}
	var theirs [3]*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	if theirs[0], p.stdin, err = os.Pipe(); err == nil {
		if p.stdout, theirs[1], err = os.Pipe(); err == nil {
			p.stderr, theirs[2], err = os.Pipe()
		}
	}
	if err != nil {
		p.closePipes()
		return nil, fmt.Errorf("pipes for its process: %w", err)
	}

	p.cmd = &exec.Cmd{
		Path: program, Args: cfg.Command, Env: env, Dir: cfg.Dir,
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		SysProcAttr: childAttr(),
	}
	if len(sp.guard) > 0 {
		err = sp.startGuarded(p)
	} else if err = sp.run(p.cmd); err == nil {
		p.pid = p.cmd.Process.Pid
		go p.reap()
	}
	if err != nil {
		p.closePipes()
		if wrapped, ok := errors.AsType[*os.PathError](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("start %q: %w", cfg.Command[0], err)
	}
	return p, nil
}

// run starts cmd, which gets no files of ours but its own.
func (sp *spawner) run(cmd *exec.Cmd) error {
	return sp.on(func() error {
		if err := closeOnExec(); err != nil {
			return fmt.Errorf("keep our files from it: %w", err)
		}
		return cmd.Start()
	})
}

// startGuarded has p's program started by a guard.
func (sp *spawner) startGuarded(p *process) error {
	by, leash, report, err := guarded(sp.guard, p.cmd)
	if err != nil {
		return err
	}
	err = sp.run(by)
	_, _ = by.Stdin.(*os.File).Close(), by.Stdout.(*os.File).Close() // it has its own
	lines := bufio.NewReader(report)
	if err == nil {
		if p.pid, err = readStart(report, lines); err != nil {
			_ = by.Process.Kill()
			_ = by.Wait()
		}
	}
	if err != nil {
		_, _ = leash.Close(), report.Close()
		return err
	}
	p.cmd, p.leash = by, leash
	go func() {
		defer report.Close() //nolint:errcheck // it was only read
		how, _ := lines.ReadString('\n')
		p.how = strings.TrimSuffix(how, "\n")
		close(p.ended)
		_ = by.Wait()
		p.mu.Lock()
		_ = leash.Close()
		p.reaped = true
		p.mu.Unlock()
		close(p.exited)
	}()
	return nil
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.Close()
	}
}

// reap waits for the child, and takes with it whatever it leaves behind in its
// group. The group is killed before the child is waited for: until then no
// other can have its number.
func (p *process) reap() {
	waitUnreaped(p.pid)
	p.mu.Lock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
	p.how, p.reaped = p.cmd.ProcessState.String(), true
	p.mu.Unlock()
	close(p.ended)
	close(p.exited)
}

// signal sends SIGTERM or SIGKILL to the child's group, if it still exists.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.reaped:
	case p.leash == nil:
		_ = syscall.Kill(-p.pid, sig)
	case sig == syscall.SIGTERM:
		_, _ = p.leash.Write([]byte{'t'})
	default:
		_ = p.leash.Close()
	}
}

// ending says how the child ended, if it has.
func (p *process) ending() string {
	select {
	case <-p.ended:
		return cmp.Or(p.how, "its guard was killed")
	default:
		return ""
	}
}

// How long a child is given to end: after its stdin was closed, after SIGTERM,
// and after SIGKILL, which only a child that hangs in the kernel outlives.
const (
	graceInput = 2 * time.Second
	graceTerm  = 2 * time.Second
	graceKill  = 5 * time.Second
)

// stop ends the child and its group, gently first, and reports whether it has
// gone. Once hurry is closed there is no more gentleness.
func (p *process) stop(hurry <-chan struct{}) bool {
	_ = p.stdin.Close()
	if p.within(graceInput, hurry) {
		return true
	}
	p.signal(syscall.SIGTERM)
	if p.within(graceTerm, hurry) {
		return true
	}
	p.signal(syscall.SIGKILL)
	return p.within(graceKill, nil)
}

// within reports whether the child goes within d.
func (p *process) within(d time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
	case <-hurry:
	}
	return false
}
