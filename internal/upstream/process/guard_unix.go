//go:build unix

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A guard is a small process between Switchboard and a server's program. It starts the program and
// ends with it, and then ends every process that the program has started. If Switchboard is killed
// by any signal, the guard outlives it for a moment to do that.
//
// Two simpler ways do not suffice. The parent-death signal reaches only the program, and not its
// own children (such as those of npx). And programs can leave their process group. On Linux, a
// process that loses its parent becomes a child of the nearest ancestor that asked for it. That
// ancestor must outlive Switchboard, so it cannot be Switchboard itself. On other systems the guard
// ends the process group.
//
// A guard has the other ends of two pipes. It reads orders from the leash: a byte means to send
// SIGTERM to the program, and the end of the leash means to kill everything. It writes two lines to
// the report: that the program was started, or why not, and then how it ended.

// Time limits of a guard.
const (
	guardStartTimeout = 10 * time.Second // to start a program
	sweepTimeout      = 5 * time.Second  // to kill everything that is left
)

// The lines of the report.
const (
	reportStarted = "started " // followed by the program's process id
	reportError   = "error "
)

// guardStdin is the number of the program's stdin among the guard's files. stdout and stderr
// follow.
const guardStdin = 3

// guardCommand returns the command of a guard that runs cmd, and our ends of its pipes.
func guardCommand(guard []string, cmd *exec.Cmd) (by *exec.Cmd, leash, report *os.File, err error) {
	by = &exec.Cmd{
		Path: guard[0], Args: append(append(append([]string{}, guard...), cmd.Path), cmd.Args...), Env: cmd.Env, Dir: cmd.Dir,
		ExtraFiles: []*os.File{cmd.Stdin.(*os.File), cmd.Stdout.(*os.File), cmd.Stderr.(*os.File)},
		// A session of its own: signals of the terminal do not reach it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	their, leash, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	report, theirs, err := os.Pipe()
	if err != nil {
		_, _ = their.Close(), leash.Close()
		return nil, nil, nil, err
	}
	by.Stdin, by.Stdout = their, theirs
	return by, leash, report, nil
}

// readStart reads from the report whether the program was started.
func readStart(report *os.File, lines *bufio.Reader) (pid int, err error) {
	if err := report.SetReadDeadline(time.Now().Add(guardStartTimeout)); err != nil {
		return 0, err
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("its guard does not start: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if number, ok := strings.CutPrefix(line, reportStarted); ok {
		if pid, err = strconv.Atoi(number); err != nil {
			return 0, err
		}
		return pid, report.SetReadDeadline(time.Time{})
	}
	return 0, errors.New(strings.TrimPrefix(line, reportError))
}

// Guard is the whole life of the process that Options.Guard starts. in and out are its stdin and
// stdout. command are its further arguments.
func Guard(in io.Reader, out io.Writer, command []string) {
	// The signals are caught and not ignored, because the program would inherit ignored signals.
	// SIGPIPE is caught so that a guard survives when its report is not read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	runtime.LockOSThread() // the program must end with the guard, and not with a thread of the guard
	w, err := startProgram(command)
	if err != nil {
		_, _ = fmt.Fprintf(out, "%s%s\n", reportError, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	_, _ = fmt.Fprintf(out, "%s%d\n", reportStarted, w.cmd.Process.Pid)
	debug.FreeOSMemory() // there is one guard per server, and it needs no more memory
	go func() {
		var order [1]byte
		for {
			if n, err := in.Read(order[:]); n > 0 {
				w.terminate()
			} else if err != nil {
				break
			}
		}
		for end := time.Now().Add(sweepTimeout); time.Now().Before(end); time.Sleep(sweepEvery) {
			w.kill()
		}
		os.Exit(1) // the rest hangs in the kernel
	}()
	_, _ = fmt.Fprintln(out, w.wait())
	w.sweep()
}

// sweepEvery is the interval between two searches for processes to kill.
const sweepEvery = 5 * time.Millisecond

// A guardedProgram is the program that a guard runs, and all processes that it has started.
type guardedProgram struct {
	cmd *exec.Cmd

	mu    sync.Mutex // held to signal and to reap, so that no signal reaches a process that got the number later
	ended bool       // and was reaped
}

func startProgram(command []string) (*guardedProgram, error) {
	if len(command) < 2 {
		return nil, errors.New("there is no program to run; Switchboard itself runs this command")
	}
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	var files [3]*os.File
	for i := range files {
		files[i] = os.NewFile(uintptr(guardStdin+i), "")
		syscall.CloseOnExec(guardStdin + i)
		defer files[i].Close() //nolint:errcheck // the program has its own
	}
	w := &guardedProgram{cmd: &exec.Cmd{
		Path: command[0], Args: command[1:],
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: childSysProcAttr(),
	}}
	err := w.cmd.Start()
	if wrapped, ok := errors.AsType[*os.PathError](err); ok {
		err = wrapped.Err
	}
	return w, err
}

// terminate sends SIGTERM to the program's process group.
func (w *guardedProgram) terminate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGTERM)
	}
}
