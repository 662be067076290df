// Package process runs the programs of servers as child processes.
//
// It decides how a program is started and ended: its environment and its files, the process group, the
// guard that ends everything that the program has started, and the time that each step may take. It
// limits what their stderr may add to the log, and says what an operator can do if a program does not
// start. Package link writes to their stdin and reads their stdout.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

// childEnv returns the environment of a server's processes.
func childEnv(cfg *switchboard.Server, lookup func(string) (string, bool)) ([]string, error) {
	own := cfg.Env
	var env []string
	for _, name := range BaseEnv {
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
			return nil, fmt.Errorf("its environment has an invalid variable: %.40q", name)
		case switchboard.RefusedVariable(name) != "" && !slices.Contains(cfg.AllowEnv, name):
			return nil, fmt.Errorf("its environment sets %s: %s", name, switchboard.RefusedVariable(name))
		}
		env = append(env, name+"="+v)
	}
	slices.Sort(env)
	return env, nil
}

// A Process is one server's program in a process group of its own, on Windows in a job of its own. It is our child
// process, or the child process of our guard.
type Process struct {
	Stdin          *os.File // our ends of its pipes
	Stdout, Stderr *os.File
	PID            int            // of the program
	Walls          *wall.InEffect // around it

	Ended chan struct{} // closed when it is known how the program ended
	gone  chan struct{} // closed when the child process and all that it started have been waited for

	mu       sync.Mutex // held to signal, so that no signal reaches a process that got the number later
	cmd      *exec.Cmd
	order    *wall.Order // the walls that it is to have
	tie      tie         // what ends the program together with us
	exitText string      // how the program ended; valid when Ended is closed
	reaped   bool
}

// A Spawner starts processes. The kernel sends the parent-death signal when the *thread* that
// forked ends, and Go may end any thread. So one goroutine starts all child processes. It holds one
// thread until the spawner is closed, when all child processes have ended.
type Spawner struct {
	// Own returns Switchboard's own files and folders, which no program sees; nil means that there are none.
	Own func() []string

	// Prepare returns the row with which the program of a server is started. Its error says why it must not be started. nil means that rows are used as they are.
	Prepare func(ctx context.Context, s *switchboard.Server) (*switchboard.Server, error)

	guard []string // a command that runs Guard; nil means no guards, and no walls

	once sync.Once
	jobs chan func()
	done chan struct{}
}

// NewSpawner returns a spawner. guard is a command that runs Guard; nil means no guards.
func NewSpawner(guard []string) *Spawner {
	return &Spawner{guard: guard, jobs: make(chan func()), done: make(chan struct{})}
}

// runOnThread runs f on the spawner's thread.
func (sp *Spawner) runOnThread(f func() error) error {
	sp.once.Do(func() {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
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

// Close ends the thread, and thereby every child process that is left.
func (sp *Spawner) Close() {
	sp.once.Do(func() { close(sp.done) })
	close(sp.jobs)
	<-sp.done
}

// Start starts the server's process. The error contains no secret.
func (sp *Spawner) Start(cfg *switchboard.Server) (*Process, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("it has no command")
	}
	if cfg.Package.Name != "" && cfg.Package.Dir == "" {
		return nil, errors.New("its package has not been checked")
	}
	env, err := childEnv(cfg, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	program, err := findProgram(programPath(cfg))
	if err != nil {
		return nil, fmt.Errorf("its program %q is not on the PATH: %w", cfg.Command[0], errors.Unwrap(err))
	}

	p := &Process{Ended: make(chan struct{}), gone: make(chan struct{})}
	var theirs [3]*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	if theirs[0], p.Stdin, err = os.Pipe(); err == nil {
		if p.Stdout, theirs[1], err = os.Pipe(); err == nil {
			p.Stderr, theirs[2], err = os.Pipe()
		}
	}
	if err != nil {
		p.closePipes()
		return nil, fmt.Errorf("pipes for its process: %w", err)
	}

	p.cmd = &exec.Cmd{
		Path: program, Args: cfg.Command, Env: env, Dir: cfg.Dir,
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		SysProcAttr: childSysProcAttr(),
	}
	p.order = wall.Plan(cfg, program, env, sp.machine())
	if err := sp.launch(p); err != nil {
		p.closePipes()
		if wrapped, ok := errors.AsType[*os.PathError](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("start %q: %w", cfg.Command[0], err)
	}
	return p, nil
}

// machine returns what is to be known of the machine for the walls of a program.
func (sp *Spawner) machine() (m wall.Machine) {
	m.Home, _ = os.UserHomeDir()
	if m.Home == "" { // as in many containers and services
		if u, err := user.Current(); err == nil {
			m.Home = u.HomeDir
		}
	}
	if m.Home != "" {
		m.Home = filepath.Clean(m.Home)
	}
	m.Dir, _ = os.Getwd() // or no folder that can be named
	m.Root = os.Geteuid() == 0
	if sp.Own != nil {
		m.Own = sp.Own()
	}
	return m
}

// startCommand starts cmd. cmd inherits none of our open files but its own.
func (sp *Spawner) startCommand(cmd *exec.Cmd) error {
	return sp.runOnThread(func() error {
		if err := setCloseOnExec(); err != nil {
			return fmt.Errorf("set close-on-exec on our files: %w", err)
		}
		return cmd.Start()
	})
}

func (p *Process) closePipes() {
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		_ = f.Close()
	}
}

// ExitStatus says how the program ended, or returns "" while it runs.
func (p *Process) ExitStatus() string {
	select {
	case <-p.Ended:
		return cmp.Or(p.exitText, "its guard was killed")
	default:
		return ""
	}
}

// How long a child process may take to end: after its stdin is closed, after SIGTERM, and after
// SIGKILL. Only a process that hangs in the kernel outlives SIGKILL.
const (
	InputGrace = 2 * time.Second
	TermGrace  = 2 * time.Second
	killGrace  = 5 * time.Second
)

// Stop ends the child process and all that it started, first gently, and reports whether they are gone. When
// hurry is closed, it stops waiting and kills them.
func (p *Process) Stop(hurry <-chan struct{}) bool {
	_ = p.Stdin.Close()
	if p.goneWithin(InputGrace, hurry) {
		return true
	}
	p.terminate()
	if p.goneWithin(TermGrace, hurry) {
		return true
	}
	p.kill()
	return p.goneWithin(killGrace, nil)
}

// goneWithin reports whether the process is gone within d. It returns false early if hurry is
// closed.
func (p *Process) goneWithin(d time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.gone:
		return true
	case <-timer.C:
	case <-hurry:
	}
	return false
}
