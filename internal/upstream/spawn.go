package upstream

import (
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

// loaderEnv are variables that make a program run other code than its own.
var loaderEnv = []string{
	"BASH_ENV", "ENV", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "NODE_OPTIONS", "PATH", "PERL5LIB", "PERL5OPT",
	"PYTHONHOME", "PYTHONSTARTUP", "RUBYLIB", "RUBYOPT", "_JAVA_OPTIONS",
}

// loads reports whether the variable makes a program run other code.
func loads(name string) bool {
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || slices.Contains(loaderEnv, name)
}

// childEnv returns the environment of a server's processes.
func childEnv(own map[string]switchboard.Secret, lookup func(string) (string, bool)) ([]string, error) {
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
		case loads(name):
			return nil, fmt.Errorf("its environment sets %s, which makes a program run other code than its own", name)
		}
		env = append(env, name+"="+v)
	}
	slices.Sort(env)
	return env, nil
}

// A process is one child in a process group of its own.
type process struct {
	stdin          *os.File
	stdout, stderr *os.File
	pid            int

	exited chan struct{} // closed once the child has been waited for

	mu     sync.Mutex // held to signal, so that nobody signals a group that is gone
	cmd    *exec.Cmd
	reaped bool
}

// A spawner starts processes. The kernel sends the parent-death signal when
// the *thread* that forked ends, and Go ends threads as it likes: so all
// children are started by one goroutine that holds one thread until the
// spawner is closed, which is after all of them have gone.
type spawner struct {
	guard *guard

	once sync.Once
	jobs chan func()
	done chan struct{}
}

func newSpawner(guardCommand []string) *spawner {
	return &spawner{guard: newGuard(guardCommand), jobs: make(chan func()), done: make(chan struct{})}
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
	sp.guard.close()
}

// start starts the server's process. The error holds no secret.
func (sp *spawner) start(cfg *switchboard.Server) (*process, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("it has no command")
	}
	env, err := childEnv(cfg.Env, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	program := cfg.Command[0]
	if strings.ContainsRune(program, filepath.Separator) {
		if !filepath.IsAbs(program) && cfg.Dir != "" {
			program = filepath.Join(cfg.Dir, program)
		}
	} else if program, err = exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("its program %q is not on the PATH: %w", cfg.Command[0], errors.Unwrap(err))
	}

	p := &process{exited: make(chan struct{})}
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
	err = sp.on(func() error {
		if err := closeOnExec(); err != nil {
			return fmt.Errorf("keep our files from it: %w", err)
		}
		return p.cmd.Start()
	})
	if err != nil {
		p.closePipes()
		if wrapped, ok := errors.AsType[*os.PathError](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("start %q: %w", cfg.Command[0], err)
	}
	p.pid = p.cmd.Process.Pid
	sp.guard.add(p.pid)
	go p.reap(sp.guard)
	return p, nil
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.Close()
	}
}

// reap waits for the child, and takes with it whatever it leaves behind in its
// group. The group is killed before the child is waited for: until then no
// other can have its number.
func (p *process) reap(g *guard) {
	waitUnreaped(p.pid)
	p.mu.Lock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
	p.reaped = true
	p.mu.Unlock()
	g.remove(p.pid)
	close(p.exited)
}

// signal sends sig to the child's group, if it still exists.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid, sig)
	}
}

// ending says how the child ended, if it has.
func (p *process) ending() string {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.String()
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
